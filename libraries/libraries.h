// The libraries that captures know: their rows (bytecode/library/library.h).
//
// Nothing here needs a library to be installed, or its headers: rows are names,
// and models work on Python objects. So this folder is compiled and tested on
// every CPython. What is done with tensors is in graph/.
#pragma once

#include "bytecode/builtins/builtins.h"
#include "bytecode/library/library.h"

namespace framejit::libraries {

const bytecode::Library& torch_functions();  // marks, wrappers, substitutes
const bytecode::Library& torch_modules();    // torch.nn.Module
const bytecode::Library& torch_overrides();  // __torch_function__
const bytecode::Library& torch_types();      // classes, Size, device
const bytecode::Library& numpy_functions();
const bytecode::Library& debuggers();  // breakpoints

// All of them; imports none. Again: does nothing.
void register_libraries();

}  // namespace framejit::libraries
