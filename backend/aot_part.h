// AotPart: the inputs of a call that the same outputs lead to.
//
// Where outputs of a call lead to different inputs (`return a * b, b * c`), the
// AotNode is in the graph in parts: the gate of an output leads to those whose
// inputs its history in eager leads to, and to no other. What a backward asks
// for then decides as in eager which gates it comes through, whose hooks run
// and what is captured there.
//
// One program computes all gradients still. The gates tell the node what comes
// to them, the first part that runs has everything computed, and the others
// take what is theirs. The engine runs the youngest of the nodes that are
// ready, so all gates have run by then, but where other threads had a share in
// making the graph: then a part that cannot wait has its own inputs' gradients
// computed alone.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <string>

#include "backend/aot_node.h"
#include "graph/tensors/libtorch_private.h"

namespace framejit::backend {

class AotPart final : public torch::autograd::Node {
 public:
  // part: its number among those of the node.
  AotPart(const graph::NodePtr<AotNode>& whole, size_t part);
  ~AotPart() override;

  torch::autograd::variable_list apply(
      torch::autograd::variable_list&& grads) override;
  std::string name() const override { return "FrameJitBackward"; }

  AotNode& whole() const { return *whole_; }
  // The input of this node that the tangent comes to.
  uint32_t place_of(int tangent) const;

 private:
  // Which does not know its parts.
  graph::NodePtr<AotNode> whole_;
  size_t part_;
};

}  // namespace framejit::backend
