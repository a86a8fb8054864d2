// Text -> Graph: the inverse of print_graph (graph_text.h), for tests and
// tools. Everything a graph means comes back; source lines do not.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/ir/ir.h"

namespace framejit::graph {

// objects: what the $k in the text refer to. Null: `error` says what and where
// ("line 3: unknown value %7").
std::unique_ptr<Graph> parse_graph(const std::string& text,
                                   const std::vector<Ref>& objects,
                                   std::string* error);

}  // namespace framejit::graph
