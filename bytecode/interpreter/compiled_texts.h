// compile() of a text in a capture, for eval, exec and compile itself.
//
// CPython's compiler may warn ("invalid escape sequence"), in every call of the
// program. What a capture compiles it compiles once, so a text that warns is a
// break.
#pragma once

#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

// `arguments`: a tuple for the builtin.
Result<Ref> compile_without_warnings(CaptureState& state, PyObject* arguments);

}  // namespace framejit::bytecode
