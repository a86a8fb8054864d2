// What an early stage of a kernel has computed, a later one reads back.
//
// Softmax sums exp(x - max) over a row, then divides the same by the sum. Where
// a later stage stores to an element of its own at each point, that element is
// free until then: the dear value is stored there first, and loaded in place of
// being computed once more. Rows have to fit into the cache.
#pragma once

#include "codegen/kernels/kernel.h"
#include "codegen/schedule/target.h"

namespace framejit::codegen {

void keep_values(Kernel* kernel, const TargetInfo& target);

}  // namespace framejit::codegen
