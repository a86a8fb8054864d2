// Merges operations that compute the same thing.
//
//   %1 = aten.cos.default(%0)                  %1 = aten.cos.default(%0)
//   %2 = aten.cos.default(%0)            ->    %3 = aten.mul.Tensor(%1, %1)
//   %3 = aten.mul.Tensor(%1, %2)
//
// Not merged: random operations and those of packages; anything in a graph that
// writes to memory in place; and values whose memory the caller gets to see,
// because two tensors of the user must not become one.
#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "graph/passes/passes.h"

namespace framejit::graph {

namespace {

bool same(const Arg& a, const Arg& b);

bool same_items(const std::vector<Arg>& a, const std::vector<Arg>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!same(a[i], b[i])) return false;
  return true;
}

bool same_bits(double a, double b) {
  return std::memcmp(&a, &b, sizeof a) == 0;  // 0.0 is not -0.0
}

bool same(const Arg& a, const Arg& b) {
  if (a.value.index() != b.value.index()) return false;
  return std::visit(
      [&](const auto& left) {
        using T = std::decay_t<decltype(left)>;
        const T& right = b.get<T>();
        if constexpr (std::is_same_v<T, Arg::List> ||
                      std::is_same_v<T, Arg::Tuple>) {
          return same_items(left.items, right.items);
        } else if constexpr (std::is_same_v<T, Arg::Dict> ||
                             std::is_same_v<T, std::shared_ptr<Arg::Slice>>) {
          return false;  // not at ATen level
        } else if constexpr (std::is_same_v<T, double>) {
          return same_bits(left, right);
        } else if constexpr (std::is_same_v<T, c10::complex<double>>) {
          return same_bits(left.real(), right.real()) &&
                 same_bits(left.imag(), right.imag());
        } else {
          return left == right;
        }
      },
      a.value);
}

size_t mix(size_t hash, size_t part) {
  hash = (hash ^ part) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 31);
}

// Only what is cheap to hash; `same` decides.
size_t hash_of(const Node& node) {
  size_t hash = reinterpret_cast<size_t>(&node.aten->schema());
  for (const Arg& arg : node.args) {
    hash = mix(hash, arg.value.index());
    if (arg.is<int64_t>()) hash = mix(hash, arg.get<int64_t>());
    for_each_value(arg, [&](Value* value) {
      hash = mix(hash, reinterpret_cast<size_t>(value));
    });
  }
  return hash;
}

}  // namespace

std::unordered_set<const Value*> escaping_values(const Graph& graph,
                                                 size_t num_outputs) {
  std::unordered_set<const Value*> escaping;
  auto add = [&](Value* value) { escaping.insert(value); };
  for (size_t i = 0; i < std::min(num_outputs, graph.outputs.size()); ++i)
    for_each_value(graph.outputs[i], add);
  for (const auto& mutation : graph.mutations) escaping.insert(mutation.value);
  const auto& nodes = graph.block().nodes;
  for (auto at = nodes.rbegin(); at != nodes.rend(); ++at) {
    bool escapes = false;
    for (const auto& value : (*at)->outputs)
      escapes |= escaping.contains(value.get());
    if (!escapes) continue;
    for (Value* value : aliased_arguments(**at)) escaping.insert(value);
  }
  return escaping;
}

bool merge_common_subexpressions(Graph& graph) {
  for (const auto& node : graph.block().nodes)
    if (writes_arguments(*node)) return false;
  std::unordered_set<const Value*> escaping =
      escaping_values(graph, graph.outputs.size());
  std::unordered_multimap<size_t, Node*> seen;
  std::vector<Node*> merged;
  for (auto& node : graph.block().nodes) {
    if (!node->aten || has_effect(*node) || is_custom(*node)) continue;
    bool escapes = false;
    for (const auto& value : node->outputs)
      escapes |= escaping.contains(value.get());
    if (escapes) continue;
    size_t hash = hash_of(*node);
    Node* twin = nullptr;
    auto [first, last] = seen.equal_range(hash);
    for (; first != last && !twin; ++first) {
      Node* other = first->second;
      if (&other->aten->schema() == &node->aten->schema() &&
          other->outputs.size() == node->outputs.size() &&
          same_items(other->args, node->args))
        twin = other;
    }
    if (!twin) {
      seen.emplace(hash, node.get());
      continue;
    }
    for (size_t i = 0; i < node->outputs.size(); ++i)
      graph.replace_all_uses(node->outputs[i].get(), twin->outputs[i].get());
    merged.push_back(node.get());
  }
  for (Node* node : merged) graph.erase(node);
  return !merged.empty();
}

}  // namespace framejit::graph
