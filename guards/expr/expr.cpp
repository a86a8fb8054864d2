#include "guards/expr/expr.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_set>

#include "frame_hook/native_stack.h"
#include "guards/expr/expr_node.h"
#include "guards/expr/polynomial.h"
#include "guards/result.h"

namespace framejit {

namespace {

using Operands = std::vector<Expr>;

size_t mix(size_t hash, size_t value) {
  return (hash ^ value) * 0x9E3779B97F4A7C15ull + (hash >> 29);
}

Expr raw(ExprOp op, Operands operands);

Expr make_sum(Operands operands) {
  Polynomial sum;
  for (const Expr& e : operands) {
    // Coefficients beyond int64: keep the sum as written.
    if (!to_polynomial(e, &sum)) return raw(ExprOp::kAdd, std::move(operands));
  }
  return from_polynomial(sum);
}

Expr make_product(Operands operands) {
  Polynomial product;
  product[{}] = 1;
  for (const Expr& e : operands) {
    Polynomial factor, next;
    if (!to_polynomial(e, &factor) || !multiply(product, factor, &next))
      return raw(ExprOp::kMul, std::move(operands));
    product = std::move(next);
  }
  return from_polynomial(product);
}

// d*q + r -> (q, r) by terms whose coefficients d divides.
bool split_by_divisor(const Expr& e, int64_t divisor, Expr* quotient,
                      Expr* rest) {
  // What a larger one leaves may be beyond 64 bits.
  constexpr int64_t kLargest = int64_t{1} << 31;
  Polynomial all, q, r;
  if (divisor == 0 || divisor == -1 || divisor > kLargest ||
      divisor < -kLargest || !to_polynomial(e, &all))
    return false;
  for (const auto& [product, coefficient] : all) {
    int64_t whole, left;
    if (!floor_divide(coefficient, divisor, &whole, &left)) return false;
    if (left == 0) {
      q[product] = whole;
    } else if (product.empty()) {
      if (whole != 0) q[product] = whole;
      r[product] = left;
    } else {
      r[product] = coefficient;
    }
  }
  *quotient = from_polynomial(q);
  *rest = from_polynomial(r);
  return true;
}

Expr make_floor_div(const Expr& a, const Expr& b) {
  int64_t value;
  if (a.is_const() && b.is_const() &&
      floor_divide(a.constant(), b.constant(), &value, nullptr))
    return Expr(value);
  if (b.is_const(1)) return a;
  if (b.is_const()) {
    Expr quotient, rest;
    if (split_by_divisor(a, b.constant(), &quotient, &rest) &&
        !quotient.is_const(0)) {
      return quotient + make_floor_div(rest, b);
    }
    // (x // m) // n == x // (m * n) for positive m, n.
    int64_t divisor;
    if (b.constant() > 0 && a.op() == ExprOp::kFloorDiv &&
        a.operands()[1].is_const() && a.operands()[1].constant() > 0 &&
        !__builtin_mul_overflow(a.operands()[1].constant(), b.constant(),
                                &divisor)) {
      return make_floor_div(a.operands()[0], Expr(divisor));
    }
  }
  return raw(ExprOp::kFloorDiv, {a, b});
}

Expr make_mod(const Expr& a, const Expr& b) {
  int64_t value;
  if (a.is_const() && b.is_const() &&
      floor_divide(a.constant(), b.constant(), nullptr, &value))
    return Expr(value);
  if (b.is_const(1)) return Expr(0);
  if (b.is_const()) {
    Expr quotient, rest;
    if (split_by_divisor(a, b.constant(), &quotient, &rest) &&
        !quotient.is_const(0)) {
      return make_mod(rest, b);
    }
  }
  return raw(ExprOp::kMod, {a, b});
}

Expr make_min_max(ExprOp op, const Operands& operands) {
  std::set<Expr, ExprOrder> terms;
  std::optional<int64_t> constant;
  auto take = [&](const Expr& e) {
    if (!e.is_const()) {
      terms.insert(e);
    } else if (!constant) {
      constant = e.constant();
    } else {
      constant = op == ExprOp::kMin ? std::min(*constant, e.constant())
                                    : std::max(*constant, e.constant());
    }
  };
  for (const Expr& e : operands) {
    if (e.op() == op) {
      for (const Expr& inner : e.operands()) take(inner);
    } else {
      take(e);
    }
  }
  if (constant) terms.insert(Expr(*constant));
  if (terms.empty()) return Expr(0);
  if (terms.size() == 1) return *terms.begin();
  return raw(op, Operands(terms.begin(), terms.end()));
}

// a - b when that is a constant.
std::optional<int64_t> constant_difference(const Expr& a, const Expr& b) {
  Polynomial sum, other;
  if (!to_polynomial(a, &sum) || !to_polynomial(b, &other)) return {};
  if (!add_multiple(&sum, other, -1)) return {};
  if (sum.empty()) return 0;
  if (sum.size() == 1 && sum.begin()->first.empty()) return sum.begin()->second;
  return {};
}

Expr make_comparison(ExprOp op, const Expr& a, const Expr& b) {
  if (auto difference = constant_difference(a, b)) {
    switch (op) {
      case ExprOp::kEq:
        return Expr(*difference == 0);
      case ExprOp::kNe:
        return Expr(*difference != 0);
      case ExprOp::kLt:
        return Expr(*difference < 0);
      default:
        return Expr(*difference <= 0);
    }
  }
  bool symmetric = op == ExprOp::kEq || op == ExprOp::kNe;
  if (symmetric && order_of(b, a) < 0) return raw(op, {b, a});
  return raw(op, {a, b});
}

bool is_boolean(const Expr& e) {
  return e.is_boolean() || e.is_const(0) || e.is_const(1);
}

Expr make_not(const Expr& a) {
  switch (a.op()) {
    case ExprOp::kConst:
      return Expr(a.constant() == 0);
    case ExprOp::kEq:
      return raw(ExprOp::kNe, a.operands());
    case ExprOp::kNe:
      return raw(ExprOp::kEq, a.operands());
    case ExprOp::kLt:
      return raw(ExprOp::kLe, {a.operands()[1], a.operands()[0]});
    case ExprOp::kLe:
      return raw(ExprOp::kLt, {a.operands()[1], a.operands()[0]});
    case ExprOp::kNot:
      if (is_boolean(a.operands()[0])) return a.operands()[0];
      break;
    default:
      break;
  }
  return raw(ExprOp::kNot, {a});
}

// Truth values: 0 or 1 of the operands' truth, flattened, constants folded.
// Evaluation order is kept: an operand that overflows must stay behind the ones
// that may decide before it.
Expr make_logic(ExprOp op, const Operands& operands) {
  bool is_and = op == ExprOp::kAnd;
  Operands terms;
  auto take = [&](const Expr& e) {
    if (std::find(terms.begin(), terms.end(), e) == terms.end())
      terms.push_back(e);
  };
  for (const Expr& e : operands) {
    if (e.is_const()) {
      if ((e.constant() != 0) != is_and) {
        if (terms.empty()) return Expr(is_and ? 0 : 1);
        take(Expr(is_and ? 0 : 1));
      }
    } else if (e.op() == op) {
      for (const Expr& inner : e.operands()) take(inner);
    } else {
      take(e);
    }
  }
  if (terms.empty()) return Expr(is_and ? 1 : 0);
  if (terms.size() == 1 && is_boolean(terms[0])) return terms[0];
  return raw(op, std::move(terms));
}

bool is_constant(const Expr& e) { return e.is_const() || e.is_float_const(); }

Expr make_float(ExprOp op, Operands operands) {
  const FloatRow* row = float_row(op);
  bool unary = row ? row->operands == 1
                   : op == ExprOp::kFromInt || op == ExprOp::kDefined;
  FJ_CHECK(operands.size() == (unary ? 1 : 2));
  if (op == ExprOp::kFromInt) {
    if (operands[0].is_float()) return operands[0];
  } else {
    for (Expr& e : operands) e = as_float(e);
  }
  // Defined wherever all of it is total.
  if (op == ExprOp::kDefined) {
    auto total = [](auto& self, const Expr& e) -> bool {
      const FloatRow* inner = float_row(e.op());
      if (!inner)
        return e.op() != ExprOp::kFromInt || e.operands()[0].is_symbol();
      if (!inner->total) return false;
      for (const Expr& operand : e.operands()) {
        if (!self(self, operand)) return false;
      }
      return true;
    };
    if (total(total, operands[0])) return Expr(1);
  }
  int64_t value;
  bool constant = std::all_of(operands.begin(), operands.end(), is_constant);
  if (constant && compute_float(op, operands[0].constant(),
                                unary ? 0 : operands[1].constant(), &value)) {
    return op >= ExprOp::kEq ? Expr(value) : Expr::real(from_bits(value));
  }
  return raw(op, std::move(operands));
}

}  // namespace

// ---- construction

Expr::Expr(int64_t constant) {
  auto make = [](int64_t value) {
    auto node = std::make_shared<Node>();
    node->op = ExprOp::kConst;
    node->value = value;
    node->hash = mix(1, static_cast<size_t>(value));
    return node;
  };
  // Most coefficients, strides and offsets are one of these: made once.
  static constexpr int64_t kSmall = 16;
  static const auto* small = [&make] {
    auto* out = new std::vector<std::shared_ptr<const Node>>;
    for (int64_t value = -1; value <= kSmall; ++value)
      out->push_back(make(value));
    return out;
  }();
  if (constant >= -1 && constant <= kSmall) {
    node_ = (*small)[constant + 1];
  } else {
    node_ = make(constant);
  }
}

Expr Expr::symbol(int index) {
  auto node = std::make_shared<Node>();
  node->op = ExprOp::kSymbol;
  node->value = index;
  node->hash = mix(2, static_cast<size_t>(index));
  return Expr(std::shared_ptr<const Node>(std::move(node)));
}

Expr Expr::real(double constant) {
  auto node = std::make_shared<Node>();
  node->op = ExprOp::kFloat;
  node->value = bits(constant);
  node->hash = mix(4, static_cast<size_t>(node->value));
  return Expr(std::shared_ptr<const Node>(std::move(node)));
}

Expr Expr::real_symbol(int index) {
  auto node = std::make_shared<Node>();
  node->op = ExprOp::kFloatSymbol;
  node->value = index;
  node->hash = mix(5, static_cast<size_t>(index));
  return Expr(std::shared_ptr<const Node>(std::move(node)));
}

Expr Expr::make_raw(ExprOp op, std::vector<Expr> operands) {
  auto node = std::make_shared<Node>();
  node->op = op;
  node->hash = mix(3, static_cast<size_t>(op));
  for (const Expr& e : operands) {
    node->hash = mix(node->hash, e.hash());
    node->depth = std::max(node->depth, e.node_->depth + 1);
    node->size = std::min(node->size + e.node_->size, kMaxExprSize + 1);
  }
  node->operands = std::move(operands);
  return Expr(std::shared_ptr<const Node>(std::move(node)));
}

namespace {
Expr raw(ExprOp op, Operands operands) {
  return Expr::make_raw(op, std::move(operands));
}
}  // namespace

Expr Expr::make(ExprOp op, std::vector<Expr> operands) {
  switch (op) {
    case ExprOp::kConst:
    case ExprOp::kSymbol:
    case ExprOp::kFloat:
    case ExprOp::kFloatSymbol:
      FJ_CHECK(false, "leaves have their own constructors");
    case ExprOp::kAdd:
      return make_sum(std::move(operands));
    case ExprOp::kMul:
      return make_product(std::move(operands));
    case ExprOp::kNeg:
      FJ_CHECK(operands.size() == 1);
      return make_product({std::move(operands[0]), Expr(-1)});
    case ExprOp::kMin:
    case ExprOp::kMax:
      FJ_CHECK(!operands.empty());
      return make_min_max(op, operands);
    case ExprOp::kAnd:
    case ExprOp::kOr:
      return make_logic(op, operands);
    case ExprOp::kNot:
      FJ_CHECK(operands.size() == 1);
      return make_not(operands[0]);
    default:
      if (is_float_op(op)) return make_float(op, std::move(operands));
      break;
  }
  FJ_CHECK(operands.size() == 2);
  if (op == ExprOp::kFloorDiv) return make_floor_div(operands[0], operands[1]);
  if (op == ExprOp::kMod) return make_mod(operands[0], operands[1]);
  return make_comparison(op, operands[0], operands[1]);
}

Expr operator+(const Expr& a, const Expr& b) {
  return Expr::make(ExprOp::kAdd, {a, b});
}
Expr operator-(const Expr& a, const Expr& b) {
  return Expr::make(ExprOp::kAdd, {a, Expr::make(ExprOp::kNeg, {b})});
}
Expr operator*(const Expr& a, const Expr& b) {
  return Expr::make(ExprOp::kMul, {a, b});
}
Expr floor_div(const Expr& a, const Expr& b) {
  return Expr::make(ExprOp::kFloorDiv, {a, b});
}
Expr mod(const Expr& a, const Expr& b) {
  return Expr::make(ExprOp::kMod, {a, b});
}
Expr expr_eq(const Expr& a, const Expr& b) {
  return Expr::make(ExprOp::kEq, {a, b});
}
Expr expr_lt(const Expr& a, const Expr& b) {
  return Expr::make(ExprOp::kLt, {a, b});
}
Expr expr_le(const Expr& a, const Expr& b) {
  return Expr::make(ExprOp::kLe, {a, b});
}
Expr expr_not(const Expr& a) { return Expr::make(ExprOp::kNot, {a}); }

Expr as_float(const Expr& a) {
  return a.is_float() ? a : Expr::make(ExprOp::kFromInt, {a});
}
Expr float_same(const Expr& a, double value) {
  return Expr::make(ExprOp::kFloatSame, {a, Expr::real(value)});
}

// ---- access

ExprOp Expr::op() const { return node_->op; }
int64_t Expr::constant() const { return node_->value; }
int Expr::symbol_index() const { return static_cast<int>(node_->value); }
double Expr::real() const { return from_bits(node_->value); }
const std::vector<Expr>& Expr::operands() const { return node_->operands; }
size_t Expr::hash() const { return node_->hash; }
int Expr::tree_size() const { return node_->size; }
bool Expr::is_too_large() const {
  return node_->depth > kMaxExprDepth || node_->size > kMaxExprSize;
}

bool Expr::operator==(const Expr& other) const {
  if (node_ == other.node_) return true;
  if (node_->hash != other.node_->hash || node_->op != other.node_->op ||
      node_->value != other.node_->value)
    return false;
  return node_->operands == other.node_->operands;
}

bool Expr::uses_symbols() const {
  std::vector<int> found;
  collect_symbols(&found);
  return !found.empty();
}

bool Expr::is_of_floats() const { return !is_leaf() && is_float_op(op()); }

namespace {

// Calls visit(symbol), of each at least once. What is shared is walked once.
template <class Visit>
void walk_symbols(const Expr& expr, const Visit& visit) {
  std::unordered_set<const void*> seen;
  auto walk = [&](auto& self, const Expr& e) -> void {
    if (e.is_symbol() || e.is_float_symbol()) return visit(e);
    if (e.operands().empty() || !seen.insert(&e.operands()).second) return;
    for (const Expr& operand : e.operands()) self(self, operand);
  };
  walk(walk, expr);
}

}  // namespace

void Expr::collect_symbols(std::map<int, Expr>* out) const {
  walk_symbols(*this,
               [out](const Expr& e) { out->emplace(e.symbol_index(), e); });
}

void Expr::collect_symbols(std::vector<int>* out) const {
  if (is_const()) return;
  std::set<int> found(out->begin(), out->end());
  walk_symbols(*this,
               [&found](const Expr& e) { found.insert(e.symbol_index()); });
  out->assign(found.begin(), found.end());
}

}  // namespace framejit
