#include "guards/source.h"

#include <structmember.h>
#include <bit>

#include "guards/iterators.h"
#include "guards/object_layout.h"

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
    if (hash == -1) PyErr_Clear();
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
  if (!value) PyErr_Clear();
  return value;
}

// functools.partial and collections.deque, from their C modules.
PyTypeObject* module_type(const char* module, const char* name) {
  Ref imported = Ref::steal(PyImport_ImportModule(module));
  Ref type = imported ? Ref::steal(PyObject_GetAttrString(imported.get(), name))
                      : nullptr;
  if (!type || !PyType_Check(type.get())) {
    PyErr_Clear();
    return nullptr;
  }
  // The module keeps it alive; so do we.
  return reinterpret_cast<PyTypeObject*>(type.release());
}

PyTypeObject* deque_type() {
  static PyTypeObject* type = module_type("_collections", "deque");
  return type;
}

}  // namespace

PyTypeObject* partial_type() {
  static PyTypeObject* type = module_type("_functools", "partial");
  return type;
}

PyObject* no_context_value() {
  static PyObject* marker =
      PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
  return marker;
}

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

// A member descriptor of the class that reads an object at this byte offset:
// the slot is only trusted while the class still has it.
Ref slot_member(PyObject* object, PyObject* name, int64_t offset) {
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

Ref c_attribute(PyObject* object, PyObject* name) {
  PyObject* descriptor = _PyType_Lookup(Py_TYPE(object), name);
  if (!descriptor || !(Py_IS_TYPE(descriptor, &PyGetSetDescr_Type) ||
                       Py_IS_TYPE(descriptor, &PyMemberDescr_Type)))
    return nullptr;
  Ref keep = Ref::borrow(descriptor);
  Ref value = Ref::steal(
      Py_TYPE(descriptor)
          ->tp_descr_get(descriptor, object,
                         reinterpret_cast<PyObject*>(Py_TYPE(object))));
  if (!value) PyErr_Clear();
  return value;
}

Ref key_at(PyObject* dict, int64_t index) {
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
    PyErr_Clear();
    return key;
  }
  Py_ssize_t position = 0;
  PyObject* key;
  for (int64_t i = 0; PyDict_Next(dict, &position, &key, nullptr); ++i) {
    if (i == index) return Ref::borrow(key);
  }
  return nullptr;
}

Ref function_part(const Source* source, PyObject* base) {
  if (!PyFunction_Check(base)) return nullptr;
  auto* function = reinterpret_cast<PyFunctionObject*>(base);
  switch (source->kind) {
    case SourceKind::kGlobals:
      return Ref::borrow(function->func_globals);
    case SourceKind::kBuiltins:
      return Ref::borrow(function->func_builtins);
    case SourceKind::kClosureCell:
      return item(function->func_closure, source->index);
    case SourceKind::kDefault:
      return item(function->func_defaults, source->index);
    case SourceKind::kKwDefault:
      return dict_item(function->func_kwdefaults, source->key.get());
    default:
      return Ref::borrow(function->func_code);
  }
}

Ref deque_item(PyObject* base, int64_t index) {
  PyTypeObject* type = deque_type();
  if (!type || index < 0 || !PyObject_TypeCheck(base, type)) return nullptr;
  Ref value = Ref::steal(type->tp_as_sequence->sq_item(base, index));
  if (!value) PyErr_Clear();
  return value;
}

Ref property_part(PyObject* base, int64_t index) {
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

}  // namespace

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
  nodes_.push_back(Source{kind, base, Ref::borrow(key), index, id});
  index_.emplace(hash, id);
  return &nodes_.back();
}

Ref evaluate_step(const Source* source, PyObject* base) {
  switch (source->kind) {
    case SourceKind::kGlobals:
    case SourceKind::kBuiltins:
    case SourceKind::kClosureCell:
    case SourceKind::kDefault:
    case SourceKind::kKwDefault:
    case SourceKind::kFunctionCode:
      return function_part(source, base);
    case SourceKind::kCellContents:
      return PyCell_Check(base) ? Ref::borrow(PyCell_GET(base)) : nullptr;
    case SourceKind::kInstanceDict: {
      InstanceStorage storage = instance_storage(base);
      if (storage.dict) return Ref::borrow(storage.dict);
      if (Py_TYPE(base)->tp_dictoffset == 0) return nullptr;
      Ref dict = Ref::steal(PyObject_GenericGetDict(base, nullptr));
      if (!dict) PyErr_Clear();
      return dict;
    }
    case SourceKind::kInstanceAttr: {
      PyObject* value;
      if (instance_find(base, source->key.get(), &value) != Lookup::kFound)
        return nullptr;
      return Ref::borrow(value);
    }
    case SourceKind::kSlotMember:
      return slot_member(base, source->key.get(), source->index);
    case SourceKind::kTypeOf:
      return Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(base)));
    case SourceKind::kTypeAttr:
      if (!PyType_Check(base)) return nullptr;
      return Ref::borrow(_PyType_Lookup(reinterpret_cast<PyTypeObject*>(base),
                                        source->key.get()));
    case SourceKind::kDictItem:
      return dict_item(base, source->key.get());
    case SourceKind::kDictKeyAt:
      return key_at(base, source->index);
    case SourceKind::kListItem:
      if (!PyList_Check(base) || source->index < 0 ||
          source->index >= PyList_GET_SIZE(base))
        return nullptr;
      return Ref::borrow(PyList_GET_ITEM(base, source->index));
    case SourceKind::kTupleItem:
      return item(base, source->index);
    case SourceKind::kDequeItem:
      return deque_item(base, source->index);
    case SourceKind::kMethodSelf:
      if (PyCFunction_CheckExact(base)) {
        return Ref::borrow(PyCFunction_GET_SELF(base));
      }
      return PyMethod_Check(base) ? Ref::borrow(PyMethod_GET_SELF(base))
                                  : nullptr;
    case SourceKind::kMethodFunc:
      return PyMethod_Check(base) ? Ref::borrow(PyMethod_GET_FUNCTION(base))
                                  : nullptr;
    case SourceKind::kWeakReferent: {
      if (!PyWeakref_Check(base)) return nullptr;
#if PY_VERSION_HEX >= 0x030D0000
      PyObject* referent = nullptr;
      if (PyWeakref_GetRef(base, &referent) < 0) PyErr_Clear();
      return Ref::steal(referent);
#else
      PyObject* referent = PyWeakref_GET_OBJECT(base);
      return referent == Py_None ? nullptr : Ref::borrow(referent);
#endif
    }
    case SourceKind::kPartialPart: {
      static const char* const kNames[] = {"func", "args", "keywords"};
      PyTypeObject* type = partial_type();
      if (!type || source->index < 0 || source->index > 2) return nullptr;
      return read_member(type, kNames[source->index], base);
    }
    case SourceKind::kPropertyFunc:
      return property_part(base, source->index);
    case SourceKind::kGetSet:
      return c_attribute(base, source->key.get());
    case SourceKind::kContextValue: {
      PyObject* value = nullptr;
      if (!PyContextVar_CheckExact(base)) return nullptr;
      if (PyContextVar_Get(base, nullptr, &value) < 0) PyErr_Clear();
      return value ? Ref::steal(value) : Ref::borrow(no_context_value());
    }
    case SourceKind::kIterPart:
      return Ref::borrow(iterator_part(base, source->index));
    case SourceKind::kIterItem:
      return Ref::borrow(
          iterator_item(base, source->index / 2, source->index % 2));
    case SourceKind::kTensorGrad: {
      const TensorLayout* layout = tensor_layout();
      if (!layout || !layout->gradient || !layout->is_tensor(base))
        return nullptr;
      Ref value = Ref::steal(layout->gradient(base));
      if (!value) PyErr_Clear();
      return value;
    }
    default:
      return nullptr;
  }
}

Ref evaluate_source(const Source* source, PyObject* const* args,
                    PyObject* function) {
  switch (source->kind) {
    case SourceKind::kArg:
      return Ref::borrow(args[source->index]);
    case SourceKind::kFunction:
      return Ref::borrow(function);
    case SourceKind::kConst:
      return source->key;
    default:
      break;
  }
  if (!source->base) return nullptr;
  Ref base = evaluate_source(source->base, args, function);
  return base ? evaluate_step(source, base.get()) : nullptr;
}

bool is_int_source(SourceKind kind) {
  return kind == SourceKind::kTensorSize || kind == SourceKind::kTensorStride ||
         kind == SourceKind::kTensorOffset || kind == SourceKind::kIntValue ||
         kind == SourceKind::kIterNumber || kind == SourceKind::kFloatBits;
}

bool evaluate_int_step(const Source* source, PyObject* base, int64_t* out) {
  switch (source->kind) {
    case SourceKind::kIntValue: {
      if (!PyLong_Check(base)) return false;
      int overflow = 0;
      *out = PyLong_AsLongLongAndOverflow(base, &overflow);
      return !overflow;
    }
    case SourceKind::kIterNumber:
      return iterator_number(base, source->index, out);
    case SourceKind::kFloatBits:
      if (!PyFloat_Check(base)) return false;
      *out = std::bit_cast<int64_t>(PyFloat_AS_DOUBLE(base));
      return true;
    case SourceKind::kTensorSize:
    case SourceKind::kTensorStride:
    case SourceKind::kTensorOffset: {
      TensorFields fields = tensor_fields(base);
      if (!fields.valid) return false;
      if (source->kind == SourceKind::kTensorOffset) {
        *out = fields.storage_offset;
        return true;
      }
      if (source->index < 0 || source->index >= fields.dim) return false;
      *out = source->kind == SourceKind::kTensorSize
                 ? fields.sizes[source->index]
                 : fields.strides[source->index];
      return true;
    }
    default:
      return false;
  }
}

bool evaluate_source_int(const Source* source, PyObject* const* args,
                         PyObject* function, int64_t* out) {
  if (!source->base) return false;
  Ref base = evaluate_source(source->base, args, function);
  return base && evaluate_int_step(source, base.get(), out);
}

}  // namespace framejit
