// The arithmetic of elementwise operators, as eager's kernels have it: which
// operation comes first, and what NaN does.
#pragma once

#include <cmath>

#include "backend/lowering/node.h"

namespace framejit::backend {

inline bool is_bool(Term a) { return a.type() == codegen::DType::kBool; }
inline bool is_integer(Term a) { return codegen::is_integer(a.type()); }
inline bool is_float(Term a) { return codegen::is_float(a.type()); }
// Is it the constant?
bool is_constant(Term a, double value);

Term add(Term a, Term b, Term alpha);
Term subtract(NodeLowering& node, Term a, Term b, Term alpha);
Term multiply(Term a, Term b);
Term add_product(Term a, Term factor, Term b, Term c);
Term nonzero(Term divisor);  // an integer: checked
Term divide(NodeLowering& node, Term a, Term b, size_t mode);
Term floor_divide(Term a, Term b);
Term floor_divide(NodeLowering& node, Term a, Term b);
Term remainder(Term a, Term b);
Term power(NodeLowering& node, Term a, Term exponent, size_t argument);
Term lerp(Term start, Term end, Term weight);
Term fmax(Term a, Term b);
Term fmin(Term a, Term b);
Term clamp(Term a, Term low, Term high);  // empty: no bound
Term round_decimals(Term a, int64_t decimals);
Term sign(Term a);
Term signbit(Term a);
Term copysign(Term size, Term sign);
inline Term is_nan(Term a) { return a != a; }
inline Term is_inf(Term a) { return abs(a) == HUGE_VAL; }

inline Term sigmoid(Term a) { return 1 / (1 + exp(-a)); }
Term logit(Term a, Term eps);
Term sinc(Term a);
Term xlogy(Term a, Term b, Term log_b);
Term entropy(Term a);
bool is_tanh(const NodeLowering& node, size_t argument);
Term gelu(Term a, bool is_tanh);
Term gelu_backward(Term gradient, Term a, bool is_tanh);
Term silu_backward(Term gradient, Term a);
Term mish_backward(Term gradient, Term a);
Term elu(Term a, Term alpha, Term scale, Term input_scale);
Term elu_backward(NodeLowering& node, Term gradient, Term alpha, Term scale,
                  Term input_scale, Term a);
Term celu(NodeLowering& node, Term a, Term alpha);
Term leaky_relu_backward(NodeLowering& node, Term gradient, Term a, Term slope);
Term softshrink(NodeLowering& node, Term a, Term bound);
Term softplus_backward(Term gradient, Term a, Term beta, Term threshold);
Term log_sigmoid_backward(Term gradient, Term a, Term buffer);
Term logit_backward(Term gradient, Term a, Term eps);

// While one lives, whether integer divisors that are 0 raise, as on a CPU. (On
// other devices eager's quotient is any number.)
class DivisorChecks {
 public:
  explicit DivisorChecks(bool wanted);
  ~DivisorChecks();
  DivisorChecks(const DivisorChecks&) = delete;
  DivisorChecks& operator=(const DivisorChecks&) = delete;

 private:
  bool before_;
};

}  // namespace framejit::backend
