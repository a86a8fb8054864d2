// Loops of a function body, as its jumps show them.
//
// A loop is known by its header, the instruction that each turn comes back to:
// the FOR_ITER of a `for`, the first instruction of the body of a `while`. Its
// body is what can come back to the header and is entered by way of it only.
#pragma once

#include <vector>

#include "bytecode/residual/residual_cache.h"

namespace framejit::bytecode {

// The body of the loop, per instruction; all false when `header` is none.
std::vector<bool> loop_body(const ResidualCache& cache, int header);

// What runs natively when the loop does: its body, and the except blocks that
// exceptions out of it come to. Where control leaves it, no block is active
// that was not when the loop began. Empty: it cannot be told.
std::vector<bool> loop_region(const ResidualCache& cache, int header);

// Of these headers, that of the outermost loop around the instruction; -1.
int outermost_loop(const ResidualCache& cache, int index,
                   const std::vector<int>& headers);

// Is there a call or an operator at the instruction or behind it?
bool has_work_behind(const ResidualCache& cache, int index);

}  // namespace framejit::bytecode
