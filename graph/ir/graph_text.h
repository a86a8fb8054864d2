// The text form of graphs: pieces shared by printer.cpp and parser.cpp.
//
//   graph(%0 "x" : f32[s0, 4] cpu grad, %1 "s0" : int(s0)) {
//     %2 = torch.cos(%0) : f32[s0, 4] cpu  # model.py:9
//     [%3, %4] = aten.split.Tensor(%2, 2, 0) : f32[2, 4] cpu, f32[2, 4] cpu
//     return (%3, None) mutates(0: %4)
//   }
//
// Python callables are written by an import path that leads back to them;
// anything without one is written $k and kept in a list of objects, which the
// parser takes back.
#pragma once

#include <string>
#include <vector>

#include "graph/ir/ir.h"
#include "guards/set/guard_set.h"

namespace framejit::graph {

// The text, and the objects its $k refer to (appended to `objects`).
std::string print_graph(const Graph& graph, std::vector<Ref>* objects);

// "f32" <-> ScalarType. The second returns false for an unknown name.
std::string dtype_name(c10::ScalarType dtype);
bool parse_dtype_name(const std::string& name, c10::ScalarType* out);

// "torch.cos": a dotted path that, imported and followed, gives the very
// object; empty when there is none. Needs the GIL; leaves no error set.
std::string import_path(PyObject* object);
// The same for guards that a call of it adds.
GuardSet::Cause cause_of_call(PyObject* callable);
// The object a path names, or empty (no error set).
Ref resolve_import_path(const std::string& path);

}  // namespace framejit::graph
