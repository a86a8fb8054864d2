#include "graph/tensors/sym_node.h"

#include <c10/core/SymBool.h>
#include <c10/core/SymNodeImpl.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "graph/tensors/trace_tensor.h"
#include "guards/set/number_expr.h"

namespace framejit::graph {
namespace {

using Kind = ExprSymNode::Kind;

// The session whose guard set an answer about a symbolic size goes to.
TraceSession& guarding_session() {
  TraceSession* session = TraceSession::active();
  TORCH_CHECK(session && session->guards(),
              "a symbolic size was used outside its capture");
  return *session;
}

void add_guard(Expr condition) {
  guarding_session().guards()->add_expr(std::move(condition));
}

// A SymFloat or SymBool object that torch takes apart becomes a node around the
// Python object of ours. Null: not ours. The Python object keeps it alive.
ExprSymNode* find_ours(const c10::SymNode& node) {
  if (auto* expr = dynamic_cast<ExprSymNode*>(node.get())) return expr;
  auto* python = dynamic_cast<torch::impl::PythonSymNodeImpl*>(node.get());
  if (!python) return nullptr;
  py::gil_scoped_acquire gil;
  py::handle inner = python->getPyObj();
  if (!py::isinstance<c10::SymNodeImpl>(inner)) return nullptr;
  return dynamic_cast<ExprSymNode*>(inner.cast<c10::SymNode>().get());
}

const ExprSymNode& ours(const c10::SymNode& node) {
  ExprSymNode* expr = find_ours(node);
  TORCH_CHECK(expr, "a symbolic value that is not FrameJIT's");
  return *expr;
}

uint64_t session_of(const ExprSymNode& a, const ExprSymNode& b) {
  return a.session() ? a.session() : b.session();
}

// Where what was decided may leave less of it: n % 8 of a multiple of 8.
bool may_be_simpler(const Expr& expr) {
  return expr.op() == ExprOp::kMin || expr.op() == ExprOp::kMax ||
         expr.op() == ExprOp::kMod || expr.op() == ExprOp::kFloorDiv;
}

c10::SymNode make_node(Kind kind, Expr expr, uint64_t session) {
  if (may_be_simpler(expr)) expr = simplified(expr);
  if (expr.is_too_large() && kind != Kind::kBool) {
    expr = kind == Kind::kFloat ? Expr::real(pin(expr)) : specialise(expr);
  }
  int64_t hint = hint_of(expr);
  return c10::make_intrusive<ExprSymNode>(kind, std::move(expr), hint, session);
}

c10::SymNode float_node(const Expr& expr, uint64_t session = 0) {
  if (!expr.is_float_const()) guarding_session().note_float();
  return make_node(Kind::kFloat, expr, session);
}

c10::SymNode bool_node(bool value) {
  return c10::make_intrusive<ExprSymNode>(Kind::kBool, Expr(value ? 1 : 0),
                                          value, 0);
}

// The concrete number, with the guard that keeps it.
double to_float(const ExprSymNode& node) {
  if (node.kind() == Kind::kFloat) return pin(node.expr());
  return static_cast<double>(specialise(node.expr()));
}

bool any_float(const ExprSymNode& a, const ExprSymNode& b) {
  return a.kind() == Kind::kFloat || b.kind() == Kind::kFloat;
}

// An operation of Python's on numbers one of which is a float or becomes one.
// Null: it has no expression.
c10::SymNode float_operation(const char* name,
                             const std::vector<Expr>& operands,
                             uint64_t session) {
  PyTypeObject* type = nullptr;
  auto expr = operate_on_floats(name, nullptr, operands,
                                guarding_session().guards(), &type);
  if (!expr) return {};
  if (type == &PyFloat_Type) return float_node(*expr, session);
  Kind kind = type == &PyBool_Type ? Kind::kBool : Kind::kInt;
  return make_node(kind, *expr, session);
}

// on_float: where Python would raise, C++ gives inf or NaN, and this throws.
template <class OnFloat>
c10::SymNode float_arithmetic(const char* name, const ExprSymNode& a,
                              const ExprSymNode& b, OnFloat on_float) {
  bool constant = !a.expr().uses_symbols() && !b.expr().uses_symbols();
  if (!constant) {
    if (auto node =
            float_operation(name, {a.expr(), b.expr()}, session_of(a, b)))
      return node;
  }
  double left = to_float(a), right = to_float(b);
  double result = on_float(left, right);
  // Sums and products of Python overflow silently, the others raise.
  std::string_view operation = name;
  bool raises = operation != "add" && operation != "sub" &&
                operation != "mul" && std::isfinite(left) &&
                std::isfinite(right) && !std::isfinite(result);
  TORCH_CHECK(!raises, name, " of numbers for which Python raises");
  return float_node(Expr::real(result));
}

template <class OnExpr, class OnFloat>
c10::SymNode arithmetic(const char* name, const ExprSymNode& a,
                        const c10::SymNode& other, OnExpr on_expr,
                        OnFloat on_float) {
  const ExprSymNode& b = ours(other);
  if (any_float(a, b)) return float_arithmetic(name, a, b, on_float);
  return make_node(Kind::kInt, on_expr(a.expr(), b.expr()), session_of(a, b));
}

template <class OnExpr, class OnFloat>
c10::SymNode comparison(const char* name, const ExprSymNode& a,
                        const c10::SymNode& other, OnExpr on_expr,
                        OnFloat on_float) {
  const ExprSymNode& b = ours(other);
  if (any_float(a, b)) {
    if (auto node =
            float_operation(name, {a.expr(), b.expr()}, session_of(a, b)))
      return node;
    return bool_node(on_float(to_float(a), to_float(b)));
  }
  return make_node(Kind::kBool, on_expr(a.expr(), b.expr()), session_of(a, b));
}

std::vector<Expr> exprs_of(c10::ArrayRef<c10::SymNode> nodes) {
  std::vector<Expr> result;
  result.reserve(nodes.size());
  for (const c10::SymNode& node : nodes) result.push_back(ours(node).expr());
  return result;
}

double python_mod(double a, double b) {
  double result = std::fmod(a, b);
  return result != 0 && (result < 0) != (b < 0) ? result + b : result;
}

// Nested strides in the given order of dims, innermost first (c10's
// is_channels_last_contiguous).
bool decide_nested(const std::vector<Expr>& sizes,
                   const std::vector<Expr>& strides,
                   std::initializer_list<int> order) {
  if (sizes.size() != order.size()) return false;
  Expr expected(1);
  for (int dim : order) {
    if (decide(expr_eq(sizes[dim], 1))) continue;
    if (!decide(expr_eq(strides[dim], expected))) return false;
    expected = expected * sizes[dim];
  }
  return true;
}

// c10's is_channels_last_strides, with its fall back to the default format.
bool decide_nested_strides(const std::vector<Expr>& sizes,
                           const std::vector<Expr>& strides,
                           std::initializer_list<int> order) {
  if (sizes.size() != order.size()) return false;
  if (decide(expr_eq(strides[1], 0))) return false;
  Expr least(0);
  for (int dim : order) {
    if (decide(expr_eq(sizes[dim], 0))) return false;
    if (decide(expr_lt(strides[dim], least))) return false;
    if (dim == 0 && decide(expr_eq(least, strides[1]))) return false;
    least = strides[dim];
    if (decide(expr_lt(1, sizes[dim]))) least = least * sizes[dim];
  }
  return true;
}

bool decide_dense(const std::vector<Expr>& sizes,
                  const std::vector<Expr>& strides) {
  std::vector<int> order(sizes.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return hint_of(strides[a]) < hint_of(strides[b]);
  });
  Expr expected(1);
  bool dense = true;
  for (int dim : order) {
    if (decide(expr_lt(sizes[dim], 2))) continue;
    if (dense && decide(expr_eq(strides[dim], expected))) {
      expected = expected * sizes[dim];
      continue;
    }
    // An overlap; or a gap, as long as no dim comes to fill it.
    dense = false;
    if (!decide(expr_lt(expected, strides[dim]))) break;
  }
  return dense;
}

}  // namespace

// ---- arithmetic

c10::SymNode ExprSymNode::add(const c10::SymNode& other) {
  return arithmetic("add", *this, other, std::plus<>(), std::plus<>());
}
c10::SymNode ExprSymNode::sub(const c10::SymNode& other) {
  return arithmetic("sub", *this, other, std::minus<>(), std::minus<>());
}
c10::SymNode ExprSymNode::mul(const c10::SymNode& other) {
  return arithmetic("mul", *this, other, std::multiplies<>(),
                    std::multiplies<>());
}
c10::SymNode ExprSymNode::truediv(const c10::SymNode& other) {
  return float_arithmetic("truediv", *this, ours(other), std::divides<>());
}
c10::SymNode ExprSymNode::pow(const c10::SymNode& other) {
  auto power = [](double a, double b) { return std::pow(a, b); };
  const ExprSymNode& exponent = ours(other);
  if (any_float(*this, exponent)) {
    return float_arithmetic("pow", *this, exponent, power);
  }
  int64_t count = specialise(exponent.expr());
  if (count < 0) {
    ExprSymNode base(Kind::kFloat, as_float(expr_), 0, session_);
    ExprSymNode inverse(Kind::kFloat, Expr::real(double(count)), 0, session_);
    return float_arithmetic("pow", base, inverse, power);
  }
  TORCH_CHECK(count <= 64, "symbolic power with a large exponent");
  Expr result(1);
  for (int64_t i = 0; i < count; ++i) result = result * expr_;
  return make_node(Kind::kInt, std::move(result), session_);
}
c10::SymNode ExprSymNode::floordiv(const c10::SymNode& other) {
  const ExprSymNode& divisor = ours(other);
  if (!any_float(*this, divisor)) {
    TORCH_CHECK(!decide(expr_eq(divisor.expr(), 0)), "division by zero");
  }
  return arithmetic("floordiv", *this, other, floor_div,
                    [](double a, double b) { return std::floor(a / b); });
}
c10::SymNode ExprSymNode::mod(const c10::SymNode& other) {
  const ExprSymNode& divisor = ours(other);
  if (!any_float(*this, divisor)) {
    TORCH_CHECK(!decide(expr_eq(divisor.expr(), 0)), "modulo by zero");
  }
  return arithmetic(
      "mod", *this, other,
      [](const Expr& a, const Expr& b) { return framejit::mod(a, b); },
      python_mod);
}
c10::SymNode ExprSymNode::sym_min(const c10::SymNode& other) {
  return arithmetic(
      "min", *this, other,
      [](const Expr& a, const Expr& b) {
        return Expr::make(ExprOp::kMin, {a, b});
      },
      [](double a, double b) { return std::min(a, b); });
}
c10::SymNode ExprSymNode::sym_max(const c10::SymNode& other) {
  return arithmetic(
      "max", *this, other,
      [](const Expr& a, const Expr& b) {
        return Expr::make(ExprOp::kMax, {a, b});
      },
      [](double a, double b) { return std::max(a, b); });
}
c10::SymNode ExprSymNode::neg() {
  if (kind_ == Kind::kFloat)
    return float_node(Expr::make(ExprOp::kFloatNeg, {expr_}), session_);
  return make_node(Kind::kInt, Expr(0) - expr_, session_);
}
c10::SymNode ExprSymNode::ceil() {
  if (kind_ != Kind::kFloat) return clone();
  if (auto node = float_operation("ceil", {expr_}, session_)) return node;
  return wrap_int(int64_t(std::ceil(pin(expr_))));
}
c10::SymNode ExprSymNode::floor() {
  if (kind_ != Kind::kFloat) return clone();
  if (auto node = float_operation("floor", {expr_}, session_)) return node;
  return wrap_int(int64_t(std::floor(pin(expr_))));
}

// ---- comparison

c10::SymNode ExprSymNode::eq(const c10::SymNode& other) {
  return comparison("eq", *this, other, expr_eq, std::equal_to<>());
}
c10::SymNode ExprSymNode::ne(const c10::SymNode& other) {
  return comparison(
      "ne", *this, other,
      [](const Expr& a, const Expr& b) { return expr_not(expr_eq(a, b)); },
      std::not_equal_to<>());
}
c10::SymNode ExprSymNode::lt(const c10::SymNode& other) {
  return comparison("lt", *this, other, expr_lt, std::less<>());
}
c10::SymNode ExprSymNode::le(const c10::SymNode& other) {
  return comparison("le", *this, other, expr_le, std::less_equal<>());
}
c10::SymNode ExprSymNode::gt(const c10::SymNode& other) {
  return comparison(
      "gt", *this, other,
      [](const Expr& a, const Expr& b) { return expr_lt(b, a); },
      std::greater<>());
}
c10::SymNode ExprSymNode::ge(const c10::SymNode& other) {
  return comparison(
      "ge", *this, other,
      [](const Expr& a, const Expr& b) { return expr_le(b, a); },
      std::greater_equal<>());
}
c10::SymNode ExprSymNode::sym_or(const c10::SymNode& other) {
  const ExprSymNode& b = ours(other);
  return make_node(
      Kind::kBool,
      expr_not(Expr::make(ExprOp::kAnd, {expr_not(expr_), expr_not(b.expr())})),
      session_of(*this, b));
}
c10::SymNode ExprSymNode::sym_and(const c10::SymNode& other) {
  const ExprSymNode& b = ours(other);
  return make_node(Kind::kBool, Expr::make(ExprOp::kAnd, {expr_, b.expr()}),
                   session_of(*this, b));
}
c10::SymNode ExprSymNode::sym_not() {
  return make_node(Kind::kBool, expr_not(expr_), session_);
}
c10::SymNode ExprSymNode::sym_ite(const c10::SymNode& yes,
                                  const c10::SymNode& no) {
  return decide(expr_) ? yes : no;
}

// ---- layout

c10::SymNode ExprSymNode::is_contiguous(c10::ArrayRef<c10::SymNode> sizes,
                                        c10::ArrayRef<c10::SymNode> strides) {
  return bool_node(decide_contiguous(exprs_of(sizes), exprs_of(strides)));
}
c10::SymNode ExprSymNode::is_channels_last_contiguous_2d(
    c10::ArrayRef<c10::SymNode> sizes, c10::ArrayRef<c10::SymNode> strides) {
  return bool_node(
      decide_nested(exprs_of(sizes), exprs_of(strides), {1, 3, 2, 0}));
}
c10::SymNode ExprSymNode::is_channels_last_contiguous_3d(
    c10::ArrayRef<c10::SymNode> sizes, c10::ArrayRef<c10::SymNode> strides) {
  return bool_node(
      decide_nested(exprs_of(sizes), exprs_of(strides), {1, 4, 3, 2, 0}));
}
c10::SymNode ExprSymNode::is_channels_last_strides_2d(
    c10::ArrayRef<c10::SymNode> sizes, c10::ArrayRef<c10::SymNode> strides) {
  return bool_node(
      decide_nested_strides(exprs_of(sizes), exprs_of(strides), {1, 3, 2, 0}));
}
c10::SymNode ExprSymNode::is_channels_last_strides_3d(
    c10::ArrayRef<c10::SymNode> sizes, c10::ArrayRef<c10::SymNode> strides) {
  return bool_node(decide_nested_strides(exprs_of(sizes), exprs_of(strides),
                                         {1, 4, 3, 2, 0}));
}
c10::SymNode ExprSymNode::is_non_overlapping_and_dense(
    c10::ArrayRef<c10::SymNode> sizes, c10::ArrayRef<c10::SymNode> strides) {
  return bool_node(decide_dense(exprs_of(sizes), exprs_of(strides)));
}

// ---- conversion

c10::SymNode ExprSymNode::clone() {
  return c10::make_intrusive<ExprSymNode>(kind_, expr_, hint_, session_);
}
c10::SymNode ExprSymNode::sym_float() {
  if (kind_ == Kind::kFloat) return clone();
  if (kind_ == Kind::kBool) return float_node(Expr::real(decide(expr_)));
  return float_node(as_float(expr_), session_);
}
c10::SymNode ExprSymNode::wrap_int(int64_t value) {
  return c10::make_intrusive<ExprSymNode>(Kind::kInt, Expr(value), value, 0);
}
c10::SymNode ExprSymNode::wrap_float(double value) {
  return c10::make_intrusive<ExprSymNode>(Kind::kFloat, Expr::real(value),
                                          std::bit_cast<int64_t>(value), 0);
}
c10::SymNode ExprSymNode::wrap_bool(bool value) { return bool_node(value); }

int64_t ExprSymNode::guard_int(const char*, int64_t) {
  if (kind_ == Kind::kFloat) return static_cast<int64_t>(pin(expr_));
  return specialise(expr_);
}
bool ExprSymNode::guard_bool(const char*, int64_t) {
  if (kind_ == Kind::kFloat)
    return !decide(Expr::make(ExprOp::kFloatEq, {expr_, Expr::real(0)}));
  return kind_ == Kind::kInt ? !decide(expr_eq(expr_, 0)) : decide(expr_);
}
double ExprSymNode::guard_float(const char*, int64_t) {
  return to_float(*this);
}
bool ExprSymNode::statically_known_true(const char*, int64_t) {
  return kind_ == Kind::kBool &&
         guarding_session().guards()->follows(expr_).value_or(false);
}
int64_t ExprSymNode::int_() { return guard_int(nullptr, 0); }
bool ExprSymNode::bool_() { return guard_bool(nullptr, 0); }

std::string ExprSymNode::str() { return expr_.str(); }
std::optional<int64_t> ExprSymNode::constant_int() {
  if (kind_ != Kind::kInt || !expr_.is_const()) return std::nullopt;
  return expr_.constant();
}
std::optional<bool> ExprSymNode::constant_bool() {
  if (kind_ != Kind::kBool || !expr_.is_const()) return std::nullopt;
  return expr_.constant() != 0;
}
std::optional<int64_t> ExprSymNode::maybe_as_int() { return constant_int(); }
// torch unwraps constants itself, but knows only integers and booleans.
bool ExprSymNode::is_constant() {
  return kind_ != Kind::kFloat && expr_.is_const();
}

// ---- free functions

c10::SymInt to_sym_int(const Expr& expr) {
  if (expr.is_const()) return c10::SymInt(expr.constant());
  return c10::SymInt(make_node(Kind::kInt, expr, guarding_session().id()));
}

std::optional<Expr> to_expr(const c10::SymNode& node) {
  ExprSymNode* ours = find_ours(node);
  if (!ours) return std::nullopt;
  TraceSession* session = TraceSession::active();
  bool stale =
      ours->session() && (!session || session->id() != ours->session());
  TORCH_CHECK(!stale, "a symbolic size outlived its capture");
  return ours->expr();
}

std::optional<Expr> to_expr(const c10::SymInt& value) {
  if (!value.is_heap_allocated()) return Expr(value.as_int_unchecked());
  if (auto constant = value.maybe_as_int()) return Expr(*constant);
  return to_expr(value.toSymNode());
}

c10::SymFloat to_sym_float(const Expr& expr) {
  if (expr.is_float_const()) return c10::SymFloat(expr.real());
  return c10::SymFloat(float_node(expr, guarding_session().id()));
}

double hint_of(const c10::SymFloat& value) {
  if (!value.is_symbolic()) return value.as_float_unchecked();
  const ExprSymNode& node = ours(value.toSymNodeImpl());
  return node.kind() == Kind::kFloat ? std::bit_cast<double>(node.hint())
                                     : static_cast<double>(node.hint());
}

int64_t hint_of(const c10::SymInt& value) {
  if (auto constant = value.maybe_as_int()) return *constant;
  return ours(value.toSymNode()).hint();
}

int64_t hint_of(const Expr& expr) {
  if (expr.is_const()) return expr.constant();
  GuardSet* guards = guarding_session().guards();
  if (expr.is_symbol()) return guards->symbols().at(expr.symbol_index()).hint;
  return within(kLargestInteger, guarding_session(), expr, guards->hints());
}

int64_t within(int64_t limit, TraceSession& session, const Expr& expr,
               const std::vector<int64_t>& hints) {
  int64_t value = 0;
  bool ok = expr.try_evaluate(hints.data(), &value);
  bool is_number = !expr.is_float() && !expr.is_const();
  if (!ok || (is_number && (value > limit || value < -limit))) {
    session.stop({BreakReason::kUnguardableInput,
                  "a size or stride beyond 64 bits: " + expr.str(),
                  {}});
  }
  return value;
}

Expr simplified(const Expr& expr) {
  return expr.is_const() ? expr : guarding_session().guards()->simplify(expr);
}

bool decide(const Expr& condition) {
  bool truth = hint_of(condition) != 0;
  if (condition.is_const()) return truth;
  // What an operator asks for holds of many sizes: it pins none.
  GuardCause nobody(guarding_session().guards(), {});
  add_guard(truth ? condition : expr_not(condition));
  return truth;
}

int64_t specialise(const Expr& integer) {
  int64_t value = hint_of(integer);
  if (!integer.is_const()) add_guard(expr_eq(integer, value));
  return value;
}

double pin(const Expr& real) {
  if (real.is_float_const()) return real.real();
  TraceSession& session = guarding_session();
  if (auto known = pinned_float(real, *session.guards())) return *known;
  session.before_pin(real);
  return pin_float(real, session.guards());
}

std::vector<Expr> contiguous_strides(c10::ArrayRef<Expr> sizes) {
  std::vector<Expr> strides(sizes.size(), Expr(1));
  for (size_t i = sizes.size(); i-- > 1;) {
    Expr size = sizes[i];
    // empty_strided and friends use max(size, 1); sizes of 0 are rare enough
    // to be told apart by the guard.
    if (!size.is_const() && decide(expr_eq(size, 0))) size = Expr(1);
    if (size.is_const() && size.constant() < 1) size = Expr(1);
    strides[i - 1] = strides[i] * size;
  }
  return strides;
}

bool decide_contiguous(c10::ArrayRef<Expr> sizes, c10::ArrayRef<Expr> strides) {
  Expr expected(1);
  for (size_t i = sizes.size(); i-- > 0;) {
    bool nested = strides[i] == expected || decide(expr_eq(sizes[i], 1)) ||
                  decide(expr_eq(strides[i], expected));
    if (!nested) {
      for (const Expr& size : sizes) {
        if (decide(expr_eq(size, 0))) return true;
      }
      return false;
    }
    expected = expected * sizes[i];
  }
  return true;
}

}  // namespace framejit::graph
