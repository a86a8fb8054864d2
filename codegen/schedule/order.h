// What comes before what among the definitions of a graph.
#pragma once

#include <vector>

#include "codegen/loops/loops.h"

namespace framejit::codegen {

// Visits the roots of what a definition reads.
template <class Visit>
void for_each_read(const LoopGraph& graph, const Definition& d, Visit visit) {
  for (const Access& access : d.accesses) visit(graph.root(access.buffer));
  for (BufferId operand : d.operands) visit(graph.root(operand));
  if (d.base != kNoBuffer) visit(graph.root(d.base));
}

// Of each buffer that is no alias: the definition that makes it.
std::vector<int> producers_of(const LoopGraph& graph);

// Definitions in an order in which each comes behind those it needs.
class NeedsFirst {
 public:
  // needs: of each definition, which others.
  explicit NeedsFirst(const std::vector<std::vector<int>>& needs)
      : needs_(needs), placed_(needs.size()) {}

  // Callers number the inputs by their order: they keep it, in front.
  void place_inputs(const LoopGraph& graph);
  // Behind what it needs and is not placed yet.
  void place(int definition);
  void apply(LoopGraph* graph) const;  // when all are placed

 private:
  const std::vector<std::vector<int>>& needs_;
  std::vector<char> placed_;
  std::vector<int> order_;
};

}  // namespace framejit::codegen
