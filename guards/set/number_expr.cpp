#include "guards/set/number_expr.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "guards/set/object_layout.h"

namespace framejit {

namespace {

constexpr int64_t kExactInts = int64_t{1} << 53;  // as doubles

struct Row {
  const char* name;
  ExprOp op;
  size_t operands;
  bool swapped = false;   // a > b is b < a
  bool inverted = false;  // a != b is not a == b
};
constexpr Row kRows[] = {
    {"add", ExprOp::kFloatAdd, 2},
    {"sub", ExprOp::kFloatSub, 2},
    {"mul", ExprOp::kFloatMul, 2},
    {"truediv", ExprOp::kFloatDiv, 2},
    {"floordiv", ExprOp::kFloatFloorDiv, 2},
    {"mod", ExprOp::kFloatMod, 2},
    {"neg", ExprOp::kFloatNeg, 1},
    {"pos", ExprOp::kFromInt, 1},
    {"abs", ExprOp::kFloatAbs, 1},
    {"fabs", ExprOp::kFloatAbs, 1},
    {"eq", ExprOp::kFloatEq, 2},
    {"ne", ExprOp::kFloatEq, 2, false, true},
    {"lt", ExprOp::kFloatLt, 2},
    {"le", ExprOp::kFloatLe, 2},
    {"gt", ExprOp::kFloatLt, 2, true},
    {"ge", ExprOp::kFloatLe, 2, true},
#define FJ_FLOAT_OP(name, text, operands, ...) \
  {text, ExprOp::k##name, operands},
#include "guards/expr/float_ops.def"
#undef FJ_FLOAT_OP
};

const Row* find_row(std::string_view name, size_t operands) {
  for (const Row& row : kRows) {
    if (row.name == name && row.operands == operands) return &row;
  }
  return nullptr;
}

// An integer beside a float: Python compares their exact values. False: the
// integer has no exact double.
bool add_exactness(const Expr& integer, const int64_t* hints,
                   std::vector<Expr>* facts) {
  if (integer.is_float()) return true;
  int64_t value;
  if (!integer.try_evaluate(hints, &value) || value > kExactInts ||
      value < -kExactInts)
    return false;
  facts->push_back(expr_le(integer, kExactInts));
  facts->push_back(expr_le(Expr(-kExactInts), integer));
  return true;
}

// floor(), ceil() and trunc(): the number, and when it is that one.
std::optional<Expr> round_to_int(std::string_view name, const Expr& operand,
                                 const int64_t* hints,
                                 std::vector<Expr>* facts) {
  double value = operand.evaluate_float(hints);
  if (!(std::fabs(value) < double(kExactInts / 2))) return {};
  bool up = name == "ceil" || (name == "trunc" && value < 0);
  double number = up ? std::ceil(value) : std::floor(value);
  Expr low = Expr::real(number - 1), high = Expr::real(number + 1);
  bool both = name == "trunc" && number == 0;
  auto below = [](const Expr& a, const Expr& b) {
    return Expr::make(ExprOp::kFloatLt, {a, b});
  };
  auto not_above = [](const Expr& a, const Expr& b) {
    return Expr::make(ExprOp::kFloatLe, {a, b});
  };
  if (up || both) {
    facts->push_back(below(low, operand));
  } else {
    facts->push_back(not_above(Expr::real(number), operand));
  }
  if (up && !both) {
    facts->push_back(not_above(operand, Expr::real(number)));
  } else {
    facts->push_back(below(operand, high));
  }
  return Expr(static_cast<int64_t>(number));
}

// Python's answer for the hints is the one we have.
bool python_agrees(PyObject* function, const std::vector<Expr>& operands,
                   const int64_t* hints, const Expr& answer,
                   PyTypeObject* type) {
  if (!function) return true;
  ErrorGuard keep_error;
  std::vector<Ref> objects;
  std::vector<PyObject*> args;
  for (const Expr& operand : operands) {
    objects.push_back(Ref::steal(number_object(operand, hints)));
    if (!objects.back()) return false;
    args.push_back(objects.back().get());
  }
  Ref expected = Ref::steal(
      PyObject_Vectorcall(function, args.data(), args.size(), nullptr));
  if (!expected || Py_TYPE(expected.get()) != type) return false;
  std::optional<Expr> value = number_expr(expected.get());
  int64_t ours;
  return value && answer.try_evaluate(hints, &ours) &&
         value->constant() == ours;
}

// Of a tensor that came in, and not the program's own number.
bool is_extent(const Symbol& symbol) {
  return symbol.source->kind == SourceKind::kTensorSize ||
         symbol.source->kind == SourceKind::kTensorStride;
}

// Could other values of its symbols lead beyond the limit?
bool may_exceed(int64_t limit, const Expr& expr, const GuardSet& guards) {
  if (expr.is_const()) return false;
  // No symbol is larger than that.
  if (expr.is_symbol() && limit >= kLargestInteger) return false;
  constexpr int64_t kLargeSize = int64_t{1} << 20;
  std::vector<int64_t> large(guards.symbols().size(), kLargeSize);
  int64_t value;
  return !expr.try_evaluate(large.data(), &value) ||
         uses_program_numbers(expr, guards);
}

constexpr int64_t kNoBound = std::numeric_limits<int64_t>::min();

// What each symbol is at least, by its kind.
std::vector<int64_t> lower_bounds(const GuardSet& guards) {
  std::vector<int64_t> bounds;
  for (const Symbol& symbol : guards.symbols())
    bounds.push_back(is_extent(symbol) ? 0 : kNoBound);
  return bounds;
}

// What the expression is at least; kNoBound: not known.
int64_t lower_bound(const Expr& expr, const std::vector<int64_t>& bounds) {
  constexpr int64_t kMost = int64_t{1} << 30;  // more is of no use
  if (expr.is_const()) return std::min(expr.constant(), kMost);
  if (expr.is_symbol()) return std::min(bounds.at(expr.symbol_index()), kMost);
  std::vector<int64_t> of;
  for (const Expr& operand : expr.operands())
    of.push_back(lower_bound(operand, bounds));
  const auto [least, most] = std::minmax_element(of.begin(), of.end());
  switch (expr.op()) {
    case ExprOp::kMax:
      return *most;
    case ExprOp::kMin:
      return *least;
    case ExprOp::kAdd: {
      int64_t sum = 0;
      for (int64_t bound : of) {
        if (bound < -kMost) return kNoBound;
        sum = std::min(sum + bound, kMost);
      }
      return sum;
    }
    case ExprOp::kMul: {
      int64_t product = 1;
      for (int64_t bound : of) {
        if (bound < 0) return kNoBound;
        product = std::min(product * bound, kMost);
      }
      return product;
    }
    case ExprOp::kFloorDiv: {
      const Expr& divisor = expr.operands()[1];
      if (of[0] >= 0 && of[1] >= 1 && !divisor.is_const()) return 0;
      if (!divisor.is_const() || divisor.constant() < 1 || of[0] < -kMost)
        return kNoBound;
      int64_t quotient = of[0] / divisor.constant();
      return quotient - (of[0] % divisor.constant() < 0);
    }
    case ExprOp::kMod:
      return of[1] >= 1 ? 0 : kNoBound;
    default:
      return kNoBound;
  }
}

}  // namespace

void keep_extent(const Expr& expr, GuardSet* guards) {
  if (expr.is_const()) return;
  if (lower_bound(expr, lower_bounds(*guards)) < 0)
    guards->add_expr(expr_le(0, expr));
  if (may_exceed(kLargestExtent, expr, *guards))
    guards->add_expr(expr_le(expr, kLargestExtent));
}

bool uses_program_numbers(const Expr& expr, const GuardSet& guards) {
  std::vector<int> used;
  expr.collect_symbols(&used);
  return std::any_of(used.begin(), used.end(), [&](int symbol) {
    return !is_extent(guards.symbols()[symbol]);
  });
}

void keep_within(int64_t limit, const Expr& expr, GuardSet* guards) {
  if (!may_exceed(limit, expr, *guards)) return;
  guards->add_expr(expr_le(expr, limit));
  guards->add_expr(expr_le(Expr(-limit), expr));
}

PyObject* number_object(const Expr& expr, const int64_t* symbols) {
  int64_t value = expr.evaluate(symbols);
  if (expr.is_float()) return PyFloat_FromDouble(std::bit_cast<double>(value));
  if (expr.is_boolean()) return PyBool_FromLong(value != 0);
  return PyLong_FromLongLong(value);
}

std::optional<Expr> number_expr(PyObject* number) {
  if (PyFloat_CheckExact(number)) return Expr::real(PyFloat_AS_DOUBLE(number));
  if (PyBool_Check(number)) return Expr(number == Py_True);
  if (!PyLong_CheckExact(number)) return {};
  int overflow = 0;
  int64_t value = PyLong_AsLongLongAndOverflow(number, &overflow);
  if (overflow) return {};
  return Expr(value);
}

std::optional<Expr> operate_on_floats(std::string_view name, PyObject* function,
                                      const std::vector<Expr>& operands,
                                      GuardSet* guards, PyTypeObject** type) {
  std::vector<int64_t> hints = guards->hints();
  hints.push_back(0);
  std::vector<Expr> facts;
  std::optional<Expr> answer;
  bool rounds = name == "floor" || name == "ceil" || name == "trunc";
  if (rounds && operands.size() == 1 && operands[0].is_float()) {
    answer = round_to_int(name, operands[0], hints.data(), &facts);
    *type = &PyLong_Type;
  } else if (const Row* row = find_row(name, operands.size())) {
    std::vector<Expr> sides = operands;
    bool compares = row->op >= ExprOp::kEq;
    // (An int divided by an int is rounded once, where both are exact.)
    bool exact = compares || row->op == ExprOp::kFloatDiv;
    for (const Expr& side : sides) {
      if (exact && !add_exactness(side, hints.data(), &facts)) return {};
    }
    if (row->swapped) std::swap(sides[0], sides[1]);
    answer = Expr::make(row->op, std::move(sides));
    if (row->inverted) answer = expr_not(*answer);
    *type = compares ? &PyBool_Type : &PyFloat_Type;
    if (compares) {
      int64_t truth;
      if (!answer->try_evaluate(hints.data(), &truth)) return {};
      facts.push_back(truth ? *answer : expr_not(*answer));
      answer = Expr(truth);
    } else {
      facts.push_back(Expr::make(ExprOp::kDefined, {*answer}));
    }
  }
  if (!answer ||
      !python_agrees(function, operands, hints.data(), *answer, *type))
    return {};
  for (Expr& fact : facts) {
    int64_t truth;
    if (!fact.try_evaluate(hints.data(), &truth) || !truth) return {};
  }
  for (Expr& fact : facts) guards->add_expr(std::move(fact));
  return answer;
}

std::optional<double> pinned_float(const Expr& expr, const GuardSet& guards) {
  if (expr.is_float_const()) return expr.real();
  std::map<int, Expr> symbols;
  expr.collect_symbols(&symbols);
  std::vector<int64_t> hints = guards.hints();
  auto pinned = [&](const Expr& of) {
    Expr same = float_same(of, of.evaluate_float(hints.data()));
    for (const Guard& guard : guards.guards()) {
      if (guard.kind == GuardKind::kShapeExpr && guard.expr == same)
        return true;
    }
    return false;
  };
  bool all = !symbols.empty();
  for (const auto& [index, symbol] : symbols)
    all = all && symbol.is_float() && pinned(symbol);
  if (!all && !pinned(expr)) return {};
  return expr.evaluate_float(hints.data());
}

double pin_float(const Expr& expr, GuardSet* guards) {
  if (auto known = pinned_float(expr, *guards)) return *known;
  double value = expr.evaluate_float(guards->hints().data());
  guards->add_expr(float_same(expr, value));
  return value;
}

}  // namespace framejit
