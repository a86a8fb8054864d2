// Transcendental functions and ATen's semantics, expanded into kernel IR.
//
// Results follow ATen on NaN, infinities and signed zeros. Polynomials come
// from math_coefficients.h; errors are a few units in the last place (tested
// against double precision).
#pragma once

#include "backend/kernel_ir.h"

namespace framejit::backend {

Lane emit_neg(KernelBody& b, Lane x);
Lane emit_abs(KernelBody& b, Lane x);
Lane emit_exp(KernelBody& b, Lane x);
Lane emit_log(KernelBody& b, Lane x);
Lane emit_tanh(KernelBody& b, Lane x);
Lane emit_sigmoid(KernelBody& b, Lane x);
Lane emit_erf(KernelBody& b, Lane x);
Lane emit_sin(KernelBody& b, Lane x);
Lane emit_cos(KernelBody& b, Lane x);
Lane emit_gelu(KernelBody& b, Lane x);
Lane emit_gelu_tanh(KernelBody& b, Lane x);
Lane emit_gelu_backward(KernelBody& b, Lane grad, Lane x);
Lane emit_gelu_tanh_backward(KernelBody& b, Lane grad, Lane x);
Lane emit_silu_backward(KernelBody& b, Lane grad, Lane x);
Lane emit_maximum(KernelBody& b, Lane x, Lane y);  // NaN if either is
Lane emit_minimum(KernelBody& b, Lane x, Lane y);
// The exponents ATen treats specially, others are not lowered (-1).
Lane emit_pow(KernelBody& b, Lane x, double exponent);

}  // namespace framejit::backend
