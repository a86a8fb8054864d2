// Keys of dicts and elements of sets: whose hash and equality a capture may
// leave to C code, and what must be guarded for the answer to stay true.
//
// A constant is compared by its value, which is guarded. An object hashed by
// identity is itself in every call, but two inputs may become one: that they
// are two is guarded when one is looked up among others. To look a
// tensor up in a dict of the program (the state of an optimizer), its identity
// is guarded. A class with __hash__ and __eq__ in Python is asked through the
// hook, by interpreted code.
#include "bytecode/capture_tables.h"
#include "bytecode/opaque_value.h"
#include "frame_hook/frame_eval.h"

namespace framejit::bytecode {

namespace {

constexpr Py_ssize_t kMaxComparedKeys = 256;

Break no_key(CaptureState& state, PyObject* key) {
  return state.make_break(
      BreakReason::kUnguardableInput,
      std::string("a key of type ") + Py_TYPE(key)->tp_name);
}

bool is_unhashable(PyObject* key) {
  return Py_TYPE(key)->tp_hash == PyObject_HashNotImplemented;
}

Status unhashable(PyObject* key) {
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
    if (PyDict_GET_SIZE(dict) > kMaxComparedKeys) return no_key(state, key);
    Py_ssize_t position = 0;
    PyObject *other, *value;
    while (PyDict_Next(dict, &position, &other, &value)) {
      if (Py_TYPE(other) != Py_TYPE(key)) continue;
      FJ_CHECK_OK(state.is_same(other, key));
    }
    return ok_status();
  }
  if (!plain) return no_key(state, key);
  if (is_unhashable(key)) return unhashable(key);
  if (is_plain_tuple(state, key)) return ok_status();
  FJ_TRY(bool python, hashed_in_python(state, key));
  return python ? ok_status() : Status(no_key(state, key));
}

Status add_to_fresh_set(CaptureState& state, PyObject* set, PyObject* element) {
  if (note_tensor_key(state, element)) {
    PauseHook pause;  // Tensor.__hash__ is torch's own
    return PySet_Add(set, element) < 0 ? Status::raised() : ok_status();
  }
  bool plain = state.tracer.classify(element) == ObjectClass::kPlain;
  bool fine =
      is_safe_key(state, element) || is_opaque(element, OpaqueKind::kIdentity);
  if (!fine && plain && hashed_by_address(state, element)) {
    FJ_CHECK_OK(state.contains(set, element));
  } else if (!fine) {
    if (!plain) return no_key(state, element);
    if (is_unhashable(element)) return unhashable(element);
    FJ_TRY(bool python, hashed_in_python(state, element));
    if (!python && !is_plain_tuple(state, element)) {
      return no_key(state, element);
    }
  }
  if (PySet_Add(set, element) < 0)
    return state.after_native(nullptr).forward<Unit>();
  return ok_status();
}

Result<Ref> plain_scalar(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type == &PyLong_Type || type == &PyFloat_Type ||
      type == &PyUnicode_Type || PyBool_Check(object)) {
    return Ref::borrow(object);
  }
  if (PyLong_Check(object))
    return from_api(_PyLong_Copy(reinterpret_cast<PyLongObject*>(object)));
  if (PyFloat_Check(object)) {
    return from_api(PyFloat_FromDouble(PyFloat_AS_DOUBLE(object)));
  }
  if (PyUnicode_Check(object)) return from_api(PyUnicode_FromObject(object));
  return Ref::borrow(object);
}

}  // namespace framejit::bytecode
