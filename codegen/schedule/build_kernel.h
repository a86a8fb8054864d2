// A unit becomes a kernel.
//
// What a definition of the unit reads of another one is a row value (a
// reduction, or one element a point), or is computed again where it is read,
// or, if it has to be stored anyway and is not cheap, is read back by a later
// stage. A reduction's readers are in later stages; stages are as few and as
// early as that allows.
#pragma once

#include "codegen/kernels/kernel.h"
#include "codegen/schedule/group.h"

namespace framejit::codegen {

struct BuiltKernel {
  Kernel kernel;
  std::vector<BufferId> arguments;  // whose memory they are
};

// What is known of the graph, once for all kernels.
struct KernelContext {
  const LoopGraph& graph;
  std::vector<int> producer;  // of each buffer: its definition
  std::vector<char> stored;   // of each buffer: it lies in memory
  const std::vector<std::vector<int>>& dims;
};

// Loops are as in the definitions; arrange_loops() puts them in order.
BuiltKernel build_kernel(const KernelContext& context, const Unit& unit);

}  // namespace framejit::codegen
