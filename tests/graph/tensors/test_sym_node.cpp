#include "graph/tensors/sym_node.h"

#include "graph/tensors/sym_objects.h"
#include "tests/graph/tracing/trace_helpers.h"

namespace framejit::graph::testing {
namespace {

// n is s0 (8), m is s1 (3), as torch.SymInt.
class SymbolicNumbers : public ::testing::Test {
 protected:
  void SetUp() override { start_torch(); }

  void start() {
    session_ = std::make_unique<RecordingSession>(&symbols_.guards);
    scope_ = std::make_unique<TracingScope>(*session_);
    for (int i = 0; i < 2; ++i) {
      Ref value = sym_int_object(to_sym_int(Expr::symbol(i)));
      set_global(i ? "m" : "n", value.get());
    }
  }
  void TearDown() override {
    exec("n = m = None");
    scope_.reset();
    session_.reset();
  }

  Expr expr(const std::string& expression) {
    Ref value = eval(expression);
    if (!value) return Expr(-1);
    if (PyLong_Check(value.get())) return Expr(PyLong_AsLong(value.get()));
    return to_expr(sym_int_of(value.get()).value()).value();
  }
  int64_t at(const Expr& e, int64_t n, int64_t m) {
    int64_t values[] = {n, m};
    return e.evaluate(values);
  }
  size_t guards() { return symbols_.guard_texts().size(); }

  Symbols symbols_{{8, 3}};
  std::unique_ptr<RecordingSession> session_;
  std::unique_ptr<TracingScope> scope_;
};

TEST_F(SymbolicNumbers, ArithmeticStaysSymbolic) {
  start();
  EXPECT_EQ(at(expr("n + 2 * m - 1"), 11, 5), 20);
  EXPECT_EQ(at(expr("n * m"), 11, 5), 55);
  EXPECT_EQ(at(expr("-n"), 11, 5), -11);
  EXPECT_EQ(at(expr("n ** 2"), 11, 5), 121);
  EXPECT_EQ(at(expr("torch.sym_max(n, m)"), 4, 5), 5);
  EXPECT_EQ(at(expr("torch.sym_min(n, 6)"), 4, 5), 4);
  EXPECT_EQ(guards(), 0u);
}

TEST_F(SymbolicNumbers, FloorDivisionIsPythons) {
  start();
  EXPECT_EQ(at(expr("(n - 10) // 3"), 8, 3), -1);
  EXPECT_EQ(at(expr("(n - 10) % 3"), 8, 3), 1);
  EXPECT_EQ(at(expr("n // m"), 11, 2), 5);
  // Only the divisor was looked at.
  EXPECT_TRUE(symbols_.hold({11, 2}));
  EXPECT_FALSE(symbols_.hold({11, 0}));
}

TEST_F(SymbolicNumbers, BranchesAreGuarded) {
  start();
  EXPECT_EQ(eval("bool(n > 4)").get(), Py_True);
  EXPECT_TRUE(symbols_.hold({5, 3}));
  EXPECT_FALSE(symbols_.hold({4, 3}));
  EXPECT_EQ(eval("bool(n == m)").get(), Py_False);
  EXPECT_FALSE(symbols_.hold({6, 6}));
  EXPECT_TRUE(symbols_.hold({6, 7}));
}

TEST_F(SymbolicNumbers, ConversionPins) {
  start();
  EXPECT_EQ(expr("int(n + m)").constant(), 11);
  EXPECT_TRUE(symbols_.hold({9, 2}));
  EXPECT_FALSE(symbols_.hold({9, 3}));
}

TEST_F(SymbolicNumbers, GuardsFromNativeCode) {
  start();
  c10::SymInt n = to_sym_int(Expr::symbol(0));
  EXPECT_TRUE((n > 5));
  EXPECT_FALSE(symbols_.hold({5, 3}));
  EXPECT_EQ(n.guard_int(__FILE__, __LINE__), 8);
  EXPECT_FALSE(symbols_.hold({9, 3}));
}

TEST_F(SymbolicNumbers, FloatsSpecialise) {
  start();
  EXPECT_EQ(PyFloat_AsDouble(eval("float(n / 4)").get()), 2.0);
  EXPECT_FALSE(symbols_.hold({9, 3}));
  EXPECT_TRUE(symbols_.hold({8, 4}));
}

TEST_F(SymbolicNumbers, FloatsStaySymbolic) {
  start();
  Ref scaled = eval("n / 4 * 0.5");
  auto found = to_expr(node_of(scaled.get()));
  ASSERT_TRUE(found);
  EXPECT_EQ(found->str(), "float(s0)/4.0*0.5");
  EXPECT_TRUE(symbols_.hold({9, 3}));
  EXPECT_EQ(eval("bool(n / 4 < 3.0)").get(), Py_True);
  EXPECT_TRUE(symbols_.hold({11, 3}));
  EXPECT_FALSE(symbols_.hold({12, 3}));
}

TEST_F(SymbolicNumbers, DivisionByZeroRaises) {
  start();
  eval("n - 8");
  set_global("z", eval("n - 8").get());
  exec("try:\n  n // z\n  raised = False\nexcept Exception: raised = True");
  EXPECT_EQ(eval("raised").get(), Py_True);
}

TEST_F(SymbolicNumbers, AreUselessAfterTheirCapture) {
  start();
  c10::SymInt n = to_sym_int(Expr::symbol(0));
  scope_.reset();
  EXPECT_THROW(n.guard_int(__FILE__, __LINE__), c10::Error);
  EXPECT_THROW(to_expr(n), c10::Error);
  RecordingSession other(&symbols_.guards);
  TracingScope scope(other);
  EXPECT_THROW(to_expr(n), c10::Error);
}

TEST_F(SymbolicNumbers, LayoutQueriesDecide) {
  start();
  Expr n = Expr::symbol(0), m = Expr::symbol(1);
  EXPECT_TRUE(decide_contiguous({n, m}, {m, Expr(1)}));
  EXPECT_EQ(guards(), 0u);
  EXPECT_FALSE(decide_contiguous({n, m}, {Expr(1), n}));
  EXPECT_GT(guards(), 0u);
  EXPECT_FALSE(symbols_.hold({1, 3}));  // then it would be contiguous
}

}  // namespace
}  // namespace framejit::graph::testing
