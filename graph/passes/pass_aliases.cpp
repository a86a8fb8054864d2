// Removes aten.alias, which gives the same values under another name:
// as_subclass() makes one for each operation on a class derived from Tensor.
//
//   %1 = aten.cos.default(%0)                  %1 = aten.cos.default(%0)
//   %2 = aten.alias.default(%1)          ->    %2 = aten.sin.default(%1)
//   %3 = aten.sin.default(%2)
//
// What leaves the graph stays another tensor than what else leaves it.
#include <algorithm>
#include <vector>

#include "graph/passes/passes.h"

namespace framejit::graph {

namespace {

bool leaves(const Graph& graph, const Value* value) {
  for (const Node* user : value->users)
    if (user->op == Opcode::kOutput) return true;
  return std::any_of(
      graph.mutations.begin(), graph.mutations.end(),
      [&](const Graph::Mutation& one) { return one.value == value; });
}

}  // namespace

bool remove_aliases(Graph& graph) {
  auto& nodes = graph.block().nodes;
  for (const auto& node : nodes)
    if (writes_arguments(*node)) return false;
  std::vector<Node*> removed;
  for (const auto& node : nodes) {
    if (!node->aten || node->outputs.size() != 1 || node->args.size() != 1 ||
        !node->args[0].is<Value*>() ||
        node->aten->schema().name() != "aten::alias")
      continue;
    Value* from = node->args[0].get<Value*>();
    Value* to = node->outputs[0].get();
    if (leaves(graph, to)) {
      bool own = from->node && from->node->aten && !is_view(*from->node) &&
                 !leaves(graph, from);
      if (!own) continue;
    }
    graph.replace_all_uses(to, from);
    removed.push_back(node.get());
  }
  for (Node* node : removed) graph.erase(node);
  return !removed.empty();
}

}  // namespace framejit::graph
