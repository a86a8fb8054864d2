#include "backend/freed_nodes.h"

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace framejit::backend {

using torch::autograd::variable_list;
using AutogradNode = torch::autograd::Node;

void FreedNodes::add(const std::vector<int64_t>& nodes) {
  const int task = torch::autograd::get_current_graph_task_id();
  std::lock_guard<std::mutex> lock(mutex_);
  for (int64_t node : nodes) tasks_.try_emplace(node, task);
}

bool FreedNodes::any(const std::vector<int64_t>& nodes) const {
  const int task = torch::autograd::get_current_graph_task_id();
  std::lock_guard<std::mutex> lock(mutex_);
  return std::any_of(nodes.begin(), nodes.end(), [&](int64_t node) {
    auto found = tasks_.find(node);
    return found != tasks_.end() && found->second != task;
  });
}

bool FreedNodes::all(const std::vector<int64_t>& nodes) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return std::all_of(nodes.begin(), nodes.end(),
                     [&](int64_t node) { return tasks_.contains(node); });
}

NodeCount::NodeCount() : first_(at::sequence_number::peek()), end_(first_) {}

void NodeCount::stop() { end_ = at::sequence_number::peek(); }

namespace {

class FreeTogether final : public torch::autograd::FunctionPreHook {
 public:
  FreeTogether(std::shared_ptr<FreedNodes> freed, int64_t node)
      : freed_(std::move(freed)), node_{node} {}
  variable_list operator()(const variable_list& gradients) override {
    TORCH_CHECK(!freed_->any(node_), torch::autograd::ERR_BACKWARD_TWICE);
    if (!torch::autograd::get_current_graph_task_keep_graph())
      freed_->add(node_);
    return gradients;
  }

 private:
  const std::shared_ptr<FreedNodes> freed_;
  const std::vector<int64_t> node_;
};

}  // namespace

void free_together(const std::vector<torch::autograd::Edge>& places,
                   const std::vector<torch::autograd::Edge>& leave,
                   const NodeCount& made, const EagerNodes& nodes) {
  if (!nodes.freed || made.total() != nodes.total) return;
  const uint64_t first = made.first(), end = first + nodes.total;
  std::unordered_set<AutogradNode*> seen, left;
  for (const auto& place : leave) left.insert(place.function.get());
  std::vector<AutogradNode*> open;
  auto visit = [&](const torch::autograd::Edge& edge) {
    AutogradNode* node = edge.function.get();
    // The inputs' nodes are older, what leads on from cuts is younger.
    if (node && node->sequence_nr() >= first && seen.insert(node).second)
      open.push_back(node);
  };
  for (const auto& place : places) visit(place);
  while (!open.empty()) {
    AutogradNode* node = open.back();
    open.pop_back();
    for (const auto& edge : node->next_edges()) visit(edge);
    if (node->sequence_nr() >= end || left.contains(node)) continue;
    const auto number = static_cast<int64_t>(node->sequence_nr() - first);
    if (std::binary_search(nodes.saving->begin(), nodes.saving->end(), number))
      node->add_pre_hook(std::make_unique<FreeTogether>(nodes.freed, number));
  }
}

}  // namespace framejit::backend
