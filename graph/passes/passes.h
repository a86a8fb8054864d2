// Passes over ATen graphs, run from one ordered list. Each pass is in a file of
// its own (pass_*.cpp) and can be switched off by name (FRAMEJIT_DISABLE_PASS,
// a comma-separated list). With FRAMEJIT_VERIFY, and in debug builds, the
// verifier runs after every pass.
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "graph/ir/ir.h"
#include "graph/ops/alias_analysis.h"
#include "graph/ops/node_traits.h"

namespace framejit::graph {

struct PassRow {
  const char* name;
  bool (*run)(Graph& graph);  // true: changed something
  const char* reason;         // why it stands where it stands
};
const std::vector<PassRow>& pass_list();
void run_passes(Graph& graph);

// Values that share memory with one of the first outputs or with a mutation:
// the caller gets to see it.
std::unordered_set<const Value*> escaping_values(const Graph& graph,
                                                 size_t num_outputs);

// pass_aliases.cpp, pass_dead_code.cpp, pass_common_subexpressions.cpp
bool remove_aliases(Graph& graph);
bool remove_dead_code(Graph& graph);
bool merge_common_subexpressions(Graph& graph);

}  // namespace framejit::graph
