// Which values of an ATen graph may share memory.
//
// Every value has a set of roots: the inputs or fresh allocations its memory
// may come from. What an operator's results may share is in its schema, or in
// the aliasing column of the op table where the schema does not say it.
#pragma once

#include <unordered_map>
#include <vector>

#include "graph/ir/ir.h"

namespace framejit::graph {

// The tensors whose memory the results of one node may share.
std::vector<Value*> aliased_arguments(const Node& node);

class AliasAnalysis {
 public:
  explicit AliasAnalysis(const Graph& graph);

  // Sorted. A value that owns its memory is its own single root.
  const std::vector<const Value*>& roots(const Value* value) const;
  bool may_alias(const Value* a, const Value* b) const;

 private:
  std::unordered_map<const Value*, std::vector<const Value*>> roots_;
};

}  // namespace framejit::graph
