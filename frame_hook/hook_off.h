// Calls beneath which nothing is compiled.
//
// CPython gives a function the arguments it is called with, so that `del` in it
// may end an object's life; under a frame hook the caller keeps them until the
// call returns. Where a break is there for a finalizer, the instruction runs
// without a hook, so that it is run where the program says.
#pragma once

#include "frame_hook/py_ref.h"

namespace framejit {

// The hook is off for a scope, on all threads; not while one of them captures,
// nor under somebody else's hook.
class HookOff {
 public:
  HookOff();
  ~HookOff();
  HookOff(const HookOff&) = delete;
  HookOff& operator=(const HookOff&) = delete;

 private:
  bool taken_off_;
};

// Residual code that runs so, from now on.
void run_without_hook(PyObject* code);
bool runs_without_hook(PyObject* code);

}  // namespace framejit
