// Callbacks of weak references that only their owner notices.
//
// What is seen through a weak reference goes where the program says so
// (let_go.h), for its callback may be the program's: a list's `append`, too.
// Callbacks that take an entry out of a table of ours, or of another compiler
// in the process, are nobody's business.
#pragma once

#include "frame_hook/py_ref.h"

namespace framejit {

void add_quiet_callback(PyCFunction function);  // in C, ours
// Functions in Python of this module of a library.
void add_quiet_callbacks_of(const char* module);
bool is_quiet_callback(PyObject* callback);

// Takes `key` out of the dict `entries`, if it is in there: C code alone, in
// which no signal handler runs. Empty with an error.
Ref forgetting_callback(PyObject* entries, PyObject* key);

}  // namespace framejit
