// Texts that go into what the function returns, or into an attribute, as the
// bytecode ahead shows (bytecode/objects/moved_texts.h).
#pragma once

#include "bytecode/interpreter/frame.h"

namespace framejit::bytecode {

// The instruction before frame.pc pushes a text on a stack that has this size
// then. Do those from there on, without a branch, put it into tuples, lists,
// values of dicts, named tuples and dataclasses, and return these to whoever
// called the outermost function; or store it in an attribute?
bool is_handed_on(const Frame& frame, size_t size_with_text);

}  // namespace framejit::bytecode
