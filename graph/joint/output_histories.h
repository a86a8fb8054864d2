// Which outputs lie in the history of others.
//
//   h = f(x); return g(h), h
//
// The gradient of g(h) passes through h: the program may ask for the part that
// comes to h there (a hook, retain_grad(), autograd.grad(y, h)) and may change
// it. And which inputs the history of each leads to: a backward that asks for
// others does not come through it.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "graph/joint/joint.h"
#include "graph/joint/joint_tracer.h"

namespace framejit::graph {

// inputs, outputs: undefined for what is no tensor. Fills in made_at, behind,
// ways, beside_ways and reached of those that have a node of their own, and
// passes_base of views. False: a view that the caller makes outside of the
// graph lies in the history of another output, or would have another one than
// in eager.
bool find_histories(const std::vector<at::Tensor>& inputs,
                    const std::vector<at::Tensor>& outputs,
                    const JointTracer& tracer, std::vector<OutputInfo>* infos);

}  // namespace framejit::graph
