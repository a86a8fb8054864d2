// Gradients that a program defines itself, as nodes of the torch-level graph.
//
//   class Double(torch.autograd.Function):      _set_grad_enabled(False)
//     forward: return x * 2                 ->  %1 = torch.mul(%x, 2)
//     backward: return g * 2                    _set_grad_enabled(True)
//                                               %2 = function_gradient(%x, %1)
//
// A link is a Python callable that one capture made and whose node stands in
// its graph. A *function gradient* gives the results of a forward the history
// of a torch.autograd.Function whose backward is a captured graph; a *tensor
// hook* puts such a graph on the gradient of a tensor. Both are ordinary calls:
// the torch level runs them on real tensors, and a joint trace runs them on its
// own, where the engine then traces the captured backward like any other.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <memory>
#include <string>
#include <vector>

#include "graph/ir/torch_graph.h"
#include "graph/tensors/libtorch_private.h"

namespace framejit::graph {

// Shared by all calls of one link. The graph's inputs are the gradients of the
// results, the captured tensors, then the symbols.
struct GradientCode {
  std::shared_ptr<TorchGraph> graph;
  size_t num_inputs = 0;   // tensors the function was called with
  size_t num_results = 0;  // tensors it returned
  size_t num_captured = 0;
  std::vector<bool> differentiable;  // per result
  // Per captured tensor: came from ctx.saved_tensors, so that writing to it
  // makes the backward an error. Others are just kept.
  std::vector<bool> saved;
  // Tensors that the backward got from ctx.saved_tensors and did not read:
  // writing to them makes it an error, too.
  size_t num_watched = 0;
  bool once = false;  // @once_differentiable
  std::string name;   // of the node, as torch calls it
};

// function_gradient(*inputs, *results, *captured, *watched, *symbols)
//   -> results
Ref make_function_gradient(GradientCode code);
// tensor_hook(tensor, *captured, *symbols) -> None
Ref make_tensor_hook(GradientCode code);
bool is_gradient_link(PyObject* callable);
// The arguments of a call that its backward reads, but that autograd does not
// save for it: as they are by then. Empty: no link.
std::vector<size_t> unsaved_arguments(PyObject* callable);

// What the node of a link saved for its backward; nothing: it is no such node.
std::vector<at::Tensor> saved_by_link(
    const NodePtr<torch::autograd::Node>& node);

// Is it the gradient of an operator that is written in Python, as by
// torch.library.register_autograd? It may read anything when it runs.
bool is_python_formula(const torch::autograd::Node& node);

}  // namespace framejit::graph
