// The executor of an AOT-compiled graph, and its autograd node.
//
// A call runs the forward program below autograd. When the graph has a backward
// one AotNode is made per call: next edges lead to the inputs that require
// grad, what the backward needs is kept in SavedVariables (so that changing an
// input in place before the backward raises as in eager), and the outputs get
// the node as history. A value that is saved but shares memory with an input or
// an output is watched through a SavedVariable of that tensor too.
//
// Input mutations are committed with copy_ after everything else succeeded.
// Double backward is not captured: gradients that are differentiated themselves
// come of the torch calls, run again (torch_replay.h).
#pragma once

#include <memory>
#include <string>

#include "backend/program.h"
#include "graph/ir/torch_graph.h"
#include "graph/joint/joint.h"

namespace framejit::backend {

// A Break when the graphs need something only the torch level gives (outputs
// that alias inputs, mutation of a tensor that carries history).
Result<std::unique_ptr<Executor>> make_aot_executor(
    std::shared_ptr<const graph::TorchGraph> torch_graph,
    const graph::AotGraphs& graphs, const ProgramOptions& options,
    ProgramReport* report);

}  // namespace framejit::backend
