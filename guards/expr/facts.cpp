#include "guards/expr/facts.h"

#include <numeric>

#include "guards/expr/expr_node.h"

namespace framejit {

namespace {

// More facts are not kept: each is looked at for each question.
constexpr size_t kMostFacts = 128;
constexpr int kMostDepth = 16;

// The common divisor of all coefficients but the constant's.
int64_t divisor_of(const Polynomial& sum) {
  int64_t divisor = 0;
  for (const auto& [product, coefficient] : sum) {
    if (product.empty()) continue;
    if (coefficient == INT64_MIN) return 1;
    divisor = std::gcd(divisor, coefficient);
  }
  return divisor;
}

// sum >= 0 in its lowest terms: 2 * s0 - 5 >= 0 is s0 - 3 >= 0.
void reduce_bound(Polynomial* sum) {
  const int64_t divisor = divisor_of(*sum);
  if (divisor < 2) return;
  for (auto& [product, coefficient] : *sum) {
    int64_t quotient;
    floor_divide(coefficient, divisor, &quotient, nullptr);
    coefficient = quotient;
  }
  if (constant_of(*sum) == 0) sum->erase(std::vector<Expr>{});
}

bool uses(const Expr& expr, int symbol) {
  std::vector<int> used;
  expr.collect_symbols(&used);
  return std::binary_search(used.begin(), used.end(), symbol);
}

// What one term is where c * term + constant == 0 or >= 0; null: there are more
// terms, or none.
struct Single {
  Expr term;
  int64_t coefficient = 0, constant = 0;
};
std::optional<Single> single_of(const Polynomial& sum) {
  std::optional<Single> found;
  for (const auto& [product, coefficient] : sum) {
    if (product.empty()) continue;
    if (found) return std::nullopt;
    Polynomial alone;
    alone[product] = 1;
    found = Single{from_polynomial(alone), coefficient, 0};
  }
  if (!found) return std::nullopt;
  found->constant = constant_of(sum);
  // So that it can be negated.
  if (found->coefficient == INT64_MIN || found->constant == INT64_MIN)
    return std::nullopt;
  return found;
}

// A symbol that is as much as the rest of the sum, which does not have it: the
// one that came last.
std::optional<std::pair<Expr, Expr>> solve(const Polynomial& sum) {
  for (auto at = sum.rbegin(); at != sum.rend(); ++at) {
    const auto& [product, coefficient] = *at;
    if (product.size() != 1 || !product[0].is_symbol() ||
        (coefficient != 1 && coefficient != -1))
      continue;
    Polynomial rest;
    if (!add_multiple(&rest, sum, coefficient == 1 ? -1 : 1)) continue;
    rest.erase(product);
    Expr by = from_polynomial(rest);
    if (!uses(by, product[0].symbol_index())) return {{product[0], by}};
  }
  return std::nullopt;
}

}  // namespace

void Facts::assume(const Expr& condition) {
  if (condition.is_const() || depth_ > kMostDepth) return;
  ++depth_;
  known_.insert(condition);
  const std::vector<Expr>& operands = condition.operands();
  switch (condition.op()) {
    case ExprOp::kAnd:
      for (const Expr& each : operands) assume(each);
      break;
    case ExprOp::kNot:
      if (operands[0].op() == ExprOp::kOr) {
        for (const Expr& each : operands[0].operands()) assume(expr_not(each));
      } else if (!operands[0].is_boolean()) {
        assume_zero(simplify(operands[0]));
      }
      break;
    case ExprOp::kEq:
      assume_zero(simplify(operands[0]) - simplify(operands[1]));
      break;
    case ExprOp::kNe:
      assume_not_zero(simplify(operands[0]) - simplify(operands[1]));
      break;
    case ExprOp::kLt:
      assume_not_negative(simplify(operands[1]) - simplify(operands[0]) - 1);
      break;
    case ExprOp::kLe:
      assume_not_negative(simplify(operands[1]) - simplify(operands[0]));
      break;
    default:
      break;
  }
  --depth_;
}

void Facts::assume_not_negative(const Expr& expr) {
  Polynomial sum;
  if (depth_ > kMostDepth || expr.is_const() || !to_polynomial(expr, &sum))
    return;
  reduce_bound(&sum);
  if (auto single = single_of(sum)) {
    // c * t + k >= 0
    Range range;
    int64_t quotient;
    if (single->coefficient > 0) {
      // t >= -(k // c)
      floor_divide(single->constant, single->coefficient, &quotient, nullptr);
      range.low = -quotient;
    } else {
      floor_divide(single->constant, -single->coefficient, &quotient, nullptr);
      range.high = quotient;
    }
    return narrow(single->term, range);
  }
  if (not_negative_.size() >= kMostFacts) return;
  if (std::find(not_negative_.begin(), not_negative_.end(), sum) !=
      not_negative_.end())
    return;
  not_negative_.push_back(sum);
  // Both ways: it is zero.
  Polynomial opposite;
  if (!add_multiple(&opposite, sum, -1)) return;
  if (std::find(not_negative_.begin(), not_negative_.end(), opposite) !=
      not_negative_.end()) {
    if (auto solved = solve(sum)) replace(solved->first, solved->second);
  }
}

void Facts::assume_not_zero(const Expr& expr) {
  Polynomial sum;
  if (expr.is_const() || !to_polynomial(expr, &sum) ||
      not_zero_.size() >= kMostFacts)
    return;
  not_zero_.push_back(sum);
  leave_out(sum);
}

// A range that ends at what a term is not ends before it.
void Facts::leave_out(const Polynomial& sum) {
  auto single = single_of(sum);
  if (!single || single->constant % single->coefficient != 0) return;
  const int64_t value = -(single->constant / single->coefficient);
  const Range now = range_of_term(single->term);
  Range range;
  if (now.low == value && value != Range::kNoLow) range.low = value + 1;
  if (now.high == value && value != Range::kNoHigh) range.high = value - 1;
  if (range != Range{}) narrow(single->term, range);
}

void Facts::assume_zero(const Expr& expr) {
  Polynomial sum;
  if (depth_ > kMostDepth || expr.is_const() || !to_polynomial(expr, &sum))
    return;
  if (auto single = single_of(sum)) {
    if (single->constant % single->coefficient != 0) return;
    const int64_t value = -(single->constant / single->coefficient);
    return narrow(single->term, {value, value});
  }
  if (auto solved = solve(sum)) return replace(solved->first, solved->second);
  assume_not_negative(expr);
  assume_not_negative(Expr(0) - expr);
}

void Facts::narrow(const Expr& term, const Range& range) {
  if (depth_ > kMostDepth) return;
  ++depth_;
  const Range before = range_of_term(term);
  const Range after = before.within(range);
  if (after != before && after.low <= after.high) {
    ranges_[term] = after;
    if (term.is_symbol() && after.is_single()) {
      replace(term, Expr(after.low));
    } else {
      narrow_operands(term, after);
      for (size_t i = 0; i < not_zero_.size(); ++i)
        leave_out(Polynomial(not_zero_[i]));
    }
  }
  --depth_;
}

// What a range of a term says of what it is made of.
void Facts::narrow_operands(const Expr& term, const Range& range) {
  const std::vector<Expr>& operands = term.operands();
  const bool has_low = range.low != Range::kNoLow,
             has_high = range.high != Range::kNoHigh;
  switch (term.op()) {
    case ExprOp::kMod:
      if (range.is_single() && operands[1].is_const() &&
          operands[1].constant() > 0 && remainders_.size() < kMostFacts)
        remainders_.push_back({operands[0], operands[1].constant(), range.low});
      break;
    case ExprOp::kFloorDiv:
      if (!operands[1].is_const() || operands[1].constant() < 1) break;
      if (has_low) assume_not_negative(operands[0] - operands[1] * range.low);
      if (has_high)
        assume_not_negative(operands[1] * range.high + operands[1] - 1 -
                            operands[0]);
      break;
    case ExprOp::kMin:
      for (const Expr& each : operands)
        if (has_low) assume_not_negative(each - range.low);
      break;
    case ExprOp::kMax:
      for (const Expr& each : operands)
        if (has_high) assume_not_negative(Expr(range.high) - each);
      break;
    default:
      break;
  }
}

void Facts::replace(const Expr& symbol, const Expr& by) {
  if (equals_.contains(symbol.symbol_index()) || by.is_too_large()) return;
  equals_.emplace(symbol.symbol_index(), by);
  for (auto& [index, expr] : equals_) expr = simplify(expr);
  // All that was known, with the symbol replaced.
  auto ranges = std::move(ranges_);
  auto not_negative = std::move(not_negative_);
  auto not_zero = std::move(not_zero_);
  auto remainders = std::move(remainders_);
  ranges_.clear();
  not_negative_.clear();
  not_zero_.clear();
  remainders_.clear();
  for (const auto& [term, range] : ranges) {
    Expr now = simplify(term);
    if (range.low != Range::kNoLow) assume_not_negative(now - range.low);
    if (range.high != Range::kNoHigh)
      assume_not_negative(Expr(range.high) - now);
  }
  for (const Polynomial& sum : not_negative)
    assume_not_negative(simplify(from_polynomial(sum)));
  for (const Polynomial& sum : not_zero)
    assume_not_zero(simplify(from_polynomial(sum)));
  for (const Remainder& each : remainders) {
    Expr of = simplify(each.of);
    if (!of.is_const()) remainders_.push_back({of, each.divisor, each.value});
  }
}

}  // namespace framejit
