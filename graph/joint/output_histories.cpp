#include "graph/joint/output_histories.h"

#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <map>
#include <unordered_set>

namespace framejit::graph {

namespace {

using AutogradNode = torch::autograd::Node;

using Place = std::pair<const AutogradNode*, uint32_t>;

// The outputs met first on all ways from `start`, in order.
std::vector<int> first_met(const AutogradNode* start,
                           const std::map<Place, std::vector<int>>& outputs) {
  std::vector<int> met;
  std::unordered_set<const AutogradNode*> seen{start};
  std::vector<const AutogradNode*> open{start};
  while (!open.empty()) {
    const AutogradNode* node = open.back();
    open.pop_back();
    for (const auto& edge : node->next_edges()) {
      if (!edge.function) continue;
      auto found = outputs.find({edge.function.get(), edge.input_nr});
      if (found != outputs.end()) {
        met.insert(met.end(), found->second.begin(), found->second.end());
      } else if (seen.insert(edge.function.get()).second) {
        open.push_back(edge.function.get());
      }
    }
  }
  std::sort(met.begin(), met.end());
  met.erase(std::unique(met.begin(), met.end()), met.end());
  return met;
}

}  // namespace

bool find_histories(const std::vector<at::Tensor>& outputs,
                    std::vector<OutputInfo>* infos) {
  std::map<Place, std::vector<int>> places;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const OutputInfo& info = infos->at(i);
    // An input has its own history, outside of the graph.
    if (!outputs[i].defined() || !outputs[i].grad_fn() ||
        info.alias == OutputInfo::Alias::kInput)
      continue;
    const auto edge = torch::autograd::impl::gradient_edge(outputs[i]);
    places[{edge.function.get(), edge.input_nr}].push_back(static_cast<int>(i));
  }
  if (places.size() < 2 &&
      (places.empty() || places.begin()->second.size() < 2))
    return true;
  for (const auto& [place, members] : places) {
    const std::vector<int> behind = first_met(place.first, places);
    for (int output : behind) {
      if (infos->at(output).alias != OutputInfo::Alias::kNone) return false;
    }
    for (int output : members) {
      infos->at(output).made_at =
          static_cast<int64_t>(place.first->sequence_nr());
      infos->at(output).behind = behind;
    }
  }
  return true;
}

}  // namespace framejit::graph
