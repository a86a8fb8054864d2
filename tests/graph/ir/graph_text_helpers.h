// Graphs from text for the pass tests, and the round trip of the text form.
#pragma once

#include <gtest/gtest.h>

#include "graph/ir/graph_text.h"
#include "graph/ir/parser.h"
#include "tests/graph/tracing/trace_helpers.h"

namespace framejit::graph::testing {

inline std::unique_ptr<Graph> parsed(const std::string& text) {
  start_torch();
  std::string error;
  auto graph = parse_graph(text, {}, &error);
  EXPECT_TRUE(graph) << error;
  if (graph) {
    EXPECT_EQ(verify(*graph), "");
  }
  return graph;
}

// Printing, parsing and printing again gives the same text.
inline void expect_round_trip(const Graph& graph) {
  std::vector<Ref> objects;
  std::string text = print_graph(graph, &objects);
  std::string error;
  auto again = parse_graph(text, objects, &error);
  ASSERT_TRUE(again) << error << "\n" << text;
  EXPECT_EQ(verify(*again), "");
  std::vector<Ref> same_objects = objects;
  EXPECT_EQ(print_graph(*again, &same_objects), text);
}

}  // namespace framejit::graph::testing
