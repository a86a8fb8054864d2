// Simplification of scalar programs, exact to the last bit.
//
// Constants are folded, and what cannot change a value goes: x * 1, x + -0.0,
// a select of equal arms, a cast of a cast where the first loses nothing, a
// double negation. Floats are never reassociated, x + 0.0 stays (it turns -0.0
// into 0.0), and so does x * 0.0 (NaN, infinities). NaNs are one value.
#pragma once

#include <functional>
#include <vector>

#include "codegen/scalar/body.h"

namespace framejit::codegen {

// Like body.emit(), but simplified: maybe an older node, of the same value.
ScalarId emit_simplified(Body& body, ScalarOp op, DType type,
                         std::array<ScalarId, 3> in, int64_t payload = 0);

// Each value of `from` is one of `to`: exact in both directions of order.
bool cast_is_exact(DType from, DType to);

// How a node is made again over new operands.
using EmitNode = std::function<ScalarId(Body& body, const ScalarNode& node,
                                        std::array<ScalarId, 3> in)>;
// A body with what `roots` and Checks need, each node made by `emit`. `roots`
// become the new numbers.
Body rewrite(const Body& body, const std::vector<ScalarId*>& roots,
             const EmitNode& emit);

// A body with what `roots` and Checks need, simplified. `roots` become the new
// numbers. Leaves keep their payload.
Body simplify(const Body& body, const std::vector<ScalarId*>& roots);

}  // namespace framejit::codegen
