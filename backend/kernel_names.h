// Names of kernels, for profilers and logs: "fj::kernel mul_add_gelu_3", after
// the operators that one fuses, views left out, in the program's order. A name
// is short, so it may lack some; the number, which counts the kernels of the
// schedule, tells it from others.
#pragma once

#include <string>
#include <vector>

#include "backend/lowering/lower.h"
#include "codegen/schedule/schedule.h"

namespace framejit::backend {

// Of each step: what made its results, and what was computed on the way from
// memory; nothing of a call.
std::vector<std::vector<const graph::Node*>> fused_nodes(
    const LoweredGraph& graph, const codegen::Schedule& schedule);

// Of each step; "" of a call.
std::vector<std::string> kernel_names(const LoweredGraph& graph,
                                      const codegen::Schedule& schedule);

}  // namespace framejit::backend
