// Removes nodes whose results nobody reads.
//
//   %1 = aten.cos.default(%0)                  %1 = aten.cos.default(%0)
//   %2 = aten.view.default(%1, [2, 5])   ->    return (%1)
//   return (%1)
//
// Random operations stay: without them the generator would end elsewhere. So do
// the user's operations that may refuse the values they are given.
#include <unordered_set>

#include "graph/passes/passes.h"

namespace framejit::graph {

bool remove_dead_code(Graph& graph) {
  std::unordered_set<const Value*> committed;
  for (const Graph::Mutation& mutation : graph.mutations)
    committed.insert(mutation.value);
  bool changed = false;
  auto& nodes = graph.block().nodes;
  for (auto at = nodes.end(); at != nodes.begin();) {
    --at;
    Node* node = at->get();
    if (must_run(*node)) continue;
    bool used = false;
    for (const auto& value : node->outputs)
      used |= !value->users.empty() || committed.contains(value.get());
    if (used) continue;
    ++at;  // erase invalidates the node's own iterator
    graph.erase(node);
    changed = true;
  }
  return changed;
}

}  // namespace framejit::graph
