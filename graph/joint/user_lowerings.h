// What programs say their own operators are made of: Python functions that
// compute an operator's results by others (framejit.register_lowering). A joint
// trace calls such a function in the operator's place, so that the ATen graph
// has what it calls.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>
#include <vector>

#include "frame_hook/py_ref.h"

namespace framejit::graph {

// name, overload: of an operator. A function that was there is replaced.
void register_user_lowering(const std::string& name,
                            const std::string& overload, Ref function);
// Null: none.
PyObject* user_lowering(const c10::OperatorHandle& op);

// The function's results, one for each of the schema's. False: *error says what
// it raised or returned otherwise.
bool call_user_lowering(PyObject* function, const c10::OperatorHandle& op,
                        c10::ArrayRef<c10::IValue> arguments,
                        std::vector<at::Tensor>* results, std::string* error);

}  // namespace framejit::graph
