// Amount: a number of a run: a size, a stride, a parameter of a kernel. What
// does not depend on symbols is worked out once.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "guards/expr/expr.h"

namespace framejit::backend {

struct Amount {
  Expr expr;
  int64_t constant = 0;
  bool is_constant = true;

  Amount() = default;
  explicit Amount(Expr e) : expr(std::move(e)) {
    is_constant = expr.is_const();
    if (is_constant) constant = expr.constant();
  }
  int64_t at(const int64_t* symbols) const {
    return is_constant ? constant : expr.evaluate(symbols);
  }
};

using Amounts = std::vector<Amount>;

inline int64_t product(const Amounts& amounts, const int64_t* symbols) {
  int64_t out = 1;
  for (const Amount& amount : amounts) out *= amount.at(symbols);
  return out;
}

}  // namespace framejit::backend
