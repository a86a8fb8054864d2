#include "graph/ops/alias_analysis.h"

#include <algorithm>

#include "graph/ops/op_facts.h"

namespace framejit::graph {

std::vector<Value*> aliased_arguments(const Node& node) {
  std::vector<Value*> values;
  if (!node.aten) return values;
  for (int i : facts_of(*node.aten).aliased_arguments) {
    if (i >= static_cast<int>(node.args.size())) continue;
    for_each_value(node.args[i], [&](Value* value) {
      if (value->kind == Value::Kind::kTensor) values.push_back(value);
    });
  }
  return values;
}

AliasAnalysis::AliasAnalysis(const Graph& graph) {
  for (const auto& node : graph.block().nodes) {
    std::vector<const Value*> shared;
    for (Value* value : aliased_arguments(*node)) {
      const auto& roots = roots_[value];
      shared.insert(shared.end(), roots.begin(), roots.end());
    }
    std::sort(shared.begin(), shared.end());
    shared.erase(std::unique(shared.begin(), shared.end()), shared.end());
    for (const auto& output : node->outputs) {
      auto& roots = roots_[output.get()];
      if (shared.empty()) {
        roots.push_back(output.get());
      } else {
        roots = shared;
      }
    }
  }
}

const std::vector<const Value*>& AliasAnalysis::roots(
    const Value* value) const {
  return roots_.at(value);
}

bool AliasAnalysis::may_alias(const Value* a, const Value* b) const {
  const auto& x = roots(a);
  const auto& y = roots(b);
  return std::any_of(x.begin(), x.end(), [&](const Value* root) {
    return std::binary_search(y.begin(), y.end(), root);
  });
}

}  // namespace framejit::graph
