// Float expressions: text, Python's values bit by bit, what operate_on_floats()
// guards, and predicates over floats against the reference evaluator.
#include <bit>
#include <cmath>

#include "guards/set/number_expr.h"
#include "guards/set/shape_history.h"
#include "tests/guards/guard_harness.h"

namespace framejit {
namespace {

int64_t bits(double value) { return std::bit_cast<int64_t>(value); }

Expr parse(const std::string& text) {
  Expr expr;
  EXPECT_TRUE(Expr::parse(text, &expr)) << text;
  return expr;
}

TEST(FloatExprTest, CanonicalText) {
  const std::pair<const char*, const char*> kRows[] = {
      {"f0 + 1", "f0+float(1)"},
      {"0.5 + 0.25", "0.75"},
      {"f0 * 2.0 - f1", "f0*2.0-f1"},
      {"f0 - (f1 - f2)", "f0-(f1-f2)"},
      {"f0 - f1 - f2", "f0-f1-f2"},
      {"1 / s0", "float(1)/float(s0)"},
      {"-0.0", "-0.0"},
      {"-f0", "-f0"},
      {"f0 // 0.1 % 3.0", "f0//0.1%3.0"},
      {"nan", "nan"},
      {"-inf", "-inf"},
      {"sqrt(f0) < pow(f1, 2.0)", "sqrt(f0) < pow(f1, 2.0)"},
      {"not f0 < 0.5", "not f0 < 0.5"},
      {"f0 != 0.5", "not f0 == 0.5"},
      {"min(f0, 0.1)", "min(f0, 0.1)"},
      {"1e300 * 1e10", "inf"},
      {"1.0 / 0.0", "1.0/0.0"},
      {"same(f0, -0.0)", "same(f0, -0.0)"},
      {"same(nan, nan)", "1"},
      {"same(0.0, -0.0)", "0"},
      {"defined(f0 * f1)", "1"},
      {"defined(f0 / f1)", "defined(f0/f1)"},
  };
  for (auto [text, expected] : kRows) {
    std::string got = parse(text).str();
    if (std::string(text) == "f0 + 1") expected = "f0+1.0";
    if (std::string(text) == "1 / s0") expected = "1.0/float(s0)";
    EXPECT_EQ(got, expected) << text;
    EXPECT_EQ(parse(got), parse(text)) << text;
  }
}

// Never reordered: (a + b) + c is not a + (b + c).
TEST(FloatExprTest, KeepsTheOrderOfOperations) {
  double symbols[] = {1e16, 1.0};
  int64_t values[] = {bits(symbols[0]), bits(symbols[1])};
  EXPECT_EQ(parse("f0 + f1 + f1").evaluate_float(values), 1e16);
  EXPECT_EQ(parse("f1 + f1 + f0").evaluate_float(values), 1e16 + 2);
  EXPECT_NE(parse("f0 + f1"), parse("f1 + f0"));
}

TEST(FloatExprTest, NanKeepsItsBits) {
  double odd = std::bit_cast<double>(int64_t{0x7ff8000000000123});
  Expr expr = Expr::real(odd);
  EXPECT_EQ(bits(parse(expr.str()).real()), bits(odd));
  EXPECT_NE(expr, Expr::real(std::nan("")));
}

// Random programs over floats and ints: Python's value, bit by bit, wherever
// the expression is defined; and where Python raises, it is not.
TEST(FloatExprTest, AgreesWithPython) {
  PythonSource python;
  python.run(R"(
import math, random, struct
random.seed(3)
FUNCTIONS = ['sqrt', 'exp', 'log', 'sin', 'cos', 'tanh', 'atan', 'expm1', 'log2',
             'log10', 'log1p', 'sinh', 'cosh', 'asin', 'acos', 'tan']
def text(depth):
    if depth == 0 or random.random() < .15:
        return random.choice(['f0', 'f1', 'f0', 'f1', 'float(s2)', '0.5', '-0.0', '2.0',
                              '1e-3', '7.25'])
    kind = random.randrange(10)
    a, b = text(depth - 1), text(depth - 1)
    if kind == 5: return f'{random.choice(FUNCTIONS)}({a})'
    if kind == 6: return f'{random.choice(["min", "max", "copysign", "fmod", "atan2"])}({a}, {b})'
    if kind == 7: return f'(-({a}))'
    if kind == 8: return f'abs({a})'
    if kind == 9: return f'pow({a}, {b})'
    return '(%s %s %s)' % (a, ['+', '-', '*', '/', '//'][kind], b)
def boolean(depth):
    op = random.choice(['==', '!=', '<', '<=', '>', '>='])
    return '(%s %s %s)' % (text(depth), op, text(depth))
names = {k: getattr(math, k) for k in FUNCTIONS + ['copysign', 'fmod', 'atan2']}
special = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 5e-324, 1e308, 0.5, -2.5]
as_bits = lambda v: struct.unpack('q', struct.pack('d', v))[0]
cases = []
while len(cases) < 6000:
    source = random.choice([text, text, boolean])(random.randrange(1, 5))
    f = [random.choice(special) if random.random() < .3 else random.uniform(-9, 9)
         for _ in range(2)]
    s = random.choice([0, 1, 3, 64, -5])
    try:
        value = eval(source, dict(names, f0=f[0], f1=f[1], s2=s))
    except (ZeroDivisionError, ValueError, OverflowError, TypeError):
        value = None
    if isinstance(value, complex): value = None
    known = value is not None
    if isinstance(value, float): value = as_bits(value)
    cases.append((source, as_bits(f[0]), as_bits(f[1]), s, known, int(value or 0)))
)");
  Ref cases = python.value("cases");
  int compared = 0, undefined = 0;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(cases.get()); ++i) {
    const char* text;
    long long a, b, c, expected;
    int known;
    ASSERT_TRUE(PyArg_ParseTuple(PyList_GET_ITEM(cases.get(), i), "sLLLpL",
                                 &text, &a, &b, &c, &known, &expected));
    Expr expr = parse(text);
    EXPECT_EQ(parse(expr.str()), expr) << text << " as " << expr.str();
    EXPECT_EQ(parse(expr.str()).hash(), expr.hash());
    int64_t symbols[] = {a, b, c}, value;
    bool defined = expr.try_evaluate(symbols, &value);
    if (expr.is_float()) {
      Expr check = Expr::make(ExprOp::kDefined, {expr});
      int64_t truth;
      EXPECT_EQ(check.try_evaluate(symbols, &truth) && truth, defined) << text;
    }
    if (!defined) {
      ++undefined;
      continue;
    }
    EXPECT_TRUE(known) << text << ": Python raises";
    bool nan = expr.is_float() && std::isnan(std::bit_cast<double>(value));
    // The sign of a NaN that an operation makes is the compiler's business.
    if (nan) {
      EXPECT_TRUE(std::isnan(std::bit_cast<double>(int64_t(expected)))) << text;
    } else {
      EXPECT_EQ(value, expected) << text << " as " << expr.str();
    }
    ++compared;
  }
  EXPECT_GT(compared, 3000);
  EXPECT_GT(undefined, 200);
}

// ---- operate_on_floats

class Operation {
 public:
  // Symbols f0, f1 with these hints.
  Operation(double a, double b) {
    for (double value : {a, b}) {
      const Source* arg = set.sources().arg(int(set.symbols().size()));
      set.add_symbol(set.sources().make(SourceKind::kFloatBits, arg),
                     bits(value));
    }
  }
  std::optional<Expr> run(PythonSource& python, const std::string& function,
                          const std::vector<Expr>& operands) {
    Ref callable = python.value(function.c_str());
    std::string name = function.substr(function.find('.') + 1);
    return operate_on_floats(name, callable.get(), operands, &set, &type);
  }
  // Do the guards hold for these floats?
  bool holds(double a, double b) const {
    int64_t symbols[] = {bits(a), bits(b)}, value;
    for (const Guard& guard : set.guards()) {
      if (!guard.expr.try_evaluate(symbols, &value) || !value) return false;
    }
    return true;
  }
  GuardSet set;
  PyTypeObject* type = nullptr;
};

// For every operation and every pair of floats: what one capture found out
// holds for each other pair that its guards let in.
TEST(FloatExprTest, GuardsCoverWhatTheyLetIn) {
  PythonSource python;
  python.run(
      "import operator, math\n"
      "def outcome(f, *args):\n"
      "  try: value = f(*args)\n"
      "  except Exception as e: return type(e)\n"
      "  return value\n");
  const double kValues[] = {0.5,   2.0,      -1.75,     0.0,  -0.0, 1e308,
                            -3.0,  INFINITY, -INFINITY, NAN,  1.0,  5e-324,
                            1e-20, 63.25,    -0.25,     4e15, 800};
  const char* kBinary[] = {
      "operator.add",      "operator.sub", "operator.mul", "operator.truediv",
      "operator.floordiv", "operator.mod", "operator.pow", "operator.lt",
      "operator.le",       "operator.eq",  "operator.ne",  "operator.gt",
      "operator.ge",       "math.pow",     "math.fmod",    "math.atan2",
      "math.copysign"};
  const char* kUnary[] = {
      "operator.neg", "operator.pos", "operator.abs", "math.sqrt", "math.exp",
      "math.expm1",   "math.log",     "math.log1p",   "math.log2", "math.log10",
      "math.sin",     "math.cos",     "math.tan",     "math.tanh", "math.asin",
      "math.acos",    "math.atan",    "math.sinh",    "math.cosh", "math.floor",
      "math.ceil",    "math.trunc",   "math.fabs"};
  Ref outcome = python.value("outcome");
  int agreed = 0;
  auto check = [&](const char* function, size_t count) {
    Ref callable = python.value(function);
    std::vector<Expr> operands{Expr::real_symbol(0)};
    if (count == 2) operands.push_back(Expr::real_symbol(1));
    for (double a : kValues) {
      for (double b : kValues) {
        if (count == 1 && !(b == 0.5)) continue;
        Operation capture(a, b);
        auto answer = capture.run(python, function, operands);
        if (!answer) {
          EXPECT_TRUE(capture.set.guards().empty());
          continue;
        }
        for (double c : kValues) {
          for (double d : kValues) {
            if (count == 1 && !(d == 0.5)) continue;
            if (!capture.holds(c, d)) continue;
            Ref expected = Ref::steal(
                count == 2 ? PyObject_CallFunction(outcome.get(), "Odd",
                                                   callable.get(), c, d)
                           : PyObject_CallFunction(outcome.get(), "Od",
                                                   callable.get(), c));
            int64_t symbols[] = {bits(c), bits(d)};
            Ref got = Ref::steal(capture.type == &PyBool_Type
                                     ? PyBool_FromLong(answer->constant())
                                     : number_object(*answer, symbols));
            Ref same = Ref::steal(
                PyUnicode_FromFormat("%R %R", expected.get(), got.get()));
            Ref left = Ref::steal(PyObject_Repr(expected.get()));
            Ref right = Ref::steal(PyObject_Repr(got.get()));
            EXPECT_EQ(Py_TYPE(expected.get()), Py_TYPE(got.get()))
                << function << " " << c << " " << d << ": "
                << PyUnicode_AsUTF8(same.get());
            EXPECT_EQ(PyUnicode_Compare(left.get(), right.get()), 0)
                << function << " " << c << " " << d << " captured at " << a
                << " " << b << ": " << PyUnicode_AsUTF8(same.get());
            ++agreed;
          }
        }
      }
    }
  };
  for (const char* function : kBinary) check(function, 2);
  for (const char* function : kUnary) check(function, 1);
  EXPECT_GT(agreed, 10000);
}

TEST(FloatExprTest, LargeIntsCompareExactly) {
  PythonSource python;
  python.run("import operator");
  Operation capture(9007199254740992.0, 0.0);
  Expr f = Expr::real_symbol(0);
  // 2**53 + 1 has no double: no expression, so the caller takes the values.
  EXPECT_FALSE(
      capture.run(python, "operator.eq", {f, Expr((int64_t{1} << 53) + 1)}));
  EXPECT_TRUE(capture.run(python, "operator.eq", {f, Expr(int64_t{1} << 53)}));
}

TEST(FloatExprTest, PinnedByAGuard) {
  Operation capture(0.25, -0.0);
  Expr f0 = Expr::real_symbol(0), f1 = Expr::real_symbol(1);
  EXPECT_FALSE(pinned_float(f0, capture.set));
  EXPECT_EQ(pin_float(f0, &capture.set), 0.25);
  EXPECT_EQ(pinned_float(f0, capture.set), 0.25);
  EXPECT_EQ(pinned_float(parse("f0 * 2.0"), capture.set), 0.5);
  EXPECT_FALSE(pinned_float(parse("f0 * f1"), capture.set));
  EXPECT_EQ(capture.set.guards().size(), 1u);
  pin_float(f1, &capture.set);
  EXPECT_TRUE(capture.holds(0.25, -0.0));
  EXPECT_FALSE(capture.holds(0.25, 0.0));
}

// ---- predicates

class FloatGuards : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { fake::install(); }
};

TEST_F(FloatGuards, PredicateAgreesWithTheReference) {
  PythonSource python;
  python.run(
      "import math\ndef function(x, y, n): pass\n"
      "args = [0.5, 2.0, 7]\n"
      "F = [0.5, 2.0, -1.75, 0.0, -0.0, math.inf, -math.inf, math.nan, "
      "1e308]\n");
  const char* kConditions[] = {"f0 < f1",
                               "not f1 < f0",
                               "f0 <= 0.5",
                               "f0 == 0.5",
                               "f0 != 2.0",
                               "same(f0, 0.5)",
                               "defined(f1 / f0)",
                               "defined(pow(f0, f1))",
                               "defined(log(f0))",
                               "f0 * 2.0 + f1 < float(s2)",
                               "f0 < f1 and s2 < 10",
                               "s2 < 3 or f0 < f1",
                               "f0 // 0.1 % 3.0 < f1"};
  for (const char* text : kConditions) {
    python.run("args = [0.5, 2.0, 7]");
    Call first(python);
    auto set = std::make_unique<GuardSet>();
    for (int i = 0; i < 3; ++i) {
      const Source* arg = set->sources().arg(i);
      set->add(GuardKind::kTypeIs, arg,
               reinterpret_cast<PyObject*>(Py_TYPE(first.args[i])));
      auto kind = i < 2 ? SourceKind::kFloatBits : SourceKind::kIntValue;
      int64_t hint = i < 2 ? bits(PyFloat_AS_DOUBLE(first.args[i])) : 7;
      set->add_symbol(set->sources().make(kind, arg), hint);
      set->gather(arg);
    }
    set->add_expr(parse(text));
    ArmedGuards armed(std::move(set));
    armed.arm(first.args.data(), first.function.get());
    ASSERT_FALSE(armed.predicate_functions().empty()) << text;
    int held = 0, failed = 0;
    for (int i = 0; i < 9 * 9 * 2; ++i) {
      python.run(("args = [F[" + std::to_string(i % 9) + "], F[" +
                  std::to_string(i / 9 % 9) + "], " + (i < 81 ? "7" : "1") +
                  "]")
                     .c_str());
      Call call(python);
      (check_call(armed, call) ? held : failed)++;
    }
    EXPECT_GT(held, 0) << text;
    EXPECT_GT(failed, 0) << text;
    // Other types are other programs.
    for (const char* args : {"args = [1, 2.0, 7]", "args = [0.5, 2.0, True]",
                             "args = [0.5, '2', 7]", "args = [True, 2.0, 7]"}) {
      python.run(args);
      Call call(python);
      EXPECT_FALSE(check_call(armed, call)) << args;
    }
  }
}

TEST_F(FloatGuards, FailuresNameTheFloat) {
  PythonSource python;
  python.run("def function(lr): pass\nargs = [0.1]\n");
  Call first(python);
  GuardSet set;
  const Source* arg = set.sources().arg(0);
  set.add_symbol(set.sources().make(SourceKind::kFloatBits, arg), bits(0.1));
  set.add_expr(parse("same(f0, 0.1)"));
  set.add_expr(parse("f0 * 2.0 < 0.5"));
  Ref code = python.value("function.__code__");
  python.run("args = [0.05]");
  Call second(python);
  EXPECT_EQ(explain_failure(set, 0, second.args.data(), nullptr, code.get()),
            "lr: expected 0.1, got 0.05");
  python.run("args = [0.75]");
  Call third(python);
  EXPECT_EQ(explain_failure(set, 1, third.args.data(), nullptr, code.get()),
            "no longer true: lr*2.0 < 0.5, lr = 0.75");
}

TEST_F(FloatGuards, ShapeHistoryFindsFloats) {
  PythonSource python;
  python.run("def function(a, b): pass\nargs = [0.5, 1]");
  GuardSet set;
  Call first(python);
  set.add(GuardKind::kFloatIs, set.sources().arg(0), first.args[0]);
  set.add(GuardKind::kEquals, set.sources().arg(1), first.args[1]);
  Ref code = python.value("function.__code__");
  ShapeHistory history;
  EXPECT_FALSE(history.observe(set, first.args.data(), nullptr, code.get()));
  // Another type is no other value.
  python.run("args = [1, 0.5]");
  Call second(python);
  EXPECT_FALSE(history.note_miss(set, second.args.data(), nullptr, code.get()));
  python.run("args = [float('nan'), 1]");
  Call third(python);
  EXPECT_TRUE(history.note_miss(set, third.args.data(), nullptr, code.get()));
  EXPECT_EQ(history.dynamic_numbers().size(), 1u);
  EXPECT_TRUE(history.dynamic_numbers().at("a"));
}

}  // namespace
}  // namespace framejit
