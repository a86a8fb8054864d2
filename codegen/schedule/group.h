// Which definitions become one kernel.
//
// A *unit* is a set of definitions over common outer dims. A flat unit has maps
// of one domain, all of whose dims are outer. A staged unit has reductions:
// what they keep is outer, and loops of their own are inner. Units are joined
// where that saves bytes: a producer with its reader, readers of one buffer
// with each other. Two units join only if every element that passes between
// them does so within one point of the outer dims, and if no third unit lies
// between them.
#pragma once

#include <vector>

#include "codegen/loops/loops.h"
#include "codegen/schedule/target.h"

namespace framejit::codegen {

// Of a loop in place of an outer dim.
inline constexpr int kInnerLoop = -1;   // the definition's own
inline constexpr int kSingleLoop = -2;  // its extent is 1

struct Unit {
  std::vector<int> definitions;  // ascending
  std::vector<Expr> outer;
  bool is_staged = false;
  bool is_kernel = false;  // otherwise it is an extern or an input
};

struct Grouping {
  std::vector<Unit> units;  // in the order in which they run
  // Of each definition and loop: which dim of the unit it is.
  std::vector<std::vector<int>> dims;
};

Grouping group(const LoopGraph& graph, const TargetInfo& target);

}  // namespace framejit::codegen
