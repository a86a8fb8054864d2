// The expansions of functions of f64, one function each.
//
// A result is rounded once, or nearly: what rounding loses on the way is kept
// in a second number where it would show. So errors stay below one unit in the
// last place, which is what eager's vectors have.
#include <cmath>

#include "codegen/legalise/math.h"
#include "codegen/legalise/math_coefficients.h"

namespace framejit::codegen {

namespace {

namespace coef = coefficients;

// ---- exponentials

ScalarId exp2_double(Math& w, ScalarId x) {
  x = w.clamp(x, -1080, 1025);
  ScalarId n = w.rint(x);
  ScalarId r = w.sub(x, n);
  ScalarId p = w.polynomial(r, coef::kExp2Double);
  return w.scale(w.fma(p, r, w.constant(1)), n);
}

// exp(x + more) = (high + low) 2^power, for a small `more`. x is clamped to
// where results are neither 0 nor infinite in twice the range.
struct Exponential {
  Parts parts;
  ScalarId power;
};
Exponential exp_in_parts(Math& w, ScalarId x, ScalarId more = kNoScalar) {
  x = w.clamp(x, -746, 711);
  ScalarId n = w.rint(w.mul(x, w.constant(coef::kLog2E[0])));
  ScalarId low = w.constant(coef::kLn2Wide[1]);
  ScalarId first = w.fnma(n, w.constant(coef::kLn2Wide[0]), x);
  ScalarId r = w.fnma(n, low, first);
  ScalarId lost = w.fnma(n, low, w.sub(first, r));
  if (more != kNoScalar) lost = w.add(lost, more);
  ScalarId p = w.mul(w.polynomial(r, coef::kExpDouble), w.mul(r, r));
  Parts sum = ordered_sum(w, w.constant(1), r);
  // What was lost of r is so of exp(r).
  lost = w.fma(lost, w.add(sum.high, p), sum.low);
  return {ordered_sum(w, sum.high, w.add(p, lost)), n};
}
ScalarId exp_double(Math& w, ScalarId x) {
  Exponential e = exp_in_parts(w, x);
  return w.scale(e.parts.high, e.power);
}

// 2^n exp(r) - 1, and near 0 a polynomial.
ScalarId expm1_double(Math& w, ScalarId x) {
  Exponential e = exp_in_parts(w, x);
  ScalarId high = w.scale(e.parts.high, e.power);
  ScalarId low = w.scale(e.parts.low, e.power);
  Parts sum = sum_of(w, high, w.constant(-1));
  ScalarId large = w.add(sum.high, w.add(sum.low, low));
  // Beyond, -1 is nothing, and parts may be infinite.
  large = w.select(w.less(w.constant(0x1p100), high), high, large);
  ScalarId p = w.polynomial(x, coef::kExpm1Double);
  ScalarId small = w.fma(p, w.mul(x, x), x);
  // The sign of zero.
  small = w.select(w.equal(x, w.constant(0)), x, small);
  return w.select(w.less(w.abs(x), w.constant(0.4)), small, large);
}

// (e - 1) / (e + 1), e = exp(2|x|).
ScalarId tanh_double(Math& w, ScalarId x) {
  ScalarId size = w.op(ScalarOp::kMin, w.abs(x), w.constant(22));
  ScalarId small = w.odd_polynomial(size, coef::kTanhDouble);
  Exponential e = exp_in_parts(w, w.mul(size, w.constant(2)));
  ScalarId high = w.scale(e.parts.high, e.power);
  ScalarId low = w.scale(e.parts.low, e.power);
  Parts top = ordered_sum(w, high, w.constant(-1));
  Parts bottom = ordered_sum(w, high, w.constant(1));
  top.low = w.add(top.low, low);
  bottom.low = w.add(bottom.low, low);
  Parts ratio = quotient_of(w, top, bottom, reciprocal(w, bottom.high));
  ScalarId large = w.less(w.constant(0.5), size);
  return w.with_sign(w.select(large, w.add(ratio.high, ratio.low), small), x);
}

// h - 1 / (4 h) and h + 1 / (4 h), h = exp(|x|) / 2, which is finite where the
// results are.
ScalarId half_exponentials(Math& w, ScalarId size, bool add) {
  Exponential e = exp_in_parts(w, size);
  ScalarId power = w.sub(e.power, w.constant(1));
  ScalarId h = w.scale(e.parts.high, power);
  ScalarId low = w.scale(e.parts.low, power);
  ScalarId other = w.div(w.constant(add ? 0.25 : -0.25), h);
  Parts sum = ordered_sum(w, h, other);
  ScalarId result = w.add(sum.high, w.add(sum.low, low));
  return w.select(w.less(w.constant(kDoubleMax), h), h, result);
}
ScalarId sinh_double(Math& w, ScalarId x) {
  ScalarId size = w.abs(x);
  ScalarId small = w.odd_polynomial(size, coef::kSinhDouble);
  ScalarId large = w.less_equal(w.constant(1), size);
  return w.with_sign(w.select(large, half_exponentials(w, size, false), small),
                     x);
}

// ---- logarithms

// log(1 + f) in parts, as log_of_parts() has it.
Parts log_in_parts(Math& w, ScalarId f) {
  ScalarId s = w.div(f, w.add(f, w.constant(2)));
  ScalarId t = w.mul(s, s);
  ScalarId p = w.polynomial(t, coef::kLogDouble);
  ScalarId part = w.mul(f, w.constant(0.5));
  ScalarId half = w.mul(part, f);
  ScalarId lost = w.fnma(part, f, half);
  ScalarId high = w.sub(f, half);
  ScalarId rest = w.add(w.sub(w.sub(f, high), half), lost);
  return {high, w.fma(s, w.fma(t, p, half), rest)};
}

}  // namespace

ScalarId log_of_power(Math& w, ScalarId f, ScalarId e, ScalarId more) {
  Parts log = log_in_parts(w, f);
  if (more != kNoScalar) log.low = w.add(log.low, more);
  Parts sum = ordered_sum(w, w.mul(e, w.constant(coef::kLn2Wide[0])), log.high);
  ScalarId low = w.fma(e, w.constant(coef::kLn2Wide[1]), log.low);
  return w.add(sum.high, w.add(sum.low, low));
}

namespace {

ScalarId log_double(Math& w, ScalarId x) {
  Mantissa parts = split(w, x);
  ScalarId f = w.sub(parts.m, w.constant(1));
  return log_edges(w, x, log_of_power(w, f, parts.e));
}

// log(x) / log(base); `inverse` is 1 / log(base), `power` log(2) / log(base).
ScalarId log_to_base(Math& w, ScalarId x, const double (&inverse)[2],
                     const double (&power)[2]) {
  Mantissa parts = split(w, x);
  Parts log = log_in_parts(w, w.sub(parts.m, w.constant(1)));
  Parts scaled = product_of(w, log.high, w.constant(inverse[0]));
  ScalarId low = w.fma(log.low, w.constant(inverse[0]), scaled.low);
  low = w.fma(log.high, w.constant(inverse[1]), low);
  low = w.fma(parts.e, w.constant(power[1]), low);
  Parts sum = ordered_sum(w, w.mul(parts.e, w.constant(power[0])), scaled.high);
  return log_edges(w, x, w.add(sum.high, w.add(sum.low, low)));
}

ScalarId asinh_double(Math& w, ScalarId x) {
  ScalarId a = w.abs(x), one = w.constant(1);
  // log(2 a) from here on.
  ScalarId large = w.less(w.constant(0x1p28), a);
  ScalarId square = w.mul(a, a);
  ScalarId root = w.sqrt(w.add(square, one));
  ScalarId rest = w.div(square, w.add(root, one));
  Parts sum = ordered_sum(w, a, w.select(large, w.constant(-1), rest));
  ScalarId r = log1p_of(w, sum.high, sum.low);
  r = w.add(r, w.select(large, w.constant(std::log(2.0)), w.constant(0)));
  return w.with_sign(r, x);
}
ScalarId acosh_double(Math& w, ScalarId x) {
  ScalarId large = w.less(w.constant(0x1p28), x);
  ScalarId t = w.sub(x, w.constant(1));
  // The root of t^2 + 2 t, and what it lacks.
  Parts square = product_of(w, t, t);
  Parts sum = sum_of(w, w.mul(t, w.constant(2)), square.high);
  ScalarId root = w.sqrt(sum.high);
  ScalarId lack =
      w.add(w.fnma(root, root, sum.high), w.add(sum.low, square.low));
  ScalarId zero = w.constant(0);
  ScalarId more = w.div(lack, w.mul(root, w.constant(2)));
  more = w.select(w.equal(root, zero), zero, more);
  Parts total = sum_of(w, t, root);
  ScalarId argument = w.select(large, t, total.high);
  more = w.select(large, zero, w.add(total.low, more));
  ScalarId r = log1p_of(w, argument, more);
  r = w.add(r, w.select(large, w.constant(std::log(2.0)), zero));
  return w.select(w.less(t, zero), w.constant(kNan), r);
}
// ---- error functions

// exp(-x^2) (1.25 + p(u)) / (1 + 2 x), 0.7 <= x <= 27.5.
ScalarId erfc_tail(Math& w, ScalarId x) {
  ScalarId square = w.mul(x, x);
  Exponential e = exp_in_parts(w, w.neg(square), w.fnma(x, x, square));
  ScalarId four = w.constant(4);
  Parts bottom = ordered_sum(w, w.mul(x, w.constant(2)), w.constant(1));
  ScalarId u = w.div(w.sub(x, four), w.add(x, four));
  Parts p =
      ordered_sum(w, w.constant(1.25), w.polynomial(u, coef::kErfcDouble));
  Parts top = product_of(w, e.parts.high, p.high);
  top.low = w.fma(e.parts.high, p.low, top.low);
  top.low = w.fma(e.parts.low, p.high, top.low);
  Parts ratio = quotient_of(w, top, bottom, reciprocal(w, bottom.high));
  return w.scale(w.add(ratio.high, ratio.low), e.power);
}
ScalarId erf_double(Math& w, ScalarId x) {
  ScalarId size = w.op(ScalarOp::kMin, w.abs(x), w.constant(6));
  ScalarId p = w.polynomial(w.mul(size, size), coef::kErfDouble);
  ScalarId small = w.fma(size, p, size);
  ScalarId large = w.less(w.constant(0.75), size);
  ScalarId big = w.sub(w.constant(1), erfc_tail(w, size));
  return w.with_sign(w.select(large, big, small), x);
}
ScalarId erfc_double(Math& w, ScalarId x) {
  ScalarId one = w.constant(1);
  ScalarId size = w.op(ScalarOp::kMin, w.abs(x), w.constant(27.5));
  ScalarId p = w.polynomial(w.mul(size, size), coef::kErfDouble);
  Parts rest = ordered_sum(w, one, w.neg(x));
  ScalarId small = w.add(rest.high, w.fnma(x, p, rest.low));
  ScalarId tail = erfc_tail(w, size);
  ScalarId big =
      w.select(w.less(x, w.constant(0)), w.sub(w.constant(2), tail), tail);
  return w.select(w.less(w.constant(0.75), size), big, small);
}

// ---- trigonometric functions

// The sine and the cosine of x - quadrant pi / 2. Three parts of pi / 2 reduce
// arguments up to 2^20; libm does the rest.
struct Angle {
  Parts sin, cos;
  ScalarId quadrant;
};
Angle angle_of(Math& w, ScalarId x) {
  ScalarId n = w.rint(w.mul(x, w.constant(coef::kTwoOverPi[0])));
  // Exact: whole multiples of the last places of pi / 2.
  ScalarId first = w.fnma(n, w.constant(coef::kHalfPi[0]), x);
  Parts second = product_of(w, n, w.constant(coef::kHalfPi[1]));
  Parts r = sum_of(w, first, w.neg(second.high));
  r.low = w.sub(r.low, second.low);
  r.low = w.fnma(n, w.constant(coef::kHalfPi[2]), r.low);
  ScalarId s = w.mul(r.high, r.high);
  ScalarId ps = w.mul(w.polynomial(s, coef::kSinDouble), s);
  ScalarId pc = w.mul(w.polynomial(s, coef::kCosDouble), w.mul(s, s));
  ScalarId half = w.constant(0.5);
  ScalarId lost = w.mul(w.fnma(r.high, r.high, s), half);
  Parts cos = ordered_sum(w, w.constant(1), w.neg(w.mul(s, half)));
  ScalarId low = w.add(w.add(cos.low, lost), pc);
  low = w.fnma(r.high, r.low, low);
  cos = ordered_sum(w, cos.high, low);
  low = w.fma(ps, r.high, w.mul(r.low, cos.high));
  return {ordered_sum(w, r.high, low), cos, n};
}
ScalarId libm_beyond(Math& w, ScalarOp op, ScalarId x, ScalarId result) {
  // The sign of zero.
  if (op != ScalarOp::kCos)
    result = w.select(w.equal(x, w.constant(0)), x, result);
  ScalarId large = w.less(w.constant(0x1p20), w.abs(x));
  return w.rarely(large, w.op(op, x), result);
}

ScalarId sin_double(Math& w, ScalarId x, bool cosine) {
  Angle angle = angle_of(w, x);
  ScalarId odd = is_odd(w, angle.quadrant);
  ScalarId sin = angle.sin.high, cos = angle.cos.high;
  ScalarId r = cosine ? w.select(odd, sin, cos) : w.select(odd, cos, sin);
  // The sign changes in quadrants 2 and 3, of a cosine in 1 and 2.
  ScalarId quadrant =
      cosine ? w.add(angle.quadrant, w.constant(1)) : angle.quadrant;
  ScalarId halves = w.op(ScalarOp::kFloor, w.mul(quadrant, w.constant(0.5)));
  r = w.select(is_odd(w, halves), w.neg(r), r);
  return libm_beyond(w, cosine ? ScalarOp::kCos : ScalarOp::kSin, x, r);
}

ScalarId tan_double(Math& w, ScalarId x) {
  Angle angle = angle_of(w, x);
  const Parts &sin = angle.sin, &cos = angle.cos;
  ScalarId odd = is_odd(w, angle.quadrant);
  auto chosen = [&](ScalarId a, ScalarId b) { return w.select(odd, a, b); };
  Parts top = {chosen(cos.high, sin.high), chosen(cos.low, sin.low)};
  Parts bottom = {chosen(w.neg(sin.high), cos.high),
                  chosen(w.neg(sin.low), cos.low)};
  Parts ratio = quotient_of(w, top, bottom, reciprocal(w, bottom.high));
  return libm_beyond(w, ScalarOp::kTan, x, w.add(ratio.high, ratio.low));
}

// ---- their inverses

// asin(x) for x up to 0.5; above, asin of the root of (1 - x) / 2, of which it
// is pi / 2 less twice that. high + low, low including what the root lacks.
struct ArcSine {
  Parts parts;
  ScalarId is_small;
};
ArcSine asin_in_parts(Math& w, ScalarId size) {
  ScalarId small = w.less_equal(size, w.constant(0.5));
  ScalarId square = w.mul(w.sub(w.constant(1), size), w.constant(0.5));
  ScalarId root = w.sqrt(square);
  ScalarId zero = w.constant(0);
  ScalarId lack = w.div(w.fnma(root, root, square), w.mul(root, w.constant(2)));
  lack = w.select(w.either(small, w.equal(root, zero)), zero, lack);
  ScalarId t = w.select(small, size, root);
  ScalarId s = w.select(small, w.mul(size, size), square);
  ScalarId p = w.mul(w.polynomial(s, coef::kAsinDouble), s);
  return {{t, w.fma(p, t, lack)}, small};
}
ScalarId asin_double(Math& w, ScalarId x) {
  ArcSine arc = asin_in_parts(w, w.abs(x));
  ScalarId small = w.add(arc.parts.high, arc.parts.low);
  ScalarId minus = w.constant(-2);
  Parts sum = ordered_sum(w, w.constant(coef::kHalfPi[0]),
                          w.mul(arc.parts.high, minus));
  ScalarId low = w.add(sum.low, w.constant(coef::kHalfPi[1]));
  low = w.fma(arc.parts.low, minus, low);
  return w.with_sign(w.select(arc.is_small, small, w.add(sum.high, low)), x);
}
ScalarId acos_double(Math& w, ScalarId x) {
  ArcSine arc = asin_in_parts(w, w.abs(x));
  ScalarId negative = w.less(x, w.constant(0)), two = w.constant(2);
  // pi / 2 - asin(x), 2 asin(root), pi - 2 asin(root)
  ScalarId factor =
      w.select(arc.is_small, w.select(negative, w.constant(1), w.constant(-1)),
               w.select(negative, w.constant(-2), two));
  ScalarId none = w.both(w.op(ScalarOp::kNot, arc.is_small),
                         w.op(ScalarOp::kNot, negative));
  auto base = [&](int part) {
    ScalarId half = w.constant(coef::kHalfPi[part]);
    ScalarId whole = w.constant(2 * coef::kHalfPi[part]);
    return w.select(none, w.constant(0), w.select(arc.is_small, half, whole));
  };
  Parts sum = ordered_sum(w, base(0), w.mul(arc.parts.high, factor));
  ScalarId low = w.fma(arc.parts.low, factor, w.add(sum.low, base(1)));
  return w.add(sum.high, low);
}

// atan(top / bottom) in parts, both not negative and finite, one of them not 0.
Parts atan_in_parts(Math& w, ScalarId top, ScalarId bottom) {
  // Below tan(pi/8) as it is, else pi/4 + atan((a - b) / (a + b)); the larger
  // goes below.
  ScalarId swap = w.less(bottom, top), one = w.constant(1);
  ScalarId low = w.select(swap, bottom, top);
  ScalarId high = w.select(swap, top, bottom);
  ScalarId far = w.less(w.mul(high, w.constant(std::sqrt(2.0) - 1)), low);
  // Sums that stay finite.
  ScalarId scale = w.select(w.less(one, high), w.constant(0.25), one);
  ScalarId a = w.mul(low, scale), b = w.mul(high, scale);
  ScalarId zero = w.constant(0);
  Parts difference = ordered_sum(w, w.neg(b), a);
  Parts sum = ordered_sum(w, b, a);
  auto chosen = [&](ScalarId x, ScalarId y) { return w.select(far, x, y); };
  Parts above = {chosen(difference.high, low), chosen(difference.low, zero)};
  Parts below = {chosen(sum.high, high), chosen(sum.low, zero)};
  ScalarId t = w.div(above.high, below.high);
  ScalarId rest = w.add(w.fnma(t, below.high, above.high), above.low);
  ScalarId lack = w.div(w.fnma(t, below.low, rest), below.high);
  ScalarId s = w.mul(t, t);
  ScalarId p = w.mul(w.polynomial(s, coef::kAtanDouble), s);
  ScalarId more = w.fma(p, t, lack);
  // pi/2 less what it is, when they are exchanged.
  t = w.select(swap, w.neg(t), t);
  more = w.select(swap, w.neg(more), more);
  auto base = [&](int part) {
    ScalarId half = w.constant(coef::kHalfPi[part]);
    ScalarId quarter = w.constant(coef::kHalfPi[part] / 2);
    return w.select(far, quarter, w.select(swap, half, zero));
  };
  Parts result = ordered_sum(w, base(0), t);
  result.low = w.add(result.low, w.add(more, base(1)));
  return result;
}
ScalarId atan_double(Math& w, ScalarId x) {
  // Infinite as any that is large.
  ScalarId size = w.op(ScalarOp::kMin, w.abs(x), w.constant(0x1p60));
  Parts r = atan_in_parts(w, size, w.constant(1));
  return w.with_sign(w.add(r.high, r.low), x);
}
ScalarId atan2_double(Math& w, ScalarId y, ScalarId x) {
  ScalarId zero = w.constant(0), one = w.constant(1);
  ScalarId infinity = w.constant(kInf);
  ScalarId top = w.abs(y), bottom = w.abs(x);
  // Infinities are 1, and all else is 0 beside them.
  ScalarId y_endless = w.equal(top, infinity);
  ScalarId x_endless = w.equal(bottom, infinity);
  ScalarId endless = w.either(y_endless, x_endless);
  ScalarId none = w.both(w.equal(top, zero), w.equal(bottom, zero));
  top = w.select(endless, w.select(y_endless, one, zero), top);
  bottom = w.select(endless, w.select(x_endless, one, zero), bottom);
  bottom = w.select(none, one, bottom);
  Parts r = atan_in_parts(w, top, bottom);
  Parts other = ordered_sum(w, w.constant(2 * coef::kHalfPi[0]), w.neg(r.high));
  ScalarId low =
      w.sub(w.add(other.low, w.constant(2 * coef::kHalfPi[1])), r.low);
  ScalarId result =
      w.select(w.is_negative(x), w.add(other.high, low), w.add(r.high, r.low));
  result = w.with_sign(result, y);
  // NaNs, which an infinity would hide.
  result = w.select(w.differ(x, x), x, result);
  return w.select(w.differ(y, y), y, result);
}

// ---- two operands

// log(x) in twice the digits, nearly: 2 s + s^3 (2/3 + t q(t)), s = f / (2 +
// f), t = s^2, the first terms in parts.
Parts log_doubled(Math& w, ScalarId x) {
  Mantissa parts = split(w, x);
  ScalarId f = w.sub(parts.m, w.constant(1)), two = w.constant(2);
  Parts bottom = ordered_sum(w, two, f);
  Parts s =
      quotient_of(w, {f, w.constant(0)}, bottom, reciprocal(w, bottom.high));
  Parts t = product_of(w, s.high, s.high);
  t.low = w.fma(w.mul(s.high, two), s.low, t.low);
  ScalarId q = w.mul(w.polynomial(t.high, coef::kLogRest), t.high);
  Parts c = ordered_sum(w, w.constant(coef::kTwoThirds[0]), q);
  c.low = w.add(c.low, w.constant(coef::kTwoThirds[1]));
  auto times = [&](const Parts& a, const Parts& b) {
    Parts product = product_of(w, a.high, b.high);
    product.low = w.fma(a.high, b.low, product.low);
    product.low = w.fma(a.low, b.high, product.low);
    return product;
  };
  Parts cube = times(times(s, t), c);
  Parts sum = ordered_sum(w, w.mul(parts.e, w.constant(coef::kLn2Wide[0])),
                          w.mul(s.high, two));
  Parts more = ordered_sum(w, sum.high, cube.high);
  ScalarId low = w.add(w.add(sum.low, more.low), w.fma(s.low, two, cube.low));
  low = w.fma(parts.e, w.constant(coef::kLn2Wide[1]), low);
  return ordered_sum(w, more.high, low);
}

ScalarId pow_double(Math& w, ScalarId x, ScalarId y) {
  ScalarId size = w.abs(x), zero = w.constant(0);
  Parts log = log_doubled(w, size);
  ScalarId high = log_edges(w, size, log.high);
  ScalarId product = w.mul(y, high);
  ScalarId lost = w.fma(y, high, w.neg(product));
  lost = w.fma(y, log.low, lost);
  // Beyond, the result is 0, infinite or NaN, whatever was lost.
  lost = w.select(w.less(w.abs(product), w.constant(1000)), lost, zero);
  Exponential e = exp_in_parts(w, product, lost);
  return pow_edges(w, x, y, w.scale(e.parts.high, e.power));
}

// The root of squares in parts, of numbers whose squares are neither infinite
// nor denormal.
ScalarId hypot_double(Math& w, ScalarId x, ScalarId y) {
  ScalarId a = w.abs(x), b = w.abs(y), one = w.constant(1);
  ScalarId swap = w.less(a, b);
  ScalarId large = w.select(swap, b, a), small = w.select(swap, a, b);
  ScalarId up = w.less(large, w.constant(0x1p-400));
  ScalarId down = w.less(w.constant(0x1p500), large);
  auto factor = [&](double when_small, double when_large) {
    return w.select(up, w.constant(when_small),
                    w.select(down, w.constant(when_large), one));
  };
  ScalarId scale = factor(0x1p600, 0x1p-600);
  large = w.mul(large, scale);
  small = w.mul(small, scale);
  Parts first = product_of(w, large, large);
  Parts second = product_of(w, small, small);
  Parts sum = ordered_sum(w, first.high, second.high);
  ScalarId low = w.add(sum.low, w.add(first.low, second.low));
  ScalarId root = w.sqrt(sum.high);
  ScalarId lack = w.add(w.fnma(root, root, sum.high), low);
  lack = w.div(lack, w.mul(root, w.constant(2)));
  ScalarId zero = w.constant(0), infinity = w.constant(kInf);
  lack = w.select(w.equal(root, zero), zero, lack);
  ScalarId r = w.mul(w.add(root, lack), factor(0x1p-600, 0x1p600));
  ScalarId endless = w.either(w.equal(a, infinity), w.equal(b, infinity));
  return w.select(endless, infinity, r);
}

// The quotient is a whole number, or one too large, below 2^52; libm does the
// rest.
ScalarId fmod_double(Math& w, ScalarId x, ScalarId y) {
  ScalarId a = w.abs(x), d = w.abs(y), infinity = w.constant(kInf);
  ScalarId ratio = w.div(a, d);
  ScalarId rest = w.fnma(w.op(ScalarOp::kTrunc, ratio), d, a);
  rest = w.select(w.less(rest, w.constant(0)), w.add(rest, d), rest);
  ScalarId all = w.both(w.equal(d, infinity), w.less(a, infinity));
  ScalarId usual = w.with_sign(w.select(all, a, rest), x);
  ScalarId large = w.less(w.constant(0x1p52), ratio);
  return w.rarely(large, w.op(ScalarOp::kFmod, x, y), usual);
}

}  // namespace

ScalarId expand_double(Body& b, ScalarOp op,
                       const std::array<ScalarId, 3>& in) {
  Math w(b, kWide);
  const ScalarId x = in[0];
  switch (op) {
    case ScalarOp::kExp:
      return exp_double(w, x);
    case ScalarOp::kExp2:
      return exp2_double(w, x);
    case ScalarOp::kExpm1:
      return expm1_double(w, x);
    case ScalarOp::kLog:
      return log_double(w, x);
    case ScalarOp::kLog2:
      return log_to_base(w, x, coef::kLog2EParts, {1, 0});
    case ScalarOp::kLog10:
      return log_to_base(w, x, coef::kLog10EParts, coef::kLog10Of2);
    case ScalarOp::kLog1p:
      return log1p_of(w, x);
    case ScalarOp::kSinh:
      return sinh_double(w, x);
    case ScalarOp::kCosh:
      return half_exponentials(w, w.abs(x), true);
    case ScalarOp::kTanh:
      return tanh_double(w, x);
    case ScalarOp::kAsinh:
      return asinh_double(w, x);
    case ScalarOp::kAcosh:
      return acosh_double(w, x);
    case ScalarOp::kAtanh:
      return atanh_of(w, x);
    case ScalarOp::kErf:
      return erf_double(w, x);
    case ScalarOp::kErfc:
      return erfc_double(w, x);
    case ScalarOp::kSin:
    case ScalarOp::kCos:
      return sin_double(w, x, op == ScalarOp::kCos);
    case ScalarOp::kTan:
      return tan_double(w, x);
    case ScalarOp::kAsin:
      return asin_double(w, x);
    case ScalarOp::kAcos:
      return acos_double(w, x);
    case ScalarOp::kAtan:
      return atan_double(w, x);
    case ScalarOp::kAtan2:
      return atan2_double(w, x, in[1]);
    case ScalarOp::kPow:
      return pow_double(w, x, in[1]);
    case ScalarOp::kHypot:
      return hypot_double(w, x, in[1]);
    case ScalarOp::kFmod:
      return fmod_double(w, x, in[1]);
    default:
      return kNoScalar;
  }
}

}  // namespace framejit::codegen
