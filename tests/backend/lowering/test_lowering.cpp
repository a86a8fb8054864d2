// What ATen graphs become, as text; and the loops' meaning against ATen's on
// the same graph, over sizes and strides.
#include <ATen/ATen.h>

#include "backend/lowering/lower.h"
#include "backend/program.h"
#include "codegen/loops/text.h"
#include "codegen/x86/compile.h"
#include "graph/ir/parser.h"
#include "tests/backend/torch_helpers.h"

namespace framejit::backend::testing {
namespace {

std::unique_ptr<graph::Graph> parsed(const std::string& text) {
  eval("torch");  // starts Python and torch
  std::string error;
  auto graph = graph::parse_graph(text, {}, &error);
  EXPECT_TRUE(graph) << error << "\n" << text;
  return graph;
}

std::string loops_of(const std::string& text) {
  auto graph = parsed(text);
  if (!graph) return "";
  std::string reason;
  auto lowered = lower_to_loops(*graph, {}, &reason);
  return lowered ? codegen::print(lowered->loops) : reason;
}

// But the memory of a flip is its own.
TEST(Lowering, ViewsAreIndexMaps) {
  EXPECT_EQ(loops_of(R"(graph(%0 "x" : f32[s0, 12] cpu) {
  %1 = aten.view.default(%0, [sym(s0), 3, 4]) : f32[s0, 3, 4] cpu
  %2 = aten.permute.default(%1, [2, 0, 1]) : f32[4, s0, 3] strides [1, 12, 4] cpu
  %3 = aten.slice.Tensor(%2, 0, 1, 4, 2) : f32[2, s0, 3] strides [2, 12, 4] offset(1) cpu
  %4 = aten.select.int(%3, 2, -1) : f32[2, s0] strides [2, 12] offset(9) cpu
  %5 = aten.flip.default(%4, [1]) : f32[2, s0] cpu
  %6 = aten.neg.default(%5) : f32[2, s0] cpu
  return (%6)
})"),
            R"(loops(s0) {
  %0 "x" : f32[s0, 12] = input
  %1 : f32[2, s0] = map (i0 < 2, i1 < s0) %0[i1*-1 + (s0-1), i0*2 + 9]
  %2 : f32[2, s0] = map (i0 < 2, i1 < s0) neg(%1[i0, i1])
  return %2
}
)");
}

TEST(Lowering, MergedDimsAreAnAlias) {
  EXPECT_EQ(loops_of(R"(graph(%0 "x" : f32[2, 3] cpu, %1 "y" : f32[6] cpu) {
  %2 = aten.exp.default(%0) : f32[2, 3] cpu
  %3 = aten.view.default(%2, [6]) : f32[6] cpu
  %4 = aten.mul.Tensor(%3, %1) : f32[6] cpu
  return (%4)
})"),
            R"(loops() {
  %0 "x" : f32[2, 3] = input
  %1 "y" : f32[6] = input
  %2 : f32[2, 3] = map (i0 < 2, i1 < 3) exp(%0[i0, i1])
  %3 : f32[6] = alias %2
  %4 : f32[6] = map (i0 < 6) mul(%3[i0], %1[i0])
  return %4
}
)");
}

TEST(Lowering, SmallFloatsAreComputedInF32) {
  EXPECT_EQ(loops_of(R"(graph(%0 "x" : bf16[8] cpu) {
  %1 = aten.mul.Tensor(%0, 0.1) : bf16[8] cpu
  %2 = aten.lt.Scalar(%1, 0.1) : bool[8] cpu
  return (%1, %2)
})"),
            R"(loops() {
  %0 "x" : bf16[8] = input
  %1 : bf16[8] = map (i0 < 8) cast.bf16(mul(cast.f32(%0[i0]), f32(0.1)))
  %2 : b8[8] = map (i0 < 8) lt(cast.f32(%1[i0]), cast.f32(bf16(0.100097656)))
  return %1, %2
}
)");
}

TEST(Lowering, WhatHasNoRowIsAnExternOnMemory) {
  EXPECT_EQ(loops_of(R"(graph(%0 "x" : f32[4, 8] cpu, %1 "w" : f32[5, 8] cpu) {
  %2 = aten.t.default(%1) : f32[8, 5] strides [1, 8] cpu
  %3 = aten.relu.default(%0) : f32[4, 8] cpu
  %4 = aten.mm.default(%3, %2) : f32[4, 5] cpu
  %5 = aten.sigmoid.default(%4) : f32[4, 5] cpu
  return (%5)
})"),
            R"(loops() {
  %0 "x" : f32[4, 8] = input
  %1 "w" : f32[5, 8] = input
  %3 : f32[8, 5] strides [1, 8] = alias %1
  %2 : f32[4, 8] = map (i0 < 4, i1 < 8) max(%0[i0, i1], f32(0))
  %4 : f32[4, 5] = extern 0 sure (%2, %3)
  %5 : f32[4, 5] = map (i0 < 4, i1 < 5) div(f32(1), add(f32(1), exp(neg(%4[i0, i1]))))
  return %5
}
)");
}

TEST(Lowering, PartsAreUpdates) {
  EXPECT_EQ(loops_of(R"(graph(%0 "x" : f32[s0, 2] cpu, %1 "y" : f32[3, 2] cpu) {
  %2 = aten.cat.default([%0, %1]) : f32[s0+3, 2] cpu
  return (%2)
})"),
            R"(loops(s0) {
  %0 "x" : f32[s0, 2] = input
  %1 "y" : f32[3, 2] = input
  %2 : f32[s0+3, 2] = update none (i0 < s0, i1 < 2) %0[i0, i1] to [i0, i1]
  %3 : f32[s0+3, 2] = update %2 (i0 < 3, i1 < 2) %1[i0, i1] to [i0 + s0, i1]
  return %3
}
)");
}

TEST(Lowering, IndicesThatAreDataAreChecked) {
  EXPECT_EQ(loops_of(R"(graph(%0 "x" : f32[9, 2] cpu, %1 "i" : i64[4] cpu) {
  %2 = aten.index_select.default(%0, 0, %1) : f32[4, 2] cpu
  return (%2)
})"),
            R"(loops() {
  %0 "x" : f32[9, 2] = input
  %1 "i" : i64[4] = input
  %2 : f32[4, 2] = map (i0 < 4, i1 < 2)
    t0 = %1[i0]
    %0[@(select(check(and(le(i64(0), t0), lt(t0, i64(9)))), t0, i64(0))), i1]
  return %2
}
)");
}

// ---- against ATen

at::Tensor random_like(const graph::TensorMeta& meta, const int64_t* symbols) {
  std::vector<int64_t> sizes, strides;
  int64_t last = 0;
  for (size_t dim = 0; dim < meta.sizes.size(); ++dim) {
    sizes.push_back(meta.sizes[dim].evaluate(symbols));
    strides.push_back(meta.strides[dim].evaluate(symbols));
    last += std::max<int64_t>(sizes.back() - 1, 0) * strides.back();
  }
  at::Tensor memory = c10::isFloatingType(meta.dtype)
                          ? at::randn({last + 1}).to(meta.dtype)
                          : at::randint(0, 4, {last + 1}).to(meta.dtype);
  return memory.as_strided(sizes, strides);
}

std::vector<LoopTarget> targets(LoopTarget first = LoopTarget::kInterpreter) {
  std::vector<LoopTarget> all = {LoopTarget::kInterpreter};
  if (first != all[0]) all.insert(all.begin(), first);
  if (codegen::cpu_has(codegen::X86Isa::kAvx512))
    all.push_back(LoopTarget::kAvx512);
  if (codegen::cpu_has(codegen::X86Isa::kAvx2))
    all.push_back(LoopTarget::kAvx2);
  return all;
}

std::vector<at::Tensor> run(const graph::Graph& graph, LoopTarget loops,
                            const std::vector<at::Tensor>& inputs,
                            const std::vector<int64_t>& symbols) {
  ProgramOptions options;
  options.check_results = false;
  options.loops = loops;
  auto program = Program::build(graph, options);
  EXPECT_TRUE(program.ok());
  EXPECT_EQ(program.value()->report().kernels.size(),
            loops == LoopTarget::kNone ? 0u : 1u);
  std::vector<const at::Tensor*> raw;
  for (const at::Tensor& input : inputs) raw.push_back(&input);
  std::vector<at::Tensor> outputs(graph.outputs.size());
  program.value()->run(raw.data(), symbols.data(), outputs.data(), nullptr);
  return outputs;
}

void expect_equal(const std::vector<at::Tensor>& expected,
                  const std::vector<at::Tensor>& got, const std::string& text) {
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(expected[i].sizes(), got[i].sizes()) << text;
    EXPECT_EQ(expected[i].scalar_type(), got[i].scalar_type()) << text;
    if (expected[i].numel() > 1) {
      EXPECT_EQ(expected[i].strides(), got[i].strides()) << text;
    }
    const double tolerance =
        expected[i].scalar_type() == at::kBFloat16 ? 2e-2 : 1e-5;
    EXPECT_TRUE(at::allclose(expected[i].to(at::kDouble),
                             got[i].to(at::kDouble), tolerance, tolerance,
                             true))
        << text << "\n"
        << expected[i] << "\n"
        << got[i];
  }
}

void expect_as_aten(const std::string& text,
                    std::vector<int64_t> symbols = {}) {
  auto graph = parsed(text);
  ASSERT_TRUE(graph);
  at::manual_seed(3);
  std::vector<at::Tensor> inputs;
  for (const graph::Value* input : graph->inputs)
    inputs.push_back(random_like(input->meta, symbols.data()));
  auto expected = run(*graph, LoopTarget::kNone, inputs, symbols);
  for (LoopTarget target : targets())
    expect_equal(expected, run(*graph, target, inputs, symbols), text);
}

constexpr int64_t kSizes[] = {0, 1, 7, 17};

TEST(LoweringAgainstAten, RowsOfEverySize) {
  for (int64_t n : kSizes) {
    for (const char* body : {
             "%1 = aten._softmax.default(%0, 1, False)",
             "%1 = aten._log_softmax.default(%0, 1, False)",
             "%1 = aten.cumsum.default(%0, 1)",
             "%1 = aten.cumsum.default(%0, 0)",
             "%1 = aten.gelu.default(%0)",
             "%1 = aten.flip.default(%0, [0, 1])",
             "%1 = aten.triu.default(%0, 1)",
         })
      expect_as_aten("graph(%0 \"x\" : f32[5, s0] cpu) {\n  " +
                         std::string(body) +
                         " : f32[5, s0] cpu\n  return (%1)\n}",
                     {n});
    for (const char* body : {
             "aten.sum.dim_IntList(%0, [1])",
             "aten.mean.dim(%0, [1])",
             "aten.var.correction(%0, [1])",
             "aten.linalg_vector_norm.default(%0, 2, [1])",
         })
      expect_as_aten("graph(%0 \"x\" : f32[5, s0] cpu) {\n  %1 = " +
                         std::string(body) + " : f32[5] cpu\n  return (%1)\n}",
                     {n});
  }
}

TEST(LoweringAgainstAten, StridedOperands) {
  for (int64_t n : kSizes)
    for (const char* strides : {"[6, 1]", "[12, 2]", "[0, 1]", "[6, 0]"})
      expect_as_aten(
          std::string("graph(%0 \"x\" : f32[s0, 6] strides ") + strides +
              " cpu, %1 \"y\" : bf16[6] cpu) {\n"
              "  %2 = aten.add.Tensor(%0, %1, 2) : f32[s0, 6] cpu\n"
              "  %3 = aten.amax.default(%2, [1], True) : f32[s0, 1] cpu\n"
              "  %4 = aten.sub.Tensor(%2, %3) : f32[s0, 6] cpu\n"
              "  return (%4)\n}",
          {n});
}

TEST(LoweringAgainstAten, ResultsInAnotherOrderOfDims) {
  expect_as_aten(R"(graph(%0 "x" : f32[2, 3, 4, 5] strides [60, 1, 15, 3] cpu) {
  %1 = aten.relu.default(%0) : f32[2, 3, 4, 5] strides [60, 1, 15, 3] cpu
  %2 = aten.cumsum.default(%1, 1) : f32[2, 3, 4, 5] cpu
  return (%1, %2)
})");
}

TEST(LoweringAgainstAten, ExternsBetweenLoops) {
  expect_as_aten(R"(graph(%0 "x" : f32[4, 8] cpu, %1 "w" : f32[5, 8] cpu) {
  %2 = aten.t.default(%1) : f32[8, 5] strides [1, 8] cpu
  %3 = aten.flip.default(%0, [1]) : f32[4, 8] cpu
  %4 = aten.mm.default(%3, %2) : f32[4, 5] cpu
  %5 = aten.expand.default(%4, [2, 4, 5]) : f32[2, 4, 5] strides [0, 5, 1] cpu
  %6 = aten.mul.Tensor(%5, 2) : f32[2, 4, 5] cpu
  return (%5, %6)
})");
}

TEST(LoweringAgainstAten, ChecksFailWhereAtenRaises) {
  at::Tensor x = at::arange(1, 5);
  auto place = [](int64_t a, int64_t b) {
    return at::tensor(at::ArrayRef<int64_t>({a, b}));
  };
  auto index = parsed(R"(graph(%0 "x" : i64[4] cpu, %1 "i" : i64[2] cpu) {
  %2 = aten.index.Tensor(%0, [%1]) : i64[2] cpu
  return (%2)
})");
  for (LoopTarget loops : targets(LoopTarget::kNone)) {
    EXPECT_TRUE(
        run(*index, loops, {x, place(-1, -4)}, {})[0].equal(place(4, 1)));
    EXPECT_ANY_THROW(run(*index, loops, {x, place(0, 4)}, {}));
    EXPECT_ANY_THROW(run(*index, loops, {x, place(-5, 0)}, {}));
  }
  auto divide = parsed(R"(graph(%0 "x" : i64[2] cpu, %1 "y" : i64[2] cpu) {
  %2 = aten.floor_divide.default(%0, %1) : i64[2] cpu
  %3 = aten.remainder.Tensor(%0, %1) : i64[2] cpu
  return (%2, %3)
})");
  for (LoopTarget loops : targets(LoopTarget::kNone)) {
    auto out = run(*divide, loops, {place(-7, 7), place(2, -2)}, {});
    EXPECT_TRUE(out[0].equal(place(-4, -4)));
    EXPECT_TRUE(out[1].equal(place(1, -1)));
    EXPECT_ANY_THROW(run(*divide, loops, {place(1, 1), place(0, 1)}, {}));
  }
}

}  // namespace
}  // namespace framejit::backend::testing
