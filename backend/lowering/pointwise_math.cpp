#include "backend/lowering/pointwise_math.h"

#include "codegen/scalar/evaluate.h"

namespace framejit::backend {

using codegen::DType;
using codegen::ScalarOp;

bool is_constant(Term a, double value) {
  const codegen::ScalarNode& node = a.body->node(a.id);
  return node.op == ScalarOp::kConst &&
         node.payload ==
             static_cast<int64_t>(codegen::element_of(a.type(), value));
}

Term add(Term a, Term b, Term alpha) {
  if (is_bool(a)) {
    require(is_constant(alpha, 1), "a factor of bools");
    return a | b;
  }
  if (is_constant(alpha, 1)) return a + b;
  return is_float(a) ? fma(b, alpha, a) : a + b * alpha;
}

Term subtract(NodeLowering& node, Term a, Term b, Term alpha) {
  if (is_constant(alpha, 1)) return a - b;
  node.ensure_has_negative(2);
  return is_float(a) ? fma(b, -alpha, a) : a - b * alpha;
}

Term multiply(Term a, Term b) { return is_bool(a) ? a & b : a * b; }

Term add_product(Term a, Term factor, Term b, Term c) {
  return is_float(a) ? fma(factor * b, c, a) : a + factor * b * c;
}

namespace {
thread_local bool checks_divisors = true;
}

DivisorChecks::DivisorChecks(bool wanted)
    : before_(std::exchange(checks_divisors, wanted)) {}
DivisorChecks::~DivisorChecks() { checks_divisors = before_; }

Term nonzero(Term divisor) {
  if (is_float(divisor) || !checks_divisors) return divisor;
  const codegen::ScalarNode& node = divisor.body->node(divisor.id);
  if (node.op == ScalarOp::kConst) {
    require(node.payload != 0, "a division by zero");
    return divisor;
  }
  return select(check(divisor != 0), divisor, 1);
}

// Eager rounds the quotient of halves before it rounds it to a whole number.
void refuse_halves(NodeLowering& node) {
  require(!codegen::is_small_float(node.out_type()), "a rounded quotient");
}

Term divide(NodeLowering& node, Term a, Term b, size_t mode) {
  refuse_halves(node);
  require(node.has(mode), "a true division of this name");
  if (node.text(mode) == "floor") return floor_divide(a, b);
  require(node.text(mode) == "trunc", "another rounding");
  return is_float(a) ? trunc(a / b) : trunc_div(a, nonzero(b));
}

Term floor_divide(Term a, Term b) {
  if (!is_float(a)) return floor_div(a, nonzero(b));
  // As Python divides: what fmod leaves is exact.
  Term rest = fmod(a, b);
  Term quotient = (a - rest) / b;
  quotient =
      select((rest != 0) & ((b < 0) != (rest < 0)), quotient - 1, quotient);
  Term down = floor(quotient);
  down = select(quotient - down > 0.5, down + 1, down);
  Term result = select(quotient != 0, down, copysign(constant(a, 0), a / b));
  return select(b == 0, a / b, result);
}

Term floor_divide(NodeLowering& node, Term a, Term b) {
  refuse_halves(node);
  return floor_divide(a, b);
}

Term remainder(Term a, Term b) {
  if (!is_float(a)) return mod(a, nonzero(b));
  Term rest = fmod(a, b);
  return select((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest);
}

Term power(NodeLowering& node, Term a, Term exponent, size_t argument) {
  Expr value = node.number(argument);
  auto is = [&](double number) {
    return value.is_const() ? value.constant() == number
                            : value.is_float_const() && value.real() == number;
  };
  // Some powers are other functions, in eager at least.
  require(value.is_const() || value.is_float_const(), "an unknown exponent");
  if (is(0)) return constant(a, 1);
  if (is(1)) return a;
  if (is(2)) return a * a;
  if (is(3)) return a * a * a;
  if (!is_float(a)) {
    require(value.is_const() && value.constant() > 0 && value.constant() <= 64,
            "a power of integers");
    Term out = a;
    for (int64_t i = 1; i < value.constant(); ++i) out = out * a;
    return out;
  }
  // Not of halves.
  const bool has_roots = node.out_type() != DType::kF16;
  if (has_roots && is(0.5)) return sqrt(a);
  if (has_roots && is(-0.5)) return 1 / sqrt(a);
  if (is(-1)) return 1 / a;
  if (is(-2)) return 1 / (a * a);
  return pow(a, exponent);
}

Term lerp(Term start, Term end, Term weight) {
  return select(abs(weight) < 0.5, start + weight * (end - start),
                end - (end - start) * (1 - weight));
}

Term round_decimals(Term a, int64_t decimals) {
  require(decimals > -400 && decimals < 400, "that many decimals");
  const Term scale =
      constant(a, std::pow(10, decimals < 0 ? -decimals : decimals));
  return decimals < 0 ? rint(a / scale) * scale : rint(a * scale) / scale;
}

Term fmax(Term a, Term b) {
  if (!is_float(a)) return maximum(a, b);
  return select(is_nan(a), b, select(is_nan(b), a, maximum(a, b)));
}

Term fmin(Term a, Term b) {
  if (!is_float(a)) return minimum(a, b);
  return select(is_nan(a), b, select(is_nan(b), a, minimum(a, b)));
}

Term clamp(Term a, Term low, Term high) {
  if (low) a = maximum(a, low);
  if (high) a = minimum(a, high);
  return a;
}

Term sign(Term a) {
  if (a.type() == DType::kU8) return cast(a.type(), a != 0);
  return select(a < 0, -1, cast(a.type(), a > 0));
}

namespace {

Term bits_of(Term a) {
  DType type = a.type() == DType::kF64 ? DType::kI64 : DType::kI32;
  return {a.body, a.body->emit(ScalarOp::kBitcast, type,
                               {a.id, codegen::kNoScalar, codegen::kNoScalar})};
}

}  // namespace

Term signbit(Term a) { return is_float(a) ? bits_of(a) < 0 : a < 0; }

Term copysign(Term size, Term sign) {
  Term plain = abs(size);
  return select(signbit(sign), -plain, plain);
}

Term logit(Term a, Term eps) {
  if (eps) a = select(a < eps, eps, select(a > 1 - eps, 1 - eps, a));
  return log(a / (1 - a));
}

Term sinc(Term a) {
  Term angle = a * M_PI;
  return select(a == 0, 1, sin(angle) / angle);
}

Term xlogy(Term a, Term b, Term log_b) {
  return select(is_nan(b), b, select(a == 0, 0, a * log_b));
}

Term entropy(Term a) {
  return select(
      is_nan(a), a,
      select(a > 0, -a * log(a), select(a == 0, 0, constant(a, -HUGE_VAL))));
}

namespace {
constexpr double kGeluBeta = M_SQRT2 * M_2_SQRTPI * 0.5;
constexpr double kGeluKappa = 0.044715;
}  // namespace

bool is_tanh(const NodeLowering& node, size_t argument) {
  const std::string how = node.text(argument);
  require(how == "none" || how == "tanh", "another approximation");
  return how == "tanh";
}

Term gelu(Term a, bool is_tanh) {
  if (!is_tanh) return 0.5 * a * (1 + erf(a * M_SQRT1_2));
  Term inner = kGeluBeta * (a + kGeluKappa * (a * a * a));
  return 0.5 * a * (1 + tanh(inner));
}

Term gelu_backward(Term gradient, Term a, bool is_tanh) {
  if (!is_tanh) {
    Term cdf = 0.5 * (1 + erf(a * M_SQRT1_2));
    Term pdf = exp(a * a * -0.5) * (M_2_SQRTPI * M_SQRT1_2 * 0.5);
    return gradient * (cdf + a * pdf);
  }
  Term square = a * a;
  Term inner = kGeluBeta * (a + kGeluKappa * (square * a));
  Term bent = tanh(inner);
  Term left = 0.5 * a, right = 1 + bent;
  Term slope = kGeluBeta * (1 + 3 * kGeluKappa * square);
  return gradient * (0.5 * right + left * (1 - bent * bent) * slope);
}

Term silu_backward(Term gradient, Term a) {
  Term s = sigmoid(a);
  return gradient * s * (1 + a * (1 - s));
}

Term mish_backward(Term gradient, Term a) {
  Term s = sigmoid(a);
  Term t = tanh(log1p(exp(a)));
  return gradient * (t + a * s * (1 - t * t));
}

Term elu(Term a, Term alpha, Term scale, Term input_scale) {
  return select(a < 0, expm1(a * input_scale) * (alpha * scale), a * scale);
}

Term celu(NodeLowering& node, Term a, Term alpha) {
  const Expr is_zero =
      Expr::make(ExprOp::kFloatEq, {as_float(node.number(1)), Expr::real(0)});
  node.ensure(expr_not(is_zero), "a division by zero");
  return elu(a, alpha, constant(a, 1), 1 / alpha);
}

Term leaky_relu_backward(NodeLowering& node, Term gradient, Term a,
                         Term slope) {
  // Of the result one cannot tell.
  if (node.flag(3)) node.ensure(at_most(0, node.number(2)), "a slope below 0");
  return select(a > 0, gradient, gradient * slope);
}

Term softshrink(NodeLowering& node, Term a, Term bound) {
  node.ensure(at_most(0, node.number(1)), "a bound below 0");
  node.ensure(less(node.number(1), Expr::real(HUGE_VAL)), "an infinite bound");
  return select(a > bound, a - bound, select(a < -bound, a + bound, a * 0));
}

Term elu_backward(NodeLowering& node, Term gradient, Term alpha, Term scale,
                  Term input_scale, Term a) {
  const bool is_result = node.flag(4);
  if (is_result) node.ensure(at_most(0, node.number(1)), "a slope below 0");
  Term negative = alpha * scale;
  Term slope = is_result ? input_scale * (a + negative)
                         : input_scale * negative * exp(a * input_scale);
  return select(a <= 0, gradient * slope, gradient * scale);
}

Term softplus_backward(Term gradient, Term a, Term beta, Term threshold) {
  Term z = exp(a * beta);
  return select(a * beta > threshold, gradient, gradient * z / (z + 1));
}

Term log_sigmoid_backward(Term gradient, Term a, Term buffer) {
  Term fraction = buffer / (1 + buffer);
  return gradient * select(a < 0, 1 - fraction, fraction);
}

Term logit_backward(Term gradient, Term a, Term eps) {
  // -0 * 1 is -0: the gradient at both zeros is that of the limit inside.
  Term slope = select((a == 0) | (a == 1), gradient * HUGE_VAL,
                      gradient / (a * (1 - a)));
  Term unbounded = select((a < 0) | (a > 1), constant(a, NAN), slope);
  if (!eps) return unbounded;
  // A negative eps is none.
  return select(eps < 0, unbounded,
                select((a < eps) | (a > 1 - eps), 0, slope));
}

}  // namespace framejit::backend
