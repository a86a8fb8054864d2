// Layouts: which intermediates of a graph lie with channels last.
//
// A convolution of a channels-first tensor is reordered by its library on the
// way in and out; with channels last it is not. How values lie that nobody
// outside of the graph sees is ours to say, loops take any layout, and so a net
// of convolutions can have channels last inside although the program's tensors
// have not. What changes is a copy of the graph: the strides in the metadata of
// values, and clones where a layout begins or ends.
//
//   %3 = aten.convolution(%0, %1, ...)     %4 = aten.clone(%1, channels_last)
//   %5 = aten.relu(%3)                ->   %3 = aten.convolution(%0, %4, ...)
//   return (%5)                            %5 = aten.relu(%3)
//                                          return (%5)
//
// Inputs, outputs and what the program's arguments become lie as eager's do,
// and so does what a call of another operator reads. (What a forward keeps for
// its own backward need not.) Within that, each value is in one of two layouts,
// at a cost in nanoseconds that was measured (docs/benchmarks.md): what
// convolutions lose by channels first, and what copies take where layouts meet.
// A minimum cut is the cheapest choice.
#pragma once

#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "graph/ir/ir.h"

namespace framejit::backend {

struct LayoutRequest {
  // Nodes that are loops, whatever the layout.
  std::unordered_set<const graph::Node*> loops;
  // Values of the symbols that were seen.
  std::vector<int64_t> hints;
  // Outputs from this one on may lie either way: who gets them is told.
  size_t first_free_output = SIZE_MAX;
  // Inputs that have channels last, although their metadata says otherwise;
  // by number.
  std::vector<bool> last_inputs;
  // Nothing else is to have them.
  bool only_inputs = false;
};

struct LayoutChoice {
  // Null: the graph is to stay as it is.
  std::unique_ptr<graph::Graph> graph;
  // Of each node of `graph`, in order: the one it was; null for clones.
  std::vector<const graph::Node*> origins;
  // Of the outputs: it has channels last.
  std::vector<bool> last_outputs;
  // For logs; "" where there is nothing to choose.
  std::string reason;
};

// How a reason begins where nothing changes.
inline constexpr const char* kStayChannelsFirst =
    "convolutions stay channels first: ";

bool has_convolution(const graph::Graph& graph);
LayoutChoice choose_layouts(const graph::Graph& graph,
                            const LayoutRequest& request);

}  // namespace framejit::backend
