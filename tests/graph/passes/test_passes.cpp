// DCE, CSE, the parser, and the minimum cut by itself.
#include "graph/passes/passes.h"

#include <gtest/gtest.h>

#include <set>

#include "frame_hook/options.h"
#include "graph/joint/min_cut.h"
#include "tests/graph/ir/graph_text_helpers.h"

namespace framejit::graph {
namespace {

using testing::expect_round_trip;
using testing::parsed;

TEST(Passes, DeadCode) {
  auto graph = parsed(R"(graph(%0 "x" : f32[10] cpu) {
  %1 = aten.cos.default(%0) : f32[10] cpu
  %2 = aten.view.default(%1, [2, 5]) : f32[2, 5] cpu
  %3 = aten.sin.default(%2) : f32[2, 5] cpu
  return (%1)
})");
  EXPECT_TRUE(remove_dead_code(*graph));
  EXPECT_EQ(verify(*graph), "");
  EXPECT_EQ(graph->num_calls(), 1u);
  EXPECT_FALSE(remove_dead_code(*graph));
}

TEST(Passes, DeadCodeKeepsEffectsAndMutations) {
  auto graph = parsed(R"(graph(%0 "x" : f32[10] cpu) {
  %1 = aten.cos.default(%0) : f32[10] cpu
  %2 = aten.bernoulli.p(%0, 0.5, None) : f32[10] cpu
  %3 = aten.sin.default(%0) : f32[10] cpu
  %4 = aten.add_.Tensor(%3, 1, 1) : f32[10] cpu
  return () mutates(0: %1)
})");
  remove_dead_code(*graph);
  EXPECT_EQ(graph->num_calls(), 4u);
  EXPECT_EQ(verify(*graph), "");
}

TEST(Passes, Aliases) {
  auto graph = parsed(R"(graph(%0 "x" : f32[10] cpu) {
  %1 = aten.cos.default(%0) : f32[10] cpu
  %2 = aten.alias.default(%1) : f32[10] cpu
  %3 = aten.sin.default(%2) : f32[10] cpu
  %4 = aten.alias.default(%3) : f32[10] cpu
  %5 = aten.alias.default(%0) : f32[10] cpu
  %6 = aten.exp.default(%0) : f32[10] cpu
  %7 = aten.alias.default(%6) : f32[10] cpu
  return (%4, %5, %6, %7)
})");
  EXPECT_TRUE(remove_aliases(*graph));
  EXPECT_EQ(verify(*graph), "");
  // Those stay that name an input, or a value that leaves by itself.
  EXPECT_EQ(graph->num_calls(), 5u);
  EXPECT_FALSE(remove_aliases(*graph));
}

TEST(Passes, CommonSubexpressions) {
  auto graph = parsed(R"(graph(%0 "x" : f32[10] cpu) {
  %1 = aten.cos.default(%0) : f32[10] cpu
  %2 = aten.cos.default(%0) : f32[10] cpu
  %3 = aten.mul.Tensor(%1, 2.0) : f32[10] cpu
  %4 = aten.mul.Tensor(%2, 2.0) : f32[10] cpu
  %5 = aten.mul.Tensor(%2, 2) : f32[10] cpu
  %6 = aten.add.Tensor(%3, %4, 1) : f32[10] cpu
  %7 = aten.add.Tensor(%6, %5, 1) : f32[10] cpu
  return (%7)
})");
  EXPECT_TRUE(merge_common_subexpressions(*graph));
  EXPECT_EQ(verify(*graph), "");
  // cos once, mul twice (2.0 is not 2), two adds.
  EXPECT_EQ(graph->num_calls(), 5u);
}

TEST(Passes, CommonSubexpressionsKeepsRandomAndOutputs) {
  auto graph = parsed(R"(graph(%0 "x" : f32[10] cpu) {
  %1 = aten.bernoulli.p(%0, 0.5, None) : f32[10] cpu
  %2 = aten.bernoulli.p(%0, 0.5, None) : f32[10] cpu
  %3 = aten.add.Tensor(%1, %2, 1) : f32[10] cpu
  %4 = aten.cos.default(%0) : f32[10] cpu
  %5 = aten.cos.default(%0) : f32[10] cpu
  %6 = aten.sin.default(%0) : f32[10] cpu
  %7 = aten.sin.default(%0) : f32[10] cpu
  %8 = aten.view.default(%6, [2, 5]) : f32[2, 5] cpu
  return (%3, %4, %5, %8, %7)
})");
  // Two tensors of the user stay two tensors, through views as well.
  EXPECT_FALSE(merge_common_subexpressions(*graph));
}

TEST(Passes, CommonSubexpressionsLeavesInPlaceGraphsAlone) {
  auto graph = parsed(R"(graph(%0 "x" : f32[10] cpu) {
  %1 = aten.cos.default(%0) : f32[10] cpu
  %2 = aten.add_.Tensor(%1, 1, 1) : f32[10] cpu
  %3 = aten.cos.default(%0) : f32[10] cpu
  %4 = aten.mul.Tensor(%2, %3) : f32[10] cpu
  return (%4)
})");
  EXPECT_FALSE(merge_common_subexpressions(*graph));
}

TEST(Passes, NegativeZeroIsItsOwnNumber) {
  auto graph = parsed(R"(graph(%0 "x" : f32[10] cpu) {
  %1 = aten.mul.Tensor(%0, 0.0) : f32[10] cpu
  %2 = aten.mul.Tensor(%0, -0.0) : f32[10] cpu
  %3 = aten.add.Tensor(%1, %2, 1) : f32[10] cpu
  return (%3)
})");
  EXPECT_FALSE(merge_common_subexpressions(*graph));
}

TEST(Passes, SwitchedOffByName) {
  const char* text = R"(graph(%0 "x" : f32[10] cpu) {
  %1 = aten.cos.default(%0) : f32[10] cpu
  return (%0)
})";
  std::string error;
  ASSERT_TRUE(set_option("disable_pass", "dead_code", &error)) << error;
  auto graph = parsed(text);
  run_passes(*graph);
  EXPECT_EQ(graph->num_calls(), 1u);
  ASSERT_TRUE(set_option("disable_pass", "", &error));
  run_passes(*graph);
  EXPECT_EQ(graph->num_calls(), 0u);
}

TEST(Passes, EveryPassSaysWhyItStandsThere) {
  for (const PassRow& row : pass_list()) {
    EXPECT_NE(std::string(row.name), "");
    EXPECT_NE(std::string(row.reason), "");
  }
}

TEST(Passes, TheOptionNamesThemAll) {
  std::set<std::string> passes, named;
  for (const PassRow& row : pass_list()) passes.insert(row.name);
  for (const OptionRow& row : option_rows()) {
    if (std::string_view(row.keyword) != "disable_pass") continue;
    for (const std::string& word : accepted_words(row.accepted))
      named.insert(word);
  }
  EXPECT_EQ(named, passes);
}

// ---- text

TEST(Text, RoundTripOfEveryArgumentForm) {
  auto graph = parsed(
      R"(graph(%0 "x" : f32[s0, 4] strides[1, s0] offset(3) cpu grad, %1 "s0" : int(s0)) {
  enter torch._C._set_grad_enabled(False) @keep
  %2 = torch.cos(%0) : f32[s0, 4] cpu
  [%3, %4] = torch.split(%2, [1, (2,), (), "a \"quoted\" word"], dim=0) : f32[1, 4] cpu, other @backward
  %5, %6 = aten.max.dim(%2, 1, False) : f32[s0] cpu, i64[s0] cpu
  %7 = Tensor.view(%5, sym(s0*2 + 1), -1, -2.5, 1e-05, inf, -inf, nan) : f32[s0] cuda:0
  %8 = torch.zeros({"a": 1, 2: None}, slice(%1, None, 3), dtype(bf16), device(cuda:1), layout(0), memory_format(0), complex(1.0, -2.0), True) : bool[] cpu
  return (%7, None, [%8]) mutates(0: %2, 0: %3 nograd)
}
)");
  ASSERT_TRUE(graph);
  expect_round_trip(*graph);
  EXPECT_TRUE(graph->mutations[0].requires_grad);
  EXPECT_FALSE(graph->mutations[1].requires_grad);
  auto copy = graph->clone();
  EXPECT_EQ(copy->str(), graph->str());
}

TEST(Text, ErrorsSayWhere) {
  testing::start_torch();
  for (const char* text :
       {"graph() { return (%1) }", "graph(",
        "graph() {\n %1 = nothing.at.all()",
        "graph(%0 \"x\" : f99[1] cpu) { return () }",
        "graph(%0 \"x\" : f32[1] cpu, %0 \"y\" : f32[1] cpu) { return () }",
        "graph() { return () } more", "graph() {\n return ($3)\n}"}) {
    std::string error;
    EXPECT_FALSE(parse_graph(text, {}, &error)) << text;
    EXPECT_NE(error.find("line "), std::string::npos) << text;
  }
}

// ---- the cut

TEST(MinCut, Diamond) {
  MinCut cut(4);
  cut.add_edge(0, 2, 3);
  cut.add_edge(0, 3, 2);
  cut.add_edge(2, 1, 2);
  cut.add_edge(3, 1, 4);
  cut.add_edge(2, 3, 5);
  EXPECT_EQ(cut.solve(0, 1), 5);
  EXPECT_TRUE(cut.source_side()[0]);
  EXPECT_FALSE(cut.source_side()[1]);
}

TEST(MinCut, Infinite) {
  MinCut cut(3);
  cut.add_edge(0, 2, MinCut::kInfinite);
  cut.add_edge(2, 1, MinCut::kInfinite);
  EXPECT_GE(cut.solve(0, 1), MinCut::kInfinite);
}

TEST(MinCut, LongChain) {
  MinCut cut(2);
  int last = 0;
  for (int i = 0; i < 100000; ++i) {
    int next = cut.add_vertex();
    cut.add_edge(last, next, i == 500 ? 1 : 10);
    last = next;
  }
  cut.add_edge(last, 1, 10);
  EXPECT_EQ(cut.solve(0, 1), 1);
}

}  // namespace
}  // namespace framejit::graph
