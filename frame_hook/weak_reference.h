// What a weak reference leads to, on each CPython.
#pragma once

#include "frame_hook/py_ref.h"

namespace framejit {

// weak: a weak reference. Empty: what it led to is dead. Leaves no error.
inline Ref referent_of(PyObject* weak) {
#if PY_VERSION_HEX >= 0x030d0000
  PyObject* object = nullptr;
  if (PyWeakref_GetRef(weak, &object) < 0) PyErr_Clear();
  return Ref::steal(object);
#else
  PyObject* object = PyWeakref_GET_OBJECT(weak);
  return object == Py_None ? Ref() : Ref::borrow(object);
#endif
}

}  // namespace framejit
