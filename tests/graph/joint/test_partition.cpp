// Joint graphs given as text, and what the cut makes of them.
#include <gtest/gtest.h>

#include "graph/joint/joint.h"
#include "graph/passes/passes.h"
#include "tests/graph/ir/graph_text_helpers.h"

namespace framejit::graph {
namespace {

using testing::expect_round_trip;
using testing::parsed;

// outputs: user outputs, then gradients; tangents: the last inputs.
JointGraph joint(const std::string& text, size_t primals, size_t user_outputs) {
  JointGraph made;
  made.graph = parsed(text);
  made.num_primals = primals;
  made.num_user_outputs = user_outputs;
  made.outputs.resize(user_outputs);
  made.has_backward = true;
  for (size_t i = primals; i < made.graph->inputs.size(); ++i)
    made.tangent_of.push_back(static_cast<int>(i - primals));
  return made;
}

AotGraphs split(JointGraph made) {
  auto result = partition(std::move(made));
  EXPECT_TRUE(result.ok());
  AotGraphs graphs = result.ok() ? result.take() : AotGraphs{};
  if (graphs.forward) {
    EXPECT_EQ(verify(*graphs.forward), "");
    expect_round_trip(*graphs.forward);
  }
  if (graphs.backward) {
    EXPECT_EQ(verify(*graphs.backward), "");
    expect_round_trip(*graphs.backward);
  }
  return graphs;
}

size_t calls_of(const Graph& graph, const std::string& target) {
  size_t count = 0;
  for (const auto& node : graph.block().nodes)
    count += node->target_name() == target;
  return count;
}

// x.cos().cos(): the input is saved, both cosines' derivatives are computed
// again from it.
TEST(Partition, CosCosSavesItsInputOnly) {
  AotGraphs graphs =
      split(joint(R"(graph(%0 "x" : f32[10] cpu grad, %1 "t" : f32[10] cpu) {
  %2 = aten.cos.default(%0) : f32[10] cpu
  %3 = aten.cos.default(%2) : f32[10] cpu
  %4 = aten.sin.default(%2) : f32[10] cpu @backward
  %5 = aten.neg.default(%4) : f32[10] cpu @backward
  %6 = aten.mul.Tensor(%1, %5) : f32[10] cpu @backward
  %7 = aten.sin.default(%0) : f32[10] cpu @backward
  %8 = aten.neg.default(%7) : f32[10] cpu @backward
  %9 = aten.mul.Tensor(%6, %8) : f32[10] cpu @backward
  return (%3, %9)
})",
                  1, 1));
  EXPECT_EQ(graphs.num_saved_tensors, 1u);
  EXPECT_EQ(graphs.forward->str(),
            "graph(%0 \"x\" : f32[10] cpu grad) {\n"
            "  %2 = aten.cos.default(%0) : f32[10] cpu\n"
            "  %3 = aten.cos.default(%2) : f32[10] cpu\n"
            "  return (%3, %0)\n"
            "}\n");
  EXPECT_EQ(graphs.backward->inputs.size(), 2u);
  EXPECT_EQ(calls_of(*graphs.backward, "aten.cos.default"), 1u);
  EXPECT_EQ(graphs.backward->num_calls(), 7u);
  EXPECT_EQ(graphs.backward->outputs.size(), 1u);
}

TEST(Partition, MatmulIsNotRunAgain) {
  AotGraphs graphs = split(joint(
      R"(graph(%0 "x" : f32[8, 16] cpu, %1 "w" : f32[16, 4] cpu grad, %2 "t" : f32[8, 4] cpu) {
  %3 = aten.mm.default(%0, %1) : f32[8, 4] cpu
  %4 = aten.cos.default(%3) : f32[8, 4] cpu
  %5 = aten.sin.default(%3) : f32[8, 4] cpu @backward
  %6 = aten.mul.Tensor(%2, %5) : f32[8, 4] cpu @backward
  %7 = aten.t.default(%0) : f32[16, 8] strides[1, 16] cpu @backward
  %8 = aten.mm.default(%7, %6) : f32[16, 4] cpu @backward
  return (%4, None, %8)
})",
      2, 1));
  // x (through its transpose) and the product.
  EXPECT_EQ(graphs.num_saved_tensors, 2u);
  EXPECT_EQ(calls_of(*graphs.backward, "aten.mm.default"), 1u);
  EXPECT_TRUE(graphs.backward->outputs[0].is<Arg::None>());
  EXPECT_EQ(graphs.forward->inputs.size(), 2u);
}

TEST(Partition, RandomMasksAreSaved) {
  AotGraphs graphs =
      split(joint(R"(graph(%0 "x" : f32[10] cpu grad, %1 "t" : f32[10] cpu) {
  %2, %3 = aten.native_dropout.default(%0, 0.5, True) : f32[10] cpu, bool[10] cpu
  %4 = aten.native_dropout_backward.default(%1, %3, 2.0) : f32[10] cpu @backward
  return (%2, %4)
})",
                  1, 1));
  EXPECT_EQ(graphs.num_saved_tensors, 1u);
  EXPECT_EQ(calls_of(*graphs.backward, "aten.native_dropout.default"), 0u);
  EXPECT_EQ(graphs.backward->inputs[0]->meta.dtype, c10::ScalarType::Bool);
}

TEST(Partition, SymbolsAreInputsOfTheBackward) {
  AotGraphs graphs = split(joint(
      R"(graph(%0 "x" : f32[s0, 4] cpu grad, %1 "s0" : int(s0), %2 "t" : f32[] cpu) {
  %3 = aten.sum.default(%0, None) : f32[] cpu
  %4 = aten.expand.default(%2, [sym(s0), 4], False) : f32[s0, 4] strides[0, 0] cpu @backward
  return (%3, %4, None)
})",
      2, 1));
  EXPECT_EQ(graphs.num_saved_tensors, 0u);
  ASSERT_EQ(graphs.backward->inputs.size(), 2u);
  EXPECT_EQ(graphs.backward->inputs[0]->kind, Value::Kind::kInt);
  EXPECT_EQ(graphs.backward->inputs[0]->expr.str(), "s0");
  EXPECT_EQ(graphs.forward->inputs.size(), 2u);
}

TEST(Partition, GradientThatIsATangentOrAnInput) {
  AotGraphs graphs = split(joint(
      R"(graph(%0 "x" : f32[4] cpu grad, %1 "y" : f32[4] cpu grad, %2 "t" : f32[4] cpu) {
  %3 = aten.add.Tensor(%0, %1, 1) : f32[4] cpu
  return (%3, %2, %1)
})",
      2, 1));
  EXPECT_EQ(graphs.num_saved_tensors, 1u);
  EXPECT_EQ(graphs.backward->num_calls(), 0u);
}

TEST(Partition, OverwrittenInputsAreNotSaved) {
  // mul's backward reads x + 1, which may not be computed again from x.
  AotGraphs graphs = split(joint(
      R"(graph(%0 "x" : f32[4] cpu, %1 "w" : f32[4] cpu grad, %2 "t" : f32[4] cpu) {
  %3 = aten.add.Tensor(%0, 1, 1) : f32[4] cpu
  %4 = aten.mul.Tensor(%1, %3) : f32[4] cpu
  %5 = aten.mul.Tensor(%2, %3) : f32[4] cpu @backward
  return (%4, None, %5) mutates(0: %3)
})",
      2, 1));
  ASSERT_EQ(graphs.num_saved_tensors, 1u);
  EXPECT_EQ(graphs.backward->num_calls(), 1u);
  EXPECT_EQ(graphs.forward->mutations.size(), 1u);
  // The old value itself, or a view of it, cannot be had: a break.
  auto result = partition(joint(
      R"(graph(%0 "x" : f32[4] cpu, %1 "w" : f32[4] cpu grad, %2 "t" : f32[4] cpu) {
  %3 = aten.add.Tensor(%0, 1, 1) : f32[4] cpu
  %4 = aten.mul.Tensor(%1, %0) : f32[4] cpu
  %5 = aten.view.default(%0, [4]) : f32[4] cpu @backward
  %6 = aten.mul.Tensor(%2, %5) : f32[4] cpu @backward
  return (%4, None, %6) mutates(0: %3)
})",
      2, 1));
  EXPECT_TRUE(result.broke());
}

TEST(Partition, RunningStatisticsOfBatchNorm) {
  AotGraphs graphs = split(joint(
      R"(graph(%0 "x" : f32[2, 3] cpu grad, %1 "m" : f32[3] cpu, %2 "v" : f32[3] cpu, %3 "t" : f32[2, 3] cpu) {
  %4, %5, %6, %7, %8 = aten._native_batch_norm_legit_functional.default(%0, None, None, %1, %2, True, 0.1, 1e-05) : f32[2, 3] cpu, f32[3] cpu, f32[3] cpu, f32[3] cpu, f32[3] cpu
  %9, %10, %11 = aten.native_batch_norm_backward.default(%3, %0, None, %1, %2, %5, %6, True, 1e-05, [True, False, False]) : f32[2, 3] cpu, f32[3] cpu, f32[3] cpu @backward
  return (%4, %9, None, None) mutates(1: %7 nograd, 2: %8 nograd)
})",
      3, 1));
  EXPECT_EQ(graphs.num_saved_tensors, 3u);  // x, mean, inverse deviation
}

TEST(Partition, NoGradient) {
  JointGraph made = joint(R"(graph(%0 "x" : f32[4] cpu) {
  %1 = aten.cos.default(%0) : f32[4] cpu
  %2 = aten.sin.default(%0) : f32[4] cpu
  return (%1)
})",
                          1, 1);
  made.has_backward = false;
  AotGraphs graphs = split(std::move(made));
  EXPECT_FALSE(graphs.backward);
  EXPECT_EQ(graphs.forward->num_calls(), 1u);
}

TEST(Partition, ForwardRandomnessStaysInTheForward) {
  AotGraphs graphs =
      split(joint(R"(graph(%0 "x" : f32[4] cpu grad, %1 "t" : f32[4] cpu) {
  %2 = aten.rand_like.default(%0, None, None, None, None, None) : f32[4] cpu
  %3 = aten.mul.Tensor(%0, 2) : f32[4] cpu
  %4 = aten.mul.Tensor(%1, 2) : f32[4] cpu @backward
  return (%3, %4)
})",
                  1, 1));
  EXPECT_EQ(calls_of(*graphs.forward, "aten.rand_like.default"), 1u);
}

}  // namespace
}  // namespace framejit::graph
