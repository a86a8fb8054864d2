#include "backend/output_gate.h"

#include "backend/aot_node.h"
#include "graph/tensors/libtorch_private.h"

namespace framejit::backend {

using torch::autograd::variable_list;

OutputGate::OutputGate(const graph::NodePtr<AotNode>& node, uint32_t tangent,
                       const std::vector<graph::NodePtr<OutputGate>>& behind)
    : tangent_(tangent) {
  add_next_edge({node, tangent});
  for (const auto& gate : behind) {
    add_next_edge({gate, 0});
    behind_.push_back(static_cast<int>(gate->tangent_));
    gate->is_behind_another_ = true;
  }
}

variable_list OutputGate::apply(variable_list&& grads) {
  variable_list results(num_outputs());
  results[0] = grads.at(0);
  if (behind_.empty() || !grads[0].defined()) return results;
  auto& node = static_cast<AotNode&>(*next_edge(0).function);
  std::vector<bool> wanted;
  for (size_t i = 0; i < behind_.size(); ++i)
    wanted.push_back(task_should_compute_output(i + 1));
  variable_list passed = node.pass_behind(tangent_, grads[0], behind_, wanted);
  for (size_t i = 0; i < passed.size(); ++i)
    results[i + 1] = std::move(passed[i]);
  return results;
}

bool OutputGate::is_watched() {
  if (!tensor_pre_hooks().empty() || !retains_grad_hooks().empty() ||
      !pre_hooks().empty() || !post_hooks().empty())
    return true;
  const auto* asked = torch::autograd::get_current_graph_task_exec_info();
  if (!asked) return false;
  auto found = asked->find(this);
  return found != asked->end() && found->second.captures_;
}

}  // namespace framejit::backend
