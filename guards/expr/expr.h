// Symbolic integer, boolean and float expressions over sizes and numbers of the
// inputs ("s0", "s0*4+1", "f2*0.5").
//
// Immutable, canonicalised at construction (constants folded, sums and products
// of integers flattened and sorted), compared structurally. A Symbol is an
// index into the symbol table of the GuardSet that made it; its hint is the
// value seen at capture. graph/ wraps these in a c10::SymNodeImpl; guards
// compile the boolean ones; executors evaluate the others.
//
// A float is a double kept as its bits in an int64_t, so that NaN and -0.0 are
// what they are. Float operations are never reordered: they are Python's, one
// by one (float_ops.def). An integer among them is converted by kFromInt.
#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
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
  kNeg,          // integer (Python's floor semantics)
  kFloat,        // constant
  kFloatSymbol,  // in the same table as the others
  kFromInt,
#define FJ_FLOAT_OP(name, ...) k##name,
#include "guards/expr/float_ops.def"
#undef FJ_FLOAT_OP
  kEq,
  kNe,
  kLt,
  kLe,
  kAnd,
  kOr,
  kNot,  // boolean, 0 or 1
  kFloatEq,
  kFloatLt,
  kFloatLe,    // of floats, boolean: false on NaN
  kFloatSame,  // the same bits
  kDefined,    // the float has a value: Python would not raise
};

class Expr {
 public:
  Expr() : Expr(0) {}
  Expr(int64_t constant);
  static Expr symbol(int index);
  static Expr real(double constant);
  static Expr real_symbol(int index);
  static Expr make(ExprOp op, std::vector<Expr> operands);
  // As given, not canonicalised: for make() itself.
  static Expr make_raw(ExprOp op, std::vector<Expr> operands);

  ExprOp op() const;
  int64_t constant() const;  // kConst only
  int symbol_index() const;  // kSymbol, kFloatSymbol
  double real() const;       // kFloat only
  const std::vector<Expr>& operands() const;
  bool is_const() const { return op() == ExprOp::kConst; }
  bool is_symbol() const { return op() == ExprOp::kSymbol; }
  bool is_float_symbol() const { return op() == ExprOp::kFloatSymbol; }
  bool is_float() const { return op() >= ExprOp::kFloat && op() < ExprOp::kEq; }
  bool is_boolean() const { return op() >= ExprOp::kEq; }
  bool uses_symbols() const;
  bool is_leaf() const {
    return is_const() || is_float_const() || is_symbol() || is_float_symbol();
  }
  // An operation on floats, whatever its result.
  bool is_of_floats() const;
  bool is_float_const() const { return op() == ExprOp::kFloat; }
  bool is_const(int64_t value) const {
    return is_const() && constant() == value;
  }

  // symbols: value per symbol index (the bits of a float). evaluate() throws
  // InternalError where try_evaluate() is false: a step overflows int64,
  // divides by zero, or is a float operation that is not defined for its
  // operands.
  int64_t evaluate(const int64_t* symbols) const;
  bool try_evaluate(const int64_t* symbols, int64_t* out) const;
  double evaluate_float(const int64_t* symbols) const {
    return std::bit_cast<double>(evaluate(symbols));
  }
  void collect_symbols(std::vector<int>* out) const;  // sorted, unique
  // The symbols themselves, by index.
  void collect_symbols(std::map<int, Expr>* out) const;
  std::string str() const;  // Python syntax, s<i> for ints, f<i> for floats
  static bool parse(const std::string& text, Expr* out);
  size_t hash() const;
  // Beyond kMaxExprDepth or kMaxExprSize: to be pinned to its value, for the
  // walks over it recurse, and meet what is shared again and again.
  bool is_too_large() const;
  int tree_size() const;  // what is shared counts as often as it is there
  bool operator==(const Expr& other) const;  // structural
  bool operator!=(const Expr& other) const { return !(*this == other); }

  struct Node;

 private:
  friend class EvaluationMemo;
  bool evaluate_once(const int64_t* symbols, int64_t* out) const;
  bool evaluate_node(const int64_t* symbols, int64_t* out) const;

  explicit Expr(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  std::shared_ptr<const Node> node_;
};

// While it lives, on this thread, what large expressions share is evaluated
// once: a recurrence over n numbers has n results, each of which has all before
// it in it. The symbols may not change meanwhile. One inside another of the
// same symbols is the same.
class EvaluationMemo {
 public:
  explicit EvaluationMemo(const int64_t* symbols);
  ~EvaluationMemo();
  EvaluationMemo(const EvaluationMemo&) = delete;
  EvaluationMemo& operator=(const EvaluationMemo&) = delete;

 private:
  friend class Expr;
  const int64_t* symbols_;
  EvaluationMemo* outer_;
  bool is_new_;
  // By node, which is kept: another may get the place of one that is gone.
  std::unordered_map<const void*, std::pair<Expr, int64_t>> values_;
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
// What an operation on floats or a comparison of them gives, in bits. False:
// Python would raise, or there is no such operation.
bool compute_float(ExprOp op, int64_t left, int64_t right, int64_t* out);
// Of an integer or a float: the float.
Expr as_float(const Expr& a);
// The float has these bits.
Expr float_same(const Expr& a, double value);

}  // namespace framejit
