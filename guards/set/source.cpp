#include "guards/set/source.h"
#include "guards/known_objects.h"

#include <structmember.h>
#include <bit>

#include "frame_hook/cpython_internals.h"
#include "frame_hook/interjections.h"
#include "frame_hook/native_stack.h"
#include "guards/set/evaluate.h"
#include "guards/set/iterators.h"
#include "guards/set/number_expr.h"
#include "guards/set/object_layout.h"

namespace framejit {
namespace {

bool keys_equal(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (!a || !b || Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyUnicode_CheckExact(a)) return PyUnicode_Compare(a, b) == 0;
  if (PyLong_CheckExact(a)) return PyObject_RichCompareBool(a, b, Py_EQ) == 1;
  return false;
}

size_t key_hash(PyObject* key) {
  if (!key) return 0;
  if (PyUnicode_CheckExact(key) || PyLong_CheckExact(key)) {
    Py_hash_t hash = PyObject_Hash(key);
    if (hash == -1) drop_error();
    return static_cast<size_t>(hash);
  }
  return reinterpret_cast<uintptr_t>(key) >> 4;
}

// A C member of `type` (partial.func, property.fget), read from an instance.
Ref read_member(PyTypeObject* type, const char* name, PyObject* object) {
  if (!PyObject_TypeCheck(object, type)) return nullptr;
  Ref key = Ref::steal(PyUnicode_InternFromString(name));
  PyObject* member = key ? _PyType_Lookup(type, key.get()) : nullptr;
  Ref value;
  if (member && Py_IS_TYPE(member, &PyMemberDescr_Type)) {
    Ref keep = Ref::borrow(member);
    value = Ref::steal(Py_TYPE(member)->tp_descr_get(
        member, object, reinterpret_cast<PyObject*>(Py_TYPE(object))));
  }
  if (!value) drop_error();
  return value;
}

}  // namespace

PyObject* no_context_value() {
  static PyObject* marker = made_once(new_marker);
  return marker;
}

const Source* SourceArena::make(SourceKind kind, const Source* base,
                                PyObject* key, int64_t index) {
  size_t hash = static_cast<size_t>(kind) * 0x9E3779B97F4A7C15ull;
  hash = (hash ^ reinterpret_cast<uintptr_t>(base)) * 0xBF58476D1CE4E5B9ull;
  hash = (hash ^ key_hash(key) ^ (hash >> 31)) * 0x94D049BB133111EBull;
  hash ^= static_cast<size_t>(index) + (hash >> 29);
  auto [first, last] = index_.equal_range(hash);
  for (; first != last; ++first) {
    const Source& node = nodes_[first->second];
    if (node.kind == kind && node.base == base && node.index == index &&
        keys_equal(node.key.get(), key))
      return &node;
  }
  uint32_t id = static_cast<uint32_t>(nodes_.size());
  int depth = base ? base->depth + 1 : 0;
  if (depth > kMaxPathDepth) has_long_path_ = true;
  nodes_.push_back(Source{kind, base, Ref::borrow(key), index, id, depth});
  index_.emplace(hash, id);
  return &nodes_.back();
}

// ---- one step of a path, by kind (source_kinds.def): what the value of the
// base has there, or nothing
namespace {

Ref item(PyObject* tuple, int64_t index) {
  if (!tuple || !PyTuple_Check(tuple) || index < 0 ||
      index >= PyTuple_GET_SIZE(tuple))
    return nullptr;
  return Ref::borrow(PyTuple_GET_ITEM(tuple, index));
}

Ref dict_item(PyObject* dict, PyObject* key) {
  PyObject* value;
  if (!dict || !PyDict_Check(dict) ||
      dict_find(dict, key, &value) != Lookup::kFound)
    return nullptr;
  return Ref::borrow(value);
}

const PyFunctionObject* as_function(PyObject* base) {
  return PyFunction_Check(base) ? reinterpret_cast<PyFunctionObject*>(base)
                                : nullptr;
}

Ref globals(const Source*, PyObject* base) {
  auto* function = as_function(base);
  return function ? Ref::borrow(function->func_globals) : nullptr;
}

Ref builtins(const Source*, PyObject* base) {
  auto* function = as_function(base);
  return function ? Ref::borrow(function->func_builtins) : nullptr;
}

Ref closure_cell(const Source* source, PyObject* base) {
  auto* function = as_function(base);
  return function ? item(function->func_closure, source->index) : nullptr;
}

Ref positional_default(const Source* source, PyObject* base) {
  auto* function = as_function(base);
  return function ? item(function->func_defaults, source->index) : nullptr;
}

Ref keyword_default(const Source* source, PyObject* base) {
  auto* function = as_function(base);
  return function ? dict_item(function->func_kwdefaults, source->key.get())
                  : nullptr;
}

Ref function_code(const Source*, PyObject* base) {
  auto* function = as_function(base);
  return function ? Ref::borrow(function->func_code) : nullptr;
}

Ref cell_contents(const Source*, PyObject* base) {
  return PyCell_Check(base) ? Ref::borrow(PyCell_GET(base)) : nullptr;
}

Ref instance_dict(const Source*, PyObject* base) {
  InstanceStorage storage = instance_storage(base);
  if (storage.dict) return Ref::borrow(storage.dict);
  if (Py_TYPE(base)->tp_dictoffset == 0) return nullptr;
  Ref dict = Ref::steal(PyObject_GenericGetDict(base, nullptr));
  if (!dict) drop_error();
  return dict;
}

Ref instance_attribute(const Source* source, PyObject* base) {
  PyObject* value;
  if (instance_find(base, source->key.get(), &value) != Lookup::kFound)
    return nullptr;
  return Ref::borrow(value);
}

// A member descriptor of the class that reads an object at this byte offset:
// the slot is only trusted while the class still has it.
Ref slot_member(const Source* source, PyObject* object) {
  PyObject* name = source->key.get();
  int64_t offset = source->index;
  PyObject* descriptor = _PyType_Lookup(Py_TYPE(object), name);
  if (!descriptor || !Py_IS_TYPE(descriptor, &PyMemberDescr_Type))
    return nullptr;
  auto* member = reinterpret_cast<PyMemberDescrObject*>(descriptor);
  if (member->d_member->offset != offset ||
      member->d_member->type != T_OBJECT_EX ||
      !PyObject_TypeCheck(object, member->d_common.d_type))
    return nullptr;
  return Ref::borrow(
      *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object) + offset));
}

Ref type_of(const Source*, PyObject* base) {
  return Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(base)));
}

Ref type_attribute(const Source* source, PyObject* base) {
  if (!PyType_Check(base)) return nullptr;
  return Ref::borrow(
      _PyType_Lookup(reinterpret_cast<PyTypeObject*>(base), source->key.get()));
}

Ref dict_value(const Source* source, PyObject* base) {
  return dict_item(base, source->key.get());
}

Ref dict_key_at(const Source* source, PyObject* dict) {
  int64_t index = source->index;
  if (!PyDict_Check(dict) || index < 0 || index >= PyDict_GET_SIZE(dict))
    return nullptr;
  if (PyODict_Check(dict)) {
    // Its order is a list of its own, which PyDict_Next does not follow.
    Ref iterator = Ref::steal(PyODict_Type.tp_iter(dict));
    Ref key;
    for (int64_t i = 0; iterator && i <= index; ++i) {
      key = Ref::steal(Py_TYPE(iterator.get())->tp_iternext(iterator.get()));
      if (!key) break;
    }
    drop_error();
    return key;
  }
  Py_ssize_t position = 0;
  PyObject* key;
  for (int64_t i = 0; PyDict_Next(dict, &position, &key, nullptr); ++i) {
    if (i == index) return Ref::borrow(key);
  }
  return nullptr;
}

Ref list_item(const Source* source, PyObject* base) {
  if (!PyList_Check(base) || source->index < 0 ||
      source->index >= PyList_GET_SIZE(base))
    return nullptr;
  return Ref::borrow(PyList_GET_ITEM(base, source->index));
}

Ref tuple_item(const Source* source, PyObject* base) {
  return item(base, source->index);
}

Ref deque_item(const Source* source, PyObject* base) {
  int64_t index = source->index;
  PyTypeObject* type = kDeque.get();
  if (!type || index < 0 || !PyObject_TypeCheck(base, type)) return nullptr;
  Ref value = Ref::steal(type->tp_as_sequence->sq_item(base, index));
  if (!value) drop_error();
  return value;
}

Ref method_self(const Source*, PyObject* base) {
  if (PyCFunction_CheckExact(base)) {
    return Ref::borrow(PyCFunction_GET_SELF(base));
  }
  return PyMethod_Check(base) ? Ref::borrow(PyMethod_GET_SELF(base)) : nullptr;
}

Ref method_function(const Source*, PyObject* base) {
  return PyMethod_Check(base) ? Ref::borrow(PyMethod_GET_FUNCTION(base))
                              : nullptr;
}

Ref weak_referent(const Source*, PyObject* base) {
  if (!PyWeakref_Check(base)) return nullptr;
  return internals::weak_referent(base);
}

Ref partial_part(const Source* source, PyObject* base) {
  static const char* const kNames[] = {"func", "args", "keywords"};
  PyTypeObject* type = kPartial.get();
  if (!type || source->index < 0 || source->index > 2) return nullptr;
  return read_member(type, kNames[source->index], base);
}

Ref property_part(const Source* source, PyObject* base) {
  int64_t index = source->index;
  if (PyObject_TypeCheck(base, &PyProperty_Type)) {
    static const char* const kNames[] = {"fget", "fset", "fdel"};
    if (index < 0 || index > 2) return nullptr;
    return read_member(&PyProperty_Type, kNames[index], base);
  }
  if (index != 0) return nullptr;
  if (PyObject_TypeCheck(base, &PyStaticMethod_Type))
    return read_member(&PyStaticMethod_Type, "__func__", base);
  return read_member(&PyClassMethod_Type, "__func__", base);
}

Ref c_attribute(const Source* source, PyObject* object) {
  PyObject* name = source->key.get();
  PyObject* descriptor = _PyType_Lookup(Py_TYPE(object), name);
  if (!descriptor || !(Py_IS_TYPE(descriptor, &PyGetSetDescr_Type) ||
                       Py_IS_TYPE(descriptor, &PyMemberDescr_Type)))
    return nullptr;
  Ref keep = Ref::borrow(descriptor);
  Ref value = Ref::steal(
      Py_TYPE(descriptor)
          ->tp_descr_get(descriptor, object,
                         reinterpret_cast<PyObject*>(Py_TYPE(object))));
  if (!value) drop_error();
  return value;
}

Ref tensor_gradient(const Source*, PyObject* base) {
  const TensorLayout* layout = tensor_layout();
  if (!layout || !layout->gradient || !layout->is_tensor(base)) return nullptr;
  Ref value = Ref::steal(layout->gradient(base));
  if (!value) drop_error();
  return value;
}

Ref context_value(const Source*, PyObject* base) {
  PyObject* value = nullptr;
  if (!PyContextVar_CheckExact(base)) return nullptr;
  if (PyContextVar_Get(base, nullptr, &value) < 0) drop_error();
  return value ? Ref::steal(value) : Ref::borrow(no_context_value());
}

Ref iterator_part_at(const Source* source, PyObject* base) {
  return Ref::borrow(iterator_part(base, source->index));
}

Ref iterator_item_at(const Source* source, PyObject* base) {
  return Ref::borrow(iterator_item(base, source->index / 2, source->index % 2));
}

// No symbol is beyond the limit: an operator on one then stays in 64 bits.
bool int_value(const Source*, PyObject* base, int64_t* out) {
  if (!PyLong_Check(base)) return false;
  int overflow = 0;
  *out = PyLong_AsLongLongAndOverflow(base, &overflow);
  return !overflow && *out <= kLargestInteger && *out >= -kLargestInteger;
}

bool length(const Source*, PyObject* base, int64_t* out) {
  *out = container_length(base);
  return *out >= 0;
}

bool float_bits(const Source*, PyObject* base, int64_t* out) {
  if (!PyFloat_Check(base)) return false;
  *out = std::bit_cast<int64_t>(PyFloat_AS_DOUBLE(base));
  return true;
}

bool iterator_number_at(const Source* source, PyObject* base, int64_t* out) {
  return iterator_number(base, source->index, out);
}

bool tensor_size(const Source* source, PyObject* base, int64_t* out) {
  TensorFields fields = tensor_fields(base);
  bool has = fields.valid && source->index >= 0 && source->index < fields.dim;
  if (has) *out = fields.sizes[source->index];
  return has;
}

bool tensor_stride(const Source* source, PyObject* base, int64_t* out) {
  TensorFields fields = tensor_fields(base);
  bool has = fields.valid && source->index >= 0 && source->index < fields.dim;
  if (has) *out = fields.strides[source->index];
  return has;
}

bool tensor_offset(const Source*, PyObject* base, int64_t* out) {
  TensorFields fields = tensor_fields(base);
  if (fields.valid) *out = fields.storage_offset;
  return fields.valid;
}

Ref argument(const Source* source, PyObject* const* args, PyObject*) {
  return Ref::borrow(args[source->index]);
}

Ref function_called(const Source*, PyObject* const*, PyObject* function) {
  return Ref::borrow(function);
}

Ref constant(const Source* source, PyObject* const*, PyObject*) {
  return source->key;
}

// How a kind is read: one of the three.
struct SourceRow {
  Ref (*root)(const Source*, PyObject* const* args, PyObject* function);
  Ref (*step)(const Source*, PyObject* base);
  bool (*number)(const Source*, PyObject* base, int64_t* out);
};
constexpr SourceRow kRows[] = {
#define FJ_ROOT(name, read, ...) {read, nullptr, nullptr},
#define FJ_STEP(name, read, ...) {nullptr, read, nullptr},
#define FJ_NUMBER(name, read, ...) {nullptr, nullptr, read},
#include "guards/set/source_kinds.def"
#undef FJ_ROOT
#undef FJ_STEP
#undef FJ_NUMBER
};

const SourceRow& row_of(SourceKind kind) { return kRows[size_t(kind)]; }

}  // namespace

Ref evaluate_step(const Source* source, PyObject* base) {
  auto* step = row_of(source->kind).step;
  return step ? step(source, base) : nullptr;
}

Ref evaluate_source(const Source* source, PyObject* const* args,
                    PyObject* function) {
  if (auto* root = row_of(source->kind).root)
    return root(source, args, function);
  Ref base = evaluate_source(source->base, args, function);
  return base ? evaluate_step(source, base.get()) : nullptr;
}

bool is_int_source(SourceKind kind) { return row_of(kind).number != nullptr; }

bool evaluate_int_step(const Source* source, PyObject* base, int64_t* out) {
  auto* number = row_of(source->kind).number;
  return number && number(source, base, out);
}

bool evaluate_source_int(const Source* source, PyObject* const* args,
                         PyObject* function, int64_t* out) {
  if (!source->base) return false;
  Ref base = evaluate_source(source->base, args, function);
  return base && evaluate_int_step(source, base.get(), out);
}

}  // namespace framejit
