#include "graph/joint/output_histories.h"

#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>
#include <unordered_set>

namespace framejit::graph {

namespace {

using AutogradNode = torch::autograd::Node;

using Place = std::pair<const AutogradNode*, uint32_t>;

using Outputs = std::map<Place, std::vector<int>>;

// What lies between a place and the outputs met first on all ways from it.
struct Passage {
  // The nodes, each behind those that it leads to.
  std::vector<const AutogradNode*> nodes;
  std::vector<int> behind;  // sorted
};

// views: by the node that they are results of. The hooks of one run where
// another result of its node has a gradient, too.
Passage find_passage(const AutogradNode* start, const Outputs& outputs,
                     const std::multimap<const AutogradNode*, int>& views) {
  Passage passage;
  std::set<int> behind;
  std::unordered_set<const AutogradNode*> seen{start};
  std::vector<std::pair<const AutogradNode*, size_t>> open{{start, 0}};
  while (!open.empty()) {
    auto& [node, next] = open.back();
    if (next == node->next_edges().size()) {
      passage.nodes.push_back(node);
      open.pop_back();
      continue;
    }
    const auto& edge = node->next_edges()[next++];
    if (!edge.function) continue;
    auto found = outputs.find({edge.function.get(), edge.input_nr});
    if (found != outputs.end()) {
      behind.insert(found->second.begin(), found->second.end());
    } else if (seen.insert(edge.function.get()).second) {
      auto [view, end] = views.equal_range(edge.function.get());
      for (; view != end; ++view) behind.insert(view->second);
      open.emplace_back(edge.function.get(), 0);
    }
  }
  passage.behind.assign(behind.begin(), behind.end());
  return passage;
}

// Of the nodes of a passage, those that lead to this output.
std::unordered_set<const AutogradNode*> way_to(int output,
                                               const Passage& passage,
                                               const Outputs& outputs) {
  std::unordered_set<const AutogradNode*> way;
  for (const AutogradNode* node : passage.nodes) {
    const auto& edges = node->next_edges();
    if (std::any_of(edges.begin(), edges.end(), [&](const auto& edge) {
          auto found = outputs.find({edge.function.get(), edge.input_nr});
          if (found == outputs.end()) return way.contains(edge.function.get());
          return std::count(found->second.begin(), found->second.end(),
                            output) > 0;
        }))
      way.insert(node);
  }
  return way;
}

void note_ways(const Passage& passage, const Outputs& outputs,
               const JointTracer& tracer, OutputInfo* info) {
  if (passage.behind.empty()) return;
  std::unordered_set<const AutogradNode*> on_a_way;
  for (int output : passage.behind) {
    std::vector<int64_t>& way = info->ways.emplace_back();
    for (const AutogradNode* node : way_to(output, passage, outputs)) {
      on_a_way.insert(node);
      way.push_back(tracer.number_of(*node));
    }
  }
  // The engine takes the youngest of the nodes that are ready.
  uint64_t youngest = 0;
  for (const auto& [place, members] : outputs)
    for (int output : passage.behind)
      if (std::count(members.begin(), members.end(), output))
        youngest = std::max(youngest, place.first->sequence_nr());
  for (const AutogradNode* node : passage.nodes)
    if (!on_a_way.contains(node) && node->sequence_nr() > youngest)
      info->beside_ways.push_back(tracer.number_of(*node));
}

using Leaves = std::unordered_map<const AutogradNode*, int>;

Leaves leaves_of(const std::vector<at::Tensor>& inputs) {
  Leaves leaves;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    if (auto leaf = torch::autograd::impl::try_get_grad_accumulator(inputs[i]))
      leaves.emplace(leaf.get(), static_cast<int>(i));
  }
  return leaves;
}

// The inputs that a node leads to, sorted.
std::vector<int> find_reached(const AutogradNode* start, const Leaves& leaves) {
  std::set<int> reached;
  std::unordered_set<const AutogradNode*> seen{start};
  std::vector<const AutogradNode*> open{start};
  while (!open.empty()) {
    const AutogradNode* node = open.back();
    open.pop_back();
    for (const auto& edge : node->next_edges()) {
      const AutogradNode* next = edge.function.get();
      if (!next || !seen.insert(next).second) continue;
      auto leaf = leaves.find(next);
      if (leaf != leaves.end())
        reached.insert(leaf->second);
      else
        open.push_back(next);
    }
  }
  return {reached.begin(), reached.end()};
}

// Does the caller make what eager's history of each says?
bool are_made_alike(std::vector<OutputInfo>* infos,
                    const std::vector<std::vector<int>>& behind) {
  using Alias = OutputInfo::Alias;
  auto is_of_base = [&](const OutputInfo& info, size_t output) {
    return info.alias == Alias::kOutput && info.remade && info.requires_grad &&
           behind[output] == std::vector<int>{info.base};
  };
  for (size_t i = 0; i < infos->size(); ++i)
    infos->at(i).passes_base = is_of_base(infos->at(i), i);
  auto can_be_passed = [&](int output) {
    const OutputInfo& info = infos->at(output);
    const OutputInfo& made = info.passes_base ? infos->at(info.base) : info;
    return made.alias == Alias::kNone && !made.is_view;
  };
  for (size_t i = 0; i < infos->size(); ++i) {
    OutputInfo& info = infos->at(i);
    for (int output : behind[i]) {
      const bool is_base = info.alias == Alias::kOutput && info.base == output;
      const bool is_computed = infos->at(output).alias == Alias::kNone;
      if (!(is_base && is_computed) && !can_be_passed(output)) return false;
    }
    if (!info.remade || !info.requires_grad || info.passes_base) continue;
    if (info.alias == Alias::kViewOfInput) {
      if (!behind[i].empty()) return false;
      continue;
    }
    if (!infos->at(info.base).is_view || behind[i] != behind[info.base])
      return false;
  }
  return true;
}

}  // namespace

bool find_histories(const std::vector<at::Tensor>& inputs,
                    const std::vector<at::Tensor>& outputs,
                    const JointTracer& tracer, std::vector<OutputInfo>* infos) {
  Outputs places;
  std::multimap<const AutogradNode*, int> views;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const OutputInfo& info = infos->at(i);
    // An input has its own history, outside of the graph.
    if (!outputs[i].defined() || !outputs[i].grad_fn() ||
        info.alias == OutputInfo::Alias::kInput)
      continue;
    const auto edge = torch::autograd::impl::gradient_edge(outputs[i]);
    places[{edge.function.get(), edge.input_nr}].push_back(static_cast<int>(i));
    if (info.alias == OutputInfo::Alias::kOutput)
      views.emplace(edge.function.get(), static_cast<int>(i));
  }
  if (places.size() < 2 &&
      (places.empty() || places.begin()->second.size() < 2))
    return true;
  const Leaves leaves = leaves_of(inputs);
  std::vector<std::vector<int>> behind(outputs.size());
  for (const auto& [place, members] : places) {
    const Passage passage = find_passage(place.first, places, views);
    const std::vector<int> reached = find_reached(place.first, leaves);
    for (int output : members) {
      OutputInfo& info = infos->at(output);
      behind[output] = passage.behind;
      info.made_at = static_cast<int64_t>(place.first->sequence_nr());
      info.behind = passage.behind;
      info.reached = reached;
      if (info.alias == OutputInfo::Alias::kNone)
        note_ways(passage, places, tracer, &info);
    }
  }
  return are_made_alike(infos, behind);
}

}  // namespace framejit::graph
