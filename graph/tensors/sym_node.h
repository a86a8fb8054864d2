// ExprSymNode: guards::Expr as torch's symbolic number.
//
// torch.SymInt and c10::SymInt (SymFloat, SymBool) both end in a
// c10::SymNodeImpl. Ours holds an expression over the guard set's symbols and
// its value at capture (the hint; of a float, its bits). Arithmetic builds
// expressions; asking for a concrete answer (bool_ and int_ from Python,
// guard_bool, guard_int and guard_float from C++) records the guard that makes
// the answer hold for every later call.
#pragma once

#include <c10/core/SymFloat.h>
#include <c10/core/SymInt.h>
#include <c10/core/SymNodeImpl.h>

#include <optional>
#include <vector>

#include "guards/expr/expr.h"

namespace framejit::graph {

class TraceSession;

class ExprSymNode final : public c10::SymNodeImpl {
 public:
  enum class Kind : uint8_t { kInt, kBool, kFloat };
  ExprSymNode(Kind kind, Expr expr, int64_t hint, uint64_t session)
      : kind_(kind), expr_(std::move(expr)), hint_(hint), session_(session) {}

  const Expr& expr() const { return expr_; }
  int64_t hint() const { return hint_; }
  Kind kind() const { return kind_; }
  uint64_t session() const { return session_; }

  bool is_int() override { return kind_ == Kind::kInt; }
  bool is_bool() override { return kind_ == Kind::kBool; }
  bool is_float() override { return kind_ == Kind::kFloat; }
  c10::SymNode add(const c10::SymNode& other) override;
  c10::SymNode sub(const c10::SymNode& other) override;
  c10::SymNode mul(const c10::SymNode& other) override;
  c10::SymNode truediv(const c10::SymNode& other) override;
  c10::SymNode pow(const c10::SymNode& other) override;
  c10::SymNode floordiv(const c10::SymNode& other) override;
  c10::SymNode mod(const c10::SymNode& other) override;
  c10::SymNode eq(const c10::SymNode& other) override;
  c10::SymNode ne(const c10::SymNode& other) override;
  c10::SymNode gt(const c10::SymNode& other) override;
  c10::SymNode lt(const c10::SymNode& other) override;
  c10::SymNode le(const c10::SymNode& other) override;
  c10::SymNode ge(const c10::SymNode& other) override;
  c10::SymNode ceil() override;
  c10::SymNode floor() override;
  c10::SymNode neg() override;
  c10::SymNode sym_min(const c10::SymNode& other) override;
  c10::SymNode sym_max(const c10::SymNode& other) override;
  c10::SymNode sym_or(const c10::SymNode& other) override;
  c10::SymNode sym_and(const c10::SymNode& other) override;
  c10::SymNode sym_not() override;
  c10::SymNode sym_ite(const c10::SymNode& yes,
                       const c10::SymNode& no) override;
  c10::SymNode is_contiguous(c10::ArrayRef<c10::SymNode> sizes,
                             c10::ArrayRef<c10::SymNode> strides) override;
  c10::SymNode is_channels_last_contiguous_2d(
      c10::ArrayRef<c10::SymNode> sizes,
      c10::ArrayRef<c10::SymNode> strides) override;
  c10::SymNode is_channels_last_contiguous_3d(
      c10::ArrayRef<c10::SymNode> sizes,
      c10::ArrayRef<c10::SymNode> strides) override;
  c10::SymNode is_channels_last_strides_2d(
      c10::ArrayRef<c10::SymNode> sizes,
      c10::ArrayRef<c10::SymNode> strides) override;
  c10::SymNode is_channels_last_strides_3d(
      c10::ArrayRef<c10::SymNode> sizes,
      c10::ArrayRef<c10::SymNode> strides) override;
  c10::SymNode is_non_overlapping_and_dense(
      c10::ArrayRef<c10::SymNode> sizes,
      c10::ArrayRef<c10::SymNode> strides) override;
  c10::SymNode clone() override;
  c10::SymNode sym_float() override;
  c10::SymNode wrap_int(int64_t value) override;
  c10::SymNode wrap_float(double value) override;
  c10::SymNode wrap_bool(bool value) override;
  int64_t guard_int(const char* file, int64_t line) override;
  bool guard_bool(const char* file, int64_t line) override;
  double guard_float(const char* file, int64_t line) override;
  bool statically_known_true(const char* file, int64_t line) override;
  int64_t int_() override;
  bool bool_() override;
  bool has_hint() override { return true; }
  std::string str() override;
  std::optional<int64_t> constant_int() override;
  std::optional<bool> constant_bool() override;
  std::optional<int64_t> maybe_as_int() override;
  bool is_constant() override;
  bool is_symbolic() override { return !is_constant(); }

 private:
  Kind kind_;
  Expr expr_;
  int64_t hint_ = 0;
  uint64_t session_ = 0;
};

// A constant expression gives a plain SymInt. The active session's hints are
// used.
c10::SymInt to_sym_int(const Expr& expr);
// Null for symbolic integers that are not ours.
std::optional<Expr> to_expr(const c10::SymInt& value);
// Null when it is not ours.
std::optional<Expr> to_expr(const c10::SymNode& node);
int64_t hint_of(const c10::SymInt& value);
// A constant expression gives a plain SymFloat.
c10::SymFloat to_sym_float(const Expr& expr);
double hint_of(const c10::SymFloat& value);
int64_t hint_of(const Expr& expr);  // in the active session
// A break where it is beyond the limit. (A float's are the bits of it.)
int64_t within(int64_t limit, TraceSession& session, const Expr& expr,
               const std::vector<int64_t>& hints);

// ---- decisions on expressions, each recorded as a guard of the active
// session. Constants record nothing.
bool decide(const Expr& condition);  // the truth at the hints
Expr simplified(const Expr& expr);   // the same number, by what was decided
int64_t specialise(const Expr& integer);  // every symbol in it: == its hint
// A float: the hint. Where the session cannot take a float as a constant of the
// graph (TraceSession::before_pin), this throws.
double pin(const Expr& real);
// Layout queries as path conditions over sizes and strides.
bool decide_contiguous(c10::ArrayRef<Expr> sizes, c10::ArrayRef<Expr> strides);
std::vector<Expr> contiguous_strides(c10::ArrayRef<Expr> sizes);

}  // namespace framejit::graph
