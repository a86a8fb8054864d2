// Whole-script mode: which calls are dispatched, seen by the hook and, where
// CPython has them, by function watchers; and when the hook sleeps. In place of
// tensors: floats.
#include "frame_hook/script_mode.h"

#include "frame_hook/cpython_internals.h"
#include "frame_hook/function_watcher.h"
#include "tests/frame_hook/support.h"

namespace framejit::testing {
namespace {

int watches = 0;

CodeVerdict by_name(PyObject* function, PyObject*) {
  Ref name = Ref::steal(PyObject_GetAttrString(function, "__name__"));
  std::string text = PyUnicode_AsUTF8(name.get());
  if (text.starts_with("skip")) return CodeVerdict::kSkip;
  if (text.starts_with("callee")) return CodeVerdict::kCallee;
  if (text.starts_with("torch")) return CodeVerdict::kLibrary;
  if (text.starts_with("alone")) return CodeVerdict::kSuspend;
  return CodeVerdict::kTensors;
}

bool holds_float(PyObject* const* slots, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (slots[i] && PyFloat_Check(slots[i])) return true;
  }
  return false;
}

class ScriptModeTest : public FrameHookTest {
 protected:
  void SetUp() override {
    FrameHookTest::SetUp();
    watches = 0;
    set_should_compile(by_name);
    compiler_.on_compile = [this](const CompileRequest& request) {
      Ref name = Ref::steal(PyObject_GetAttrString(request.code, "co_name"));
      names_.push_back(PyUnicode_AsUTF8(name.get()));
      CompileOutcome outcome;
      outcome.skip_forever = true;  // the original code runs
      return outcome;
    };
    policy_ = {holds_float, [] { ++watches; }, [] { --watches; }};
  }
  void TearDown() override {
    stop_script_mode();
    FrameHookTest::TearDown();
  }
  std::vector<std::string> names_;
  ScriptPolicy policy_;
};

class ScriptMode : public ScriptModeTest,
                   public ::testing::WithParamInterface<ScriptView> {
 protected:
  void start() {
    start_script_mode(&options_, policy_, GetParam());
    EXPECT_EQ(hook_installs(), GetParam() == ScriptView::kHook);
    EXPECT_EQ(watches_functions(), GetParam() != ScriptView::kHook);
  }
};

INSTANTIATE_TEST_SUITE_P(Views, ScriptMode,
                         ::testing::Values(
#if FJ_FUNCTION_WATCHERS
                             ScriptView::kBest,
#endif
                             ScriptView::kHook),
                         [](const auto& info) {
                           return info.param == ScriptView::kHook ? "hook"
                                                                  : "watcher";
                         });

class SleepingHook : public ScriptModeTest {
 protected:
  void start() { start_script_mode(&options_, policy_, ScriptView::kHook); }
};

TEST_P(ScriptMode, FramesWithTensorsAreDispatched) {
  Namespace ns(
      "def f(x): return x\n"
      "def skip(x): return f(x)\n"
      "def callee(x): return x\n"
      "def generator(x): yield x\n"
      "class Body: value = f(1)\n");
  start();
  EXPECT_TRUE(in_script_mode());
  ns.run(
      "a = [f(1), f(1.5), skip(2.5), callee(1.0), *generator(1.0)]\n"
      "class Body: value = f(3.5)");
  EXPECT_EQ(ns.repr("a"), "[1, 1.5, 2.5, 1.0, 1.0]");
  EXPECT_EQ(ns.repr("Body.value"), "3.5");
  // Asked once, for it has nothing to offer: skip_forever.
  EXPECT_EQ(names_, std::vector<std::string>{"f"});
  stop_script_mode();
  EXPECT_EQ(hook_installs(), 0);
  ns.run("def g(x): return x\nb = g(1.5)");
  EXPECT_EQ(names_.size(), 1u);
}

TEST_P(ScriptMode, CodeThatNamesTorchIsDispatchedFromItsSecondCall) {
  Namespace ns("def torch_one(): return 1");
  start();
  ns.run("torch_one()");
  EXPECT_TRUE(names_.empty());
  ns.run("torch_one()");
  EXPECT_EQ(names_, std::vector<std::string>{"torch_one"});
}

TEST_P(ScriptMode, CodeWithoutTensorsIsSkippedForGood) {
  Namespace ns("def f(x): return x\ndef g(x): return x");
  start();
  ns.run("for i in range(15): f(i)\nf(1.5)");
  EXPECT_EQ(names_, std::vector<std::string>{"f"});
  ns.run("for i in range(16): g(i)\ng(1.5)");
  EXPECT_EQ(names_.size(), 1u);
  clear_all_caches();  // framejit.reset() forgets that, too
  ns.run("g(1.5)");
  EXPECT_EQ(names_.size(), 2u);
}

TEST_P(ScriptMode, NothingBeneathAnotherTracerIsDispatched) {
  Namespace ns("def f(x): return x\ndef alone(x): return f(x)");
  start();
  ns.run("alone(1.5)");
  EXPECT_TRUE(names_.empty());
  ns.run("f(1.5)");
  EXPECT_EQ(names_.size(), 1u);
}

TEST_P(ScriptMode, EntriesAnswerAndOriginalsRunOnce) {
  Namespace ns(
      "log = []\n"
      "def f(x):\n  log.append(x)\n  return x\n"
      "def g(x): return f(x) + 1");
  start();
  compiler_.on_compile = [](const CompileRequest& request) {
    CompileOutcome outcome;
    Ref name = Ref::steal(PyObject_GetAttrString(request.code, "co_name"));
    if (std::string(PyUnicode_AsUTF8(name.get())) == "f") {
      outcome.entry = value_entry(
          gather_first, [](PyObject* x) { return PyNumber_Negative(x); });
    }
    return outcome;
  };
  EXPECT_EQ(ns.repr("g(1.5)"), "-0.5");
  EXPECT_EQ(ns.repr("log"), "[]");
  compiler_.on_compile = {};
  clear_all_caches();
  EXPECT_EQ(ns.repr("g(1.5)"), "2.5");
  EXPECT_EQ(ns.repr("log"), "[1.5]");
  // A function compiled explicitly is not dispatched a second time.
  compile_in(ns, "f");
  int calls = compiler_.calls;
  ns.run("f(2.5)");
  EXPECT_EQ(compiler_.calls, calls + 1);
}

TEST_P(ScriptMode, SuspendedPausedAndForcedThreadsRunTheOriginal) {
  Namespace ns("def f(x): return x");
  start();
  suspend_thread();
  ns.run("f(1.5)");
  resume_thread();
  {
    PauseHook pause;
    ns.run("f(1.5)");
  }
  set_stance(Stance::kForceEager);
  ns.run("f(1.5)");
  set_stance(Stance::kDefault);
  EXPECT_TRUE(names_.empty());
  ns.run("f(1.5)");
  EXPECT_EQ(names_.size(), 1u);
}

TEST_P(ScriptMode, TracedThreadsRunTheOriginal) {
  Namespace ns("import sys\ndef f(x): return x");
  start();
  ns.run(
      "sys.setprofile(lambda *a: None)\n"
      "f(1.5)\n"
      "sys.setprofile(None)");
  EXPECT_TRUE(names_.empty());
}

TEST_F(SleepingHook, SleepsAndWakes) {
  Namespace ns("def f(x): return x");
  start();
  set_script_patience(100);
  ns.run("for i in range(90): f(i)");
  EXPECT_FALSE(script_mode_sleeps());
  ns.run("for i in range(20): f(i)");
  EXPECT_TRUE(script_mode_sleeps());
  EXPECT_EQ(hook_installs(), 0);
  EXPECT_EQ(watches, 1);
  wake_script_soon();
  wake_script_soon();
  ns.run("for i in range(5): pass\ndef g(x): return x\nf(1)");
  EXPECT_FALSE(script_mode_sleeps());
  EXPECT_EQ(watches, 0);
  ns.run("g(1.5)");
  EXPECT_EQ(names_, std::vector<std::string>{"g"});
  // Twice as patient.
  ns.run("for i in range(150): f(i)");
  EXPECT_FALSE(script_mode_sleeps());
  ns.run("for i in range(60): f(i)");
  EXPECT_TRUE(script_mode_sleeps());
  stop_script_mode();
  EXPECT_EQ(watches, 0);
  EXPECT_FALSE(in_script_mode());
}

TEST_F(SleepingHook, StaysAwakeBesideOtherThreads) {
  Namespace ns(
      "import threading\n"
      "def f(x): return x\n"
      "stop = threading.Event()\n"
      "thread = threading.Thread(target=stop.wait)\n"
      "thread.start()");
  start();
  set_script_patience(50);
  ns.run("for i in range(200): f(i)");
  EXPECT_FALSE(script_mode_sleeps());
  ns.run("stop.set()\nthread.join()");
}

TEST_P(ScriptMode, CostsNoRecursionDepth) {
  Namespace ns(
      "import sys\n"
      "def depth(n):\n"
      "  try: return depth(n + 1)\n"
      "  except RecursionError: return n\n"
      "def down(n): return 0 if n == 0 else 1 + down(n - 1)");
  Ref expected = ns.eval("depth(0)");
  start();
  Ref found = ns.eval("depth(0)");
  EXPECT_NEAR(PyLong_AsLong(found.get()), PyLong_AsLong(expected.get()), 2);
  ns.run("sys.setrecursionlimit(6000)");
  EXPECT_EQ(ns.repr("down(5900)"), "5900");
  ns.run("sys.setrecursionlimit(1000)");
}

TEST_F(ScriptModeTest, StanceDecidesAMiss) {
  Namespace ns("def f(x): return x");
  compile_in(ns, "f");
  set_stance(Stance::kEagerOnRecompile);
  ns.run("f(1)");
  EXPECT_EQ(compiler_.calls, 0);
  set_stance(Stance::kFailOnRecompile);
  ns.run("f(1)");  // this compiler refuses nothing
  EXPECT_EQ(compiler_.calls, 0);
  EXPECT_EQ(current_stance(), Stance::kFailOnRecompile);
  set_stance(Stance::kDefault);
  ns.run("f(1)");
  EXPECT_EQ(compiler_.calls, 1);
}

}  // namespace
}  // namespace framejit::testing
