// Passes over ATen graphs, run from one ordered list. Each pass is in a file of
// its own (pass_*.cpp) and can be switched off by name (FRAMEJIT_DISABLE_PASS,
// a comma-separated list). With FRAMEJIT_VERIFY, and in debug builds, the
// verifier runs after every pass.
#pragma once

#include <string>
#include <vector>

#include "graph/ir.h"

namespace framejit::graph {

struct PassRow {
  const char* name;
  bool (*run)(Graph& graph);  // true: changed something
  const char* reason;         // why it stands where it stands
};
const std::vector<PassRow>& pass_list();
void run_passes(Graph& graph);

// pass_aliases.cpp, pass_dead_code.cpp, pass_common_subexpressions.cpp
bool remove_aliases(Graph& graph);
bool remove_dead_code(Graph& graph);
bool merge_common_subexpressions(Graph& graph);

// ---- facts about ATen nodes that passes share (op_traits.cpp)
bool is_random(const Node& node);  // advances a generator
bool writes_arguments(const Node& node);
bool has_effect(const Node& node);  // may not be removed or merged
// Also the user's operations that may raise on the values they are given: eager
// does so whether or not the result is used.
bool must_run(const Node& node);
// Registered by a package: two calls may not be one, whatever their arguments.
bool is_custom(const Node& node);
// The arguments whose memory the results may share (views).
std::vector<Value*> aliased_arguments(const Node& node);
bool is_view(const Node& node);
// Cheap enough to run again in the backward: elementwise, views, fills.
bool is_recomputable(const Node& node);

}  // namespace framejit::graph
