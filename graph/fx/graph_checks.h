// Is an fx graph well-formed? What Graph.lint() asks of nodes and arguments,
// and of the use lists, which no Python program can get wrong.
#pragma once

#include "graph/fx/objects.h"

namespace framejit::graph::fx {

// "": nothing; else in words, with the node named. `graph`: a Graph object.
std::string what_is_wrong(PyObject* graph);
// "": the use lists agree with the arguments.
std::string wrong_uses(const Graph& graph);

}  // namespace framejit::graph::fx
