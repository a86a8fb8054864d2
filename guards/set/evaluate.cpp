#include "guards/set/evaluate.h"
#include "frame_hook/cpython_internals.h"
#include "guards/known_objects.h"

#include <cstring>

#include "frame_hook/collector.h"
#include "frame_hook/interjections.h"
#include "frame_hook/native_stack.h"
#include "guards/set/iterators.h"
#include "guards/set/let_go.h"
#include "guards/set/object_layout.h"
#include "guards/set/set_table.h"
#include "guards/set/storage_memory.h"
#include "guards/set/weak_objects.h"
#include "guards/set/wrapped_functions.h"

namespace framejit {
namespace {

bool same_bits(double a, double b) { return std::memcmp(&a, &b, 8) == 0; }

bool parts_equal(PyObject* a, PyObject* b) {  // slice and range
  for (const char* name : {"start", "stop", "step"}) {
    Ref x = Ref::steal(PyObject_GetAttrString(a, name));
    Ref y = Ref::steal(PyObject_GetAttrString(b, name));
    if (!x || !y) {
      drop_error();
      return false;
    }
    if (!constant_equal(x.get(), y.get())) return false;
  }
  return true;
}

// A set's elements in iteration order.
bool elements_are(PyObject* set, PyObject* expected) {
  if (PySet_GET_SIZE(set) != PyTuple_GET_SIZE(expected)) return false;
  Ref elements = Ref::steal(PySequence_Tuple(set));
  if (!elements) {
    drop_error();
    return false;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(expected); ++i) {
    PyObject* element = PyTuple_GET_ITEM(elements.get(), i);
    PyObject* wanted = PyTuple_GET_ITEM(expected, i);
    if (element != wanted && !constant_equal(element, wanted)) return false;
  }
  return true;
}

bool has_plain_keys(PyObject* dict) {
  Py_ssize_t position = 0;
  PyObject* key;
  while (PyDict_Next(dict, &position, &key, nullptr)) {
    if (!PyUnicode_CheckExact(key) && !PyLong_CheckExact(key)) return false;
  }
  return true;
}

// The dict's keys in iteration order.
bool keys_are(PyObject* dict, PyObject* expected) {
  if (PyAnySet_CheckExact(dict)) return elements_are(dict, expected);
  if (!PyDict_Check(dict) ||
      PyDict_GET_SIZE(dict) != PyTuple_GET_SIZE(expected))
    return false;
  auto equal = [](PyObject* a, PyObject* b) {
    return a == b || constant_equal(a, b);
  };
  if (PyODict_Check(dict)) {
    // Following its own order looks keys up, which runs no code of the program
    // when all of them are of C types: str, or the int handles of hooks.
    if (!has_plain_keys(dict)) return false;
    Ref iterator = Ref::steal(PyODict_Type.tp_iter(dict));
    bool same = static_cast<bool>(iterator);
    for (Py_ssize_t i = 0; same && i < PyTuple_GET_SIZE(expected); ++i) {
      Ref key =
          Ref::steal(Py_TYPE(iterator.get())->tp_iternext(iterator.get()));
      same = key && equal(key.get(), PyTuple_GET_ITEM(expected, i));
    }
    drop_error();
    return same;
  }
  Py_ssize_t position = 0;
  PyObject* key;
  for (Py_ssize_t i = 0; PyDict_Next(dict, &position, &key, nullptr); ++i) {
    if (i >= PyTuple_GET_SIZE(expected) ||
        !equal(key, PyTuple_GET_ITEM(expected, i)))
      return false;
  }
  return true;
}

bool mro_is(PyObject* type, PyObject* expected) {
  if (!PyType_Check(type)) return false;
  Ref now = mro_addresses(reinterpret_cast<PyTypeObject*>(type));
  return now && constant_equal(now.get(), expected);
}

bool storage_matches(const GuardSet::StorageGroup& group,
                     SourceValues& sources) {
  size_t count = group.tensors.size();
  std::vector<const void*> storages(count);
  for (size_t i = 0; i < count; ++i) {
    PyObject* tensor = sources.get(group.tensors[i]);
    if (!tensor) return false;
    TensorFields fields = tensor_fields(tensor);
    if (!fields.valid) return false;
    storages[i] = fields.storage;
  }
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = i + 1; j < count; ++j) {
      if ((storages[i] == storages[j]) != (group.groups[i] == group.groups[j]))
        return false;
    }
  }
  return storages_lie_apart(std::move(storages));
}

bool expression_value(const Expr& expr, const SymbolValues& symbols,
                      int64_t* out) {
  if (expr.is_const()) {
    *out = expr.constant();
    return true;
  }
  std::vector<int> used;
  expr.collect_symbols(&used);
  for (int index : used) {
    if (!symbols.available[index]) return false;
  }
  return expr.try_evaluate(symbols.values.data(), out);
}

bool numbers_match(const std::vector<Expr>& expected, const int64_t* actual,
                   const SymbolValues& symbols) {
  for (size_t i = 0; i < expected.size(); ++i) {
    int64_t value;
    if (!expression_value(expected[i], symbols, &value) || value != actual[i])
      return false;
  }
  return true;
}

}  // namespace

bool constant_equal(PyObject* a, PyObject* b) {
  if (Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyFloat_CheckExact(a))
    return same_bits(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
  if (a == b) return true;
  if (PyLong_CheckExact(a) || PyUnicode_CheckExact(a) ||
      PyBytes_CheckExact(a)) {
    int equal = PyObject_RichCompareBool(a, b, Py_EQ);
    if (equal < 0) drop_error();
    return equal == 1;
  }
  if (PyComplex_CheckExact(a)) {
    Py_complex x = PyComplex_AsCComplex(a), y = PyComplex_AsCComplex(b);
    return same_bits(x.real, y.real) && same_bits(x.imag, y.imag);
  }
  bool is_tuple = PyTuple_CheckExact(a);
  if (is_tuple || PyFrozenSet_CheckExact(a) || PySlice_Check(a)) {
    if (native_stack_low()) return false;
    bool equal = true;
    if (!is_tuple) {
      equal = PySlice_Check(a) ? parts_equal(a, b)
                               : same_set_table(a, b, constant_equal);
    } else if (PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b)) {
      equal = false;
    } else {
      for (Py_ssize_t i = 0; equal && i < PyTuple_GET_SIZE(a); ++i)
        equal = constant_equal(PyTuple_GET_ITEM(a, i), PyTuple_GET_ITEM(b, i));
    }
    return equal;
  }
  if (PyRange_Check(a)) return parts_equal(a, b);
  if (is_foreign_constant(a) && is_foreign_constant(b)) {
    // A library's own kind of float.
    if (PyFloat_Check(a) && PyFloat_Check(b)) {
      return same_bits(PyFloat_AS_DOUBLE(a), PyFloat_AS_DOUBLE(b));
    }
    int equal = PyObject_RichCompareBool(a, b, Py_EQ);
    if (equal < 0) drop_error();
    return equal == 1;
  }
  return false;
}

Ref mro_addresses(PyTypeObject* type) {
  PyObject* mro = type->tp_mro;
  Ref result = Ref::steal(PyTuple_New(mro ? PyTuple_GET_SIZE(mro) : 0));
  for (Py_ssize_t i = 0; result && i < PyTuple_GET_SIZE(result.get()); ++i) {
    PyObject* address = PyLong_FromVoidPtr(PyTuple_GET_ITEM(mro, i));
    if (!address) result.reset();
    if (address) PyTuple_SET_ITEM(result.get(), i, address);
  }
  if (!result) drop_error();
  return result;
}

bool is_mro_guard(const Guard& guard) {
  return guard.kind == GuardKind::kTypeAttrIs && !guard.number &&
         guard.object2 && PyTuple_CheckExact(guard.object2.get()) &&
         PyUnicode_CompareWithASCIIString(guard.object.get(), "__mro__") == 0;
}

PyObject* abc_registry() {
  static PyGetSetDef getset[] = {
      {"token",
       [](PyObject*, void*) -> PyObject* {
         // A C function without arguments: never Python code.
         static PyObject* get_token = made_once([] {
           Ref module = Ref::steal(PyImport_ImportModule("_abc"));
           return module
                      ? PyObject_GetAttrString(module.get(), "get_cache_token")
                      : nullptr;
         });
         return get_token ? PyObject_CallNoArgs(get_token) : nullptr;
       },
       nullptr, nullptr, nullptr},
      {nullptr, nullptr, nullptr, nullptr, nullptr}};
  static PyObject* registry = made_once([&]() -> PyObject* {
    PyType_Slot slots[] = {{Py_tp_getset, getset}, {0, nullptr}};
    PyType_Spec spec = {"framejit.AbstractClasses", sizeof(PyObject), 0,
                        Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE, slots};
    Ref type = Ref::steal(PyType_FromSpec(&spec));
    PyObject* object = type ? PyObject_CallNoArgs(type.get()) : nullptr;
    drop_error();
    return object;
  });
  return registry;
}

Py_ssize_t container_length(PyObject* object) {
  if (PyList_Check(object)) return PyList_GET_SIZE(object);
  if (PyTuple_Check(object)) return PyTuple_GET_SIZE(object);
  if (PyDict_Check(object)) return PyDict_GET_SIZE(object);
  if (PyAnySet_Check(object)) return PySet_GET_SIZE(object);
  if (PyUnicode_Check(object)) return PyUnicode_GET_LENGTH(object);
  if (PyBytes_Check(object)) return PyBytes_GET_SIZE(object);
  // Also of a derived class, which may have a __len__ of its own.
  PyTypeObject* deque = kDeque.get();
  if (deque && PyObject_TypeCheck(object, deque)) {
    Py_ssize_t length = deque->tp_as_sequence->sq_length(object);
    if (length < 0) drop_error();
    return length;
  }
  return -1;
}

bool is_temporary(const Source* source) {
  for (; source; source = source->base) {
    if (source->kind == SourceKind::kGetSet) return true;
  }
  return false;
}

// ---- values

SourceValues::SourceValues(const GuardSet& set, PyObject* const* args,
                           PyObject* function)
    : set_(set),
      args_(args),
      function_(function),
      values_(set.sources().size()),
      known_(set.sources().size()) {}

PyObject* SourceValues::get(const Source* source) {
  if (known_[source->id]) return values_[source->id].get();
  // Upwards to what is known, and down again: paths are long, stacks small.
  std::vector<const Source*> steps;
  for (const Source* at = source; at && !known_[at->id]; at = at->base)
    steps.push_back(at);
  for (; !steps.empty(); steps.pop_back()) {
    const Source* step = steps.back();
    Ref value;
    if (!step->base) {
      value = evaluate_source(step, args_, function_);
    } else if (PyObject* base = values_[step->base->id].get()) {
      value = evaluate_step(step, base);
    }
    known_[step->id] = 1;
    values_[step->id] = std::move(value);
  }
  return values_[source->id].get();
}

bool SourceValues::get_int(const Source* source, int64_t* out) {
  PyObject* base = source->base ? get(source->base) : nullptr;
  return base && evaluate_int_step(source, base, out);
}

SymbolValues read_symbols(const GuardSet& set, SourceValues& sources) {
  SymbolValues symbols;
  for (const Symbol& symbol : set.symbols()) {
    int64_t value = 0;
    symbols.available.push_back(sources.get_int(symbol.source, &value));
    symbols.values.push_back(value);
  }
  return symbols;
}

// ---- single guards

bool tensor_matches(const TensorSpec& spec, PyObject* value,
                    const SymbolValues& symbols) {
  if (spec.type && Py_TYPE(value) != spec.type) return false;
  TensorFields fields = tensor_fields(value);
  if (!fields.valid || fields.key_set != spec.key_set ||
      fields.dtype != spec.dtype || fields.device_type != spec.device_type ||
      fields.device_index != spec.device_index ||
      fields.requires_grad != spec.requires_grad || fields.has_forward_grad ||
      fields.dim != static_cast<int64_t>(spec.sizes.size()))
    return false;
  if (!numbers_match(spec.sizes, fields.sizes, symbols)) return false;
  if (spec.check_strides &&
      !numbers_match(spec.strides, fields.strides, symbols))
    return false;
  if (!spec.check_offset) return true;
  int64_t offset;
  return expression_value(spec.storage_offset, symbols, &offset) &&
         offset == fields.storage_offset;
}

namespace {

// One guard and what it is asked about; of kinds about one object only `guard`
// and `value` are set.
struct GuardCase {
  const Guard& guard;
  PyObject* value = nullptr;
  const GuardSet* set = nullptr;
  SourceValues* sources = nullptr;
  const SymbolValues* symbols = nullptr;

  PyObject* object() const { return guard.object.get(); }
};

bool has_type(const GuardCase& at) {
  return reinterpret_cast<PyObject*>(Py_TYPE(at.value)) == at.object();
}

bool is_object(const GuardCase& at) { return at.value == at.object(); }

bool equals(const GuardCase& at) {
  return constant_equal(at.value, at.object());
}

bool has_key(const GuardCase& at) {
  PyObject* found;
  return PyDict_Check(at.value) &&
         dict_find(at.value, at.object(), &found) == Lookup::kFound;
}

bool has_no_key(const GuardCase& at) {
  PyObject* found;
  return PyDict_Check(at.value) &&
         dict_find(at.value, at.object(), &found) == Lookup::kAbsent;
}

bool has_no_attribute(const GuardCase& at) {
  PyObject* found;
  return instance_find(at.value, at.object(), &found) == Lookup::kAbsent;
}

bool has_keys(const GuardCase& at) { return keys_are(at.value, at.object()); }

bool has_places(const GuardCase& at) {
  return PyAnySet_Check(at.value) && has_set_places(at.value, at.object());
}

bool has_length(const GuardCase& at) {
  return container_length(at.value) == at.guard.number;
}

bool has_class_attribute(const GuardCase& at) {
  if (is_mro_guard(at.guard)) return mro_is(at.value, at.guard.object2.get());
  if (!PyType_Check(at.value)) return false;
  PyObject* found =
      _PyType_Lookup(reinterpret_cast<PyTypeObject*>(at.value), at.object());
  if (found != at.guard.object2.get()) return false;
  // Of a wrapper the address is not enough (WeakObjects).
  return !at.guard.number || WrappedFunctions(found).print() == at.guard.number;
}

bool owns_attribute(const GuardCase& at) {
  if (!PyType_Check(at.value)) return false;
  Ref dict = internals::own_dict(reinterpret_cast<PyTypeObject*>(at.value));
  PyObject* own =
      dict ? PyDict_GetItemWithError(dict.get(), at.object()) : nullptr;
  drop_error();
  return (own != nullptr) == (at.guard.number != 0);
}

bool is_same(const GuardCase& at) {
  PyObject* other = at.sources->get(at.guard.other);
  return other && at.value == other;
}

bool is_distinct(const GuardCase& at) {
  PyObject* other = at.sources->get(at.guard.other);
  return other && at.value != other;
}

bool exists(const GuardCase&) { return true; }

bool tensor_holds(const GuardCase& at) {
  return tensor_matches(at.set->tensor_specs()[at.guard.number], at.value,
                        *at.symbols);
}

bool has_no_tensor_attributes(const GuardCase& at) {
  return has_no_instance_attrs(at.value);
}

bool storages_match(const GuardCase& at) {
  return storage_matches(at.set->storage_groups()[at.guard.number],
                         *at.sources);
}

bool expression_is_true(const GuardCase& at) {
  int64_t value;
  return expression_value(at.guard.expr, *at.symbols, &value) && value != 0;
}

bool thread_state_is_same(const GuardCase& at) {
  const TensorLayout* layout = tensor_layout();
  return layout && layout->same_thread_state(at.set->thread_state());
}

bool has_left(const GuardCase& at) {
  return iterator_left(at.value) == at.guard.number;
}

bool is_ascii_text(const GuardCase& at) {
  return PyUnicode_CheckExact(at.value) && PyUnicode_IS_ASCII(at.value);
}

bool is_c_method(const GuardCase& at) {
  return PyCFunction_CheckExact(at.value) &&
         reinterpret_cast<int64_t>(
             reinterpret_cast<PyCFunctionObject*>(at.value)->m_ml) ==
             at.guard.number;
}

bool goes_quietly(const GuardCase& at) {
  return lets_go_quietly(LetGo(at.guard.number), at.value, at.object());
}

bool is_true(const GuardCase& at) {
  static constexpr bool (*kHolds[])(const GuardCase&) = {
#define FJ_GUARD(name, scope, rank, rereads, text, holds, ...) holds,
#include "guards/set/guard_kinds.def"
#undef FJ_GUARD
  };
  return kHolds[size_t(at.guard.kind)](at);
}

}  // namespace

bool holds_for(const Guard& guard, PyObject* value) {
  return guard_kind_row(guard.kind).scope == GuardScope::kObject &&
         is_true({guard, value});
}

bool holds(const GuardSet& set, const Guard& guard, SourceValues& sources,
           const SymbolValues& symbols) {
  GuardCase at{guard, nullptr, &set, &sources, &symbols};
  if (guard_kind_row(guard.kind).scope == GuardScope::kSet) return is_true(at);
  if (is_int_source(guard.source->kind)) {
    int64_t value;
    return guard.kind == GuardKind::kExists &&
           sources.get_int(guard.source, &value);
  }
  at.value = sources.get(guard.source);
  return at.value && is_true(at);
}

namespace {

// Whether an object goes with what holds it depends on who else does: nobody
// here may.
bool counts_holders(const Guard& guard) {
  return guard.kind == GuardKind::kLetsGoQuietly;
}

bool evaluate_sharing(const GuardSet& set, PyObject* const* args,
                      PyObject* function, PyObject** objects, int64_t* symbols,
                      size_t* failed) {
  SourceValues sources(set, args, function);
  SymbolValues values = read_symbols(set, sources);
  const std::vector<Guard>& guards = set.guards();
  for (size_t i = 0; i < guards.size(); ++i) {
    if (counts_holders(guards[i])) continue;
    if (holds(set, guards[i], sources, values)) continue;
    if (failed) *failed = i;
    return false;
  }
  if (failed) *failed = guards.size();
  for (size_t i = 0; i < values.values.size(); ++i) {
    if (!values.available[i]) return false;
    symbols[i] = values.values[i];
  }
  for (size_t i = 0; i < set.gathered().size(); ++i) {
    const Source* source = set.gathered()[i];
    objects[i] = sources.get(source);
    // The caller gets borrowed references: something else must own it.
    if (!objects[i] || (is_temporary(source) && Py_REFCNT(objects[i]) == 1))
      return false;
  }
  return true;
}

}  // namespace

bool evaluate(const GuardSet& set, PyObject* const* args, PyObject* function,
              PyObject** objects, int64_t* symbols, size_t* failed) {
  ErrorGuard keep_error;
  CollectorOff off;
  if (!evaluate_sharing(set, args, function, objects, symbols, failed))
    return false;
  const std::vector<Guard>& guards = set.guards();
  for (size_t i = 0; i < guards.size(); ++i) {
    if (!counts_holders(guards[i])) continue;
    Ref value = evaluate_source(guards[i].source, args, function);
    if (value && holds_for(guards[i], value.get())) continue;
    if (failed) *failed = i;
    return false;
  }
  return true;
}

}  // namespace framejit
