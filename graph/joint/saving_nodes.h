// Which autograd nodes hold saved tensors.
//
// A node frees what it saved when it has run and raises when it runs again; one
// that saved nothing runs as often as it is asked to. `x * 2` saves the 2, of
// which the graph of its backward shows nothing. torch tells by the `_saved_*`
// attributes of the node's Python object.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <vector>

namespace framejit::graph {

struct SavingNode {
  torch::autograd::Node* node;
  // What it saved, but for what was written to since: its backward raises.
  std::vector<at::Tensor> saved;
};

// Of the nodes that gradients from the outputs to the inputs pass through.
// Needs the GIL; nothing was differentiated yet.
std::vector<SavingNode> saving_nodes(const std::vector<at::Tensor>& outputs,
                                     const std::vector<at::Tensor>& inputs);

}  // namespace framejit::graph
