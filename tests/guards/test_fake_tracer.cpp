// The fake tracer itself: what it records computes what Python computes.
#include "../fake_tracer.h"
#include "tests/guards/python_source.h"

namespace framejit::fake {
namespace {

class FakeTracerTest : public testing::Test {
 protected:
  void SetUp() override {
    install();
    python.run("import fake, operator");
  }
  PythonSource python;
};

TEST_F(FakeTracerTest, RecordsAndRuns) {
  Ref x = python.value("fake.tensor([2, 3], requires_grad=True)");
  Ref y = python.value("fake.tensor([3])");
  PyObject* args[] = {x.get(), y.get()};
  GuardSet guards;
  FakeTracer tracer;
  ASSERT_TRUE(tracer.begin(&guards).ok());
  auto a = tracer.stand_in(args[0], guards.sources().arg(0), {1, 0});
  auto b = tracer.stand_in(args[1], guards.sources().arg(1), {});
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(tracer.classify(a.value().get()), ObjectClass::kStandIn);
  PyDict_SetItemString(python.dict(), "a", a.value().get());
  PyDict_SetItemString(python.dict(), "b", b.value().get());
  // C code and operators reach the tracer through the objects themselves.
  Ref out = python.value("fake.mean((a.cos() + 2.0) * b, dim=1)");
  Ref size = python.value("a.shape[0] * 4 + 1");
  EXPECT_EQ(tracer.expr_of(size.get())->str(), "s0*4+1");
  auto graph = tracer.finish({out.get(), size.get()});
  ASSERT_TRUE(graph.ok());
  EXPECT_EQ(tracer.classify(a.value().get()), ObjectClass::kStaleStandIn);

  PyObject* objects[2];
  int64_t symbols[1];
  ASSERT_TRUE(evaluate(guards, args, nullptr, objects, symbols));
  auto* fake_graph = static_cast<FakeGraph*>(graph.value().get());
  std::vector<Ref> results;
  ASSERT_TRUE(fake_graph->run(objects, symbols, &results)) << fake_graph->str();
  PyDict_SetItemString(python.dict(), "x", x.get());
  PyDict_SetItemString(python.dict(), "y", y.get());
  PyDict_SetItemString(python.dict(), "result", results[0].get());
  EXPECT_EQ(python.value("result.tolist() == "
                         "fake.mean((x.cos() + 2.0) * y, dim=1).tolist()"),
            Ref::borrow(Py_True));
  EXPECT_EQ(PyLong_AsLong(results[1].get()), 9);

  // Another size of the dynamic dim: the same graph.
  Ref wide = python.value("fake.tensor([5, 3], requires_grad=True)");
  args[0] = wide.get();
  ASSERT_TRUE(evaluate(guards, args, nullptr, objects, symbols));
  EXPECT_EQ(symbols[0], 5);
  Ref one = python.value("fake.tensor([1, 3], requires_grad=True)");
  args[0] = one.get();
  EXPECT_FALSE(evaluate(guards, args, nullptr, objects, symbols));
}

TEST_F(FakeTracerTest, BreaksAndState) {
  Ref x = python.value("fake.tensor([2])");
  GuardSet guards;
  FakeTracer tracer;
  ASSERT_TRUE(tracer.begin(&guards).ok());
  auto a = tracer.stand_in(x.get(), guards.sources().arg(0), {});
  EXPECT_EQ(PyObject_IsTrue(a.value().get()), -1);
  PyErr_Clear();
  auto brk = tracer.pending_break();
  ASSERT_TRUE(brk.has_value());
  EXPECT_EQ(brk->reason, BreakReason::kDataDependentBranch);
  Ref set_grad = python.value("fake.set_grad_enabled");
  EXPECT_EQ(tracer.classify_callee(set_grad.get()), CalleeClass::kStateWrite);
  ASSERT_TRUE(tracer.call(set_grad.get(), {Py_False}, nullptr).ok());
  EXPECT_EQ(tracer.state_now().size(), 1u);
  tracer.abandon();
  EXPECT_TRUE(g_grad_enabled);
}

TEST_F(FakeTracerTest, InputMutationIsCommittedAtTheEnd) {
  Ref x = python.value("fake.tensor([3])");
  GuardSet guards;
  FakeTracer tracer;
  ASSERT_TRUE(tracer.begin(&guards).ok());
  auto a = tracer.stand_in(x.get(), guards.sources().arg(0), {});
  PyDict_SetItemString(python.dict(), "a", a.value().get());
  Ref out = python.value("a.add_(1.0) * 2.0");
  auto graph = tracer.finish({out.get()});
  ASSERT_TRUE(graph.ok());
  PyObject* objects[] = {x.get()};
  std::vector<Ref> results;
  auto* fake_graph = static_cast<FakeGraph*>(graph.value().get());
  ASSERT_TRUE(fake_graph->run(objects, nullptr, &results));
  PyDict_SetItemString(python.dict(), "x", x.get());
  PyDict_SetItemString(python.dict(), "result", results[0].get());
  EXPECT_EQ(python.value("x.tolist() == [1., 2., 3.]"), Ref::borrow(Py_True));
  EXPECT_EQ(python.value("result.tolist() == [2., 4., 6.]"),
            Ref::borrow(Py_True));
}

}  // namespace
}  // namespace framejit::fake
