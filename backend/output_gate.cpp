#include "backend/output_gate.h"

#include <torch/csrc/autograd/graph_task.h>

#include "backend/aot_node.h"
#include "backend/aot_part.h"
#include "graph/tensors/libtorch_private.h"

namespace framejit::backend {

using torch::autograd::variable_list;

OutputGate::OutputGate(const graph::NodePtr<AotNode>& node, uint32_t tangent,
                       const std::vector<Passed>& behind)
    : tangent_(tangent) {
  add_next_edge({node, tangent});
  lead_behind(behind);
}

OutputGate::OutputGate(const std::vector<graph::NodePtr<AotPart>>& parts,
                       uint32_t tangent, const std::vector<Passed>& behind)
    : tangent_(tangent), num_first_(parts.size()), leads_to_parts_(true) {
  for (const auto& part : parts)
    add_next_edge({part, part->place_of(static_cast<int>(tangent))});
  lead_behind(behind);
}

void OutputGate::lead_behind(const std::vector<Passed>& behind) {
  for (const Passed& passed : behind) {
    add_next_edge(passed.edge);
    behind_.push_back(passed.number);
    if (auto* gate = dynamic_cast<OutputGate*>(passed.edge.function.get()))
      gate->is_behind_another_ = true;
  }
}

AotNode& OutputGate::node() const {
  Node* next = next_edge(0).function.get();
  if (num_first_ > 0)
    return leads_to_parts_ ? static_cast<AotPart*>(next)->whole()
                           : static_cast<AotNode&>(*next);
  // The nodes of a view lead to the gate of its base.
  for (;;) {
    if (auto* gate = dynamic_cast<OutputGate*>(next)) return gate->node();
    next = next->next_edge(0).function.get();
  }
}

variable_list OutputGate::apply(variable_list&& grads) {
  variable_list results(num_outputs());
  for (size_t i = 0; i < num_first_; ++i) results[i] = grads.at(0);
  if (leads_to_parts_) node().arrive(tangent_, grads.at(0));
  if (behind_.empty() || !grads[0].defined()) return results;
  std::vector<bool> wanted;
  for (size_t i = 0; i < behind_.size(); ++i)
    wanted.push_back(task_should_compute_output(num_first_ + i));
  variable_list passed =
      node().pass_behind(tangent_, grads[0], behind_, wanted);
  for (size_t i = 0; i < passed.size(); ++i)
    results[num_first_ + i] = std::move(passed[i]);
  return results;
}

bool is_watched(torch::autograd::Node& node) {
  if (!node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty() ||
      !node.pre_hooks().empty() || !node.post_hooks().empty())
    return true;
  const auto* asked = torch::autograd::get_current_graph_task_exec_info();
  if (!asked) return false;
  auto found = asked->find(&node);
  return found != asked->end() && found->second.captures_;
}

bool OutputGate::will_run() {
  const auto* nodes = torch::autograd::get_current_graph_task_nodes_in_graph();
  if (!nodes || !nodes->contains(this)) return false;
  const auto* asked = torch::autograd::get_current_graph_task_exec_info();
  if (!asked || asked->empty()) return true;
  auto found = asked->find(this);
  return found != asked->end() && found->second.needed_;
}

}  // namespace framejit::backend
