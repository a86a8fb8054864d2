#include "bytecode/objects/strict_errors.h"

namespace framejit::bytecode {

StrictErrors::StrictErrors(std::span<PyObject* const> operands)
    : row_(find_error_state(operands)) {
  if (!row_) return;
  entered_ = row_->enter();
  if (!entered_) PyErr_Clear();
}

StrictErrors::~StrictErrors() {
  if (!entered_) return;
  ErrorGuard keep;
  row_->leave(entered_);
  PyErr_Clear();
  Py_DECREF(entered_);
}

Result<Ref> StrictErrors::checked(CaptureState& state,
                                  PyObject* new_reference) {
  const bool failed = row_ && !new_reference &&
                      PyErr_ExceptionMatches(PyExc_FloatingPointError);
  if (failed || (row_ && !entered_)) {
    PyErr_Clear();
    Py_XDECREF(new_reference);
    return state.make_break(BreakReason::kSideEffectCallee,
                            std::string("an error in arithmetic of ") +
                                row_->module +
                                "'s numbers, of which its error state decides");
  }
  return state.after_native(new_reference);
}

}  // namespace framejit::bytecode
