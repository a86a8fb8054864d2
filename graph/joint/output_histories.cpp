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

// Does the caller make what eager's history of each says?
bool are_made_alike(std::vector<OutputInfo>* infos,
                    const std::vector<std::vector<int>>& behind) {
  using Alias = OutputInfo::Alias;
  for (size_t i = 0; i < infos->size(); ++i) {
    OutputInfo& info = infos->at(i);
    for (int output : behind[i]) {
      const OutputInfo& passed = infos->at(output);
      const bool is_base = info.alias == Alias::kOutput && info.base == output;
      if (passed.alias != Alias::kNone || (passed.is_view && !is_base))
        return false;
    }
    if (!info.remade || !info.requires_grad) continue;
    if (info.alias == Alias::kViewOfInput) {
      if (!behind[i].empty()) return false;
      continue;
    }
    info.passes_base = behind[i] == std::vector<int>{info.base};
    if (info.passes_base) continue;
    if (!infos->at(info.base).is_view || behind[i] != behind[info.base])
      return false;
  }
  return true;
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
  std::vector<std::vector<int>> behind(outputs.size());
  for (const auto& [place, members] : places) {
    const std::vector<int> met = first_met(place.first, places);
    for (int output : members) {
      infos->at(output).made_at =
          static_cast<int64_t>(place.first->sequence_nr());
      infos->at(output).behind = behind[output] = met;
    }
  }
  return are_made_alike(infos, behind);
}

}  // namespace framejit::graph
