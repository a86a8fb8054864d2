#include <gtest/gtest.h>

#include "codegen/loops/text.h"

namespace framejit::codegen {
namespace {

// What verify() says of these lines behind two inputs.
std::string verdict(const std::string& lines) {
  std::string error;
  auto graph = parse_loops(
      "loops() {\n  %0 : f32[4, 6] = input\n  %1 : i64[4] = input\n" + lines +
          "\nreturn\n}",
      &error);
  return graph ? verify(*graph) : "not parsed: " + error;
}

TEST(LoopVerify, AcceptsWhatIsWellFormed) {
  EXPECT_EQ(verdict(""), "");
  EXPECT_EQ(verdict("%2 : f32[4] = map (i0 < 4) %0[i0, 5]"), "");
  EXPECT_EQ(verdict("%2 : f32[0] = map (i0 < 0) %0[i0 + 9, 0]"), "");
  EXPECT_EQ(verdict("%2 : f32[4] = map (i0 < 4) "
                    "when(lt(i0, i64(2)), %0[i0*2, 7])"),
            "");
  EXPECT_EQ(verdict("%2 : f32[24] = alias %0\n"
                    "%3 : f32[3, 2] strides [7, -1] = alias %0 offset 9"),
            "");
}

TEST(LoopVerify, RefusesTypes) {
  EXPECT_EQ(verdict("%2 : f64[4] = map (i0 < 4) %0[i0, 0]"),
            "%2: the value is of another type");
  EXPECT_EQ(verdict("%2 : f32[4] = map (i0 < 4) %0[i0, @(%0[i0, 0])]"),
            "%2: an index is i64");
  EXPECT_EQ(verdict("%2 : f32[4] = map (i0 < 4) when(i0, %0[i0, 0])"),
            "%2: a condition that is not b8");
  EXPECT_EQ(verdict("%2 : i64[] = reduce any (; i0 < 4) %1[i0]"),
            "%2: type not combined");
  EXPECT_EQ(verdict("%2 : bf16[] = reduce sum (; i0 < 4) cast.bf16(%1[i0])"),
            "%2: type not combined");
  EXPECT_EQ(
      verdict("%2 : i64[], %3 : i64[] = reduce welford (; i0 < 4) %1[i0]"),
      "%2: type not combined");
  EXPECT_EQ(
      verdict("%2 : f32[], %3 : f32[] = reduce argmax (; i0 < 4) %0[i0, 0]"),
      "%2: the value is of another type");
  EXPECT_EQ(verdict("%2 : f64[24] = alias %0"), "%2: an alias of another type");
}

TEST(LoopVerify, RefusesShapes) {
  EXPECT_EQ(verdict("%2 : f32[4] = map (i0 < 5) f32(0)"),
            "%2: a result that is not its loops");
  EXPECT_EQ(verdict("%2 : f32[4] = map (i0 < 4) %0[i0]"),
            "%2: one index a dim");
  EXPECT_EQ(verdict("%2 : f32[4] = map (i0 < 4) %0[i0 + 1, 0]"),
            "%2: an index out of range");
  EXPECT_EQ(verdict("%2 : f32[4] = map (i0 < 4) %0[i0, i0*-1]"),
            "%2: an index out of range");
  EXPECT_EQ(verdict("%2 : f32[24] = alias %0 offset 1"),
            "%2: an alias beyond its memory");
  EXPECT_EQ(verdict("%2 : f32[6] = alias %0\n%3 : f32[6] = alias %2"),
            "%3: an alias of an alias");
  EXPECT_EQ(verdict("%2 : f32[-1] = input"), "%2: not a size: -1");
  EXPECT_EQ(verdict("%2 : f32[2] strides [] = input"),
            "%2: as many strides as sizes");
  EXPECT_EQ(verdict("%2 : f32[2] = reduce sum (i0 < 4; i1 < 6) %0[i0, i1]"),
            "%2: a result that is not its loops");
}

TEST(LoopVerify, RefusesKinds) {
  EXPECT_EQ(verdict("%2 : f32[4] = reduce sum (i0 < 4) %0[i0, 0]"),
            "%2: nothing is reduced");
  EXPECT_EQ(verdict("%2 : f32[4] = map (i0 < 4; i1 < 6) %0[i0, i1]"),
            "%2: only a reduce reduces");
  EXPECT_EQ(verdict("%2 : f32[4] = reduce (i0 < 4; i1 < 6) %0[i0, i1]"),
            "%2: no combiner");
  EXPECT_EQ(verdict("%2 : f32[4] = reduce argmax (i0 < 4; i1 < 6) %0[i0, i1]"),
            "%2: not as many results as the combiner has");
  EXPECT_EQ(
      verdict("%2 : f32[4], %3 : i64[4] = scan argmax (i0 < 4) %0[i0, 0]"),
      "%2: not a combiner of prefixes");
  EXPECT_EQ(verdict("%2 : f32[] = scan sum () f32(1)"), "%2: nothing to scan");
  EXPECT_EQ(verdict("%2 : f32[4] = update sum none (i0 < 4) f32(0) to [i0]"),
            "%2: nothing to combine with");
  EXPECT_EQ(verdict("%2 : f32[4] = update %0 (i0 < 4) f32(0) to [i0]"),
            "%2: a base unlike the result");
  EXPECT_EQ(verdict("%2 : f32[4] = update none (i0 < 4) f32(0) to [i0 + 1]"),
            "%2: an index out of range");
  EXPECT_EQ(verdict("%2 : f32[4] = update none (i0 < 4) f32(0) to [i0, 0]"),
            "%2: one index a dim");
}

// Faults that no text has.
class BuiltWrong : public testing::Test {
 protected:
  BuiltWrong() {
    graph_.add_buffer({DType::kF32, {Expr(4)}, {Expr(1)}});
    graph_.add_buffer({DType::kF32, {Expr(4)}, {Expr(1)}});
    Definition input;
    input.kind = DefinitionKind::kInput;
    input.results = {0};
    map_.results = {1};
    map_.loops = {Expr(4)};
    map_.accesses = {{0, {{Expr(0), {Expr(1)}}}}};
    map_.value = map_.body.emit(ScalarOp::kLoad, DType::kF32);
    graph_.definitions = {input};
    graph_.outputs = {1};
  }
  std::string verdict() {
    LoopGraph graph = graph_;
    graph.definitions.push_back(map_);
    return verify(graph);
  }
  LoopGraph graph_;
  Definition map_;
};

TEST_F(BuiltWrong, IsFineAsItIs) { EXPECT_EQ(verdict(), ""); }

TEST_F(BuiltWrong, Places) {
  map_.value = 1;
  EXPECT_EQ(verdict(), "%1: no value");
  map_.value = 0;
  map_.accesses[0].buffer = 1;
  EXPECT_EQ(verdict(), "%1: a load of what is not defined");
  map_.accesses[0].buffer = 0;
  map_.accesses[0].when = 0;
  EXPECT_EQ(verdict(), "%1: a condition behind its load");
  map_.accesses[0] = {0, {{Expr(0), {Expr(1)}, 0}}};
  EXPECT_EQ(verdict(), "%1: data behind its use");
  map_.accesses[0] = {0, {{Expr(0), {}}}};
  EXPECT_EQ(verdict(), "%1: one coefficient a loop");
  map_.accesses.clear();
  EXPECT_EQ(verdict(), "%1: an access that is not there");
}

TEST_F(BuiltWrong, Leaves) {
  map_.body.emit(ScalarOp::kIndex, DType::kI64, {-1, -1, -1}, 1);
  EXPECT_EQ(verdict(), "%1: a loop that is not there");
  map_.body = Body();
  map_.value = map_.body.emit(ScalarOp::kRow, DType::kF32);
  EXPECT_EQ(verdict(), "%1: row values are of kernels");
  map_.body = Body();
  map_.body.emit(ScalarOp::kNumber, DType::kI64);
  EXPECT_EQ(verdict(), "%1: a number that is not there");
}

TEST_F(BuiltWrong, Checks) {
  ScalarId check =
      map_.body.unary(ScalarOp::kCheck, map_.body.integer(DType::kBool, 1));
  EXPECT_EQ(verdict(), "%1: a check that no value needs");
  map_.value = map_.body.ternary(ScalarOp::kSelect, check, 0, 0);
  EXPECT_EQ(verdict(), "");
}

TEST_F(BuiltWrong, Results) {
  map_.results = {0};
  EXPECT_EQ(verdict(), "%0: defined twice");
  map_.results = {7};
  EXPECT_EQ(verdict(), "%7: a result that is not there");
  map_.results = {1};
  graph_.buffers[1].alias_of = 0;
  EXPECT_EQ(verdict(), "%1: an alias is nobody's result");
  graph_.buffers[1].alias_of = kNoBuffer;
  graph_.outputs = {2};
  EXPECT_EQ(verdict(), "an output is not defined");
  graph_.outputs = {1};
  graph_.add_buffer({});
  EXPECT_EQ(verdict(), "%2 has no definition");
}

}  // namespace
}  // namespace framejit::codegen
