// What expressions are of given numbers.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "guards/expr/expr_node.h"
#include "guards/result.h"

namespace framejit {

bool floor_divide(int64_t a, int64_t b, int64_t* quotient, int64_t* remainder) {
  if (b == 0 || (a == INT64_MIN && b == -1)) return false;
  int64_t q = a / b, r = a % b;
  if (r != 0 && (r < 0) != (b < 0)) {
    --q;
    r += b;
  }
  if (quotient) *quotient = q;
  if (remainder) *remainder = r;
  return true;
}

namespace {

// ---- floats, as CPython's floatobject.c computes them

double float_mod(double a, double b) {
  double mod = std::fmod(a, b);
  if (mod == 0) return std::copysign(0.0, b);
  return (b < 0) != (mod < 0) ? mod + b : mod;
}

double float_floor_div(double a, double b) {
  double mod = std::fmod(a, b);
  double div = (a - mod) / b;
  if (mod != 0 && (b < 0) != (mod < 0)) div -= 1.0;
  if (div == 0) return std::copysign(0.0, a / b);
  double floor = std::floor(div);
  return div - floor > 0.5 ? floor + 1.0 : floor;
}

// No special case of float_pow() in CPython.
bool is_plain_power(double a, double b) {
  if (!std::isfinite(a) || !std::isfinite(b)) return false;
  return a > 0 || (a == 0 && b > 0) || (a < 0 && b == std::floor(b));
}

// As CPython's: of the decimal number that it is exactly, halves to even.
constexpr int kMostDigits = 300;
double round_to_digits(double a, double b) {
  char text[kMostDigits + 320];
  if (!std::isfinite(a) || !(b >= 0 && b <= kMostDigits)) return a;
  std::snprintf(text, sizeof text, "%.*f", static_cast<int>(b), a);
  return std::strtod(text, nullptr);
}

const FloatRow kFloatRows[] = {
#define FJ_FLOAT_OP(name, text, operands, total, defined, value) \
  {operands, total,                                              \
   []([[maybe_unused]] double a, [[maybe_unused]] double b,      \
      double* out) -> bool {                                     \
     double r = value;                                           \
     *out = r;                                                   \
     return defined;                                             \
   }},
#include "guards/expr/float_ops.def"
#undef FJ_FLOAT_OP
};

}  // namespace

const FloatRow* float_row(ExprOp op) {
  if (op <= ExprOp::kFromInt || op >= ExprOp::kEq) return nullptr;
  return &kFloatRows[static_cast<int>(op) - static_cast<int>(ExprOp::kFromInt) -
                     1];
}

bool compute_float(ExprOp op, int64_t left, int64_t right, int64_t* out) {
  double a = from_bits(left), b = from_bits(right), r;
  switch (op) {
    case ExprOp::kFromInt:
      *out = bits(static_cast<double>(left));
      return true;
    case ExprOp::kFloatEq:
      *out = a == b;
      return true;
    case ExprOp::kFloatLt:
      *out = a < b;
      return true;
    case ExprOp::kFloatLe:
      *out = a <= b;
      return true;
    case ExprOp::kFloatSame:
      *out = left == right;
      return true;
    case ExprOp::kDefined:
      *out = 1;
      return true;
    default:
      if (!float_row(op) || !float_row(op)->compute(a, b, &r)) return false;
      *out = bits(r);
      return true;
  }
}

namespace {

// The innermost of this thread.
thread_local EvaluationMemo* current_memo = nullptr;

// Of a tree below this size a walk costs less than a look into the memo; one
// above the other is worth a memo of its own.
constexpr int kRemembered = 16, kOwnMemo = 64;

}  // namespace

EvaluationMemo::EvaluationMemo(const int64_t* symbols)
    : symbols_(symbols),
      outer_(current_memo),
      is_new_(!outer_ || outer_->symbols_ != symbols) {
  if (is_new_) current_memo = this;
}

EvaluationMemo::~EvaluationMemo() {
  if (is_new_) current_memo = outer_;
}

bool Expr::evaluate_once(const int64_t* symbols, int64_t* out) const {
  EvaluationMemo* memo = current_memo;
  if (!memo || memo->symbols_ != symbols) {
    if (node_->size < kOwnMemo) return evaluate_node(symbols, out);
    EvaluationMemo own(symbols);
    return evaluate_once(symbols, out);
  }
  auto known = memo->values_.find(node_.get());
  if (known != memo->values_.end()) {
    *out = known->second.second;
    return true;
  }
  if (!evaluate_node(symbols, out)) return false;
  memo->values_.emplace(node_.get(), std::pair(*this, *out));
  return true;
}

bool Expr::try_evaluate(const int64_t* symbols, int64_t* out) const {
  return node_->size < kRemembered ? evaluate_node(symbols, out)
                                   : evaluate_once(symbols, out);
}

bool Expr::evaluate_node(const int64_t* symbols, int64_t* out) const {
  // No deeper than kMaxExprDepth, and graphs that run ask for sizes wherever
  // they are: what is left suffices.
  const std::vector<Expr>& operands = node_->operands;
  int64_t left = 0, right = 0;
  switch (node_->op) {
    case ExprOp::kConst:
    case ExprOp::kFloat:
      *out = node_->value;
      return true;
    case ExprOp::kSymbol:
    case ExprOp::kFloatSymbol:
      *out = symbols[node_->value];
      return true;
    case ExprOp::kAnd:
    case ExprOp::kOr: {
      bool is_and = node_->op == ExprOp::kAnd;
      for (const Expr& e : operands) {
        if (!e.try_evaluate(symbols, &left)) return false;
        if ((left != 0) != is_and) {
          *out = !is_and;
          return true;
        }
      }
      *out = is_and;
      return true;
    }
    default:
      break;
  }
  if (!operands[0].try_evaluate(symbols, &left)) return false;
  if (node_->op == ExprOp::kNot) {
    *out = left == 0;
    return true;
  }
  if (node_->op == ExprOp::kNeg) return !__builtin_sub_overflow(0, left, out);
  if (is_float_op(node_->op)) {
    if (operands.size() > 1 && !operands[1].try_evaluate(symbols, &right))
      return false;
    return compute_float(node_->op, left, right, out);
  }
  for (size_t i = 1; i < operands.size(); ++i) {
    if (!operands[i].try_evaluate(symbols, &right)) return false;
    bool ok = true;
    switch (node_->op) {
      case ExprOp::kAdd:
        ok = !__builtin_add_overflow(left, right, &left);
        break;
      case ExprOp::kMul:
        ok = !__builtin_mul_overflow(left, right, &left);
        break;
      case ExprOp::kFloorDiv:
        ok = floor_divide(left, right, &left, nullptr);
        break;
      case ExprOp::kMod:
        ok = floor_divide(left, right, nullptr, &left);
        break;
      case ExprOp::kMin:
        left = std::min(left, right);
        break;
      case ExprOp::kMax:
        left = std::max(left, right);
        break;
      case ExprOp::kEq:
        left = left == right;
        break;
      case ExprOp::kNe:
        left = left != right;
        break;
      case ExprOp::kLt:
        left = left < right;
        break;
      case ExprOp::kLe:
        left = left <= right;
        break;
      default:
        ok = false;
    }
    if (!ok) return false;
  }
  *out = left;
  return true;
}

int64_t Expr::evaluate(const int64_t* symbols) const {
  int64_t value = 0;
  if (!try_evaluate(symbols, &value)) [[unlikely]]
    throw InternalError(__FILE__, __LINE__,
                        "overflow or division by zero: " + str());
  return value;
}

}  // namespace framejit
