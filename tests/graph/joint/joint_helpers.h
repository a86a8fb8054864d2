// Runs joint graphs on real tensors, node by node, as their reference.
#pragma once

#include "graph/joint/joint.h"
#include "tests/graph/tracing/trace_helpers.h"

namespace framejit::graph::testing {

// A torch-level graph of one node: the global Python function `name`, which
// returns a tuple of `num_outputs` tensors. `shapes`: null for static inputs.
struct FunctionGraph {
  FunctionGraph(const std::string& name, const std::vector<at::Tensor>& inputs,
                size_t num_outputs,
                const std::vector<std::vector<Expr>>& sizes = {});
  TorchGraph graph;
};

// inputs: primals and tangents. The outputs of the graph; undefined for None.
struct JointResult {
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> mutated;  // in the order of graph.mutations
};
JointResult run_graph(const Graph& graph, const std::vector<at::Tensor>& inputs,
                      const std::vector<int64_t>& symbols = {});

}  // namespace framejit::graph::testing
