// A list or deque whose elements are compared one by one: code of the program
// may change it on the way, and C code walks the object, not what it was.
#pragma once

#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

class ComparedSequence {
 public:
  ComparedSequence(CaptureState& state, PyObject* sequence);
  // After each comparison: a break when it changed.
  Status check() const;

 private:
  PyObject* live() const;
  Result<bool> changed() const;

  CaptureState& state_;
  PyObject* sequence_;
  Ref live_;   // what stood for it
  Ref items_;  // a list of what it held
};

}  // namespace framejit::bytecode
