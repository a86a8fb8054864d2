// Leaves that a backward comes to without a gradient.
//
// The one node of a call leads to all inputs, whichever outputs were used. In
// eager a leaf that those do not depend on has no part in the backward. Torch
// accumulates nothing there, but would call the leaf's hooks that run behind
// the accumulation (an optimizer's step, say).
#pragma once

#include <torch/csrc/autograd/edge.h>

namespace framejit::backend {

// No gradient goes along the edge: if none comes to the leaf from elsewhere,
// these hooks are not called.
void leave_idle(const torch::autograd::Edge& edge);

}  // namespace framejit::backend
