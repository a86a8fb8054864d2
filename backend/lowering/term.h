// Term: a scalar of a body that is being built, written as C++ arithmetic.
//
//   Term y = x / (1 + exp(-x));
//
// A number beside a Term becomes a constant of its type. Nothing is converted
// otherwise: both sides have one type.
#pragma once

#include "codegen/scalar/body.h"

namespace framejit::backend {

struct Term {
  codegen::Body* body = nullptr;
  codegen::ScalarId id = codegen::kNoScalar;

  codegen::DType type() const { return body->type(id); }
  explicit operator bool() const { return body != nullptr; }
};

inline Term constant(Term like, double value) {
  return {like.body,
          codegen::is_float(like.type())
              ? like.body->constant(like.type(), value)
              : like.body->integer(like.type(), static_cast<int64_t>(value))};
}
inline Term cast(codegen::DType type, Term a) {
  return {a.body, a.body->cast(type, a.id)};
}

#define FJ_TERM_UNARY(name, op)                                     \
  inline Term name(Term a) {                                        \
    return {a.body, a.body->unary(codegen::ScalarOp::k##op, a.id)}; \
  }
#define FJ_TERM_BINARY(name, op)                                           \
  inline Term name(Term a, Term b) {                                       \
    return {a.body, a.body->binary(codegen::ScalarOp::k##op, a.id, b.id)}; \
  }                                                                        \
  inline Term name(Term a, double b) { return name(a, constant(a, b)); }   \
  inline Term name(double a, Term b) { return name(constant(b, a), b); }

FJ_TERM_BINARY(operator+, Add)
FJ_TERM_BINARY(operator-, Sub)
FJ_TERM_BINARY(operator*, Mul)
FJ_TERM_BINARY(operator/, Div)
FJ_TERM_BINARY(operator<, Lt)
FJ_TERM_BINARY(operator<=, Le)
FJ_TERM_BINARY(operator==, Eq)
FJ_TERM_BINARY(operator!=, Ne)
FJ_TERM_BINARY(operator&, And)
FJ_TERM_BINARY(operator|, Or)
FJ_TERM_BINARY(operator^, Xor)
FJ_TERM_BINARY(minimum, Min)
FJ_TERM_BINARY(maximum, Max)
FJ_TERM_BINARY(trunc_div, TruncDiv)
FJ_TERM_BINARY(floor_div, FloorDiv)
FJ_TERM_BINARY(fmod, Fmod)
FJ_TERM_BINARY(mod, Mod)
FJ_TERM_BINARY(shift_left, ShiftLeft)
FJ_TERM_BINARY(shift_right, ShiftRight)
FJ_TERM_BINARY(atan2, Atan2)
FJ_TERM_BINARY(pow, Pow)
FJ_TERM_BINARY(hypot, Hypot)
FJ_TERM_UNARY(operator-, Neg)
FJ_TERM_UNARY(operator!, Not)
FJ_TERM_UNARY(abs, Abs)
FJ_TERM_UNARY(floor, Floor)
FJ_TERM_UNARY(ceil, Ceil)
FJ_TERM_UNARY(trunc, Trunc)
FJ_TERM_UNARY(rint, Rint)
FJ_TERM_UNARY(sqrt, Sqrt)
FJ_TERM_UNARY(exp, Exp)
FJ_TERM_UNARY(exp2, Exp2)
FJ_TERM_UNARY(expm1, Expm1)
FJ_TERM_UNARY(log, Log)
FJ_TERM_UNARY(log2, Log2)
FJ_TERM_UNARY(log10, Log10)
FJ_TERM_UNARY(log1p, Log1p)
FJ_TERM_UNARY(sin, Sin)
FJ_TERM_UNARY(cos, Cos)
FJ_TERM_UNARY(tan, Tan)
FJ_TERM_UNARY(asin, Asin)
FJ_TERM_UNARY(acos, Acos)
FJ_TERM_UNARY(atan, Atan)
FJ_TERM_UNARY(sinh, Sinh)
FJ_TERM_UNARY(cosh, Cosh)
FJ_TERM_UNARY(tanh, Tanh)
FJ_TERM_UNARY(asinh, Asinh)
FJ_TERM_UNARY(acosh, Acosh)
FJ_TERM_UNARY(atanh, Atanh)
FJ_TERM_UNARY(erf, Erf)
FJ_TERM_UNARY(erfc, Erfc)
FJ_TERM_UNARY(lgamma, Lgamma)
FJ_TERM_UNARY(check, Check)
#undef FJ_TERM_UNARY
#undef FJ_TERM_BINARY

inline Term operator>(Term a, Term b) { return b < a; }
inline Term operator>(Term a, double b) { return constant(a, b) < a; }
inline Term operator>=(Term a, Term b) { return b <= a; }
inline Term operator>=(Term a, double b) { return constant(a, b) <= a; }

inline Term select(Term condition, Term a, Term b) {
  return {a.body, a.body->ternary(codegen::ScalarOp::kSelect, condition.id,
                                  a.id, b.id)};
}
inline Term select(Term condition, Term a, double b) {
  return select(condition, a, constant(a, b));
}
inline Term select(Term condition, double a, Term b) {
  return select(condition, constant(b, a), b);
}
inline Term fma(Term a, Term b, Term c) {
  return {a.body, a.body->ternary(codegen::ScalarOp::kFma, a.id, b.id, c.id)};
}

}  // namespace framejit::backend
