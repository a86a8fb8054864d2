// Rehearsal: eager's own kernel tells what an operator returns.
//
// For an operator whose result cannot be told from torch's meta kernels or by a
// rule of ours, the kernel of the true device is run once, at capture, on
// memory that is laid out like the arguments and holds harmless values (indices
// are 0, matrices are positive definite). What it returns has the metadata that
// it will have at run time: type, sizes, strides, offset, and whose memory it
// is. Only for functional operators of torch itself whose sizes do not depend
// on data. The random number state is put back.
#pragma once

#include <c10/core/Device.h>

#include <string>

#include "graph/ops/meta_rule.h"

namespace framejit::graph {

struct OpFacts;

// Replaces the arguments on top of the stack (meta tensors) by the results.
// Throws where that cannot be: the text says why.
void rehearse(OpFacts& facts, Stack* stack, c10::Device device);
// How the results of a call differ from those of a rehearsal; "": not at all,
// or it cannot be rehearsed. Both have the arguments that were on the stack.
std::string difference_from_rehearsal(OpFacts& facts, Stack arguments,
                                      c10::ArrayRef<c10::IValue> results,
                                      c10::Device device);

}  // namespace framejit::graph
