// Texts that go to print() and nowhere else, as the bytecode ahead shows.
#pragma once

#include "bytecode/interpreter/frame.h"

namespace framejit::bytecode {

// The instruction before frame.pc pushes a text. Do those from there on,
// without a branch, make it a part of strings and then an argument of print(),
// of which nobody asks the result? The builtin itself is on the stack by now.
bool goes_to_print(const Frame& frame, size_t size_with_text);

}  // namespace framejit::bytecode
