// OutputGate: the history of one output of a call, between it and the AotNode.
//
// Calls with several outputs have one for each, made in the order of eager's
// nodes, so that hooks run in eager's order and see the gradient of their
// output alone. Where the gradient of an output passes through another one
// (`h = f(x); return g(h), h`), an edge leads from gate to gate, or to the node
// of the view of an output that it passes through. The AotNode behind them
// computes everything at once, so nothing flows along that edge; but when
// somebody looks at what comes to h (a hook, retain_grad(), autograd.grad(y,
// h)), the captured calls run again, with a history that is cut at the outputs,
// and the gradient goes from gate to gate as in eager.
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

// Does somebody look at the gradient that comes to a node, in the backward that
// runs on this thread?
bool is_watched(torch::autograd::Node& node);

class OutputGate final : public torch::autograd::Node {
 public:
  // An output that gradients of others pass through: its number
  // (BackwardCode::passed()), and where its history begins.
  struct Passed {
    int number;
    torch::autograd::Edge edge;
  };
  // tangent: the output's number among those of the node. behind: what its
  // gradient passes through next.
  OutputGate(const graph::NodePtr<AotNode>& node, uint32_t tangent,
             const std::vector<Passed>& behind);
  // parts: those of the node that this output leads to, but for what the gates
  // behind lead to. One of both is there.
  OutputGate(const std::vector<graph::NodePtr<AotPart>>& parts,
             uint32_t tangent, const std::vector<Passed>& behind);

  torch::autograd::variable_list apply(
      torch::autograd::variable_list&& grads) override;
  std::string name() const override { return "FrameJitBackward"; }

  // Will the backward that runs on this thread come here, or has it?
  bool will_run();
  bool is_behind_another() const { return is_behind_another_; }
  // A view of this output lies there.
  void note_behind_another() { is_behind_another_ = true; }
  // Its place in the order of nodes stays: it leads to the same inputs.
  void lead_to(torch::autograd::Edge edge) {
    next_edges_ = {std::move(edge)};
    behind_.clear();
    num_first_ = 1;
    leads_to_parts_ = false;
  }

 private:
  void lead_behind(const std::vector<Passed>& behind);
  AotNode& node() const;
  // The AotNode is where the first edge leads, or that of a gate behind, or of
  // one behind views.
  // Nothing else holds it: it knows its gates weakly, and what a node is known
  // by weakly gives up its edges and nothing more when it goes.
  uint32_t tangent_;
  size_t num_first_ = 1;  // edges that are not to gates
  bool leads_to_parts_ = false;
  std::vector<int> behind_;
  bool is_behind_another_ = false;
};

}  // namespace framejit::backend
