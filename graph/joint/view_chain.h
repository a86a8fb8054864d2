// How one value of an ATen graph is a view of another one: the view operations
// that lead from it to there. A caller that makes an output outside of the
// graph runs them on the real tensor, under autograd, so that the output is to
// autograd, and to its gradients' layout, the view that eager would have made.
#pragma once

#include <optional>
#include <vector>

#include "graph/ir/ir.h"

namespace framejit::graph {

struct ViewStep {
  c10::OperatorHandle op;
  std::vector<Arg> args;  // the first stands for the tensor
  int result = -1;        // which of a list of tensors; -1: no list
  int list = -1;          // the same number: of the same list
};

// Empty: they are the same value. Nullopt: it is no view of it, or not by
// operations on this tensor alone.
std::optional<std::vector<ViewStep>> find_view_chain(const Value* base,
                                                     const Value* view);

// Nothing but parts and other groupings of dims, in the order they had, or
// views whose gradient is written into new zeros: the gradient of a contiguous
// tensor is contiguous.
bool keeps_order(const std::vector<ViewStep>& steps);

}  // namespace framejit::graph
