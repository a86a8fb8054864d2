// Simplification changes no value.
#include <gtest/gtest.h>

#include <random>

#include "codegen/scalar/simplify.h"
#include "tests/codegen/scalar/samples.h"

namespace framejit::codegen {
namespace {

ScalarId load(Body& body, DType type, int number) {
  return body.emit(ScalarOp::kLoad, type, {-1, -1, -1}, number);
}

TEST(Simplify, RemovesWhatCannotChangeAValue) {
  Body b;
  ScalarId x = load(b, DType::kF32, 0);
  ScalarId one = b.constant(DType::kF32, 1), zero = b.constant(DType::kF32, 0);
  auto of = [&](ScalarOp op, ScalarId p, ScalarId q) {
    return emit_simplified(b, op, DType::kF32, {p, q, -1});
  };
  EXPECT_EQ(of(ScalarOp::kMul, x, one), x);
  EXPECT_EQ(of(ScalarOp::kSub, x, zero), x);
  EXPECT_EQ(of(ScalarOp::kAdd, x, b.constant(DType::kF32, -0.0)), x);
  EXPECT_EQ(b.node(of(ScalarOp::kAdd, x, zero)).op, ScalarOp::kAdd);
  EXPECT_EQ(b.node(of(ScalarOp::kMul, x, zero)).op, ScalarOp::kMul);
  EXPECT_EQ(of(ScalarOp::kAdd, one, one), b.constant(DType::kF32, 2));
  ScalarId wide = b.cast(DType::kF64, x);
  EXPECT_EQ(emit_simplified(b, ScalarOp::kCast, DType::kF32, {wide, -1, -1}),
            x);
  ScalarId narrow = b.cast(DType::kBF16, x);
  EXPECT_NE(emit_simplified(b, ScalarOp::kCast, DType::kF32, {narrow, -1, -1}),
            x);
}

TEST(Simplify, ExactCastsLoseNothing) {
  for (DType from : all_dtypes()) {
    for (DType to : all_dtypes()) {
      if (!cast_is_exact(from, to)) continue;
      for (Element value : special_elements(from)) {
        Element there = convert(from, to, value);
        EXPECT_TRUE(same_element(from, convert(to, from, there), value))
            << dtype_name(from) << " " << dtype_name(to);
        // And every further cast gives what it gives of the original.
        for (DType last : all_dtypes()) {
          EXPECT_TRUE(same_element(last, convert(to, last, there),
                                   convert(from, last, value)))
              << dtype_name(from) << " " << dtype_name(to) << " "
              << dtype_name(last);
        }
      }
    }
  }
}

// Random programs over constants, loads and a few operations.
TEST(Simplify, KeepsTheValueOfRandomPrograms) {
  std::mt19937 random(7);
  const std::vector<DType> types = {DType::kBool, DType::kU8,  DType::kI8,
                                    DType::kI32,  DType::kI64, DType::kF32,
                                    DType::kF64,  DType::kBF16};
  int smaller = 0;
  for (int round = 0; round < 3000; ++round) {
    Body body;
    auto pick = [&](size_t count) {
      return static_cast<int>(random() % count);
    };
    for (DType type : types) {
      load(body, type, static_cast<int>(type));
      for (double value : {0.0, 1.0, -1.0}) body.constant(type, value);
    }
    for (int i = 0; i < 40; ++i) {
      auto op =
          static_cast<ScalarOp>(pick(static_cast<size_t>(ScalarOp::kSqrt)));
      int count = scalar_op_row(op).operands;
      if (count == 0) continue;
      ScalarNode node{op, types[pick(types.size())]};
      for (int k = 0; k < count; ++k) {
        node.in[k] = pick(body.nodes().size());
      }
      if (scalar_op_row(op).result == ResultType::kBool) {
        node.type = DType::kBool;
      } else if (scalar_op_row(op).result == ResultType::kSame) {
        node.type = body.type(node.in[count - 1]);
      }
      if (malformed(body, node).empty()) body.emit(op, node.type, node.in);
    }
    std::vector<ScalarId> roots = {static_cast<int>(body.nodes().size()) - 1,
                                   static_cast<int>(body.nodes().size()) - 2};
    std::vector<ScalarId> before = roots;
    Body simpler = simplify(body, {&roots[0], &roots[1]});
    smaller += simpler.nodes().size() < body.nodes().size();
    std::vector<Element> old_values, new_values;
    for (int sample = 0; sample < 20; ++sample) {
      auto leaf = [&](const ScalarNode& node) {
        auto values = special_elements(node.type);
        return values[(sample * 7 + node.payload) % values.size()];
      };
      evaluate(body, leaf, &old_values);
      evaluate(simpler, leaf, &new_values);
      for (int k = 0; k < 2; ++k) {
        EXPECT_TRUE(same_element(body.type(before[k]), old_values[before[k]],
                                 new_values[roots[k]]))
            << "round " << round;
      }
    }
  }
  EXPECT_GT(smaller, 2000);
}

}  // namespace
}  // namespace framejit::codegen
