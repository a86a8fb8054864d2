// Arithmetic of a library's numbers, when a state of that library decides
// whether an error is a warning, an exception or nothing (numpy.errstate).
//
// No capture guards that state: while C code computes with such numbers, errors
// are exceptions, and where there is one the capture breaks.
#pragma once

#include <span>

#include "bytecode/library/library.h"
#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

class StrictErrors {
 public:
  explicit StrictErrors(std::span<PyObject* const> operands);
  StrictErrors(const StrictErrors&) = delete;
  StrictErrors& operator=(const StrictErrors&) = delete;
  ~StrictErrors();

  // What C code gave, or a break.
  Result<Ref> checked(CaptureState& state, PyObject* new_reference);

 private:
  const ErrorStateRow* row_;
  PyObject* entered_ = nullptr;
};

}  // namespace framejit::bytecode
