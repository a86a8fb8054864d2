// The function watcher: sees calls without a frame hook (CPython 3.12+).
//
// A function calls through its vectorcall slot, and CPython inlines a call only
// where the slot holds its own. So functions that may do tensor work get our
// *stub* there: those that exist when watching starts, those made later (a
// watcher is told), and those that are given other code. The stub asks
// script_mode.h at each call and dispatches, or calls CPython's own. As soon as
// it is known that the code is none of our business the function gets
// CPython's slot back, and its calls are inlined and specialised again; new
// functions of such code are left alone. The hook stays off: only functions
// that do tensor work cost anything.
//
// A call site specialised for one function takes others of the same version for
// it without looking at the slot, and `def` gives all functions of a code the
// code's version. Hence a watched function has none, and neither has its code
// for as long as its functions are watched. (A specialised call of a class
// enters __init__ without a look at either; it is not dispatched anyway.)
//
// A slot that holds somebody else's function is left alone.
#pragma once

#include "frame_hook/py_ref.h"

namespace framejit {

// False: this CPython has no function watchers, or all their ids are taken.
// The stubs are for script_mode.h, which must be running.
bool watch_functions();
void unwatch_functions();
bool watches_functions();
// Looks at every function of the interpreter again: verdicts were forgotten.
void watch_all_functions();

// A call of a Python function past the stub, if it has one.
PyObject* call_unwatched(PyObject* function, PyObject* const* args,
                         size_t nargsf, PyObject* kwnames);

// Has the function a stub now (tests)?
bool is_watched_function(PyObject* function);

}  // namespace framejit
