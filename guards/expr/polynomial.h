// Integer expressions as sums of products.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "guards/expr/expr.h"

namespace framejit {

// A total order: symbols, then other terms, constants last. Structural, so that
// equal expressions come out in one form.
int order_of(const Expr& a, const Expr& b);
struct ExprOrder {
  bool operator()(const Expr& a, const Expr& b) const {
    return order_of(a, b) < 0;
  }
};
struct ProductOrder {
  bool operator()(const std::vector<Expr>& a, const std::vector<Expr>& b) const;
};

// sum of coefficient * product, and a constant (the empty product).
using Polynomial = std::map<std::vector<Expr>, int64_t, ProductOrder>;

// Each is false where there are too many terms, or a coefficient is beyond 64
// bits; `sum` is of no use then.
bool add_term(Polynomial* sum, const std::vector<Expr>& product,
              int64_t coefficient);
bool to_polynomial(const Expr& expr, Polynomial* sum);  // added to `sum`
bool add_multiple(Polynomial* sum, const Polynomial& other, int64_t factor);
bool multiply(const Polynomial& a, const Polynomial& b, Polynomial* out);
Expr from_polynomial(const Polynomial& sum);
int64_t constant_of(const Polynomial& sum);

}  // namespace framejit
