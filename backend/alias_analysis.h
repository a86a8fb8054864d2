// Which values of an ATen graph may share memory.
//
// Every value has a set of roots: the inputs or fresh allocations its memory
// may come from. Computed from the operators' schemas (a return annotated as an
// alias of an argument) and a few operators whose schema does not say so.
#pragma once

#include <unordered_map>
#include <vector>

#include "graph/ir.h"

namespace framejit::backend {

class AliasAnalysis {
 public:
  explicit AliasAnalysis(const graph::Graph& graph);

  // Sorted. A value that owns its memory is its own single root.
  const std::vector<const graph::Value*>& roots(
      const graph::Value* value) const;
  bool may_alias(const graph::Value* a, const graph::Value* b) const;

 private:
  std::unordered_map<const graph::Value*, std::vector<const graph::Value*>>
      roots_;
};

}  // namespace framejit::backend
