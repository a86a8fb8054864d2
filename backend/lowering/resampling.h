// Dims of planes that change their sizes.
#pragma once

#include <optional>
#include <vector>

#include "backend/lowering/node.h"
#include "backend/lowering/pointwise_math.h"

namespace framejit::backend {

// Dims before those of the plane: batch, channels.
inline constexpr int kPlaneLead = 2;

// One dim that changes its size.
struct ResampledAxis {
  Expr input, output;
  std::optional<Expr> factor;  // as the program gave it

  // Inputs per output, as compute_scales_value has it.
  Term scale(Elements& elements, codegen::DType type) const;
  bool is_known() const {
    return input.is_const() && output.is_const() &&
           (!factor || factor->is_float_const());
  }
};

// `scales`: the argument that has the first dim's factor.
std::vector<ResampledAxis> axes_of(const NodeLowering& node,
                                   const std::vector<Expr>& inputs,
                                   const std::vector<Expr>& outputs,
                                   size_t scales);

}  // namespace framejit::backend
