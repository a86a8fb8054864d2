// Stops a function before one of its instructions, natively.
//
// The prefix code of (code, instruction) runs like the code up to there and
// then returns what is in the frame. With it the tests get real frames at every
// instruction, which residual code then has to take over.
#pragma once

#include <vector>

#include "guards/result.h"

namespace framejit::bytecode {

struct PrefixCode {
  Ref code;  // returns (marker, slots..., stack items...); unset: the sentinel
  std::vector<int> stack_kinds;     // int(StackKind) per item, bottom first
  std::vector<int> original_units;  // prefix code unit -> unit of the code
};

Result<PrefixCode> make_prefix(PyObject* code, int offset, PyObject* marker,
                               PyObject* sentinel);

}  // namespace framejit::bytecode
