#include "backend/alias_analysis.h"

#include <algorithm>
#include <string>

namespace framejit::backend {

using graph::Arg;
using graph::Graph;
using graph::Node;
using graph::Value;

namespace {

// Results may be (views of) the first argument, whatever the schema says.
bool is_unannotated_view(const std::string& name) {
  static const char* const kNames[] = {
      "aten::_unsafe_view", "aten::_reshape_alias",
      "aten::reshape",      "aten::contiguous",
      "aten::to",           "aten::lift_fresh",
      "aten::lift",         "aten::alias",
      "aten::detach",       "aten::flatten",
      "aten::expand_as",    "aten::view_as",
      "aten::type_as",      "aten::dropout",
      "aten::_conj",        "aten::real",
      "aten::resolve_conj", "aten::resolve_neg"};
  for (const char* known : kNames) {
    if (name == known) return true;
  }
  return false;
}

bool may_return_alias(const Node& node) {
  if (!node.aten) return false;
  const auto& schema = node.aten->schema();
  if (is_unannotated_view(schema.name())) return true;
  for (const auto& result : schema.returns()) {
    if (result.alias_info()) return true;
  }
  return false;
}

}  // namespace

AliasAnalysis::AliasAnalysis(const Graph& graph) {
  for (const auto& node : graph.block().nodes) {
    std::vector<const Value*> shared;
    if (may_return_alias(*node)) {
      for (const Arg& arg : node->args) {
        graph::for_each_value(arg, [&](Value* value) {
          if (value->kind != Value::Kind::kTensor) return;
          const auto& roots = roots_[value];
          shared.insert(shared.end(), roots.begin(), roots.end());
        });
      }
      std::sort(shared.begin(), shared.end());
      shared.erase(std::unique(shared.begin(), shared.end()), shared.end());
    }
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

}  // namespace framejit::backend
