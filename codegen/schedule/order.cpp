#include "codegen/schedule/order.h"

namespace framejit::codegen {

std::vector<int> producers_of(const LoopGraph& graph) {
  std::vector<int> out(graph.buffers.size(), -1);
  for (size_t d = 0; d < graph.definitions.size(); ++d)
    for (BufferId result : graph.definitions[d].results)
      out[result] = static_cast<int>(d);
  return out;
}

void NeedsFirst::place_inputs(const LoopGraph& graph) {
  for (size_t d = 0; d < graph.definitions.size(); ++d)
    if (graph.definitions[d].kind == DefinitionKind::kInput)
      place(static_cast<int>(d));
}

void NeedsFirst::place(int definition) {
  // Not by recursion: chains are as long as graphs.
  std::vector<std::pair<int, bool>> stack{{definition, false}};
  while (!stack.empty()) {
    const auto [at, is_ready] = stack.back();
    stack.pop_back();
    if (placed_[at]) continue;
    if (is_ready) {
      placed_[at] = true;
      order_.push_back(at);
      continue;
    }
    stack.emplace_back(at, true);
    for (int need : needs_[at])
      if (!placed_[need]) stack.emplace_back(need, false);
  }
}

void NeedsFirst::apply(LoopGraph* graph) const {
  std::vector<Definition> sorted;
  sorted.reserve(order_.size());
  for (int d : order_) sorted.push_back(std::move(graph->definitions[d]));
  graph->definitions = std::move(sorted);
}

}  // namespace framejit::codegen
