// Objects that functions with a functools.lru_cache return.
//
// The program shares such an object with every other call of the function, but
// a capture makes one of its own. Nobody can tell as long as it is only read:
// it is remembered with its parts, which must be the same when the capture
// ends, and the planner refuses to let it outlive the capture. The notes are in
// the dict of cached calls, under an int for the object's address.
#include "bytecode/builtins.h"

namespace framejit::bytecode {

namespace {

bool is_plain_instance(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (!is_heap_type(type) || solid_base(type) != &PyBaseObject_Type) {
    return false;
  }
  // Slots would be parts of their own.
  return type->tp_dictoffset != 0 && type->tp_itemsize == 0 &&
         !raw_lookup(type, "__slots__") && !raw_lookup(type, "__del__");
}

// The parts in order; empty Ref: of another kind.
Result<Ref> parts_of(PyObject* object) {
  if (PyTuple_CheckExact(object) || PyList_CheckExact(object) ||
      PySet_CheckExact(object)) {
    return from_api(PySequence_Tuple(object));
  }
  Ref dict;
  if (PyDict_CheckExact(object)) {
    dict = Ref::borrow(object);
  } else if (is_plain_instance(object)) {
    FJ_TRY(dict, from_api(PyObject_GenericGetDict(object, nullptr)));
  } else {
    return Ref();
  }
  std::vector<PyObject*> parts;
  Py_ssize_t position = 0;
  PyObject *key, *item;
  while (PyDict_Next(dict.get(), &position, &key, &item)) {
    parts.push_back(key);
    parts.push_back(item);
  }
  Ref tuple = Ref::steal(PyTuple_New(parts.size()));
  if (!tuple) return Result<Ref>::raised();
  for (size_t i = 0; i < parts.size(); ++i) {
    PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(parts[i]));
  }
  return tuple;
}

Ref address_of(PyObject* object) {
  return Ref::steal(PyLong_FromVoidPtr(object));
}

Result<bool> note(CaptureState& state, PyObject* value, int depth) {
  constexpr int kMaxDepth = 20;
  if (state.is_constant(value) || state.is_input(value) ||
      PyType_Check(value) || is_symbolic(state, value)) {
    return true;
  }
  if (depth > kMaxDepth ||
      state.tracer.classify(value) != ObjectClass::kPlain) {
    return false;
  }
  if (is_cached_result(state, value)) return true;
  FJ_TRY(Ref parts, parts_of(value));
  if (!parts) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parts.get()); ++i) {
    FJ_TRY(bool fine, note(state, PyTuple_GET_ITEM(parts.get(), i), depth + 1));
    if (!fine) return false;
  }
  Ref address = address_of(value);
  Ref entry = Ref::steal(PyTuple_Pack(2, value, parts.get()));
  if (!address || !entry ||
      PyDict_SetItem(state.tables().cached_calls.get(), address.get(),
                     entry.get()) < 0) {
    return Result<bool>::raised();
  }
  return true;
}

}  // namespace

Result<bool> note_cached_result(CaptureState& state, PyObject* value) {
  return note(state, value, 0);
}

bool is_cached_result(CaptureState& state, PyObject* object) {
  PyObject* notes = state.tables().cached_calls.get();
  if (!notes) return false;
  ErrorGuard keep;
  Ref address = address_of(object);
  return address && PyDict_GetItem(notes, address.get()) != nullptr;
}

Result<bool> cached_results_unchanged(CaptureState& state) {
  PyObject* notes = state.tables().cached_calls.get();
  if (!notes) return true;
  Py_ssize_t position = 0;
  PyObject *key, *entry;
  while (PyDict_Next(notes, &position, &key, &entry)) {
    if (!PyLong_CheckExact(key)) continue;
    PyObject* before = PyTuple_GET_ITEM(entry, 1);
    FJ_TRY(Ref now, parts_of(PyTuple_GET_ITEM(entry, 0)));
    if (!now || PyTuple_GET_SIZE(now.get()) != PyTuple_GET_SIZE(before)) {
      return false;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(before); ++i) {
      if (PyTuple_GET_ITEM(now.get(), i) != PyTuple_GET_ITEM(before, i)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace framejit::bytecode
