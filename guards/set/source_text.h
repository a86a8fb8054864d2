// More of a path in the user's words: source_text() is in source.h.
#pragma once

#include "guards/set/source.h"

namespace framejit {

// The argument of the program's function that a path begins with.
struct Argument {
  Ref code;       // of that function; empty: the path begins with none
  int slot = -1;  // -1: one of those that have no parameter of their own
};
// code: whose call the path belongs to; it may stand for the program's
// (program_code.h).
Argument argument_of(const Source* source, PyObject* code);
// How the length of a container of this text is called.
std::string text_of_length(const std::string& container);

}  // namespace framejit
