// Runs the graph of a block (recorder.h) on Python tensors: real ones,
// stand-ins or those of a joint trace, in which case the operations are traced.
#pragma once

#include <vector>

#include "graph/ir/torch_graph.h"

namespace framejit::graph {

// inputs: one object per graph input; symbols are ints or SymInts. One object
// per output; throws python_error (torch) when a call fails.
std::vector<Ref> run_block(const TorchGraph& graph,
                           const std::vector<Ref>& inputs);

// The symbols among the inputs of the block's graph, in order.
std::vector<Expr> symbol_inputs(const TorchGraph& graph);

}  // namespace framejit::graph
