// Named functions expanded into operations that targets have.
//
// Results follow libm on NaN, infinities and signed zeros. f32 functions whose
// arithmetic is easy to get right in f32 stay there (exp, log, tanh, erf, sin,
// cos); others are computed in f64 and rounded once. Those of f64 keep what
// rounding loses (double_math.cpp). Polynomials come from math_coefficients.h.
// Errors are below 2 units in the last place, of f64 below one, as
// docs/numerics.md says for each (scripts/sweep_math measures them). Functions
// without an expansion (lgamma of f64) stay named: the target calls libm.
//
// With Functions::kLibm they all stay named but sqrt: libm's error (below one
// unit in the last place, and of f32 half of one, for it is computed in f64),
// at the price of a call a lane.
//
// Where a cheap way is exact up to some argument, the other is behind a
// SelectRare, and costs only where it is needed.
#pragma once

#include <vector>

#include "codegen/kernels/kernel.h"

namespace framejit::codegen {

// What named functions become.
enum class Functions : uint8_t { kVector, kLibm };
// How an f32 becomes a bf16: by arithmetic on its bits, or, where it is stored
// and not computed with, as a cast, which the target has an instruction for.
// (Arithmetic goes on with an f32, which the instruction does not give.)
enum class Bf16Rounding : uint8_t { kByBits, kByInstruction };

// What a program may choose of its numbers.
struct Arithmetic {
  Functions functions = Functions::kVector;
  // A bf16 or f16 that is computed and computed with goes on as one, as in
  // eager; else as the f32 that it was before it was rounded. What is stored is
  // rounded in any case.
  bool rounds_between = true;
};

struct Expansion {
  Arithmetic arithmetic = {};
  Bf16Rounding bf16 = Bf16Rounding::kByBits;
  // The target looks a word up in a table of 16 by one instruction.
  bool word_tables = false;
};

// The body with all its Checks and what the roots need, expanded. `roots`
// become the new numbers; leaves keep their payload.
Body expand(const Body& body, const std::vector<ScalarId*>& roots,
            Expansion how = {});

// All bodies of a kernel expanded and simplified.
Kernel expand(const Kernel& kernel, Expansion how = {});

// The value of one operation; kNoScalar: it has no expansion. `in` are of `b`.
ScalarId expand_operation(Body& b, ScalarOp op,
                          const std::array<ScalarId, 3>& in,
                          bool word_tables = false);
// How many nodes an operation becomes; 1: it has no expansion.
int expanded_size(ScalarOp op, DType operands);
// Of i64 operands (integers.cpp).
ScalarId expand_integers(Body& b, ScalarOp op,
                         const std::array<ScalarId, 3>& in);
// To bf16, and from what was one (narrow_floats.cpp).
ScalarId expand_cast(Body& b, DType type, ScalarId a);
// An f32 that is known to be a bf16 value: its lower half is zero.
bool is_bf16_value(const Body& b, ScalarId id);

}  // namespace framejit::codegen
