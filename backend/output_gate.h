// OutputGate: the history of one output of a call, between it and the AotNode.
//
// Calls with several outputs have one for each, made in the order of eager's
// nodes, so that hooks run in eager's order and see the gradient of their
// output alone. Where the gradient of an output passes through another one
// (`h = f(x); return g(h), h`), an edge leads from gate to gate. The AotNode
// behind them computes everything at once, so nothing flows along that edge;
// but when somebody looks at what comes to h (a hook, retain_grad(),
// autograd.grad(y, h)), the captured calls run again, with a history that is
// cut at the outputs, and the gradient goes from gate to gate as in eager.
//
// Calls in which the program's own functions take part in the backward have
// gates, too. What was run again to be differentiated has a history of its own,
// and a gradient that comes to the outputs afterwards must meet those that come
// to it there: the gate then leads to that history.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <string>
#include <vector>

#include "graph/tensors/libtorch_private.h"

namespace framejit::backend {

class AotNode;
class AotPart;

class OutputGate final : public torch::autograd::Node {
 public:
  // tangent: the output's number among those of the node. behind: the gates
  // its gradient passes through next, and their numbers.
  OutputGate(const graph::NodePtr<AotNode>& node, uint32_t tangent,
             const std::vector<graph::NodePtr<OutputGate>>& behind);
  // parts: those of the node that this output leads to, but for what the gates
  // behind lead to. One of both is there.
  OutputGate(const std::vector<graph::NodePtr<AotPart>>& parts,
             uint32_t tangent,
             const std::vector<graph::NodePtr<OutputGate>>& behind);

  torch::autograd::variable_list apply(
      torch::autograd::variable_list&& grads) override;
  std::string name() const override { return "FrameJitBackward"; }

  // Does somebody look at the gradient that comes here, in the backward that
  // runs on this thread?
  bool is_watched();
  // Will the backward that runs on this thread come here, or has it?
  bool will_run();
  bool is_behind_another() const { return is_behind_another_; }
  // Its place in the order of nodes stays: it leads to the same inputs.
  void lead_to(torch::autograd::Edge edge) {
    next_edges_ = {std::move(edge)};
    behind_.clear();
    num_first_ = 1;
    leads_to_parts_ = false;
  }

 private:
  void lead_behind(const std::vector<graph::NodePtr<OutputGate>>& behind);
  AotNode& node() const;
  // The AotNode is where the first edge leads, or that of a gate behind.
  // Nothing else holds it: it knows its gates weakly, and what a node is known
  // by weakly gives up its edges and nothing more when it goes.
  uint32_t tangent_;
  size_t num_first_ = 1;  // edges that are not to gates
  bool leads_to_parts_ = false;
  std::vector<int> behind_;
  bool is_behind_another_ = false;
};

}  // namespace framejit::backend
