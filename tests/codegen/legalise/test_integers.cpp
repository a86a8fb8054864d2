// Division of i64 by way of f64, where its range begins and ends.
#include <gtest/gtest.h>

#include <random>

#include "../scalar/samples.h"
#include "codegen/legalise/expand.h"

namespace framejit::codegen {
namespace {

constexpr ScalarOp kDivisions[] = {ScalarOp::kTruncDiv, ScalarOp::kFloorDiv,
                                   ScalarOp::kFmod, ScalarOp::kMod};

// Around powers of two, and random ones of all sizes.
std::vector<int64_t> numbers() {
  std::vector<int64_t> result;
  for (Element element : special_elements(DType::kI64)) {
    result.push_back(static_cast<int64_t>(element));
  }
  for (int power = 49; power <= 54; ++power) {
    for (int64_t beside = -2; beside <= 2; ++beside) {
      result.push_back((int64_t{1} << power) + beside);
      result.push_back(-(int64_t{1} << power) + beside);
    }
  }
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    result.push_back(static_cast<int64_t>(random()) >> (random() % 64));
  }
  return result;
}

// Of two loads, or (is_const) of a load and a constant.
void expect_same(ScalarOp op, bool is_const) {
  const std::vector<int64_t> all = numbers();
  for (int64_t divisor : all) {
    if (divisor == 0) continue;
    Body body;
    ScalarId a = body.emit(ScalarOp::kLoad, DType::kI64);
    ScalarId b = is_const
                     ? body.integer(DType::kI64, divisor)
                     : body.emit(ScalarOp::kLoad, DType::kI64, {-1, -1, -1}, 1);
    ScalarId root = body.binary(op, a, b);
    body = expand(body, {&root});
    for (int64_t number : all) {
      if (number == std::numeric_limits<int64_t>::min() && divisor == -1) {
        continue;
      }
      std::vector<Element> values;
      evaluate(
          body,
          [&](const ScalarNode& leaf) {
            return static_cast<Element>(leaf.payload == 0 ? number : divisor);
          },
          &values);
      ASSERT_EQ(values[root], evaluate(op, DType::kI64, DType::kI64,
                                       {static_cast<Element>(number),
                                        static_cast<Element>(divisor), 0}))
          << scalar_op_row(op).text << " " << number << " " << divisor;
    }
  }
}

TEST(Integers, AreDividedAsTheyAre) {
  for (ScalarOp op : kDivisions) expect_same(op, false);
}

TEST(Integers, AreDividedByConstants) {
  for (ScalarOp op : kDivisions) expect_same(op, true);
}

}  // namespace
}  // namespace framejit::codegen
