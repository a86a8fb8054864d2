// Who adds to a .grad adds alone.
//
// A graph with a backward() of its own reads the .grad of leaves and writes the
// sums. In eager that is AccumulateGrad's, which holds its mutex meanwhile;
// what another thread added between the two would be lost. So such a graph runs
// under these mutexes.
#pragma once

#include <memory>

#include "frame_hook/dispatch.h"
#include "graph/ir/torch_graph.h"

namespace framejit::backend {

// The executor itself where the graph adds to no .grad, and where it calls
// custom operators.
std::unique_ptr<Executor> with_accumulation_locks(
    std::unique_ptr<Executor> executor,
    std::shared_ptr<const graph::TorchGraph> graph);

}  // namespace framejit::backend
