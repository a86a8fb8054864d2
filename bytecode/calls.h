// Parts of the call protocol that other files of this layer share.
#pragma once

#include "bytecode/interpreter.h"

namespace framejit::bytecode {

// Deeper inlining is a break. Below CPython's own limit, so that a program's
// recursion error comes from CPython.
inline constexpr int kMaxInlineDepth = 150;

// The form in which a value goes to a torch leaf: input containers as their
// guarded copies, also inside fresh lists and tuples.
Result<Ref> prepare_leaf_argument(Interpreter& interpreter, PyObject* value,
                                  int depth);

// compile(text, file, mode), with the flags of the code around
// (handlers_exec.cpp).
Result<Ref> compile_text(Interpreter& interpreter, const Arguments& args);

}  // namespace framejit::bytecode
