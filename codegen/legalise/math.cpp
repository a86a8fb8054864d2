// The expansions of functions of f32, one function each.
#include "codegen/legalise/math.h"

#include <cmath>
#include <utility>

#include "codegen/legalise/math_coefficients.h"
#include "codegen/scalar/erf_pieces.h"
#include "codegen/scalar/evaluate.h"
#include "codegen/scalar/lookup.h"

namespace framejit::codegen {

namespace {

namespace coef = coefficients;

// ---- exponentials

// exp(x) = 2^n * exp(r), |r| <= ln 2 / 2.
ScalarId exp_single(Math& m, ScalarId x) {
  x = m.clamp(x, -104.5, 89.5);
  ScalarId n = m.rint(m.mul(x, m.constant(coef::kInverses[0])));
  ScalarId r = m.fnma(n, m.constant(coef::kLn2[0]), x);
  r = m.fnma(n, m.constant(coef::kLn2[1]), r);
  ScalarId one = m.constant(1);
  ScalarId p = m.polynomial(r, coef::kExp);
  p = m.fma(m.fma(p, r, one), r, one);
  return m.scale(p, n);
}

// The same where neither x nor the result is extreme, |x| <= 80; no NaN comes
// of one. The power is added to the exponent: n is what adding a large number
// leaves in its lowest bits.
ScalarId exp_moderate(Math& m, ScalarId x) {
  Body& b = m.body();
  ScalarId magic = m.constant(12582912);  // 1.5 * 2^23
  ScalarId shifted = m.fma(x, m.constant(coef::kInverses[0]), magic);
  ScalarId n = m.sub(shifted, magic);
  ScalarId r = m.fnma(n, m.constant(coef::kLn2[0]), x);
  r = m.fnma(n, m.constant(coef::kLn2[1]), r);
  ScalarId one = m.constant(1);
  ScalarId p = m.polynomial(r, coef::kExp);
  p = m.fma(m.fma(p, r, one), r, one);
  ScalarId power =
      m.op(ScalarOp::kShiftLeft, m.bits(shifted), b.integer(DType::kI32, 23));
  return m.from_bits(m.add(m.bits(p), power));
}

ScalarId exp2_single(Math& m, ScalarId x) {
  x = m.clamp(x, -151, 129);
  ScalarId n = m.rint(x);
  ScalarId r = m.mul(m.sub(x, n), m.constant(std::log(2.0)));
  ScalarId one = m.constant(1);
  ScalarId p = m.polynomial(r, coef::kExp);
  p = m.fma(m.fma(p, r, one), r, one);
  return m.scale(p, n);
}

// In f64: exp(x) - 1 of the rest, and the power of two. x is clamped to where
// exp(x) is neither 0 nor infinite in twice the range.
struct Reduced {
  ScalarId rest, power;
};
Reduced exp_parts(Math& m, ScalarId x) {
  x = m.clamp(x, -746, 710);
  ScalarId n = m.rint(m.mul(x, m.constant(coef::kLog2E[0])));
  ScalarId r = m.fnma(n, m.constant(coef::kLn2Wide[0]), x);
  r = m.fnma(n, m.constant(coef::kLn2Wide[1]), r);
  ScalarId p = m.polynomial(r, coef::kExpWide);
  return {m.fma(m.mul(p, r), r, r), n};
}
ScalarId exp_wide(Math& m, ScalarId x) {
  Reduced parts = exp_parts(m, x);
  return m.scale(m.add(parts.rest, m.constant(1)), parts.power);
}
// 2^n (e^r - 1) + (2^n - 1): nothing cancels that matters.
ScalarId expm1_wide(Math& m, ScalarId x) {
  Reduced parts = exp_parts(m, x);
  // 2^1024 is infinite: the last power is multiplied in.
  ScalarId one = m.constant(1);
  ScalarId power = m.op(ScalarOp::kMin, parts.power, m.constant(1023));
  ScalarId scale = m.scale(one, power);
  ScalarId result = m.fma(scale, parts.rest, m.sub(scale, one));
  ScalarId more = m.less(power, parts.power);
  result = m.select(more, m.mul(result, m.constant(2)), result);
  // The sign of zero.
  return m.select(m.equal(x, m.constant(0)), x, result);
}

}  // namespace

// ---- logarithms

Mantissa split(Math& m, ScalarId x) {
  ScalarId e = m.op(ScalarOp::kExponent, x);
  ScalarId size = m.scale(x, m.neg(e));
  ScalarId large = m.less(m.constant(4.0 / 3), size);
  return {m.select(large, m.mul(size, m.constant(0.5)), size),
          m.select(large, m.add(e, m.constant(1)), e)};
}

ScalarId log_edges(Math& m, ScalarId x, ScalarId result) {
  const double most =
      m.type() == kWide ? std::numeric_limits<double>::max() : kFloatMax;
  result = m.select(m.less(m.constant(most), x), x, result);
  ScalarId zero = m.constant(0);
  ScalarId low =
      m.select(m.equal(x, zero), m.constant(-kInf), m.constant(kNan));
  return m.select(m.less_equal(x, zero), low, result);
}

namespace {

// log(2^e (1 + f)) + more
ScalarId log_of_power_single(Math& m, ScalarId f, ScalarId e,
                             ScalarId more = kNoScalar) {
  ScalarId s = m.mul(f, f);
  ScalarId p = m.fma(m.polynomial(f, coef::kLog), f, m.constant(-0.5));
  ScalarId r = m.fma(e, m.constant(coef::kLn2[1]), m.mul(p, s));
  if (more != kNoScalar) r = m.add(r, more);
  return m.fma(e, m.constant(coef::kLn2[0]), m.add(f, r));
}
ScalarId log_single(Math& m, ScalarId x) {
  Mantissa parts = split(m, x);
  ScalarId f = m.sub(parts.m, m.constant(1));
  return log_edges(m, x, log_of_power_single(m, f, parts.e));
}

// A number as two of f32, for arithmetic in f32.
std::pair<double, double> in_singles(double number) {
  const double high = static_cast<float>(number);
  return {high, number - high};
}
// log(x) / log(base); `inverse` is 1 / log(base), `power` log(2) / log(base).
ScalarId log_to_base_single(Math& m, ScalarId x, double inverse, double power) {
  const auto [inverse_high, inverse_low] = in_singles(inverse);
  const auto [power_high, power_low] = in_singles(power);
  Mantissa parts = split(m, x);
  ScalarId f = m.sub(parts.m, m.constant(1));
  // log(1 + f) = f - f^2 / 2 + f^3 p(f), of which the first two in parts.
  ScalarId part = m.mul(f, m.constant(0.5)), half = m.mul(part, f);
  ScalarId high = m.sub(f, half);
  ScalarId rest = m.add(m.sub(m.sub(f, high), half), m.fnma(part, f, half));
  rest = m.fma(m.polynomial(f, coef::kLog), m.mul(m.mul(f, f), f), rest);
  Parts first = product_of(m, high, m.constant(inverse_high));
  ScalarId low = m.fma(rest, m.constant(inverse_high), first.low);
  low = m.fma(high, m.constant(inverse_low), low);
  Parts whole = product_of(m, parts.e, m.constant(power_high));
  low = m.add(low, m.fma(parts.e, m.constant(power_low), whole.low));
  Parts sum = ordered_sum(m, whole.high, first.high);
  return log_edges(m, x, m.add(sum.high, m.add(sum.low, low)));
}

// log(2^e (1 + f)): with s = f / (2 + f), log(1 + f) = f - f^2/2 + s (f^2/2 +
// s^2 p(s^2)).
ScalarId log_of_parts(Math& m, ScalarId f, ScalarId e) {
  ScalarId s = m.div(f, m.add(f, m.constant(2)));
  ScalarId t = m.mul(s, s);
  ScalarId p = m.polynomial(t, coef::kLogWide);
  ScalarId half = m.mul(m.mul(f, f), m.constant(0.5));
  ScalarId inner = m.fma(t, p, half);
  ScalarId low = m.fma(s, inner, m.mul(e, m.constant(coef::kLn2Wide[1])));
  ScalarId rest = m.sub(m.sub(half, low), f);
  return m.fma(e, m.constant(coef::kLn2Wide[0]), m.neg(rest));
}

}  // namespace

ScalarId log1p_of(Math& w, ScalarId x, ScalarId more) {
  Parts sum = sum_of(w, w.constant(1), x);
  Mantissa parts = split(w, sum.high);
  // Where 1 + x needs no scaling, x itself is the fraction.
  ScalarId near = w.equal(parts.e, w.constant(0));
  ScalarId f = w.select(near, x, w.sub(parts.m, w.constant(1)));
  ScalarId lost = w.select(near, w.constant(0), sum.low);
  if (more != kNoScalar) lost = w.add(lost, more);
  lost = w.scale(lost, w.neg(parts.e));
  // Divided by 1 + f, as near as needed.
  ScalarId share = w.mul(lost, w.fma(f, f, w.sub(w.constant(1), f)));
  ScalarId result = w.type() == kSingle
                        ? log_of_power_single(w, f, parts.e, share)
                        : log_of_power(w, f, parts.e, share);
  result = log_edges(w, sum.high, result);
  return w.select(w.equal(x, w.constant(0)), x, result);
}

ScalarId atanh_of(Math& w, ScalarId x) {
  ScalarId a = w.abs(x), one = w.constant(1), zero = w.constant(0);
  Parts bottom = ordered_sum(w, one, w.neg(a));
  ScalarId top = w.mul(a, w.constant(2));
  Parts ratio = quotient_of(w, {top, zero}, bottom, reciprocal(w, bottom.high));
  ScalarId r = log1p_of(w, ratio.high, ratio.low);
  r = w.mul(r, w.constant(0.5));
  return w.with_sign(w.select(w.less(one, a), w.constant(kNan), r), x);
}

namespace {

// ---- hyperbolic functions

// Beyond 0.625: 1 - 2 / (exp(2|x|) + 1). Or-ing the sign restores -0.
ScalarId tanh_single(Math& m, ScalarId x) {
  ScalarId size = m.abs(x), one = m.constant(1), two = m.constant(2);
  ScalarId most = m.op(ScalarOp::kMin, size, m.constant(10));
  ScalarId e = exp_moderate(m, m.mul(most, two));
  ScalarId big = m.sub(one, m.div(two, m.add(e, one)));
  ScalarId small = m.odd_polynomial(size, coef::kTanh);
  ScalarId large = m.less_equal(m.constant(0.625), size);
  return m.with_sign(m.select(large, big, small), x);
}

ScalarId sinh_wide(Math& m, ScalarId x) {
  ScalarId size = m.abs(x);
  ScalarId e = exp_wide(m, size);
  ScalarId big = m.mul(m.sub(e, m.div(m.constant(1), e)), m.constant(0.5));
  ScalarId small = m.odd_polynomial(size, coef::kSinhWide);
  ScalarId r = m.select(m.less(size, m.constant(1)), small, big);
  return m.with_sign(r, x);
}
ScalarId cosh_wide(Math& m, ScalarId x) {
  ScalarId e = exp_wide(m, m.abs(x));
  return m.mul(m.add(e, m.div(m.constant(1), e)), m.constant(0.5));
}
ScalarId asinh_wide(Math& m, ScalarId x) {
  ScalarId a = m.abs(x), square = m.mul(a, a), one = m.constant(1);
  ScalarId root = m.sqrt(m.add(square, one));
  ScalarId rest = m.add(a, m.div(square, m.add(root, one)));
  // An infinity divided by itself.
  rest = m.select(m.less(m.constant(kFloatMax), a), a, rest);
  return m.with_sign(log1p_of(m, rest), x);
}
ScalarId acosh_wide(Math& m, ScalarId x) {
  ScalarId t = m.sub(x, m.constant(1));
  ScalarId root = m.sqrt(m.mul(t, m.add(t, m.constant(2))));
  ScalarId r = log1p_of(m, m.add(t, root));
  return m.select(m.less(t, m.constant(0)), m.constant(kNan), r);
}
// ---- error functions

// By the piece of |x|: 20 operations in place of 30.
ScalarId erf_by_pieces(Math& m, ScalarId x) {
  // Behind the last piece the result is 1.
  constexpr double kMost = 15.49 * kErfPieceWidth;
  // What is added to a small number leaves it, rounded, in the last bits.
  constexpr double kRounder = 12582912;
  Body& b = m.body();
  ScalarId t = m.op(ScalarOp::kMin, m.abs(x), m.constant(kMost));
  ScalarId rounder = m.constant(kRounder);
  ScalarId sum = m.fma(t, m.constant(1 / kErfPieceWidth), rounder);
  ScalarId piece = m.bits(sum);
  ScalarId r = m.fnma(m.sub(sum, rounder), m.constant(kErfPieceWidth), t);
  auto table = [&](int64_t k) {
    return b.emit(ScalarOp::kLookup, kSingle, {piece, -1, -1}, k);
  };
  ScalarId p = table(kErfTables - 1);
  for (int64_t k = kErfTables - 2; k > 1; --k) p = m.fma(p, r, table(k));
  ScalarId q = m.fma(p, r, m.fma(table(0), r, table(1)));
  return m.with_sign(q, x);
}

ScalarId erf_single(Math& m, ScalarId x) {
  ScalarId t = m.abs(x);
  ScalarId q = m.polynomial(m.mul(t, t), coef::kErfSmall);
  ScalarId small = m.fma(q, t, t);
  // From 4 on the result is 1.
  ScalarId most = m.op(ScalarOp::kMin, t, m.constant(4));
  ScalarId p = m.polynomial(most, coef::kErfLarge);
  ScalarId e = exp_moderate(m, m.fnma(most, p, m.neg(most)));
  ScalarId big = m.sub(m.constant(1), e);
  // NaN is in `small` only.
  ScalarId large = m.less_equal(m.constant(0.928), t);
  return m.with_sign(m.select(large, big, small), x);
}

ScalarId erfc_wide(Math& m, ScalarId x) {
  ScalarId size = m.op(ScalarOp::kMin, m.abs(x), m.constant(10.6));
  ScalarId square = m.mul(size, size), two = m.constant(2);
  ScalarId small =
      m.fnma(x, m.polynomial(square, coef::kErfWide), m.constant(1));
  ScalarId u = m.div(m.sub(size, two), m.add(size, two));
  ScalarId tail =
      m.mul(exp_wide(m, m.neg(square)), m.polynomial(u, coef::kErfcWide));
  ScalarId big = m.select(m.less(x, m.constant(0)), m.sub(two, tail), tail);
  return m.select(m.less(size, m.constant(1)), small, big);
}

// ---- trigonometric functions

// In f64: the fraction of a large finite x / pi + offset, and whether the whole
// number beside it is odd (i32, lowest bit). Multiples of 2 are left out of
// 2^e / pi beforehand, so its product with 24 bits is exact in parts.
struct Turns {
  ScalarId fraction, whole;
};
Turns turns_of(Math& m, ScalarId size, double offset) {
  Body& b = m.body();
  Math w(b, kWide);
  ScalarId bits = m.bits(size);
  ScalarId exponent =
      m.op(ScalarOp::kShiftRight, bits, b.integer(DType::kI32, 23));
  ScalarId index = b.cast(DType::kI64, exponent);
  ScalarId mantissa = m.either(m.both(bits, b.integer(DType::kI32, 0x7fffff)),
                               b.integer(DType::kI32, 0x800000));
  ScalarId number = w.cast(kWide, mantissa);
  auto table = [&](LookupTable which) {
    return b.emit(ScalarOp::kLookup, kWide, {index, -1, -1},
                  static_cast<int64_t>(which));
  };
  ScalarId high = w.mul(number, table(LookupTable::kTurnsHigh));
  ScalarId first = w.rint(high);
  ScalarId f = w.fma(number, table(LookupTable::kTurnsMiddle),
                     w.add(w.sub(high, first), w.constant(offset)));
  ScalarId second = w.rint(f);
  f = w.fma(number, table(LookupTable::kTurnsLow), w.sub(f, second));
  return {f, b.cast(DType::kI32, w.add(first, second))};
}

// Three parts of pi reduce arguments up to here.
constexpr double kTrigMost = 105000;

ScalarId sin_single(Math& m, ScalarId x, bool cosine) {
  Body& b = m.body();
  ScalarId magic = m.constant(12582912);  // 1.5 * 2^23 rounds to an integer
  ScalarId size = m.abs(x);
  ScalarId inverse = m.constant(coef::kInverses[1]);
  ScalarId shifted, n;
  if (cosine) {
    shifted = m.add(m.fma(size, inverse, m.constant(-0.5)), magic);
    n = m.add(m.sub(shifted, magic), m.constant(0.5));
  } else {
    shifted = m.fma(size, inverse, magic);
    n = m.sub(shifted, magic);
  }
  ScalarId r = size;
  for (float part : coef::kPi) r = m.fnma(n, m.constant(part), r);
  auto finished = [&](ScalarId angle, ScalarId odd) {
    ScalarId sign = m.op(ScalarOp::kShiftLeft, odd, b.integer(DType::kI32, 31));
    ScalarId value = m.bits(m.odd_polynomial(angle, coef::kSin));
    return m.from_bits(m.op(ScalarOp::kXor, value, sign));
  };
  // cos(x) = (-1)^(n+1) sin(x - (n + 1/2) pi)
  ScalarId odd = m.bits(shifted);
  if (cosine) odd = m.op(ScalarOp::kNot, odd);
  ScalarId usual = finished(r, odd);
  ScalarId large = m.both(m.less(m.constant(kTrigMost), size),
                          m.less_equal(size, m.constant(kFloatMax)));
  Turns turns = turns_of(m, size, cosine ? 0.5 : 0);
  Math w(b, kWide);
  ScalarId angle = m.single(w.mul(turns.fraction, w.constant(M_PI)));
  ScalarId result = m.rarely(large, finished(angle, turns.whole), usual);
  if (cosine) return result;
  return m.from_bits(m.op(ScalarOp::kXor, m.bits(result), m.sign_of(x)));
}

struct SinCos {
  ScalarId sin, cos, quadrant;  // f64; the quadrant as a whole number
};
SinCos sin_cos(Math& w, ScalarId x) {
  ScalarId n = w.rint(w.mul(x, w.constant(coef::kTwoOverPi[0])));
  ScalarId r = w.fnma(n, w.constant(coef::kHalfPi[0]), x);
  r = w.fnma(n, w.constant(coef::kHalfPi[1]), r);
  ScalarId s = w.mul(r, r);
  ScalarId p = w.polynomial(s, coef::kCosWide);
  ScalarId cos =
      w.fma(w.mul(s, s), p, w.fma(s, w.constant(-0.5), w.constant(1)));
  ScalarId sin = w.odd_polynomial(r, coef::kSinWide);
  return {sin, cos, n};
}

}  // namespace

ScalarId is_odd(Math& w, ScalarId n) {
  ScalarId half = w.mul(n, w.constant(0.5));
  return w.differ(w.rint(half), half);
}

namespace {

ScalarId tan_single(Math& m, ScalarId x) {
  Math w(m.body(), kWide);
  ScalarId size = m.abs(x);
  // In f64 two parts of pi / 2 reach far; beyond, the angle within a turn.
  ScalarId large = m.both(m.less(m.constant(0x1p30), size),
                          m.less_equal(size, m.constant(kFloatMax)));
  Turns turns = turns_of(m, size, 0);
  ScalarId within = w.mul(turns.fraction, w.constant(M_PI));
  ScalarId angle = w.rarely(large, within, w.wide(size));
  SinCos parts = sin_cos(w, angle);
  ScalarId odd = is_odd(w, parts.quadrant);
  ScalarId top = w.select(odd, parts.cos, parts.sin);
  ScalarId bottom = w.select(odd, w.neg(parts.sin), parts.cos);
  ScalarId r = m.single(w.div(top, bottom));
  return m.from_bits(m.op(ScalarOp::kXor, m.bits(r), m.sign_of(x)));
}

// ---- their inverses

ScalarId asin_core(Math& w, ScalarId size, ScalarId* is_small) {
  *is_small = w.less_equal(size, w.constant(0.5));
  // asin(x) = pi / 2 - 2 asin(sqrt((1 - x) / 2))
  ScalarId root = w.sqrt(w.mul(w.sub(w.constant(1), size), w.constant(0.5)));
  ScalarId t = w.select(*is_small, size, root);
  return w.odd_polynomial(t, coef::kAsinWide);
}
ScalarId asin_wide(Math& w, ScalarId x) {
  ScalarId small;
  ScalarId p = asin_core(w, w.abs(x), &small);
  ScalarId big = w.fma(p, w.constant(-2), w.constant(M_PI_2));
  return w.with_sign(w.select(small, p, big), x);
}
ScalarId acos_wide(Math& w, ScalarId x) {
  ScalarId small;
  ScalarId p = asin_core(w, w.abs(x), &small);
  ScalarId negative = w.less(x, w.constant(0));
  ScalarId middle = w.sub(w.constant(M_PI_2), w.select(negative, w.neg(p), p));
  ScalarId twice = w.add(p, p);
  ScalarId outer = w.select(negative, w.sub(w.constant(M_PI), twice), twice);
  return w.select(small, middle, outer);
}

// atan(top / bottom), both not negative, one of them not 0.
ScalarId atan_of_ratio(Math& w, ScalarId top, ScalarId bottom) {
  // Below tan(pi/8) as it is, else pi/4 + atan((a - b) / (a + b)); the larger
  // goes below.
  ScalarId swap = w.less(bottom, top);
  ScalarId low = w.select(swap, bottom, top);
  ScalarId high = w.select(swap, top, bottom);
  ScalarId far = w.less(w.mul(high, w.constant(std::sqrt(2.0) - 1)), low);
  ScalarId t = w.div(w.select(far, w.sub(low, high), low),
                     w.select(far, w.add(low, high), high));
  ScalarId p = w.odd_polynomial(t, coef::kAtanWide);
  p = w.add(p, w.select(far, w.constant(M_PI_4), w.constant(0)));
  return w.select(swap, w.sub(w.constant(M_PI_2), p), p);
}
ScalarId atan_wide(Math& w, ScalarId x) {
  // Infinite as any that is large.
  ScalarId size = w.op(ScalarOp::kMin, w.abs(x), w.constant(1e60));
  return w.with_sign(atan_of_ratio(w, size, w.constant(1)), x);
}
ScalarId atan2_wide(Math& w, ScalarId y, ScalarId x) {
  ScalarId most = w.constant(1e200), zero = w.constant(0);
  ScalarId top = w.op(ScalarOp::kMin, w.abs(y), most);
  ScalarId bottom = w.op(ScalarOp::kMin, w.abs(x), most);
  ScalarId none = w.both(w.equal(top, zero), w.equal(bottom, zero));
  bottom = w.select(none, w.constant(1), bottom);
  ScalarId r = atan_of_ratio(w, top, bottom);
  r = w.select(w.is_negative(x), w.sub(w.constant(M_PI), r), r);
  r = w.with_sign(r, y);
  // A NaN of x that is lost where y is larger.
  return w.select(w.differ(x, x), x, r);
}

// ---- two operands

}  // namespace

ScalarId pow_edges(Math& w, ScalarId x, ScalarId y, ScalarId r) {
  ScalarId size = w.abs(x), one = w.constant(1), zero = w.constant(0);
  ScalarId whole = w.equal(w.rint(y), y);
  // Infinities are whole and even.
  ScalarId odd = w.both(is_odd(w, y), whole);
  ScalarId negative = w.is_negative(x);
  r = w.select(w.both(negative, odd), w.neg(r), r);
  ScalarId finite = w.both(w.less(x, zero), w.less(size, w.constant(kInf)));
  ScalarId none = w.both(finite, w.op(ScalarOp::kNot, whole));
  r = w.select(none, w.constant(kNan), r);
  ScalarId endless = w.equal(w.abs(y), w.constant(kInf));
  ScalarId is_one = w.either(w.equal(y, zero), w.equal(x, one));
  is_one = w.either(is_one, w.both(w.equal(size, one), endless));
  return w.select(is_one, one, r);
}

namespace {

// Of f32, in f64. Numbers from 0 on to powers that are neither 0 nor infinite
// have no edges but 0.
ScalarId pow_single(Math& m, ScalarId x, ScalarId y) {
  Math w(m.body(), kWide);
  ScalarId infinity = m.constant(kInf), zero = m.constant(0);
  ScalarId is_plain =
      m.both(m.less(x, infinity), m.less_equal(m.integer(0), m.bits(x)));
  ScalarId of_plain = m.both(m.less(m.abs(y), infinity),
                             m.op(ScalarOp::kNot, m.equal(y, zero)));
  ScalarId rare = m.op(ScalarOp::kNot, m.both(is_plain, of_plain));

  ScalarId size = w.wide(m.abs(x)), power = w.wide(y);
  Mantissa parts = split(w, size);
  ScalarId log = log_of_parts(w, w.sub(parts.m, w.constant(1)), parts.e);
  ScalarId edged = log_edges(w, size, log);
  log = w.select(w.equal(size, w.constant(0)), w.constant(-kInf), log);
  ScalarId usual = exp_wide(w, w.mul(power, log));
  ScalarId other =
      pow_edges(w, w.wide(x), power, exp_wide(w, w.mul(power, edged)));
  return m.rarely(rare, m.single(other), m.single(usual));
}

ScalarId hypot_wide(Math& w, ScalarId x, ScalarId y) {
  ScalarId r = w.sqrt(w.fma(x, x, w.mul(y, y)));
  ScalarId infinity = w.constant(kInf);
  ScalarId endless =
      w.either(w.equal(w.abs(x), infinity), w.equal(w.abs(y), infinity));
  return w.select(endless, infinity, r);
}

// f32 in f64: the quotient is truncated exactly below 2^28; libm does the rest.
ScalarId fmod_single(Math& m, ScalarId x, ScalarId y) {
  Math w(m.body(), kWide);
  ScalarId a = w.abs(w.wide(x)), d = w.abs(w.wide(y));
  ScalarId ratio = w.div(a, d);
  ScalarId rest = w.fnma(w.op(ScalarOp::kTrunc, ratio), d, a);
  ScalarId infinity = w.constant(kInf);
  ScalarId all = w.both(w.equal(d, infinity), w.less(a, infinity));
  rest = w.select(all, a, rest);
  ScalarId usual = m.with_sign(m.single(rest), x);
  // By 0 and of infinity: NaN, whatever is done.
  ScalarId large =
      w.both(w.less(w.constant(0x1p28), ratio), w.less(ratio, infinity));
  return m.rarely(large, m.op(ScalarOp::kFmod, x, y), usual);
}

// ---- log(|gamma(x)|), in f64, of which most cancels below 0

ScalarId log_of_positive(Math& w, ScalarId x) {
  Mantissa parts = split(w, x);
  return log_of_power(w, w.sub(parts.m, w.constant(1)), parts.e);
}

// From 2.5 on, by Stirling's formula; below 8 at x + 5.
ScalarId log_gamma_above(Math& w, ScalarId z) {
  ScalarId zero = w.constant(0), one = w.constant(1);
  ScalarId near = w.less(z, w.constant(8));
  ScalarId y = w.add(z, w.select(near, w.constant(5), zero));
  ScalarId inverse = w.div(one, y);
  ScalarId rest =
      w.mul(w.polynomial(w.mul(inverse, inverse), coef::kStirling), inverse);
  ScalarId r = w.fma(w.sub(y, w.constant(0.5)), log_of_positive(w, y),
                     w.sub(w.constant(coef::kLogOfPi[1]), y));
  r = w.add(r, rest);
  ScalarId product = z;
  for (int k = 1; k < 5; ++k) {
    product = w.mul(product, w.add(z, w.constant(k)));
  }
  return w.rarely(near, w.sub(r, log_of_positive(w, product)), r);
}

// From 0.5 on.
ScalarId log_gamma_of_positive(Math& w, ScalarId z) {
  ScalarId u = w.sub(z, w.constant(1.5));
  ScalarId zeros = w.mul(w.sub(z, w.constant(1)), w.sub(z, w.constant(2)));
  // 0 is positive.
  ScalarId middle =
      w.fma(w.polynomial(u, coef::kLogGamma), zeros, w.constant(0));
  ScalarId above = w.less(w.constant(2.5), z);
  return w.rarely(above, log_gamma_above(w, z), middle);
}

// gamma(x) gamma(1 - x) = pi / sin(pi x).
ScalarId lgamma_wide(Math& w, ScalarId x) {
  ScalarId reflects = w.less(x, w.constant(0.5)), one = w.constant(1);
  ScalarId r = log_gamma_of_positive(w, w.select(reflects, w.sub(one, x), x));
  // sin(pi d), d from the next whole number, or cos(pi (1/2 - d)).
  ScalarId d = w.abs(w.sub(x, w.rint(x)));
  ScalarId quarter = w.less(w.constant(0.25), d);
  d = w.select(quarter, w.sub(w.constant(0.5), d), d);
  ScalarId angle = w.mul(d, w.constant(M_PI)), s = w.mul(angle, angle);
  ScalarId cos = w.fma(w.mul(s, s), w.polynomial(s, coef::kCosDouble),
                       w.fma(s, w.constant(-0.5), one));
  ScalarId sine =
      w.select(quarter, cos, w.odd_polynomial(angle, coef::kSinDouble));
  // Of whole numbers the result is infinite.
  ScalarId log = w.select(w.equal(sine, w.constant(0)), w.constant(-kInf),
                          log_of_positive(w, sine));
  ScalarId other = w.sub(w.constant(coef::kLogOfPi[0]), log);
  r = w.rarely(reflects, w.sub(other, r), r);
  ScalarId infinity = w.constant(kInf);
  return w.select(w.equal(w.abs(x), infinity), infinity, r);
}

ScalarId expand_single(Body& b, ScalarOp op, const std::array<ScalarId, 3>& in,
                       bool word_tables) {
  Math m(b, kSingle), w(b, kWide);
  const ScalarId x = in[0];
  auto wide = [&](auto function) { return m.single(function(w, w.wide(x))); };
  auto wide_pair = [&](auto function) {
    return m.single(function(w, w.wide(x), w.wide(in[1])));
  };
  switch (op) {
    case ScalarOp::kExp:
      return exp_single(m, x);
    case ScalarOp::kExp2:
      return exp2_single(m, x);
    case ScalarOp::kExpm1:
      return wide([](Math& w, ScalarId a) { return expm1_wide(w, a); });
    case ScalarOp::kLog:
      return log_single(m, x);
    case ScalarOp::kLog2:
      return log_to_base_single(m, x, coef::kLogScale[0], 1);
    case ScalarOp::kLog10:
      return log_to_base_single(m, x, coef::kLogScale[1],
                                coef::kLogScale[1] / coef::kLogScale[0]);
    case ScalarOp::kLog1p:
      return log1p_of(m, x);
    case ScalarOp::kSin:
    case ScalarOp::kCos:
      return sin_single(m, x, op == ScalarOp::kCos);
    case ScalarOp::kTan:
      return tan_single(m, x);
    case ScalarOp::kAsin:
      return wide(asin_wide);
    case ScalarOp::kAcos:
      return wide(acos_wide);
    case ScalarOp::kAtan:
      return wide(atan_wide);
    case ScalarOp::kAtan2:
      return wide_pair(atan2_wide);
    case ScalarOp::kSinh:
      return wide(sinh_wide);
    case ScalarOp::kCosh:
      return wide(cosh_wide);
    case ScalarOp::kTanh:
      return tanh_single(m, x);
    case ScalarOp::kAsinh:
      return wide(asinh_wide);
    case ScalarOp::kAcosh:
      return wide(acosh_wide);
    case ScalarOp::kAtanh:
      return atanh_of(m, x);
    case ScalarOp::kErf:
      return word_tables ? erf_by_pieces(m, x) : erf_single(m, x);
    case ScalarOp::kErfc:
      return wide(erfc_wide);
    case ScalarOp::kLgamma:
      return wide(lgamma_wide);
    case ScalarOp::kPow:
      return pow_single(m, x, in[1]);
    case ScalarOp::kHypot:
      return wide_pair(hypot_wide);
    case ScalarOp::kFmod:
      return fmod_single(m, x, in[1]);
    default:
      return kNoScalar;
  }
}

}  // namespace

ScalarId expand_operation(Body& b, ScalarOp op,
                          const std::array<ScalarId, 3>& in, bool word_tables) {
  if (scalar_op_row(op).operands == 0) return kNoScalar;
  switch (b.type(in[0])) {
    case kSingle:
      return expand_single(b, op, in, word_tables);
    case kWide:
      return expand_double(b, op, in);
    case DType::kI64:
      return expand_integers(b, op, in);
    default:
      return kNoScalar;
  }
}

}  // namespace framejit::codegen
