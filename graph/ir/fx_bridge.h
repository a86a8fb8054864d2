// torch.fx: what a custom backend receives, and what fx programs give back.
//
// A torch-level graph becomes a torch.fx.GraphModule: placeholders in input
// order (symbols are plain ints), call_function and call_method nodes, one
// output tuple. from_fx reads any GraphModule; its submodules stay
// call_module nodes.
#pragma once

#include <memory>

#include "graph/ir/ir.h"

namespace framejit::graph {

// root: the nn.Module (or dict) that get_attr targets live on; empty: a fresh
// module. A graph with ATen nodes calls torch.ops overloads.
Result<Ref> to_fx(const Graph& graph, PyObject* root = nullptr);

Result<std::unique_ptr<Graph>> from_fx(PyObject* graph_module);

}  // namespace framejit::graph
