// Schedule: the order in which a program runs an ATen graph, and which nodes
// become one fused kernel.
//
//   %1 = mul(%x, %y); %2 = mm(%1, %w); %3 = add(%2, %b); %4 = tanh(%3)
//   -> [mul]  mm  [add, tanh]
//
// Groups are convex (no path leaves a group and comes back) and all values a
// group computes have the same sizes; operands may be broadcast into them.
// Everything that has no row in lowerings.def is called through ATen.
#pragma once

#include <memory>
#include <vector>

#include "backend/fused_kernel.h"
#include "graph/ir/ir.h"

namespace framejit::backend {

struct ScheduleUnit {
  const graph::Node* node = nullptr;    // an ATen call, or:
  std::unique_ptr<FusedKernel> kernel;  // operands -> results
  std::vector<const graph::Value*> operands;
  std::vector<const graph::Value*> results;
};

// fuse false: the graph's own order, one unit a node.
std::vector<ScheduleUnit> make_schedule(const graph::Graph& graph, bool fuse);

}  // namespace framejit::backend
