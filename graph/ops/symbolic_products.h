// matmul of stand-ins with symbolic sizes, for torches whose own composite
// kernel asks for the sizes as numbers (before 2.13): a graph would be for the
// sizes of its capture alone. With it the gradient of cumprod
// (cumprod_gradient.h).
//
// The kernels lie on a dispatch key above autograd that no tensor has. A thread
// has it where its operations are part of a capture (kTracingKeys); operators
// without a kernel of ours fall through it.
#pragma once

#include "graph/tensors/libtorch_private.h"

namespace framejit::graph {

#if FJ_TORCH_213
inline void register_symbolic_products() {}
#else
// Idempotent. Where another library uses the key, torch's kernel stays.
void register_symbolic_products();
#endif

}  // namespace framejit::graph
