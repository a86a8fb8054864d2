#include "guards/expr/polynomial.h"

#include <algorithm>

namespace framejit {

namespace {

using Operands = std::vector<Expr>;
constexpr size_t kMaxTerms = 64;

// Splits c * a * b into (c, {a, b}). False: c is beyond 64 bits.
bool split_product(const Expr& e, Operands* product, int64_t* coefficient) {
  *coefficient = 1;
  if (e.op() != ExprOp::kMul) {
    product->push_back(e);
    return true;
  }
  for (const Expr& factor : e.operands()) {
    if (!factor.is_const()) {
      product->push_back(factor);
    } else if (__builtin_mul_overflow(*coefficient, factor.constant(),
                                      coefficient)) {
      return false;
    }
  }
  return true;
}

}  // namespace

int order_of(const Expr& a, const Expr& b) {
  auto rank = [](const Expr& e) {
    if (e.is_const()) return 2;
    return e.is_symbol() ? 0 : 1;
  };
  if (rank(a) != rank(b)) return rank(a) < rank(b) ? -1 : 1;
  if (a.is_const()) {
    return a.constant() < b.constant() ? -1 : a.constant() > b.constant();
  }
  if (a.is_symbol()) {
    return a.symbol_index() < b.symbol_index()
               ? -1
               : a.symbol_index() > b.symbol_index();
  }
  if (a.op() != b.op()) return a.op() < b.op() ? -1 : 1;
  if (a.operands().empty() && a.constant() != b.constant()) {
    return a.constant() < b.constant() ? -1 : 1;  // leaves of floats
  }
  const Operands &x = a.operands(), &y = b.operands();
  if (x.size() != y.size()) return x.size() < y.size() ? -1 : 1;
  for (size_t i = 0; i < x.size(); ++i) {
    if (int result = order_of(x[i], y[i])) return result;
  }
  return 0;
}

bool ProductOrder::operator()(const Operands& a, const Operands& b) const {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                      ExprOrder());
}

bool add_term(Polynomial* sum, const Operands& product, int64_t coefficient) {
  int64_t& slot = (*sum)[product];
  if (__builtin_add_overflow(slot, coefficient, &slot)) return false;
  if (slot == 0) sum->erase(product);
  return sum->size() <= kMaxTerms;
}

bool to_polynomial(const Expr& e, Polynomial* sum) {
  if (e.is_const()) {
    return e.constant() == 0 || add_term(sum, {}, e.constant());
  }
  const Operands single{e};
  for (const Expr& term : e.op() == ExprOp::kAdd ? e.operands() : single) {
    if (term.is_const()) {
      if (!add_term(sum, {}, term.constant())) return false;
      continue;
    }
    Operands product;
    int64_t coefficient;
    if (!split_product(term, &product, &coefficient) ||
        !add_term(sum, product, coefficient))
      return false;
  }
  return true;
}

bool add_multiple(Polynomial* sum, const Polynomial& other, int64_t factor) {
  for (const auto& [product, coefficient] : other) {
    int64_t scaled;
    if (__builtin_mul_overflow(coefficient, factor, &scaled) ||
        !add_term(sum, product, scaled))
      return false;
  }
  return true;
}

bool multiply(const Polynomial& a, const Polynomial& b, Polynomial* out) {
  if (a.size() * b.size() > kMaxTerms) return false;
  for (const auto& [x, cx] : a) {
    for (const auto& [y, cy] : b) {
      Operands product = x;
      product.insert(product.end(), y.begin(), y.end());
      std::sort(product.begin(), product.end(), ExprOrder());
      int64_t coefficient;
      if (__builtin_mul_overflow(cx, cy, &coefficient)) return false;
      if (!add_term(out, product, coefficient)) return false;
    }
  }
  return true;
}

Expr from_polynomial(const Polynomial& sum) {
  Operands terms;
  int64_t constant = 0;
  for (const auto& [product, coefficient] : sum) {
    if (product.empty()) {
      constant = coefficient;
      continue;
    }
    Operands factors = product;
    if (coefficient != 1) factors.push_back(Expr(coefficient));
    terms.push_back(factors.size() == 1
                        ? factors[0]
                        : Expr::make_raw(ExprOp::kMul, factors));
  }
  if (constant != 0 || terms.empty()) terms.push_back(Expr(constant));
  return terms.size() == 1 ? terms[0]
                           : Expr::make_raw(ExprOp::kAdd, std::move(terms));
}

int64_t constant_of(const Polynomial& sum) {
  auto found = sum.find({});
  return found == sum.end() ? 0 : found->second;
}

}  // namespace framejit
