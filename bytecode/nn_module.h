// Fast paths for the Python code of torch.nn.Module.
//
// 94 % of the instructions of a model are the library's own; three functions
// make up most of them: Module.__getattr__, _call_impl and _wrapped_call_impl.
// They are recognised by the function object and run here, reading exactly what
// their Python code reads through CaptureState, so that the guards are the
// same. Only a fast path: without it the functions are inlined like any other.
#pragma once

#include "bytecode/interpreter.h"

namespace framejit::bytecode {

// handled: the result is the call's. Otherwise nothing was done.
Result<Ref> call_module_function(Interpreter& interpreter, PyObject* function,
                                 const Arguments& args, PyObject* kwnames,
                                 bool* handled);

}  // namespace framejit::bytecode
