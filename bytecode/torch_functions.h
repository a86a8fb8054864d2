// __torch_function__ inside a capture.
//
// torch asks classes of tensors (and objects that only look like tensors), and
// torch function modes, before it runs an operation. The tracer says what torch
// would ask for a call; the asking is done here, by interpreting the method,
// in torch's order: the innermost mode, then the classes. Whether asking is
// switched off, and which modes the capture entered, is state of the capture.
#pragma once

#include <vector>

#include "bytecode/capture_tables.h"

namespace framejit::bytecode {

// Is there a mode, or one of the objects (or of the elements of a list or
// tuple) to be asked?
Result<bool> asks_torch_function(CaptureState& state,
                                 const std::vector<PyObject*>& objects);
bool is_function_mode_active(CaptureState& state);
// Also when asking is switched off.
Result<bool> is_overloaded(CaptureState& state, PyObject* object);

// Calls the __torch_function__ that torch would. Empty: it would not, the call
// means what it says.
Result<Ref> call_torch_function(CaptureState& state, PyObject* callable,
                                const std::vector<PyObject*>& args,
                                PyObject* kwnames = nullptr);
// TensorTracer::operate, after asking.
Result<Ref> operate(CaptureState& state, PyObject* function,
                    std::vector<PyObject*> operands);
// A special method of torch.Tensor, in Python or C, where somebody is asked
// about it (len(), iter(), bool()). Empty: nobody is.
Result<Ref> call_tensor_special(CaptureState& state, PyObject* stand_in,
                                const char* name);
// Is the attribute torch's own, not one of a class of the program?
bool is_torchs_attribute(PyTypeObject* type, PyObject* name);

}  // namespace framejit::bytecode
