// What a Kernel means: every target is tested against this, and a schedule by
// what its kernels do here.
//
// Outer points come one after the other, each with its stages in order;
// evaluate() is the arithmetic. Floats are put together in long double and
// rounded once, so this is the more exact side of a comparison.
#pragma once

#include <cstdint>
#include <span>

#include "codegen/kernels/kernel.h"

namespace framejit::codegen {

// symbols: values as for Expr::evaluate(). arguments: where element 0 of each
// place is. [begin, end): of the flattened outer loops; end < 0: all of them.
// False: a Check failed; what was stored is of no use.
bool interpret(const Kernel& kernel, const int64_t* symbols,
               std::span<void* const> arguments, int64_t begin = 0,
               int64_t end = -1);

// How many points the outer loops have.
int64_t outer_points(const Kernel& kernel, const int64_t* symbols);

}  // namespace framejit::codegen
