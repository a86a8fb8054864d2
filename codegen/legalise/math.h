// What expansions of functions are written in, and those that functions of f32
// (in f64) and of f64 share.
#pragma once

#include <limits>
#include <span>

#include "codegen/legalise/expand.h"
#include "codegen/scalar/simplify.h"

namespace framejit::codegen {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kFloatMax = std::numeric_limits<float>::max();
constexpr double kDoubleMax = std::numeric_limits<double>::max();
constexpr DType kSingle = DType::kF32, kWide = DType::kF64;

// Arithmetic on values of one body and one float type.
class Math {
 public:
  Math(Body& body, DType type) : b_(body), type_(type) {}

  ScalarId constant(double value) { return b_.constant(type_, value); }
  ScalarId op(ScalarOp op, ScalarId a, ScalarId c = kNoScalar,
              ScalarId d = kNoScalar) {
    const ScalarOpRow& row = scalar_op_row(op);
    DType type = row.result == ResultType::kBool      ? DType::kBool
                 : row.types == OperandTypes::kSelect ? b_.type(c)
                                                      : b_.type(a);
    return emit_simplified(b_, op, type, {a, c, d});
  }
  ScalarId add(ScalarId a, ScalarId c) { return op(ScalarOp::kAdd, a, c); }
  ScalarId sub(ScalarId a, ScalarId c) { return op(ScalarOp::kSub, a, c); }
  ScalarId mul(ScalarId a, ScalarId c) { return op(ScalarOp::kMul, a, c); }
  ScalarId div(ScalarId a, ScalarId c) { return op(ScalarOp::kDiv, a, c); }
  ScalarId fma(ScalarId a, ScalarId c, ScalarId d) {
    return op(ScalarOp::kFma, a, c, d);
  }
  ScalarId fnma(ScalarId a, ScalarId c, ScalarId d) {
    return op(ScalarOp::kFnma, a, c, d);
  }
  ScalarId neg(ScalarId a) { return op(ScalarOp::kNeg, a); }
  ScalarId abs(ScalarId a) { return op(ScalarOp::kAbs, a); }
  ScalarId rint(ScalarId a) { return op(ScalarOp::kRint, a); }
  ScalarId sqrt(ScalarId a) { return op(ScalarOp::kSqrt, a); }
  ScalarId less(ScalarId a, ScalarId c) { return op(ScalarOp::kLt, a, c); }
  ScalarId less_equal(ScalarId a, ScalarId c) {
    return op(ScalarOp::kLe, a, c);
  }
  ScalarId equal(ScalarId a, ScalarId c) { return op(ScalarOp::kEq, a, c); }
  ScalarId differ(ScalarId a, ScalarId c) { return op(ScalarOp::kNe, a, c); }
  ScalarId both(ScalarId a, ScalarId c) { return op(ScalarOp::kAnd, a, c); }
  ScalarId either(ScalarId a, ScalarId c) { return op(ScalarOp::kOr, a, c); }
  ScalarId select(ScalarId when, ScalarId a, ScalarId c) {
    return op(ScalarOp::kSelect, when, a, c);
  }
  ScalarId rarely(ScalarId when, ScalarId a, ScalarId c) {
    return op(ScalarOp::kSelectRare, when, a, c);
  }
  ScalarId clamp(ScalarId x, double low, double high) {
    ScalarId least = op(ScalarOp::kMax, x, constant(low));
    return op(ScalarOp::kMin, least, constant(high));
  }
  ScalarId scale(ScalarId a, ScalarId power) {
    return op(ScalarOp::kScaleByPower, a, power);
  }
  ScalarId wide(ScalarId a) { return b_.cast(kWide, a); }
  ScalarId single(ScalarId a) { return b_.cast(kSingle, a); }
  ScalarId cast(DType type, ScalarId a) { return b_.cast(type, a); }

  DType bits_type() const { return type_ == kWide ? DType::kI64 : DType::kI32; }
  ScalarId bits(ScalarId a) {
    return emit_simplified(b_, ScalarOp::kBitcast, bits_type(), {a, -1, -1});
  }
  ScalarId from_bits(ScalarId a) {
    return emit_simplified(b_, ScalarOp::kBitcast, type_, {a, -1, -1});
  }
  ScalarId integer(int64_t value) { return b_.integer(bits_type(), value); }
  ScalarId sign_of(ScalarId x) {
    int64_t sign = type_ == kWide ? std::numeric_limits<int64_t>::min()
                                  : std::numeric_limits<int32_t>::min();
    return both(bits(x), integer(sign));
  }
  // x, not below 0, with the sign of another.
  ScalarId with_sign(ScalarId x, ScalarId sign) {
    return from_bits(either(bits(x), sign_of(sign)));
  }
  ScalarId is_negative(ScalarId x) { return less(bits(x), integer(0)); }

  template <class T>
  ScalarId polynomial(ScalarId x, std::span<const T> c) {
    ScalarId result = constant(c.back());
    for (size_t i = c.size() - 1; i-- > 0;) {
      result = fma(result, x, constant(c[i]));
    }
    return result;
  }
  template <class T, size_t N>
  ScalarId polynomial(ScalarId x, const T (&c)[N]) {
    return polynomial(x, std::span<const T>(c));
  }
  // x + x * s * p(s) with s = x * x.
  template <class T, size_t N>
  ScalarId odd_polynomial(ScalarId x, const T (&c)[N]) {
    ScalarId s = mul(x, x);
    return fma(mul(polynomial(s, c), s), x, x);
  }

  Body& body() { return b_; }
  DType type() const { return type_; }

 private:
  Body& b_;
  DType type_;
};

// ---- numbers of more digits

// A number as the sum of two, of which the first is the sum rounded, or nearly.
struct Parts {
  ScalarId high, low;
};

// a + b, |a| >= |b| or a = 0.
inline Parts ordered_sum(Math& w, ScalarId a, ScalarId b) {
  ScalarId sum = w.add(a, b);
  return {sum, w.sub(b, w.sub(sum, a))};
}
inline Parts sum_of(Math& w, ScalarId a, ScalarId b) {
  ScalarId sum = w.add(a, b);
  ScalarId back = w.sub(sum, a);
  return {sum, w.add(w.sub(a, w.sub(sum, back)), w.sub(b, back))};
}
inline Parts product_of(Math& w, ScalarId a, ScalarId b) {
  ScalarId product = w.mul(a, b);
  return {product, w.fma(a, b, w.neg(product))};
}
// top / bottom, by the reciprocal of bottom.high.
inline Parts quotient_of(Math& w, const Parts& top, const Parts& bottom,
                         ScalarId reciprocal) {
  ScalarId q = w.mul(top.high, reciprocal);
  ScalarId rest = w.add(w.fnma(q, bottom.high, top.high), top.low);
  rest = w.fnma(q, bottom.low, rest);
  return {q, w.mul(rest, reciprocal)};
}
inline ScalarId reciprocal(Math& w, ScalarId x) {
  return w.div(w.constant(1), x);
}

// ---- shared by functions (math.cpp)

struct Mantissa {
  ScalarId m, e;  // x = m * 2^e, 2/3 <= m < 4/3
};
Mantissa split(Math& m, ScalarId x);
// What logarithms give where there is none: -inf at 0, NaN below, x at
// infinity.
ScalarId log_edges(Math& m, ScalarId x, ScalarId result);
// log(1 + x + more), `more` small beside x.
ScalarId log1p_of(Math& w, ScalarId x, ScalarId more = kNoScalar);
// log1p(2 a / (1 - a)) / 2
ScalarId atanh_of(Math& w, ScalarId x);

// Whether a whole number of f64 is odd.
ScalarId is_odd(Math& w, ScalarId n);

// |x|^y with what the sign of x, whole y, and infinities make of it.
ScalarId pow_edges(Math& w, ScalarId x, ScalarId y, ScalarId r);

// log(2^e (1 + f)) + more, in f64 (double_math.cpp).
ScalarId log_of_power(Math& w, ScalarId f, ScalarId e,
                      ScalarId more = kNoScalar);
// Of f64 operands (double_math.cpp).
ScalarId expand_double(Body& b, ScalarOp op, const std::array<ScalarId, 3>& in);

}  // namespace framejit::codegen
