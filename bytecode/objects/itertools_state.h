// Iterators of itertools, taken apart and put back where they were.
//
// The way is `__reduce__` and `__setstate__`. From CPython 3.12 on they warn
// that they will go; the program did not ask for that, so it sees neither the
// warning nor a trace of it in its modules. In 3.14 they are gone.
#pragma once

#include "frame_hook/py_ref.h"

namespace framejit::bytecode {

// A public type of itertools with a __reduce__ of its own.
bool is_itertool(PyTypeObject* type);

// iterator.__reduce__(); null with an exception.
Ref reduce_itertool(PyObject* iterator);
// iterator.__setstate__(state).
bool restore_itertool(PyObject* iterator, PyObject* state);

}  // namespace framejit::bytecode
