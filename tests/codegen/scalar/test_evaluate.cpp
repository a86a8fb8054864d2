// The meaning of scalar operations: against the compiler's own arithmetic.
#include <gtest/gtest.h>
#include <immintrin.h>

#include <cfenv>
#include <cstring>

#include "codegen/scalar/evaluate.h"
#include "guards/result.h"
#include "tests/codegen/scalar/samples.h"

namespace framejit::codegen {
namespace {

Element call(ScalarOp op, DType type, Element a, Element b = 0) {
  bool is_bool = scalar_op_row(op).result == ResultType::kBool;
  return evaluate(op, is_bool ? DType::kBool : type, type, {a, b, 0});
}

TEST(Evaluate, EveryHalfPrecisionValueSurvivesAFloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    for (DType type : {DType::kF16, DType::kBF16}) {
      Element wide = convert(type, DType::kF32, bits);
      EXPECT_TRUE(same_element(type, convert(DType::kF32, type, wide), bits))
          << dtype_name(type) << " " << bits;
    }
  }
}

// All values between two neighbours go to the nearer, the middle to the even.
TEST(Evaluate, SmallFloatsRoundToNearestEven) {
  for (DType type : {DType::kF16, DType::kBF16}) {
    const uint32_t infinity = type == DType::kF16 ? 0x7c00 : 0x7f80;
    for (uint32_t bits = 0; bits + 1 < infinity; ++bits) {
      double low = as_double(type, bits), high = as_double(type, bits + 1);
      double middle = (low + high) / 2;
      // Halfway is exact in f32, but for bf16's smallest denormals.
      auto rounded = [&](double value) {
        return convert(DType::kF32, type, element_of(DType::kF32, value));
      };
      float middle_f32 = static_cast<float>(middle);
      if (middle_f32 != middle) continue;
      EXPECT_EQ(rounded(middle), bits + (bits & 1));
      EXPECT_EQ(rounded(std::nextafterf(middle_f32, 0)), bits);
      EXPECT_EQ(rounded(std::nextafterf(middle_f32, HUGE_VALF)), bits + 1);
    }
    double largest = as_double(type, infinity - 1);
    double step = largest - as_double(type, infinity - 2);
    EXPECT_EQ(element_of(type, largest + step * 0.49), infinity - 1);
    EXPECT_EQ(element_of(type, largest + step * 0.5), infinity);
  }
}

TEST(Evaluate, HalvesConvertAsTheMachineDoes) {
  if (!__builtin_cpu_supports("f16c")) GTEST_SKIP();
  for (uint64_t bits = 0; bits <= 0xffffffffu; bits += 4099) {
    float value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    Element ours = float_to_f16(value);
    uint16_t theirs;
    asm("vmovd %1, %%xmm0\n vcvtps2ph $0, %%xmm0, %%xmm0\n vmovd %%xmm0, %k0"
        : "=r"(theirs)
        : "r"(static_cast<uint32_t>(bits))
        : "xmm0");
    EXPECT_EQ(ours, theirs) << bits << " " << value;
  }
}

TEST(Evaluate, FloatsTruncateAsTheMachineDoes) {
  for (Element bits : special_elements(DType::kF64)) {
    double value = as_double(DType::kF64, bits);
    int64_t wide = _mm_cvttsd_si64(_mm_set_sd(value));
    int32_t narrow = _mm_cvttsd_si32(_mm_set_sd(value));
    auto to = [&](DType type) {
      return static_cast<int64_t>(convert(DType::kF64, type, bits));
    };
    EXPECT_EQ(to(DType::kI64), wide) << value;
    EXPECT_EQ(to(DType::kU8), static_cast<uint8_t>(wide)) << value;
    EXPECT_EQ(to(DType::kI32), narrow) << value;
    EXPECT_EQ(to(DType::kI16), static_cast<int16_t>(narrow)) << value;
    EXPECT_EQ(to(DType::kI8), static_cast<int8_t>(narrow)) << value;
    EXPECT_EQ(to(DType::kBool), value != 0) << value;
  }
}

template <class T>
void check_integers(DType type) {
  auto check = [&](ScalarOp op, Element a, Element b, T want) {
    EXPECT_EQ(call(op, type, a, b), element_of_integer(type, want))
        << dtype_name(type) << " " << scalar_op_row(op).text << " "
        << static_cast<int64_t>(a) << " " << static_cast<int64_t>(b);
  };
  using Wide = __int128;
  for (Element ea : special_elements(type)) {
    for (Element eb : special_elements(type)) {
      Wide a = static_cast<int64_t>(ea), b = static_cast<int64_t>(eb);
      check(ScalarOp::kAdd, ea, eb, static_cast<T>(a + b));
      check(ScalarOp::kSub, ea, eb, static_cast<T>(a - b));
      check(ScalarOp::kMul, ea, eb, static_cast<T>(a * b));
      check(ScalarOp::kNeg, ea, eb, static_cast<T>(-a));
      check(ScalarOp::kMin, ea, eb, static_cast<T>(a < b ? a : b));
      check(ScalarOp::kMax, ea, eb, static_cast<T>(a < b ? b : a));
      check(ScalarOp::kXor, ea, eb, static_cast<T>(a ^ b));
      const Wide width = sizeof(T) * 8;
      bool too_far = b < 0 || b >= width;
      check(ScalarOp::kShiftLeft, ea, eb,
            too_far ? T{0}
                    : static_cast<T>(static_cast<unsigned __int128>(a)
                                     << static_cast<int>(b)));
      check(ScalarOp::kShiftRight, ea, eb,
            static_cast<T>(a >> (too_far ? 100 : static_cast<int>(b))));
      EXPECT_EQ(call(ScalarOp::kLt, type, ea, eb), a < b);
      EXPECT_EQ(call(ScalarOp::kLe, type, ea, eb), a <= b);
      if (b == 0) continue;
      check(ScalarOp::kTruncDiv, ea, eb, static_cast<T>(a / b));
      check(ScalarOp::kFmod, ea, eb, static_cast<T>(a % b));
      Wide rest = a % b;
      bool down = rest != 0 && (rest < 0) != (b < 0);
      check(ScalarOp::kFloorDiv, ea, eb, static_cast<T>(a / b - down));
      check(ScalarOp::kMod, ea, eb, static_cast<T>(down ? rest + b : rest));
    }
  }
}

TEST(Evaluate, IntegersWrapAndDivide) {
  check_integers<uint8_t>(DType::kU8);
  check_integers<int8_t>(DType::kI8);
  check_integers<int16_t>(DType::kI16);
  check_integers<int32_t>(DType::kI32);
  check_integers<int64_t>(DType::kI64);
}

TEST(Evaluate, NaNInMinMaxAndComparisons) {
  for (DType type : {DType::kF32, DType::kF64}) {
    Element nan = element_of(type, std::nan("")), one = element_of(type, 1);
    for (ScalarOp op : {ScalarOp::kMin, ScalarOp::kMax}) {
      EXPECT_TRUE(is_nan(type, call(op, type, nan, one)));
      EXPECT_TRUE(is_nan(type, call(op, type, one, nan)));
    }
    EXPECT_EQ(call(ScalarOp::kNe, type, nan, nan), 1u);
    for (ScalarOp op : {ScalarOp::kEq, ScalarOp::kLt, ScalarOp::kLe}) {
      EXPECT_EQ(call(op, type, nan, one), 0u);
    }
    EXPECT_EQ(call(ScalarOp::kNeg, type, element_of(type, 0)),
              element_of(type, -0.0));
    EXPECT_EQ(call(ScalarOp::kRint, type, element_of(type, 2.5)),
              element_of(type, 2));
  }
  EXPECT_EQ(
      convert(DType::kF64, DType::kBool, element_of(DType::kF64, std::nan(""))),
      1u);
}

TEST(Evaluate, MemoryKeepsEveryElement) {
  for (DType type : all_dtypes()) {
    for (Element value : special_elements(type)) {
      unsigned char memory[8];
      store_element(type, value, memory);
      EXPECT_EQ(load_element(type, memory), value);
    }
  }
}

TEST(Body, SharesNodesAndRefusesWrongTypes) {
  Body body;
  ScalarId x = body.emit(ScalarOp::kLoad, DType::kF32, {-1, -1, -1}, 0);
  ScalarId y = body.emit(ScalarOp::kLoad, DType::kI32, {-1, -1, -1}, 1);
  EXPECT_EQ(body.binary(ScalarOp::kAdd, x, x),
            body.binary(ScalarOp::kAdd, x, x));
  EXPECT_EQ(body.type(body.binary(ScalarOp::kLt, x, x)), DType::kBool);
  EXPECT_THROW(body.binary(ScalarOp::kAdd, x, y), InternalError);
  EXPECT_THROW(body.unary(ScalarOp::kExp, y), InternalError);
  EXPECT_THROW(body.emit(ScalarOp::kBitcast, DType::kF64, {x, -1, -1}),
               InternalError);
  EXPECT_THROW(body.ternary(ScalarOp::kSelect, x, x, x), InternalError);
  EXPECT_THROW(body.binary(ScalarOp::kAdd, x, 99), InternalError);
  EXPECT_EQ(body.cast(DType::kF32, x), x);
  // 0.0 and -0.0 are two constants.
  EXPECT_NE(body.constant(DType::kF32, 0.0), body.constant(DType::kF32, -0.0));
}

}  // namespace
}  // namespace framejit::codegen
