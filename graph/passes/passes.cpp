#include "graph/passes/passes.h"

#include "frame_hook/options.h"

namespace framejit::graph {

namespace {

bool verify_after_passes() {
#ifndef NDEBUG
  return true;
#else
  return options().verify;
#endif
}

}  // namespace

const std::vector<PassRow>& pass_list() {
  static const std::vector<PassRow> rows = {
      {"aliases", &remove_aliases,
       "first: what reads an alias reads the value itself"},
      {"dead_code", &remove_dead_code,
       "early: functionalization leaves views nobody reads, and later passes "
       "then look at less"},
      {"common_subexpressions", &merge_common_subexpressions,
       "after dead code, so that only values in use are compared"},
      {"dead_code", &remove_dead_code,
       "again: what fed the merged nodes is dead now"},
  };
  return rows;
}

void run_passes(Graph& graph) {
  const std::string& disabled = options().disable_pass;
  for (const PassRow& row : pass_list()) {
    if (list_contains(disabled, row.name)) continue;
    row.run(graph);
    if (verify_after_passes()) {
      std::string wrong = verify(graph);
      if (!wrong.empty())
        throw InternalError(
            __FILE__, __LINE__,
            std::string("after pass ") + row.name + ": " + wrong);
    }
  }
}

}  // namespace framejit::graph
