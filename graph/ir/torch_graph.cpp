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

std::shared_ptr<const TorchGraph> TorchGraph::with_outputs(
    std::shared_ptr<const TorchGraph> self,
    const std::vector<const Value*>& values) const {
  auto made = std::make_shared<TorchGraph>();
  made->graph = graph->clone();
  std::vector<Arg> outputs = made->graph->outputs;
  for (const Value* value : values)
    outputs.emplace_back(copy_of(value, *graph, *made->graph));
  made->graph->set_outputs(std::move(outputs));
  made->input_objects = input_objects;
  made->mutated_inputs = mutated_inputs;
  made->promised = promised;
  made->captured = std::move(self);
  made->symbol_hints = symbol_hints;
  made->uses_random = uses_random;
  made->random_devices = random_devices;
  made->writes_state = writes_state;
  made->interrupts_autocast = interrupts_autocast;
  made->stack = stack;
  made->place = place;
  made->function = function;
  made->torch_level_only = torch_level_only;
  made->grad_enabled_at_entry = grad_enabled_at_entry;
  return made;
}

}  // namespace framejit::graph
