// A block (recorder.h) as a Python callable: block(*inputs, *captured,
// *symbols)
// -> a tuple of its outputs.
//
// It is what a torch.func transform gets to transform: at run time torch's own
// functorch runs the captured calls on its wrapped tensors.
#pragma once

#include <memory>

#include "graph/ir/torch_graph.h"

namespace framejit::graph {

Ref make_captured_block(std::shared_ptr<TorchGraph> graph);

}  // namespace framejit::graph
