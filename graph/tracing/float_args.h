// Symbolic floats as arguments of a graph, replaced by their values where only
// numbers will do: each with the guard that keeps the value.
#pragma once

#include "graph/ir/torch_graph.h"
#include "guards/set/guard_set.h"

namespace framejit::graph {

// Is any argument of the node a symbolic float?
bool uses_floats(const Node& node);

void pin_floats(Arg* arg, GuardSet* guards);
// Of the whole graph; its inputs lose the symbols of floats.
void pin_floats(TorchGraph* graph, GuardSet* guards);

}  // namespace framejit::graph
