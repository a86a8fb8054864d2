// Which values get channels last, and where copies are.
#include <ATen/ATen.h>

#include "backend/layouts.h"
#include "graph/ir/parser.h"
#include "tests/backend/torch_helpers.h"

namespace framejit::backend::testing {
namespace {

// The graph as it is laid out, or why it stays; `calls` are no loops.
std::string laid_out(const std::string& text,
                     const std::vector<std::string>& calls = {}) {
  eval("torch");  // starts Python and torch
  std::string error;
  auto graph = graph::parse_graph(text, {}, &error);
  EXPECT_TRUE(graph) << error << "\n" << text;
  if (!graph) return "";
  LayoutRequest request;
  for (const auto& node : graph->block().nodes) {
    if (node->op != graph::Opcode::kCallFunction || !node->aten) continue;
    const std::string name = node->target_name();
    if (name != "aten.convolution.default" &&
        std::count(calls.begin(), calls.end(), name) == 0)
      request.loops.insert(node.get());
  }
  LayoutChoice choice = choose_layouts(*graph, request);
  if (!choice.graph) return choice.reason;
  EXPECT_EQ(graph::verify(*choice.graph), "");
  EXPECT_EQ(choice.origins.size(), choice.graph->block().nodes.size());
  return choice.graph->str();
}

const char kInputs[] =
    R"(graph(%0 "x" : f32[2, 3, 64, 64] cpu, %1 "v" : f32[16, 3, 3, 3] cpu, %2 "w" : f32[16, 16, 3, 3] cpu) {
)";

// Loops between convolutions have their layout; what is an output has eager's,
// and so has what a call reads.
TEST(Layouts, AChainOfConvolutions) {
  EXPECT_EQ(
      laid_out(
          std::string(kInputs) +
          R"(  %3 = aten.convolution.default(%0, %1, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1) : f32[2, 16, 64, 64] cpu
  %4 = aten.relu.default(%3) : f32[2, 16, 64, 64] cpu
  %5 = aten.convolution.default(%4, %2, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1) : f32[2, 16, 64, 64] cpu
  %6 = aten.tanh.default(%5) : f32[2, 16, 64, 64] cpu
  %7 = aten.mean.dim(%5, [2, 3], False, None) : f32[2, 16] cpu
  return (%6, %7)
})"),
      R"(graph(%0 "x" : f32[2, 3, 64, 64] cpu, %1 "v" : f32[16, 3, 3, 3] cpu, %2 "w" : f32[16, 16, 3, 3] cpu) {
  %8 = aten.clone.default(%0, memory_format(2)) : f32[2, 3, 64, 64] strides[12288, 1, 192, 3] cpu
  %9 = aten.clone.default(%1, memory_format(2)) : f32[16, 3, 3, 3] strides[27, 1, 9, 3] cpu
  %3 = aten.convolution.default(%8, %9, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1) : f32[2, 16, 64, 64] strides[65536, 1, 1024, 16] cpu
  %4 = aten.relu.default(%3) : f32[2, 16, 64, 64] strides[65536, 1, 1024, 16] cpu
  %10 = aten.clone.default(%2, memory_format(2)) : f32[16, 16, 3, 3] strides[144, 1, 48, 16] cpu
  %5 = aten.convolution.default(%4, %10, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1) : f32[2, 16, 64, 64] strides[65536, 1, 1024, 16] cpu
  %6 = aten.tanh.default(%5) : f32[2, 16, 64, 64] cpu
  %7 = aten.mean.dim(%5, [2, 3], False, None) : f32[2, 16] cpu
  return (%6, %7)
}
)");
}

// A call between two convolutions reads eager's layout, so nothing is gained.
TEST(Layouts, CopiesThatCostMoreThanIsGained) {
  const std::string text =
      std::string(kInputs) +
      R"(  %3 = aten.convolution.default(%0, %1, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1) : f32[2, 16, 64, 64] cpu
  %4 = aten.cumsum.default(%3, 1) : f32[2, 16, 64, 64] cpu
  %5 = aten.convolution.default(%4, %2, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1) : f32[2, 16, 64, 64] cpu
  return (%5)
})";
  EXPECT_TRUE(laid_out(text, {"aten.cumsum.default"})
                  .starts_with("convolutions stay channels first: "));
}

// Other shapes of the memory are of eager's, parts have no layout of their own.
TEST(Layouts, Views) {
  const std::string text =
      R"(graph(%0 "x" : f32[2, 32, 64, 64] cpu, %1 "w" : f32[32, 32, 3, 3] cpu) {
  %2 = aten.convolution.default(%0, %1, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1) : f32[2, 32, 64, 64] cpu
  %3 = aten.convolution.default(%2, %1, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1) : f32[2, 32, 64, 64] cpu
  %4 = aten.convolution.default(%3, %1, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1) : f32[2, 32, 64, 64] cpu
  %5 = aten.slice.Tensor(%3, 1, 0, 16, 1) : f32[2, 16, 64, 64] strides[131072, 4096, 64, 1] cpu
  %6 = aten.sin.default(%5) : f32[2, 16, 64, 64] cpu
)";
  const std::string sliced = laid_out(text + "  return (%4, %6)\n}");
  EXPECT_NE(sliced.find("%3 = aten.convolution.default(%2, %8"),
            std::string::npos)
      << sliced;
  const std::string seen = laid_out(text + "  return (%4, %5, %6)\n}");
  EXPECT_EQ(seen.find("%3 = aten.convolution.default(%2, %8"),
            std::string::npos)
      << seen;
}

// Large weights are copied at each call, matrix products gain nothing, doubles
// go to another library.
TEST(Layouts, WhatGainsNothing) {
  auto one = [](const std::string& type, const std::string& x,
                const std::string& w, const std::string& y,
                const std::string& padding) {
    return laid_out("graph(%0 \"x\" : " + type + x +
                    " cpu, %1 \"w\" : " + type + w +
                    " cpu) {\n  %2 = aten.convolution.default(%0, "
                    "%1, None, [1, 1], " +
                    padding + ", [1, 1], False, [0, 0], 1) : " + type + y +
                    " cpu\n  %3 = aten.relu.default(%2) : " + type + y +
                    " cpu\n  return (%3)\n}");
  };
  const std::string none =
      "convolutions stay channels first: 0.0 us would be gained, less than is "
      "lost where layouts meet";
  EXPECT_EQ(one("f32", "[1, 512, 7, 7]", "[512, 512, 3, 3]", "[1, 512, 7, 7]",
                "[1, 1]"),
            none);
  EXPECT_EQ(one("f32", "[2, 64, 56, 56]", "[64, 64, 1, 1]", "[2, 64, 56, 56]",
                "[0, 0]"),
            none);
  EXPECT_EQ(
      one("f64", "[2, 8, 56, 56]", "[8, 8, 3, 3]", "[2, 8, 56, 56]", "[1, 1]"),
      "convolutions stay channels first: not of float32 images that lie "
      "contiguously");
}

}  // namespace
}  // namespace framejit::backend::testing
