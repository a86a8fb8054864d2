// Symbolic floats as arguments of a graph, replaced by their values where only
// numbers will do: each with the guard that keeps the value.
#pragma once

#include "graph/ir/torch_graph.h"
#include "guards/set/guard_set.h"

namespace framejit::graph {

// Is any argument of the node a symbolic float?
bool uses_floats(const Node& node);

// Does the node call an operator that hands its `float` arguments, which torch
// takes as numbers only, on to its kernel as they are? Nothing else computes
// with them then, no gradient formula and no shape: a trace may run it with any
// numbers in their places.
bool hands_floats_on(const Node& node);
// The number that a symbolic float of Python's has in this call, without a
// guard.
Result<Ref> number_in_place_of(PyObject* sym_float);

void pin_floats(Arg* arg, GuardSet* guards);
// Of the whole graph; its inputs lose the symbols of floats.
void pin_floats(TorchGraph* graph, GuardSet* guards);

}  // namespace framejit::graph
