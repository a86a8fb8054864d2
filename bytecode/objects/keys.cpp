#include "bytecode/objects/keys.h"

#include <algorithm>

#include "bytecode/objects/breaks.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/identity.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/opaque_value.h"
#include "bytecode/objects/overrides.h"
#include "bytecode/objects/unbuildable.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/native_stack.h"
#include "guards/known_objects.h"
#include "guards/set/object_layout.h"
#include "guards/set/storage_memory.h"

namespace framejit::bytecode {

namespace {

constexpr Py_ssize_t kMaxComparedKeys = 256;

bool is_unhashable(PyObject* key) {
  return Py_TYPE(key)->tp_hash == PyObject_HashNotImplemented;
}

// Until its class gets a __hash__.
Status unhashable(CaptureState& state, PyObject* key) {
  if (is_heap_type(Py_TYPE(key)))
    FJ_CHECK_OK(state.type_lookup(Py_TYPE(key), interned("__hash__")));
  PyErr_Format(PyExc_TypeError, "unhashable type: '%.200s'",
               Py_TYPE(key)->tp_name);
  return Status::raised();
}

bool hashed_by_address(CaptureState& state, PyObject* key) {
  if (Py_TYPE(key)->tp_hash != PyBaseObject_Type.tp_hash) return false;
  guard_key_class(state, key);
  return true;
}

Result<bool> hashed_in_python(CaptureState& state, PyObject* key) {
  FJ_TRY(Ref hash, state.python_special(key, "__hash__"));
  if (!hash || !PyFunction_Check(hash.get())) return false;
  FJ_TRY(Ref equal, state.python_special(key, "__eq__"));
  return !equal || PyFunction_Check(equal.get());
}

// A tuple of keys that are each fine without a look at the others.
bool is_plain_tuple(CaptureState& state, PyObject* key) {
  if (native_stack_low()) return false;
  if (!PyTuple_CheckExact(key)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i) {
    PyObject* item = PyTuple_GET_ITEM(key, i);
    const Source* source = state.source_of(item);
    bool pinned = source && source->kind == SourceKind::kConst &&
                  hashed_by_address(state, item);
    if (!pinned && !is_safe_key(state, item) && !is_plain_tuple(state, item)) {
      return false;
    }
  }
  return true;
}

}  // namespace

namespace {

// Nothing but its items, as a named tuple's instance and a torch.Size.
bool is_mere_tuple(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  return PyTuple_Check(object) && !type->tp_dictoffset &&
         type->tp_hash == PyTuple_Type.tp_hash &&
         type->tp_richcompare == PyTuple_Type.tp_richcompare;
}

}  // namespace

Result<Ref> concrete_key(CaptureState& state, PyObject* key) {
  if (is_symbolic(state, key)) return state.tracer.concretise(key);
  if (!is_mere_tuple(key)) return Ref::borrow(key);
  FJ_CHECK_OK(room_for(state, "tuples"));
  std::vector<Ref> items;
  bool changed = false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i) {
    FJ_TRY(Ref item, concrete_key(state, PyTuple_GET_ITEM(key, i)));
    changed |= item.get() != PyTuple_GET_ITEM(key, i);
    items.push_back(std::move(item));
  }
  if (!changed) return Ref::borrow(key);
  Ref made = Ref::steal(PyTuple_New(PyTuple_GET_SIZE(key)));
  if (!made) return Result<Ref>::raised();
  for (size_t i = 0; i < items.size(); ++i)
    PyTuple_SET_ITEM(made.get(), static_cast<Py_ssize_t>(i),
                     items[i].release());
  if (PyTuple_CheckExact(key)) return made;
  // Whatever the class makes of arguments: it has made this one.
  Ref args = Ref::steal(PyTuple_Pack(1, made.get()));
  if (!args) return Result<Ref>::raised();
  return from_api(PyTuple_Type.tp_new(Py_TYPE(key), args.get(), nullptr));
}

void guard_key_class(CaptureState& state, PyObject* key) {
  if (!is_heap_type(Py_TYPE(key))) return;
  guard_metaclass(state, key);
  for (const char* name : {"__hash__", "__eq__"}) {
    Result<Ref> found = state.type_lookup(Py_TYPE(key), interned(name));
    if (found.is_raised()) PyErr_Clear();
  }
}

bool is_safe_key(CaptureState& state, PyObject* key) {
  if (native_stack_low()) return false;
  if (is_builtin_constant(key)) {
    pin_unequal_to_itself(state, key);
    return true;
  }
  if (PyTuple_CheckExact(key)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i) {
      if (!is_safe_key(state, PyTuple_GET_ITEM(key, i))) return false;
    }
    return true;
  }
  ObjectClass kind = state.tracer.classify(key);
  if (kind == ObjectClass::kConstant) return true;
  if (kind != ObjectClass::kPlain) return false;
  PyTypeObject* type = Py_TYPE(key);
  PyObject* hash = raw_lookup(type, "__hash__");
  PyObject* equal = raw_lookup(type, "__eq__");
  bool native = hash && equal && Py_IS_TYPE(hash, &PyWrapperDescr_Type) &&
                Py_IS_TYPE(equal, &PyWrapperDescr_Type);
  // An enum member hashes its name in Python; its identity is guarded.
  bool is_enum =
      is_enum_member(key) && equal && Py_IS_TYPE(equal, &PyWrapperDescr_Type);
  if (!native && !is_enum) return false;
  // C code that asks what these hold, which may be the program's. (And a weak
  // reference made for a look-up is gone after it.)
  if (PyWeakref_Check(key) || PyAnySet_Check(key) || PySlice_Check(key))
    return false;
  // Classes derived from tuple hash what they hold.
  if (PyTuple_Check(key)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i) {
      if (!is_safe_key(state, PyTuple_GET_ITEM(key, i))) return false;
    }
  }
  guard_key_class(state, key);
  // Not an input, or one whose identity is guarded.
  const Source* source = state.source_of(key);
  return !source || source->kind == SourceKind::kConst;
}

bool is_identity_key(CaptureState& state, PyObject* key) {
  if (state.tracer.classify(key) != ObjectClass::kPlain) return false;
  for (const char* name : {"__hash__", "__eq__"}) {
    PyObject* raw = raw_lookup(Py_TYPE(key), name);
    bool of_object = raw && Py_IS_TYPE(raw, &PyWrapperDescr_Type) &&
                     PyDescr_TYPE(raw) == &PyBaseObject_Type;
    if (!of_object) return false;
  }
  guard_key_class(state, key);
  return true;
}

bool is_tensor_key(CaptureState& state, PyObject* key) {
  if (!is_stand_in(state, key)) return false;
  if (!state.tracer.is_subclass(key)) return true;
  PyTypeObject* type = Py_TYPE(key);
  return !state.tracer.is_overloaded(key) &&
         is_library_attribute(type, interned("__hash__")) &&
         is_library_attribute(type, interned("__eq__"));
}

bool note_tensor_key(CaptureState& state, PyObject* key) {
  if (!is_tensor_key(state, key)) return false;
  auto& keys = state.table<TensorKeys>().keys;
  if (std::find(keys.begin(), keys.end(), key) == keys.end())
    keys.push_back(key);
  return true;
}

// One guard for all: the storages are different. Tensors that share theirs, or
// memory, are compared in pairs.
void guard_tensor_keys(CaptureState& state) {
  std::vector<const Source*> sources;
  std::vector<int> groups;
  std::unordered_map<const void*, int> seen;
  std::vector<const void*> storages;
  for (PyObject* key : state.table<TensorKeys>().keys) {
    if (PyObject* real = state.tracer.real_of(key))
      storages.push_back(tensor_fields(real).storage);
  }
  const bool apart = storages_lie_apart(std::move(storages));
  for (PyObject* key : state.table<TensorKeys>().keys) {
    PyObject* real = state.tracer.real_of(key);
    const Source* source = state.tracer.source_of(key);
    if (!real || !source) continue;  // computed: nobody else's object
    auto [at, fresh] = seen.emplace(tensor_fields(real).storage,
                                    static_cast<int>(seen.size()));
    if (!fresh || !apart) {
      for (size_t i = 0; i < groups.size(); ++i) {
        if (apart && groups[i] != at->second) continue;
        Guard distinct{GuardKind::kNotSameObject, source};
        distinct.other = sources[i];
        distinct.span = state.caller.here();
        state.guards.add(std::move(distinct));
      }
    }
    sources.push_back(source);
    groups.push_back(at->second);
  }
  if (apart && sources.size() > 1)
    state.guards.add_storage_relation(std::move(sources), std::move(groups));
}

bool pin_tensor_key(CaptureState& state, PyObject* key) {
  if (!is_tensor_key(state, key)) return false;
  PyObject* real = state.tracer.real_of(key);
  const Source* source = state.tracer.source_of(key);
  if (real && source) state.guard(GuardKind::kIs, source, real);
  return true;
}

Status check_fresh_dict_key(CaptureState& state, PyObject* dict,
                            PyObject* key) {
  if (is_safe_key(state, key) || is_opaque(key, OpaqueKind::kIdentity) ||
      note_tensor_key(state, key)) {
    return ok_status();
  }
  bool plain = state.tracer.classify(key) == ObjectClass::kPlain;
  if (plain && hashed_by_address(state, key)) {
    if (!state.is_input(key)) return ok_status();
    if (PyDict_GET_SIZE(dict) > kMaxComparedKeys)
      return unguardable_key(state, key);
    Py_ssize_t position = 0;
    PyObject *other, *value;
    while (PyDict_Next(dict, &position, &other, &value)) {
      if (Py_TYPE(other) != Py_TYPE(key)) continue;
      FJ_CHECK_OK(state.is_same(other, key));
    }
    return ok_status();
  }
  if (!plain) return unguardable_key(state, key);
  if (is_unhashable(key)) return unhashable(state, key);
  if (is_plain_tuple(state, key)) return ok_status();
  FJ_TRY(bool python, hashed_in_python(state, key));
  if (!python) return unguardable_key(state, key);
  note_python_key(state, key);
  return ok_status();
}

Status add_to_fresh_set(CaptureState& state, PyObject* set, PyObject* given) {
  FJ_TRY(Ref plain_element, concrete_key(state, given));
  PyObject* element = plain_element.get();
  if (note_tensor_key(state, element)) {
    PauseHook pause;  // its __hash__ is the library's own
    return PySet_Add(set, element) < 0 ? Status::raised() : ok_status();
  }
  bool plain = state.tracer.classify(element) == ObjectClass::kPlain;
  bool fine =
      is_safe_key(state, element) || is_opaque(element, OpaqueKind::kIdentity);
  if (!fine && plain && hashed_by_address(state, element)) {
    FJ_CHECK_OK(state.contains(set, element));
  } else if (!fine) {
    if (!plain) return unguardable_key(state, element);
    if (is_unhashable(element)) return unhashable(state, element);
    FJ_TRY(bool python, hashed_in_python(state, element));
    if (!python && !is_plain_tuple(state, element)) {
      return unguardable_key(state, element);
    }
    if (python) note_python_key(state, element);
  }
  if (PySet_Add(set, element) < 0)
    return state.after_native(nullptr).forward<Unit>();
  return ok_status();
}

}  // namespace framejit::bytecode
