#include <gtest/gtest.h>

#include "codegen/loops/text.h"

namespace framejit::codegen {
namespace {

// The text, parsed and printed again.
std::string again(const std::string& text) {
  std::string error;
  auto graph = parse_loops(text, &error);
  if (!graph) return error;
  EXPECT_EQ(verify(*graph), "");
  return print(*graph);
}

void expect_round_trip(const std::string& text) {
  EXPECT_EQ(again(text), text);
}

TEST(LoopText, SampleOfTheHeader) {
  expect_round_trip(R"(loops(s0) {
  %0 : f32[s0, 64] = input
  %1 : f32[64] = input
  %2 : f32[s0] = reduce sum (i0 < s0; i1 < 64) %0[i0, i1]
  %3 : f32[s0, 64] = map (i0 < s0, i1 < 64) add(sub(%0[i0, i1], %2[i0]), %1[i1])
  return %3
}
)");
}

TEST(LoopText, EveryKindOfDefinition) {
  expect_round_trip(R"(loops(s0, s1, f2) {
  %0 "x['a\"b\\']" : f32[s0, s1] strides [1, s0] = input
  %7 : f32[s1] strides [s0] = alias %0 offset s0-1
  %1 : f32[s0], %2 : i64[s0] = reduce argmax (i0 < s0; i1 < s1) %0[i0, i1]
  %3 : f32[] = reduce max (; i0 < s0) %1[i0]
  %4 : i64[s0] = scan sum (i0 < s0) %2[i0*-1 + (s0-1)]
  %5 : f32[s0*2] = update none (i0 < s0) neg(%1[i0]) to [i0]
  %6 : f32[s0*2] = update %5 (i0 < s0) %1[i0] to [i0 + s0]
  %8 : f32[s0*2] = update sum %6 (i0 < s0) %1[i0] to [@(%2[i0])]
  %9 : f32[s1], %10 : f64[] = extern 3 (%7, %8)
  %12 : f32[s1] = extern 4 ordered ()
  %11 : f64[s1] = map (i0 < s1) mul(cast.f64(%9[i0]), number(f2*2.0))
  return %11, %8, %10
}
)");
}

TEST(LoopText, SharedScalarsHaveALine) {
  expect_round_trip(R"(loops() {
  %0 : f32[8, 3] = input
  %1 : i64[8] = input
  %2 : f32[8] = map (i0 < 8)
    t0 = %1[i0]
    t1 = check(lt(select(lt(t0, i64(0)), add(t0, i64(8)), t0), i64(8)))
    t2 = when(t1, %0[@(t0), 2])
    select(t1, mul(t2, exp(t2)), f32(0))
  return %2
}
)");
}

TEST(LoopText, ConstantsKeepTheirBits) {
  for (const char* constant :
       {"f32(0.1)", "f32(-0)", "f32(nan)", "f32(nan:4290772993)", "f32(inf)",
        "f32(1e-45)", "f32(3.4028235e+38)"}) {
    expect_round_trip(std::string("loops() {\n  %0 : f32[] = map () ") +
                      constant + "\n  return %0\n}\n");
  }
  expect_round_trip(R"(loops() {
  %0 : f64[2] = map (i0 < 2) f64(0.1)
  %1 : f16[] = map () f16(0.5)
  %2 : bf16[] = map () bf16(-inf)
  %3 : u8[] = map () u8(255)
  %4 : i64[] = map () i64(-9223372036854775808)
  %5 : b8[] = map () b8(1)
  return %0, %1, %2, %3, %4, %5
}
)");
}

TEST(LoopText, TheOrderOfNodesDoesNotShow) {
  auto build = [](bool swapped) {
    LoopGraph graph;
    Definition definition;
    Body& body = definition.body;
    ScalarId a, b;
    if (swapped) {
      body.constant(DType::kF32, 7);  // nobody's
      b = body.unary(ScalarOp::kExp, body.constant(DType::kF32, 2));
      a = body.unary(ScalarOp::kNeg, body.constant(DType::kF32, 1));
    } else {
      a = body.unary(ScalarOp::kNeg, body.constant(DType::kF32, 1));
      b = body.unary(ScalarOp::kExp, body.constant(DType::kF32, 2));
    }
    ScalarId sum = body.binary(ScalarOp::kAdd, a, b);
    definition.value = body.binary(ScalarOp::kMul, sum, sum);
    definition.results = {graph.add_buffer({DType::kF32})};
    graph.definitions.push_back(definition);
    graph.outputs = {0};
    return print(graph);
  };
  EXPECT_EQ(build(false), build(true));
  EXPECT_EQ(stable_hash(build(false)), stable_hash(build(true)));
}

TEST(LoopText, HashIsTheSameEverywhere) {
  EXPECT_EQ(stable_hash(""), 0xcbf29ce484222325u);
  EXPECT_EQ(stable_hash("a"), 0xaf63dc4c8601ec8cu);
}

std::string parse_error(const std::string& lines) {
  std::string error;
  auto graph = parse_loops(
      "loops(s0) {\n  %0 : f32[s0] = input\n" + lines + "\n}", &error);
  return graph ? "parsed" : error;
}

TEST(LoopText, ErrorsSayWhere) {
  EXPECT_EQ(parse_error("return %0"), "parsed");
  EXPECT_EQ(parse_error("%1 : f33[] = input"), "line 3: unknown type f33");
  EXPECT_EQ(parse_error("%1 : f32[] = map () foo(f32(1))"),
            "line 3: unknown operation foo");
  EXPECT_EQ(parse_error("%1 : f32[s0] = map (i0 < s0) %2[i0]"),
            "line 3: unknown buffer %2");
  EXPECT_EQ(parse_error("%1 : f32[s0] = map (i0 < s0) %0[i1]"),
            "line 3: unknown loop i1");
  EXPECT_EQ(parse_error("%1 : f32[s0] = map (i1 < s0) %0[i1]"),
            "line 3: loops are i0, i1, ... in order");
  EXPECT_EQ(parse_error("%1 : f32[] = map () t0"), "line 3: unknown t0");
  EXPECT_EQ(parse_error("%0 : f32[] = input"), "line 3: defined twice: %0");
  EXPECT_EQ(parse_error("%2 : f32[] = input\nreturn %2"),
            "line 5: %1 has no definition");
  EXPECT_EQ(parse_error("%1 : f32[s1] = input\nreturn"),
            "line 5: the symbols are not those used");
  EXPECT_NE(parse_error("%1 : f32[] = map () add(f32(1), f64(1))"), "parsed");
  EXPECT_EQ(parse_error("%1 : f32[] = whatever"),
            "line 3: unknown definition whatever");
}

}  // namespace
}  // namespace framejit::codegen
