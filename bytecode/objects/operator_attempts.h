// What arithmetic (operators.cpp) and comparisons (comparisons.cpp) share: the
// methods of both operands are attempts, which may decline.
#pragma once

#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

bool is_number(PyObject* object);

// One attempt of a dunder: NotImplemented gives an empty Ref.
Result<Ref> attempt(CaptureState& state, PyObject* function, PyObject* a,
                    PyObject* b);

// An object of a class that the program derived from a builtin one: what its
// own methods decline, or do not define, the base's C code may answer.
bool extends_builtin(CaptureState& state, PyObject* object);

}  // namespace framejit::bytecode
