// Symbolic integer and boolean expressions over input sizes ("s0", "s0*4+1").
//
// Immutable, canonicalised at construction (constants folded, sums and products
// flattened and sorted), compared structurally. A Symbol is an index into the
// symbol table of the GuardSet that made it; its hint is the value seen at
// capture. graph/ wraps these in a c10::SymNodeImpl; guards compile the boolean
// ones; executors evaluate the integer ones.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace framejit {

enum class ExprOp : uint8_t {
  kConst,
  kSymbol,
  kAdd,
  kMul,
  kFloorDiv,
  kMod,
  kMin,
  kMax,
  kNeg,  // integer (Python's
         // floor semantics)
  kEq,
  kNe,
  kLt,
  kLe,
  kAnd,
  kOr,
  kNot,  // boolean, 0 or 1
};

class Expr {
 public:
  Expr() : Expr(0) {}
  Expr(int64_t constant);
  static Expr symbol(int index);
  static Expr make(ExprOp op, std::vector<Expr> operands);
  // As given, not canonicalised: for make() itself.
  static Expr make_raw(ExprOp op, std::vector<Expr> operands);

  ExprOp op() const;
  int64_t constant() const;  // kConst only
  int symbol_index() const;  // kSymbol only
  const std::vector<Expr>& operands() const;
  bool is_const() const { return op() == ExprOp::kConst; }
  bool is_symbol() const { return op() == ExprOp::kSymbol; }
  bool is_const(int64_t value) const {
    return is_const() && constant() == value;
  }

  // symbols: value per symbol index. evaluate() throws InternalError where
  // try_evaluate() is false: a step overflows int64 or divides by zero.
  int64_t evaluate(const int64_t* symbols) const;
  bool try_evaluate(const int64_t* symbols, int64_t* out) const;
  void collect_symbols(std::vector<int>* out) const;  // sorted, unique
  std::string str() const;                            // Python syntax, s<i>
  static bool parse(const std::string& text, Expr* out);
  size_t hash() const;
  bool operator==(const Expr& other) const;  // structural
  bool operator!=(const Expr& other) const { return !(*this == other); }

  struct Node;

 private:
  explicit Expr(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  std::shared_ptr<const Node> node_;
};

Expr operator+(const Expr& a, const Expr& b);
Expr operator-(const Expr& a, const Expr& b);
Expr operator*(const Expr& a, const Expr& b);
Expr floor_div(const Expr& a, const Expr& b);
Expr mod(const Expr& a, const Expr& b);
Expr expr_eq(const Expr& a, const Expr& b);
Expr expr_lt(const Expr& a, const Expr& b);
Expr expr_le(const Expr& a, const Expr& b);
Expr expr_not(const Expr& a);

}  // namespace framejit
