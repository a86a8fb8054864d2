#include "graph/ir/torch_graph.h"

namespace framejit::graph {

namespace {

// The copy of a value in a copy of its graph.
Value* copy_of(const Value* value, const Graph& graph, const Graph& copy) {
  auto theirs = copy.block().nodes.begin();
  for (const auto& node : graph.block().nodes) {
    for (size_t i = 0; i < node->outputs.size(); ++i)
      if (node->outputs[i].get() == value) return (*theirs)->outputs[i].get();
    ++theirs;
  }
  FJ_CHECK(false, "a value of another graph");
  return nullptr;
}

}  // namespace

std::shared_ptr<const TorchGraph> with_outputs(
    std::shared_ptr<const TorchGraph> captured,
    const std::vector<const Value*>& values) {
  const Graph& graph = *captured->graph;
  auto made = std::make_shared<TorchGraph>();
  static_cast<TorchGraphFacts&>(*made) = *captured;
  made->graph = graph.clone();
  std::vector<Arg> outputs = made->graph->outputs;
  for (const Value* value : values)
    outputs.emplace_back(copy_of(value, graph, *made->graph));
  made->graph->set_outputs(std::move(outputs));
  made->captured = std::move(captured);
  return made;
}

}  // namespace framejit::graph
