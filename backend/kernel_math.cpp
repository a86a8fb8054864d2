#include "backend/kernel_math.h"

#include <cmath>
#include <limits>
#include <span>

#include "codegen/legalise/math_coefficients.h"

namespace framejit::backend {

namespace {

namespace coef = codegen::coefficients;

// Three parts of pi reduce arguments up to here; beyond, libm.
constexpr float kTrigMax = 105000.f;
constexpr float kFloatMax = std::numeric_limits<float>::max();
constexpr float kInf = std::numeric_limits<float>::infinity();

float libm_sin(float x) { return std::sin(x); }
float libm_cos(float x) { return std::cos(x); }

// c[0] + x * (c[1] + x * ...)
Lane polynomial(KernelBody& b, Lane x, std::span<const float> c) {
  Lane result = b.constant(c.back());
  for (size_t i = c.size() - 1; i-- > 0;) {
    result = b.fma(result, x, b.constant(c[i]));
  }
  return result;
}

Lane sign_mask(KernelBody& b) { return b.constant(-0.f); }
Lane sign_of(KernelBody& b, Lane x) { return b.bit_and(sign_mask(b), x); }
Lane one(KernelBody& b) { return b.constant(1.f); }

// x + x * s * p(s) with s = x * x.
Lane odd_polynomial(KernelBody& b, Lane x, std::span<const float> c) {
  Lane s = b.mul(x, x);
  return b.fma(b.mul(polynomial(b, s, c), s), x, x);
}

Lane reduce_by_pi(KernelBody& b, Lane x, Lane multiple) {
  for (float part : coef::kPi) x = b.fnma(multiple, b.constant(part), x);
  return x;
}

Lane retry_when_large(KernelBody& b, Lane x, Lane result,
                      float (*function)(float)) {
  Lane size = emit_abs(b, x);
  // An infinity already gives NaN.
  Lane mask = b.mask_and(b.less(b.constant(kTrigMax), size),
                         b.less_equal(size, b.constant(kFloatMax)));
  return b.emit(KernelOp::kRetry, {mask, x, result}, 0, function);
}

}  // namespace

Lane emit_neg(KernelBody& b, Lane x) { return b.bit_xor(x, sign_mask(b)); }

Lane emit_abs(KernelBody& b, Lane x) { return b.bit_and_not(sign_mask(b), x); }

// exp(x) = 2^n * exp(r), |r| <= ln 2 / 2. The clamp keeps n small; its
// constants come first so that NaN passes through.
Lane emit_exp(KernelBody& b, Lane x) {
  x = b.min(b.constant(89.5f), b.max(b.constant(-104.5f), x));
  Lane n = b.rint(b.mul(x, b.constant(coef::kInverses[0])));
  Lane r = b.fnma(n, b.constant(coef::kLn2[0]), x);
  r = b.fnma(n, b.constant(coef::kLn2[1]), r);
  Lane p = polynomial(b, r, coef::kExp);
  p = b.fma(b.fma(p, r, one(b)), r, one(b));
  return b.scale_by_power(p, n);
}

// log(x) = e ln 2 + log(1 + f), 1 + f in [2/3, 4/3). Scaling by 3/4 chooses e
// without overflow near the largest float.
Lane emit_log(KernelBody& b, Lane x) {
  Lane e = b.add(b.exponent(b.mul(x, b.constant(0.75f))), one(b));
  Lane f = b.sub(b.scale_by_power(x, emit_neg(b, e)), one(b));
  Lane s = b.mul(f, f);
  Lane p = b.fma(polynomial(b, f, coef::kLog), f, b.constant(-0.5f));
  Lane r = b.fma(e, b.constant(coef::kLn2[1]), b.mul(p, s));
  r = b.fma(e, b.constant(coef::kLn2[0]), b.add(f, r));
  r = b.select(b.less(b.constant(kFloatMax), x), x, r);
  Lane zero = b.constant(0.f);
  Lane low = b.select(b.equal(x, zero), b.constant(-kInf),
                      b.constant(std::numeric_limits<float>::quiet_NaN()));
  return b.select(b.less_equal(x, zero), low, r);
}

// Beyond 0.625: 1 - 2 / (exp(2|x|) + 1). Or-ing the sign restores -0.
Lane emit_tanh(KernelBody& b, Lane x) {
  Lane size = emit_abs(b, x);
  Lane e = emit_exp(b, b.mul(b.min(b.constant(10.f), size), b.constant(2.f)));
  Lane big = b.sub(one(b), b.div(b.constant(2.f), b.add(e, one(b))));
  Lane small = odd_polynomial(b, size, coef::kTanh);
  Lane r = b.select(b.less(size, b.constant(0.625f)), small, big);
  return b.bit_or(r, sign_of(b, x));
}

Lane emit_sigmoid(KernelBody& b, Lane x) {
  return b.div(one(b), b.add(one(b), emit_exp(b, emit_neg(b, x))));
}

Lane emit_erf(KernelBody& b, Lane x) {
  Lane t = emit_abs(b, x);
  Lane p = polynomial(b, t, coef::kErfLarge);
  Lane big = b.sub(one(b), emit_exp(b, b.fnma(t, p, emit_neg(b, t))));
  // The polynomial is of no use far out, where the result is 1.
  big = b.select(b.less(b.constant(4.f), t), one(b), big);
  Lane q = polynomial(b, b.mul(t, t), coef::kErfSmall);
  Lane small = b.fma(q, t, t);
  Lane r = b.select(b.less(t, b.constant(0.928f)), small, big);
  r = b.bit_or(r, sign_of(b, x));
  return b.select(b.unordered(x, x), x, r);
}

// sin(x) = (-1)^n sin(x - n pi). Adding 1.5 * 2^23 rounds to an integer whose
// lowest bit is the parity of n.
Lane emit_sin(KernelBody& b, Lane x) {
  Lane magic = b.constant(12582912.f);
  Lane size = emit_abs(b, x);
  Lane shifted = b.fma(size, b.constant(coef::kInverses[1]), magic);
  Lane r = reduce_by_pi(b, size, b.sub(shifted, magic));
  r = odd_polynomial(b, r, coef::kSin);
  Lane sign = b.bit_xor(b.shift_left(shifted, 31), sign_of(b, x));
  return retry_when_large(b, x, b.bit_xor(r, sign), libm_sin);
}

// cos(x) = (-1)^(n+1) sin(x - (n + 1/2) pi).
Lane emit_cos(KernelBody& b, Lane x) {
  Lane magic = b.constant(12582912.f);
  Lane half = b.constant(0.5f);
  Lane scaled = b.fma(x, b.constant(coef::kInverses[1]), b.constant(-0.5f));
  Lane shifted = b.add(scaled, magic);
  Lane r = reduce_by_pi(b, x, b.add(b.sub(shifted, magic), half));
  r = odd_polynomial(b, r, coef::kSin);
  Lane sign = b.bit_xor(b.shift_left(shifted, 31), sign_mask(b));
  return retry_when_large(b, x, b.bit_xor(r, sign), libm_cos);
}

Lane emit_gelu(KernelBody& b, Lane x) {
  Lane e = emit_erf(b, b.mul(x, b.constant(coef::kInverses[2])));
  return b.mul(b.mul(x, b.constant(0.5f)), b.add(one(b), e));
}

namespace {

// tanh of the inner cubic of the tanh form of gelu.
Lane gelu_inner_tanh(KernelBody& b, Lane x) {
  Lane cube = b.mul(b.mul(x, x), x);
  Lane inner = b.fma(b.constant(0.044715f), cube, x);
  return emit_tanh(b, b.mul(b.constant(coef::kInverses[3]), inner));
}

}  // namespace

Lane emit_gelu_tanh(KernelBody& b, Lane x) {
  Lane t = gelu_inner_tanh(b, x);
  return b.mul(b.mul(x, b.constant(0.5f)), b.add(one(b), t));
}

Lane emit_gelu_backward(KernelBody& b, Lane grad, Lane x) {
  Lane e = emit_erf(b, b.mul(x, b.constant(coef::kInverses[2])));
  Lane cdf = b.mul(b.constant(0.5f), b.add(one(b), e));
  Lane square = b.mul(b.mul(x, x), b.constant(-0.5f));
  Lane pdf = b.mul(emit_exp(b, square), b.constant(coef::kInverses[4]));
  return b.mul(grad, b.fma(x, pdf, cdf));
}

Lane emit_gelu_tanh_backward(KernelBody& b, Lane grad, Lane x) {
  Lane t = gelu_inner_tanh(b, x);
  Lane half = b.constant(0.5f);
  Lane left = b.mul(half, b.add(one(b), t));
  Lane slope = b.fma(b.constant(3 * 0.044715f), b.mul(x, x), one(b));
  Lane inner = b.mul(b.constant(coef::kInverses[3]), slope);
  Lane right = b.mul(b.mul(b.mul(half, x), b.fnma(t, t, one(b))), inner);
  return b.mul(grad, b.add(left, right));
}

Lane emit_silu_backward(KernelBody& b, Lane grad, Lane x) {
  Lane s = emit_sigmoid(b, x);
  Lane slope = b.fma(x, b.sub(one(b), s), one(b));
  return b.mul(b.mul(grad, s), slope);
}

Lane emit_maximum(KernelBody& b, Lane x, Lane y) {
  return b.select(b.unordered(x, y), b.add(x, y), b.max(x, y));
}

Lane emit_minimum(KernelBody& b, Lane x, Lane y) {
  return b.select(b.unordered(x, y), b.add(x, y), b.min(x, y));
}

Lane emit_pow(KernelBody& b, Lane x, double exponent) {
  if (exponent == 2.0) return b.mul(x, x);
  if (exponent == 3.0) return b.mul(b.mul(x, x), x);
  if (exponent == -1.0) return b.div(one(b), x);
  if (exponent == -2.0) return b.div(one(b), b.mul(x, x));
  return -1;
}

}  // namespace framejit::backend
