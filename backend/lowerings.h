// How ATen operators become kernel IR: the rows of lowerings.def.
//
// A node is lowered only when the result is exactly what ATen would give: all
// tensors float32 (or bool where a mask is meant), numbers Python numbers, and
// the result's dtype what the kernel computes. A float that changes from call
// to call is a parameter of the kernel.
#pragma once

#include <functional>

#include "backend/kernel_ir.h"
#include "graph/ir/ir.h"

namespace framejit::backend {

class LoweringArgs;

struct LoweringRow {
  const char* name;
  const char* overload;
  const char* pattern;
  int cost;
  Lane (*function)(KernelBody&, const LoweringArgs&);
};

std::span<const LoweringRow> lowering_rows();

// The node's row, or null when it has to be called through ATen. Looks at
// dtypes, devices and constants, not at sizes.
const LoweringRow* find_lowering(const graph::Node& node);

// The node's result. lane_of gives the lane of each tensor argument, param_of
// that of a float expression; -1: the row does not apply after all.
Lane lower(const LoweringRow& row, const graph::Node& node, KernelBody& body,
           const std::function<Lane(const graph::Value*)>& lane_of,
           const std::function<Lane(const Expr&)>& param_of);
// A float argument that is computed at each call.
bool is_float_parameter(const graph::Arg& arg);

}  // namespace framejit::backend
