// Recurrent layers of any length, as operators of our own.
//
// What torch.gru and the like become depends on their length, which ATen
// unrolls. A graph for all lengths has framejit::recurrent in the place of such
// a call: when the graph runs, that makes the call itself, under autograd where
// a gradient is wanted, and framejit::recurrent_backward runs the nodes which
// autograd then made. So results, gradients and what is kept for them are
// eager's. framejit::recurrent_with_dropout draws random numbers.
//
//   recurrent(input, states, weights, kind, ..., wanted)
//     -> [output, *states, history]
//   recurrent_backward(history, gradients of [output, *states], read, ...)
//     -> [a gradient for each of `wanted`]
//
// `wanted` are positions in [input, *states, *weights]. The history is one
// number, in a memory that owns the nodes. `read` is what eager's nodes save of
// the arguments and results: the operator has them from the history, but a
// graph that reads them looks after them as autograd would.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>

#include <vector>

#include "graph/tensors/libtorch_private.h"

namespace framejit::graph {

// Idempotent.
void register_recurrent_operators();

// What the node of such an operator saves; nothing: it is another node.
std::vector<at::Tensor> saved_by_recurrent(
    const NodePtr<torch::autograd::Node>& node);

}  // namespace framejit::graph
