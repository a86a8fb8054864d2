// The gradient of cumprod of a stand-in, for torches whose own composite kernel
// takes stand-ins for tensor subclasses (before 2.13) and then multiplies each
// element's others anew: nodes for each element, and other values than eager's
// where elements are infinite.
#pragma once

#include <ATen/core/Tensor.h>

#include "graph/tensors/libtorch_private.h"

namespace framejit::graph {

#if !FJ_TORCH_213
// What torch computes of tensors with data where there is no second derivative,
// without its question whether one of them is zero.
at::Tensor cumprod_gradient(const at::Tensor& gradient, const at::Tensor& input,
                            int64_t dim, const at::Tensor& output);
#endif

}  // namespace framejit::graph
