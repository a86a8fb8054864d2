// Parts of the call protocol that other files of this layer share.
#pragma once

#include "bytecode/interpreter/interpreter.h"

namespace framejit::bytecode {

// Numbers and texts of derived classes, for a leaf: plain ones, or themselves.
enum class Scalars : uint8_t { kPlain, kThemselves };

// The form in which a value goes to a leaf: input containers as their
// guarded copies, also inside fresh lists and tuples.
Result<Ref> prepare_leaf_argument(Interpreter& interpreter, PyObject* value,
                                  int depth, Scalars scalars);

// compile(text, file, mode), with the flags of the code around
// (handlers_exec.cpp).
Result<Ref> compile_text(Interpreter& interpreter, const Arguments& args);
Result<Ref> frame_module_name(Interpreter& interpreter, PyObject* depth);

}  // namespace framejit::bytecode
