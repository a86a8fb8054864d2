// What the files of the expressions share: the node, and arithmetic of numbers.
#pragma once

#include <bit>
#include <vector>

#include "guards/expr/expr.h"

namespace framejit {

struct Expr::Node {
  ExprOp op;
  int64_t value = 0;  // the constant (bits of a float), or the symbol's index
  std::vector<Expr> operands;
  size_t hash = 0;
  // Of the tree: what is shared counts as often as a walk meets it.
  int depth = 0;
  int size = 1;
};

inline int64_t bits(double value) { return std::bit_cast<int64_t>(value); }
inline double from_bits(int64_t value) { return std::bit_cast<double>(value); }

// What `op` of CPython's floats is; null: something else.
struct FloatRow {
  int operands;
  bool total;
  bool (*compute)(double a, double b, double* r);
};
const FloatRow* float_row(ExprOp op);
inline bool is_float_op(ExprOp op) {
  return (op >= ExprOp::kFloat && op < ExprOp::kEq) || op >= ExprOp::kFloatEq;
}

// As `//` and `%` of Python; false: zero, or too large.
bool floor_divide(int64_t a, int64_t b, int64_t* quotient, int64_t* remainder);

}  // namespace framejit
