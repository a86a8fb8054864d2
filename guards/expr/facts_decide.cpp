// What follows from facts.
#include <numeric>

#include "guards/expr/expr_node.h"
#include "guards/expr/facts.h"

namespace framejit {

namespace {

__extension__ using Wide = __int128;

// A larger expression is a recurrence over many numbers: nothing is found.
constexpr int kLargest = 200;
// Sums are compared with so many others, one behind the other.
constexpr int kSteps = 2;
constexpr size_t kFewFacts = 24;

// As a limit of a range: one that is not there says less, never more.
int64_t as_low(Wide value) {
  if (value < Wide(Range::kNoLow)) return Range::kNoLow;
  return int64_t(std::min(value, Wide(Range::kNoHigh - 1)));
}
int64_t as_high(Wide value) {
  if (value > Wide(Range::kNoHigh)) return Range::kNoHigh;
  return int64_t(std::max(value, Wide(Range::kNoLow + 1)));
}

bool has_low(const Range& range) { return range.low != Range::kNoLow; }
bool has_high(const Range& range) { return range.high != Range::kNoHigh; }

Range add(const Range& a, const Range& b) {
  Range sum;
  if (has_low(a) && has_low(b)) sum.low = as_low(Wide(a.low) + b.low);
  if (has_high(a) && has_high(b)) sum.high = as_high(Wide(a.high) + b.high);
  return sum;
}

Range scale(const Range& range, int64_t factor) {
  if (factor == 0) return {0, 0};
  Range result;
  const bool up = factor > 0;
  if (up ? has_low(range) : has_high(range))
    result.low = as_low(Wide(up ? range.low : range.high) * factor);
  if (up ? has_high(range) : has_low(range))
    result.high = as_high(Wide(up ? range.high : range.low) * factor);
  return result;
}

Range multiply(const Range& a, const Range& b) {
  if (has_low(a) && has_low(b) && has_high(a) && has_high(b)) {
    const Wide all[] = {Wide(a.low) * b.low, Wide(a.low) * b.high,
                        Wide(a.high) * b.low, Wide(a.high) * b.high};
    return {as_low(*std::min_element(all, all + 4)),
            as_high(*std::max_element(all, all + 4))};
  }
  if (a.low < 0 || b.low < 0) return {};
  return {as_low(Wide(a.low) * b.low), Range::kNoHigh};
}

// The quotient by a divisor that is at least 1.
Range divide(const Range& a, const Range& by) {
  Range result;
  auto quotient = [](int64_t x, int64_t y) {
    int64_t q;
    floor_divide(x, y, &q, nullptr);
    return q;
  };
  // Nearer to zero by more, and below zero never above it.
  if (has_low(a)) {
    if (a.low < 0) {
      result.low = quotient(a.low, by.low);
    } else {
      result.low = has_high(by) ? quotient(a.low, by.high) : 0;
    }
  }
  if (has_high(a)) {
    if (a.high >= 0) {
      result.high = quotient(a.high, by.low);
    } else {
      result.high = has_high(by) ? quotient(a.high, by.high) : -1;
    }
  }
  return result;
}

bool is_quotient(const Expr& e) {
  return e.op() == ExprOp::kFloorDiv || e.op() == ExprOp::kMod;
}

// a * b * c without b; false: it is not there.
bool without(const std::vector<Expr>& product, const std::vector<Expr>& part,
             std::vector<Expr>* rest) {
  *rest = product;
  for (const Expr& factor : part) {
    auto found = std::find(rest->begin(), rest->end(), factor);
    if (found == rest->end()) return false;
    rest->erase(found);
  }
  return true;
}

// a * b * c + a * d by a is b * c + d; none: it does not go without a rest, or
// the divisor is a sum.
std::optional<Expr> exact_quotient(const Expr& of, const Expr& by) {
  Polynomial sum, divisor, quotient;
  if (!to_polynomial(of, &sum) || !to_polynomial(by, &divisor) ||
      divisor.size() != 1)
    return std::nullopt;
  const auto& [factors, number] = *divisor.begin();
  if (number == 0 || number == -1) return std::nullopt;
  for (const auto& [product, coefficient] : sum) {
    std::vector<Expr> rest;
    if (coefficient % number != 0 || !without(product, factors, &rest))
      return std::nullopt;
    quotient[rest] = coefficient / number;
  }
  return from_polynomial(quotient);
}

}  // namespace

// ---- ranges

Range Facts::range_of(const Expr& expr) const {
  if (expr.tree_size() > kLargest || !always_defined(expr)) return {};
  return range_of_term(simplify(expr));
}

Range Facts::range_of_sum(const Polynomial& sum) const {
  Range range{0, 0};
  for (const auto& [product, coefficient] : sum)
    range = add(range, scale(range_of_product(product), coefficient));
  return range;
}

Range Facts::range_of_product(const std::vector<Expr>& factors) const {
  if (factors.size() == 1) return range_of_term(factors[0]);
  Range range{1, 1};
  for (const Expr& factor : factors)
    range = multiply(range, range_of_term(factor));
  if (factors.empty()) return range;
  Polynomial alone;
  alone[factors] = 1;
  auto known = ranges_.find(from_polynomial(alone));
  return known == ranges_.end() ? range : range.within(known->second);
}

Range Facts::range_of_term(const Expr& term) const {
  Range range = range_by_operands(term);
  auto known = ranges_.find(term);
  return known == ranges_.end() ? range : range.within(known->second);
}

Range Facts::range_by_operands(const Expr& term) const {
  const std::vector<Expr>& operands = term.operands();
  switch (term.op()) {
    case ExprOp::kConst:
      return {term.constant(), term.constant()};
    case ExprOp::kAdd:
    case ExprOp::kMul: {
      Polynomial sum;
      // What is no polynomial would be its own only term.
      if (!to_polynomial(term, &sum)) return {};
      if (sum.size() == 1 && sum.begin()->first == std::vector<Expr>{term})
        return {};
      return range_of_sum(sum);
    }
    case ExprOp::kMin:
    case ExprOp::kMax: {
      Range range = range_of_term(operands[0]);
      for (const Expr& each : operands) {
        Range other = range_of_term(each);
        // The least of them is below each, and above the least low.
        if (term.op() == ExprOp::kMin) {
          range = {std::min(range.low, other.low),
                   std::min(range.high, other.high)};
        } else {
          range = {std::max(range.low, other.low),
                   std::max(range.high, other.high)};
        }
      }
      return range;
    }
    case ExprOp::kFloorDiv:
    case ExprOp::kMod: {
      const Range of = range_of_term(operands[0]),
                  by = range_of_term(operands[1]);
      if (by.low < 1) return {};
      if (term.op() == ExprOp::kFloorDiv) return divide(of, by);
      Range range{0, has_high(by) ? by.high - 1 : Range::kNoHigh};
      if (of.low < 0) return range;
      range.high = std::min(range.high, of.high);
      // Smaller than the divisor: it is what is left.
      if (of.high < by.low) range = of;
      return range;
    }
    default:
      return term.is_boolean() ? Range{0, 1} : Range{};
  }
}

// ---- remainders

std::optional<int64_t> Facts::remainder(const Expr& expr,
                                        int64_t divisor) const {
  if (divisor < 1) return std::nullopt;
  if (divisor == 1) return 0;
  Polynomial sum;
  if (!to_polynomial(expr, &sum)) return std::nullopt;
  Wide total = 0;
  bool known = true;
  for (const auto& [product, coefficient] : sum) {
    int64_t factor;
    floor_divide(coefficient, divisor, nullptr, &factor);
    // c * t modulo m is c * (t modulo m / gcd(c, m)).
    const int64_t common = std::gcd(factor, divisor);
    if (factor == 0 || common == divisor) continue;
    Wide value = factor;
    bool all = true;
    for (const Expr& each : product) {
      auto rest = remainder_of_term(each, divisor / common);
      all = all && rest;
      // A multiple of it, whatever the other factors are.
      if (rest) value = value * *rest % divisor;
    }
    if (!all && value != 0) {
      known = false;
      break;
    }
    total = (total + value) % divisor;
  }
  if (known) return int64_t(total);
  // It differs by a number from one that is known.
  for (const Remainder& fact : remainders_) {
    if (fact.divisor % divisor != 0) continue;
    Polynomial difference = sum, other;
    if (!to_polynomial(fact.of, &other) ||
        !add_multiple(&difference, other, -1) || difference.size() > 1 ||
        (difference.size() == 1 && !difference.begin()->first.empty()))
      continue;
    int64_t rest;
    floor_divide(constant_of(difference), divisor, nullptr, &rest);
    return int64_t((Wide(fact.value) + rest) % divisor);
  }
  return std::nullopt;
}

std::optional<int64_t> Facts::remainder_of_term(const Expr& term,
                                                int64_t divisor) const {
  if (divisor == 1) return 0;
  if (term.is_const()) {
    int64_t rest;
    floor_divide(term.constant(), divisor, nullptr, &rest);
    return rest;
  }
  for (const Remainder& fact : remainders_) {
    if (fact.of == term && fact.divisor % divisor == 0)
      return fact.value % divisor;
  }
  if (term.op() == ExprOp::kMod && term.operands()[1].is_const() &&
      term.operands()[1].constant() > 0 &&
      term.operands()[1].constant() % divisor == 0)
    return remainder(term.operands()[0], divisor);
  return std::nullopt;
}

// ---- simpler forms

Expr Facts::simplify(const Expr& expr) const {
  if (expr.tree_size() > kLargest) return expr;
  return simplify_operands(expr);
}

Expr Facts::simplify_operands(const Expr& expr) const {
  if (expr.is_symbol()) {
    auto known = equals_.find(expr.symbol_index());
    return known == equals_.end() ? expr : known->second;
  }
  if (expr.operands().empty() || expr.is_float()) return expr;
  std::vector<Expr> operands;
  for (const Expr& each : expr.operands())
    operands.push_back(simplify_operands(each));
  Expr result = operands == expr.operands()
                    ? expr
                    : Expr::make(expr.op(), std::move(operands));
  switch (result.op()) {
    case ExprOp::kFloorDiv:
    case ExprOp::kMod:
      result = simplify_quotient(result);
      break;
    case ExprOp::kMin:
    case ExprOp::kMax:
      result = simplify_min_max(result);
      break;
    default:
      break;
  }
  if (is_quotient(result) || result.op() == ExprOp::kMin ||
      result.op() == ExprOp::kMax || result.op() == ExprOp::kMul) {
    const Range range = range_of_term(result);
    if (range.is_single() && has_low(range) && has_high(range))
      return Expr(range.low);
  }
  return result;
}

Expr Facts::simplify_quotient(const Expr& expr) const {
  const Expr &a = expr.operands()[0], &b = expr.operands()[1];
  const bool is_rest = expr.op() == ExprOp::kMod;
  const Range of = range_of_term(a), by = range_of_term(b);
  if (by.low < 1) return expr;
  if (auto quotient = exact_quotient(a, b))
    return is_rest ? Expr(0) : *quotient;
  if (!is_rest) return expr;
  if (b.is_const()) {
    if (auto rest = remainder(a, b.constant())) return Expr(*rest);
  }
  return of.low >= 0 && of.high < by.low ? a : expr;
}

// Without what another operand is never above (below).
Expr Facts::simplify_min_max(const Expr& expr) const {
  std::vector<Expr> kept = expr.operands();
  const bool is_min = expr.op() == ExprOp::kMin;
  for (size_t i = 0; i < kept.size();) {
    bool decides = true;
    for (size_t j = 0; decides && j < kept.size(); ++j) {
      if (i == j) continue;
      auto less = is_min ? compare(ExprOp::kLe, kept[j], kept[i])
                         : compare(ExprOp::kLe, kept[i], kept[j]);
      decides = !less || !*less;
    }
    if (decides) {
      ++i;
    } else {
      kept.erase(kept.begin() + i);
    }
  }
  return kept.size() == 1 ? kept[0] : Expr::make(expr.op(), std::move(kept));
}

// ---- truth

bool Facts::always_defined(const Expr& expr) const {
  if (expr.is_float() || expr.is_of_floats()) return false;
  for (const Expr& each : expr.operands()) {
    if (!always_defined(each)) return false;
  }
  if (!is_quotient(expr)) return true;
  const Range by = range_of_term(simplify_operands(expr.operands()[1]));
  return by.low > 0 || by.high < 0;
}

std::optional<bool> Facts::decide(const Expr& condition) const {
  if (condition.is_const()) return condition.constant() != 0;
  if (known_.contains(condition)) return true;
  if (condition.tree_size() > kLargest || !always_defined(condition))
    return std::nullopt;
  if (known_.contains(expr_not(condition))) return false;
  auto truth = truth_of(condition);
  if (truth) known_.insert(*truth ? condition : expr_not(condition));
  return truth;
}

std::optional<bool> Facts::truth_of(const Expr& condition) const {
  const std::vector<Expr>& operands = condition.operands();
  switch (condition.op()) {
    case ExprOp::kAnd:
    case ExprOp::kOr: {
      const bool ends = condition.op() == ExprOp::kOr;
      bool all = true;
      for (const Expr& each : operands) {
        auto truth = decide(each);
        if (truth == ends) return ends;
        all = all && truth;
      }
      return all ? std::optional<bool>(!ends) : std::nullopt;
    }
    case ExprOp::kNot: {
      auto truth = decide(operands[0]);
      return truth ? std::optional<bool>(!*truth) : std::nullopt;
    }
    case ExprOp::kConst:
      return condition.constant() != 0;
    case ExprOp::kEq:
    case ExprOp::kNe:
    case ExprOp::kLt:
    case ExprOp::kLe:
      return compare(condition.op(), simplify(operands[0]),
                     simplify(operands[1]));
    default: {
      if (condition.is_boolean()) return std::nullopt;
      auto zero = compare(ExprOp::kEq, simplify(condition), Expr(0));
      return zero ? std::optional<bool>(!*zero) : std::nullopt;
    }
  }
}

// Of what is simplified.
std::optional<bool> Facts::compare(ExprOp op, const Expr& a,
                                   const Expr& b) const {
  Polynomial difference, opposite;
  if (!to_polynomial(b, &difference)) return std::nullopt;
  Polynomial left;
  if (!to_polynomial(a, &left) || !add_multiple(&difference, left, -1) ||
      !add_multiple(&opposite, difference, -1))
    return std::nullopt;
  auto below = [](Polynomial sum) -> std::optional<Polynomial> {
    if (!add_term(&sum, {}, -1)) return std::nullopt;
    return sum;
  };
  auto positive = [&](const Polynomial& sum) {
    auto less = below(sum);
    return less && never_negative(*less, kSteps);
  };
  if (op == ExprOp::kLe) {
    if (never_negative(difference, kSteps)) return true;
    if (positive(opposite)) return false;
    return std::nullopt;
  }
  if (op == ExprOp::kLt) {
    if (positive(difference)) return true;
    if (never_negative(opposite, kSteps)) return false;
    return std::nullopt;
  }
  std::optional<bool> equal;
  if (never_zero(difference) || positive(difference) || positive(opposite)) {
    equal = false;
  } else if (never_negative(difference, kSteps) &&
             never_negative(opposite, kSteps)) {
    equal = true;
  }
  return op == ExprOp::kNe && equal ? std::optional<bool>(!*equal) : equal;
}

bool Facts::never_zero(const Polynomial& sum) const {
  int64_t common = 0;
  for (const auto& [product, coefficient] : sum) {
    if (coefficient == INT64_MIN) return false;
    if (!product.empty()) common = std::gcd(common, coefficient);
  }
  const int64_t constant = constant_of(sum);
  if (common == 0) return constant != 0;
  if (constant % common != 0) return true;
  Polynomial opposite;
  if (!add_multiple(&opposite, sum, -1)) return false;
  for (const Polynomial& each : not_zero_) {
    if (each == sum || each == opposite) return true;
  }
  for (const Remainder& fact : remainders_) {
    auto rest = remainder(from_polynomial(sum), fact.divisor);
    if (rest && *rest != 0) return true;
  }
  return false;
}

// What each quotient, minimum ... in the sum is above and below of, whatever
// the numbers are.
void Facts::bounds_of_terms(const Polynomial& sum,
                            std::vector<Polynomial>* bounds) const {
  auto not_negative = [&](const Expr& expr) {
    Polynomial bound;
    if (to_polynomial(expr, &bound)) bounds->push_back(std::move(bound));
  };
  for (const auto& [product, coefficient] : sum) {
    if (product.size() != 1) continue;
    const Expr& term = product[0];
    const std::vector<Expr>& operands = term.operands();
    switch (term.op()) {
      case ExprOp::kMin:
        for (const Expr& each : operands) not_negative(each - term);
        break;
      case ExprOp::kMax:
        for (const Expr& each : operands) not_negative(term - each);
        break;
      case ExprOp::kFloorDiv:
        if (operands[1].is_const() && operands[1].constant() > 0) {
          not_negative(operands[0] - term * operands[1]);
          not_negative(term * operands[1] + operands[1] - 1 - operands[0]);
        }
        [[fallthrough]];
      case ExprOp::kMod:
        if (range_of_term(operands[0]).low >= 0 &&
            range_of_term(operands[1]).low >= 1)
          not_negative(operands[0] - term);
        break;
      default:
        break;
    }
  }
}

// a * b - n * b, where a is at least n and b is not negative: strides.
void Facts::bounds_of_products(const Polynomial& sum,
                               std::vector<Polynomial>* bounds) const {
  for (const auto& [product, coefficient] : sum) {
    if (product.size() < 2) continue;
    for (const auto& [part, other] : sum) {
      std::vector<Expr> rest;
      if (part.empty() || part.size() >= product.size() ||
          !without(product, part, &rest))
        continue;
      const int64_t least = range_of_product(rest).low;
      if (least < 1 || range_of_product(part).low < 0) continue;
      Polynomial bound;
      bound[product] = 1;
      if (add_term(&bound, part, -least)) bounds->push_back(std::move(bound));
    }
  }
}

bool Facts::never_negative(Polynomial sum, int steps) const {
  if (range_of_sum(sum).low >= 0) return true;
  if (steps == 0 || sum.empty()) return false;
  std::vector<Polynomial> bounds;
  bounds_of_terms(sum, &bounds);
  bounds_of_products(sum, &bounds);
  if (steps == kSteps || not_negative_.size() <= kFewFacts)
    bounds.insert(bounds.end(), not_negative_.begin(), not_negative_.end());
  for (const Polynomial& bound : bounds) {
    // Less so many times what is not negative either, to be rid of a term.
    for (const auto& [product, coefficient] : bound) {
      auto found = sum.find(product);
      if (product.empty() || found == sum.end()) continue;
      const int64_t times = found->second / coefficient;
      if (times < 1 || found->second == INT64_MIN) continue;
      Polynomial less = sum;
      if (add_multiple(&less, bound, -times) &&
          never_negative(std::move(less), steps - 1))
        return true;
    }
  }
  return false;
}

}  // namespace framejit
