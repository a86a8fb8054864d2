// What follows from decisions about integers.
//
// A capture decides one thing after the other ("s0 <= 64", "s1 == s0 * 2"), and
// each decision is a guard. What earlier ones imply needs none: assume() takes
// what holds from now on, decide() says what follows from it, whatever the
// numbers are. Sound and not complete: where nothing is found, nothing is said.
//
// Known are ranges of symbols and other terms (s0 % 4, s0 // 2, products),
// remainders, sums that are not negative or not zero, and equalities, by which
// a symbol is replaced in all that comes afterwards. All of it is about
// integers without limits: where an expression overflows it has no value, and
// nothing is said of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <unordered_set>
#include <vector>

#include "guards/expr/expr.h"
#include "guards/expr/polynomial.h"

namespace framejit {

// Inclusive. The limits of int64_t stand for none.
struct Range {
  static constexpr int64_t kNoLow = INT64_MIN, kNoHigh = INT64_MAX;
  int64_t low = kNoLow, high = kNoHigh;

  bool is_single() const { return low == high; }
  Range within(const Range& other) const {
    return {std::max(low, other.low), std::min(high, other.high)};
  }
  bool operator==(const Range&) const = default;
};

class Facts {
 public:
  // True from now on. Of floats nothing is learned.
  void assume(const Expr& condition);
  // The truth of it for all numbers for which what was assumed is true.
  std::optional<bool> decide(const Expr& condition) const;
  // Equal for all such numbers: min and max without what never decides,
  // remainders and quotients that are known, symbols by their equals.
  Expr simplify(const Expr& expr) const;
  // Of an integer.
  Range range_of(const Expr& expr) const;

 private:
  struct Remainder {
    Expr of;
    int64_t divisor, value;
  };

  // ---- facts_decide.cpp
  std::optional<bool> truth_of(const Expr& condition) const;
  std::optional<bool> compare(ExprOp op, const Expr& a, const Expr& b) const;
  bool never_negative(Polynomial sum, int steps) const;
  bool never_zero(const Polynomial& sum) const;
  bool always_defined(const Expr& expr) const;
  Range range_of_sum(const Polynomial& sum) const;
  Range range_of_product(const std::vector<Expr>& factors) const;
  Range range_of_term(const Expr& term) const;
  Range range_by_operands(const Expr& term) const;
  std::optional<int64_t> remainder(const Expr& expr, int64_t divisor) const;
  std::optional<int64_t> remainder_of_term(const Expr& term,
                                           int64_t divisor) const;
  void bounds_of_terms(const Polynomial& sum,
                       std::vector<Polynomial>* bounds) const;
  void bounds_of_products(const Polynomial& sum,
                          std::vector<Polynomial>* bounds) const;
  Expr simplify_operands(const Expr& expr) const;
  Expr simplify_quotient(const Expr& expr) const;
  Expr simplify_min_max(const Expr& expr) const;

  // ---- facts.cpp
  void assume_not_negative(const Expr& expr);
  void assume_not_zero(const Expr& expr);
  void assume_zero(const Expr& expr);
  void narrow(const Expr& term, const Range& range);
  void narrow_operands(const Expr& term, const Range& range);
  void leave_out(const Polynomial& sum);
  void replace(const Expr& symbol, const Expr& by);

  std::map<Expr, Range, ExprOrder> ranges_;
  std::map<int, Expr> equals_;  // symbols, by what has none of these
  std::vector<Polynomial> not_negative_;
  std::vector<Polynomial> not_zero_;
  std::vector<Remainder> remainders_;
  int depth_ = 0;  // one fact leads to others
  // What was asked and is true stays so.
  struct Hash {
    size_t operator()(const Expr& e) const { return e.hash(); }
  };
  mutable std::unordered_set<Expr, Hash> known_;
};

}  // namespace framejit
