// Texts that go to print() and nowhere else, as the bytecode ahead shows.
#pragma once

#include <optional>

#include "bytecode/interpreter/frame.h"

namespace framejit::bytecode {

struct StackEffect {
  int pops;
  int pushes;
};
// Of what may stand between where a text is pushed and where it goes: nothing
// that reaches for items below those it takes off, and no branch. Empty: of
// another instruction.
std::optional<StackEffect> effect_of(const MicroOp& op);

// The instruction before frame.pc pushes a text. Do those from there on,
// without a branch, make it a part of strings and then an argument of print(),
// of which nobody asks the result? The builtin itself is on the stack by now.
bool goes_to_print(const Frame& frame, size_t size_with_text);

}  // namespace framejit::bytecode
