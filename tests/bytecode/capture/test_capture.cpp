// Breaks, restarts and resuming; and that a capture leaves no trace.
#include "tests/bytecode/capture/capture_support.h"

namespace framejit::bytecode::testing {
namespace {

constexpr char kX[] = "(fake.tensor([3], [1., 2., 3.]),)";

CaptureRun check_breaks(const std::string& source, const std::string& arguments,
                        const std::vector<std::string>& reasons) {
  CaptureRun run = check(source, arguments);
  EXPECT_EQ(run.reasons, reasons)
      << source << (run.details.empty() ? "" : run.details[0]);
  EXPECT_EQ(run.fallbacks, 0) << source;
  return run;
}

TEST(CaptureTest, BranchOnTensorHasTwoSuccessors) {
  const char* source =
      "def f(d):\n"
      "  x, y = d['x'], d['y']\n"
      "  x = x.cos().cos()\n"
      "  if x.mean() > 0.7:\n    x = x / 1.1\n"
      "  return x * y\n";
  for (const char* value : {"0.1", "1.5"}) {
    std::string arguments = std::string("({'x': fake.tensor([2], [") + value +
                            ", " + value +
                            "]), 'y': fake.tensor([2], [3., 4.])},)";
    CaptureRun run = check_breaks(source, arguments, {"FJ101"});
    EXPECT_EQ(run.captured, 2);
  }
}

TEST(CaptureTest, BreakAtACallResumesBehindIt) {
  CaptureRun run = check_breaks(
      "def f(x):\n  y = x * 2.0\n  z = fake.mystery(y)\n"
      "  return y + 1.0, z\n",
      kX, {"FJ202"});
  EXPECT_EQ(run.captured, 2);
}

TEST(CaptureTest, ValueOfATensor) {
  check_breaks("def f(x):\n  n = x.sum().item()\n  return x * n\n", kX,
               {"FJ102"});
}

TEST(CaptureTest, BreakInACalleeIsABreakAtTheCall) {
  CaptureRun run = check_breaks(
      "log = []\n"
      "def h(x):\n  log.append(1)\n  fake.mystery(x)\n  log.append(2)\n"
      "  return x + 1.0\n"
      "def g(x):\n  log.append(0)\n  return h(x) * 2.0\n"
      "def f(x):\n  log.append('f')\n  x = x - 1.0\n  return g(x) + 3.0\n",
      kX, {"FJ202"});
  EXPECT_EQ(run.captured, 2);
}

TEST(CaptureTest, BreakInALoop) {
  CaptureRun run = check(
      "def f(x):\n"
      "  for i in range(4):\n"
      "    x = x + i\n    fake.mystery(x)\n    x = x * 2.0\n"
      "  return x\n",
      kX);
  EXPECT_EQ(run.fallbacks, 0);
}

TEST(CaptureTest, BreakInAWhileLoopOnData) {
  CaptureRun run = check(
      "def f(x):\n"
      "  n = 0\n"
      "  while x.sum() < 50.0:\n    x = x * 2.0\n    n += 1\n"
      "  return x, n\n",
      kX);
  EXPECT_EQ(run.fallbacks, 0);
}

TEST(CaptureTest, BreakInTryRaisesIntoTheHandler) {
  for (const char* value : {"0", "1"}) {
    CaptureRun run = check(
        "from time import sleep\n"
        "def f(x, n):\n"
        "  out = []\n"
        "  try:\n"
        "    x = x + 1.0\n"
        "    sleep(-n)\n"  // an unknown callee that raises
        "    x = x * 2.0\n"
        "  except ValueError as e:\n"
        "    out.append(str(e))\n"
        "  finally:\n"
        "    out.append('finally')\n"
        "  return x, out\n",
        std::string("(fake.tensor([2], [1., 2.]), ") + value + ")");
    EXPECT_EQ(run.fallbacks, 0);
    EXPECT_EQ(run.reasons, std::vector<std::string>{"FJ201"});
  }
}

TEST(CaptureTest, BreakInWithRaises) {
  for (const char* value : {"0", "1"}) {
    CaptureRun run = check(
        "from time import sleep\n"
        "log = []\n"
        "class M:\n"
        "  def __enter__(self):\n    log.append('in')\n"
        "  def __exit__(self, t, v, tb):\n"
        "    log.append(str(v))\n    return True\n"
        "def f(x, n):\n"
        "  with M():\n"
        "    x = x + 1.0\n    sleep(-n)\n    x = x * 2.0\n"
        "  return x\n",
        std::string("(fake.tensor([2], [1., 2.]), ") + value + ")");
    EXPECT_EQ(run.fallbacks, 0);
  }
}

TEST(CaptureTest, BreakInsideNoGradKeepsTheState) {
  CaptureRun run = check(
      "states = []\n"
      "def f(x):\n"
      "  with fake.no_grad():\n"
      "    y = x * 2.0\n"
      "    fake.mystery(y)\n"
      "    states.append(fake.is_grad_enabled())\n"
      "    z = y + 1.0\n"
      "  states.append(fake.is_grad_enabled())\n"
      "  return y, z\n",
      "(fake.tensor([2], [1., 2.], True),)");
  EXPECT_EQ(run.fallbacks, 0);
}

TEST(CaptureTest, BreakInHandlerResumesInIt) {
  CaptureRun run = check(
      "def f(x):\n"
      "  x = x + 1.0\n"
      "  try:\n    raise ValueError('a')\n"
      "  except ValueError:\n    fake.mystery(x)\n"
      "  return x\n",
      kX);
  EXPECT_EQ(run.captured, 2);
  EXPECT_EQ(run.fallbacks, 0);
  EXPECT_EQ(run.reasons, std::vector<std::string>{"FJ202"});
}

TEST(CaptureTest, BreakInAComprehensionIsABreakAtItsCall) {
  CaptureRun run = check(
      "def f(x):\n"
      "  y = x + 1.0\n"
      "  l = [fake.mystery(y) for i in range(2)]\n"
      "  return y * 2.0, l\n",
      kX);
  EXPECT_EQ(run.fallbacks, 0);
}

TEST(CaptureTest, CellsSurviveABreak) {
  CaptureRun run = check(
      "def f(x):\n"
      "  n = 1\n"
      "  def add(v):\n    nonlocal n\n    n += 1\n    return v + n\n"
      "  x = add(x)\n"
      "  fake.mystery(x)\n"
      "  x = add(x)\n"
      "  return x, n\n",
      kX);
  EXPECT_EQ(run.error, "");
}

TEST(CaptureTest, ExceptionLeavesTheFunction) {
  CaptureRun run = check(
      "def g(x):\n  raise ValueError('from g')\n"
      "def f(x):\n  x = x + 1.0\n  return g(x)\n",
      kX);
  EXPECT_EQ(run.error, "ValueError: from g");
}

TEST(CaptureTest, NothingCapturedFallsBack) {
  CaptureRun run =
      check("from time import sleep\ndef f(n):\n  sleep(n)\n  return n + 1\n",
            "(0,)");
  EXPECT_EQ(run.captured, 0);
  EXPECT_EQ(run.fallbacks, 1);
}

TEST(CaptureTest, GeneratorFrames) {
  CaptureRun run = check("def f(x):\n  yield x\n", "(1,)");
  EXPECT_EQ(run.reasons, std::vector<std::string>{"FJ402"});
}

TEST(CaptureTest, DisabledCallee) {
  CaptureRun run = check(
      "def g(x):\n  return x * 2.0\n"
      "g._framejit_disable = True\n"
      "def f(x):\n  x = x + 1.0\n  return g(x) - 1.0\n",
      kX);
  EXPECT_EQ(run.reasons, std::vector<std::string>{"FJ205"});
  EXPECT_EQ(run.captured, 2);
}

// The iterator has moved when the break is found; the second attempt stops
// before it does.
TEST(CaptureTest, BreakAfterAnIteratorMoved) {
  CaptureRun run = check(
      "def f(x):\n"
      "  out = []\n"
      "  for v in filter(None, [x.sum(), x.sum() * 0.0, x.sum() + 1.0]):\n"
      "    out.append(v)\n"
      "  it = iter([1, 2, 3])\n"
      "  out.append(x in [x * 2.0, x])\n"
      "  l = [next(it), next(it)]\n"
      "  return out, l, list(it)\n",
      "(fake.tensor([1], [2.]),)");
  EXPECT_EQ(run.error, "");
}

TEST(CaptureTest, GeneratorsBreakingInTheirMiddle) {
  CaptureRun run = check(
      "log = []\n"
      "def gen(x):\n"
      "  for i in range(3):\n"
      "    log.append(i)\n"
      "    if i == 1: fake.mystery(x)\n"
      "    yield x + i\n"
      "def f(x):\n"
      "  y = x * 2.0\n"
      "  a = list(gen(y))\n"
      "  b = [v * 2.0 for v in gen(y)]\n"
      "  c = sum(gen(x))\n"
      "  return a, b, c\n",
      kX);
  EXPECT_EQ(run.error, "");
}

TEST(CaptureTest, Recursion) {
  CaptureRun run = check(
      "def f(x, n=400):\n"
      "  return x if n == 0 else f(x + 1.0, n - 1)\n",
      "(fake.tensor([1], [2.]), 400)");
  EXPECT_EQ(run.error, "");
  EXPECT_TRUE(run.reasons.empty());
  // Close to CPython's limit, which is CPython's to notice.
  run = check(
      "def f(x, n=970):\n"
      "  return x if n == 0 else f(x + 1.0, n - 1)\n",
      "(fake.tensor([1], [2.]), 970)");
  EXPECT_EQ(run.error, "");
  ASSERT_FALSE(run.reasons.empty());
  EXPECT_EQ(run.reasons[0], "FJ409");
}

TEST(CaptureTest, SymbolicSizes) {
  CaptureRun run;
  run.dynamic = true;
  run = check(
      "def f(x):\n"
      "  n = x.shape[0]\n"
      "  if n > 2:\n    x = x * n\n"
      "  y = x.reshape((n, 1)) if n % 2 == 0 else x\n"
      "  return y, n, n * 2 + 1, isinstance(n, int), [0] * 2\n",
      "(fake.tensor([6]),)", std::move(run));
  EXPECT_EQ(run.error, "");
  EXPECT_EQ(run.fallbacks, 0);
}

TEST(CaptureTest, FullGraphReturnsTheBreak) {
  Ref globals = make_globals(
      "def g(x):\n  return fake.mystery(x)\n"
      "def f(x):\n  y = x + 1.0\n  return g(y)\n");
  Ref args = evaluate_text(globals.get(), kX);
  PyObject* slot = PyTuple_GET_ITEM(args.get(), 0);
  CaptureRequest request{PyDict_GetItemString(globals.get(), "f"), &slot, 1};
  request.fullgraph = true;
  fake::FakeTracer tracer;
  auto outcome = capture(request, tracer);
  ASSERT_TRUE(outcome.broke());
  EXPECT_EQ(outcome.brk().reason, BreakReason::kUnknownOperation);
  EXPECT_EQ(span_line(outcome.brk().span), 2) << "line of the culprit";
}

TEST(CaptureTest, ABugLeavesNoTrace) {
  Ref globals = make_globals(
      "log = []\nclass A:\n  pass\na = A()\n"
      "def g(x):\n  log.append(x)\n  a.n = 1\n  return x + 1.0\n"
      "def f(x):\n  with fake.no_grad():\n    y = g(x)\n  return y\n");
  Ref args = evaluate_text(globals.get(), kX);
  PyObject* slot = PyTuple_GET_ITEM(args.get(), 0);
  CaptureRequest request{PyDict_GetItemString(globals.get(), "f"), &slot, 1};
  int thrown = 0;
  for (size_t at = 1; at < 60; ++at) {
    g_inject_failure_at = at;
    fake::FakeTracer tracer;
    try {
      auto outcome = capture(request, tracer);
      EXPECT_TRUE(outcome.ok());
    } catch (const InternalError&) {
      ++thrown;
    }
    EXPECT_FALSE(tracer.running()) << at;
    EXPECT_FALSE(PyErr_Occurred()) << at;
    EXPECT_EQ(PyGC_IsEnabled(), 1) << at;
    Ref state =
        evaluate_text(globals.get(), "(log, vars(a), fake.is_grad_enabled())");
    Ref text = Ref::steal(PyObject_Repr(state.get()));
    EXPECT_STREQ(PyUnicode_AsUTF8(text.get()), "([], {}, True)") << at;
  }
  g_inject_failure_at = 0;
  EXPECT_GT(thrown, 20);
}

TEST(CaptureTest, ReferencesStayFlat) {
  Ref globals = make_globals(
      "class A:\n  pass\na = A(); a.log = []\n"
      "def g(x):\n  a.log.append(x)\n  return x + 1.0\n"
      "def f(x):\n  y = [g(x) for i in range(3)]\n  fake.mystery(x)\n"
      "  return y\n");
  Ref args = evaluate_text(globals.get(), kX);
  PyObject* slot = PyTuple_GET_ITEM(args.get(), 0);
  PyObject* function = PyDict_GetItemString(globals.get(), "f");
  CaptureRequest request{function, &slot, 1};
  auto counts = [&] {
    return std::make_pair(Py_REFCNT(slot), Py_REFCNT(function));
  };
  auto capture_once = [&] {
    fake::FakeTracer tracer;
    auto outcome = capture(request, tracer);
    EXPECT_TRUE(outcome.ok());
  };
  capture_once();
  auto before = counts();
  for (int i = 0; i < 20; ++i) capture_once();
  EXPECT_EQ(counts(), before);
}

}  // namespace
}  // namespace framejit::bytecode::testing
