// Signal handlers and collections while a compiler runs.
#include "frame_hook/interjections.h"

#include <signal.h>

#include "frame_hook/event_log.h"
#include "tests/frame_hook/support.h"

namespace framejit::testing {
namespace {

class InterjectionsTest : public FrameHookTest {
 protected:
  InterjectionsTest()
      : ns_("import signal, gc\n"
            "log = []\n"
            "class Late(Exception): pass\n"
            "def handle(number, frame):\n"
            "  log.append('handled')\n"
            "  if raising: raise Late('late')\n"
            "raising = True\n"
            "def f(x):\n"
            "  try:\n"
            "    log.append('original')\n"
            "    return x\n"
            "  finally:\n"
            "    log.append('finally')\n"
            "def compile_time(): pass\n") {}
  void SetUp() override {
    FrameHookTest::SetUp();
    ns_.run("old = signal.signal(signal.SIGUSR1, handle)");
    compile_in(ns_, "f");
  }
  void TearDown() override {
    ns_.run("signal.signal(signal.SIGUSR1, old)");
    FrameHookTest::TearDown();
  }
  Namespace ns_;
};

TEST_F(InterjectionsTest, WhatAHandlerRaisesIsRaisedInTheOriginal) {
  compiler_.on_compile = [&](const CompileRequest&) {
    raise(SIGUSR1);
    // Swallowed by code of somebody's.
    EXPECT_EQ(PyErr_CheckSignals(), -1);
    PyErr_Clear();
    EXPECT_TRUE(interrupted());
    CompileOutcome outcome;
    outcome.skip_forever = true;
    return outcome;
  };
  EXPECT_EQ(ns_.repr("f(1)"), "Late: late");
  EXPECT_EQ(ns_.repr("log"), "['handled']");
  EXPECT_FALSE(interrupted());
  EXPECT_TRUE(ns_.truth("signal.getsignal(signal.SIGUSR1) is handle"));
  // Nothing was remembered of the attempt.
  compiler_.on_compile = {};
  EXPECT_EQ(ns_.repr("f(1)"), "1");
  EXPECT_EQ(compiler_.calls, 2);
}

TEST_F(InterjectionsTest, AnEntryThatWasMadeIsNotUsed) {
  int alive = FakeEntry::alive;
  compiler_.on_compile = [&](const CompileRequest&) {
    raise(SIGUSR1);
    CompileOutcome outcome;
    outcome.entry =
        value_entry(gather_first, [](PyObject*) { return PyLong_FromLong(7); });
    look_for_signals();
    return outcome;
  };
  EXPECT_EQ(ns_.repr("f(1)"), "Late: late");
  EXPECT_EQ(FakeEntry::alive, alive);
}

TEST_F(InterjectionsTest, AHandlerThatRaisesNothingStopsNothing) {
  ns_.run("raising = False");
  compiler_.on_compile = [&](const CompileRequest&) {
    raise(SIGUSR1);
    look_for_signals();
    EXPECT_FALSE(interrupted());
    CompileOutcome outcome;
    outcome.entry =
        value_entry(gather_first, [](PyObject*) { return PyLong_FromLong(7); });
    return outcome;
  };
  EXPECT_EQ(ns_.repr("f(1)"), "7");
  EXPECT_EQ(ns_.repr("log"), "['handled']");
}

TEST_F(InterjectionsTest, SignalsThatNobodyLookedForComeAfterwards) {
  compiler_.on_compile = [&](const CompileRequest&) {
    raise(SIGUSR1);
    CompileOutcome outcome;
    outcome.entry =
        value_entry(gather_first, [](PyObject*) { return PyLong_FromLong(7); });
    return outcome;
  };
  ns_.run(
      "result = None\n"
      "try:\n  result = f(1)\n  for i in range(100): pass\n"
      "except Late: result = 'late'");
  EXPECT_EQ(ns_.repr("result, log[0]"), "('late', 'handled')");
}

TEST_F(InterjectionsTest, TheProgramsStateIsThereForHandlers) {
  static int inside;
  static std::string seen;
  inside = 0;
  set_program_state({[]() -> void* { return &++inside; },
                     [](void* state) { --*static_cast<int*>(state); }});
  static PyMethodDef look = {"look",
                             [](PyObject*, PyObject*) {
                               seen += std::to_string(inside) +
                                       (is_compiling() ? "c" : "-");
                               return Py_NewRef(Py_None);
                             },
                             METH_NOARGS, nullptr};
  ns_.set("look", Ref::steal(PyCFunction_New(&look, nullptr)).get());
  ns_.run("def handle2(*a): look()\nsignal.signal(signal.SIGUSR1, handle2)");
  compiler_.on_compile = [&](const CompileRequest&) {
    raise(SIGUSR1);
    look_for_signals();
    EXPECT_EQ(inside, 0);
    return CompileOutcome{};
  };
  seen.clear();
  EXPECT_EQ(ns_.repr("f(1)"), "1");
  EXPECT_EQ(seen, "1c");
  set_program_state({});
}

TEST_F(InterjectionsTest, WhatWasDoneInCStays) {
  struct sigaction before, after;
  sigaction(SIGUSR1, nullptr, &before);
  before.sa_flags |= SA_RESTART;  // signal.siginterrupt(SIGUSR1, False)
  sigaction(SIGUSR1, &before, nullptr);
  compiler_.on_compile = [](const CompileRequest&) { return CompileOutcome{}; };
  EXPECT_EQ(ns_.repr("f(1)"), "1");
  sigaction(SIGUSR1, nullptr, &after);
  EXPECT_EQ(before.sa_handler, after.sa_handler);
  EXPECT_EQ(before.sa_flags & SA_RESTART, after.sa_flags & SA_RESTART);
}

TEST_F(InterjectionsTest, AHandlerThatTheCompilerSetsStays) {
  compiler_.on_compile = [&](const CompileRequest&) {
    ns_.run("def other(*a): pass\nsignal.signal(signal.SIGUSR1, other)");
    return CompileOutcome{};
  };
  EXPECT_EQ(ns_.repr("f(1)"), "1");
  EXPECT_TRUE(ns_.truth("signal.getsignal(signal.SIGUSR1) is other"));
}

TEST_F(InterjectionsTest, NothingIsCollectedWhileTheCompilerRuns) {
  ns_.run(
      "gc.collect()\n"
      "class Cycle:\n"
      "  def __init__(self): self.me = self\n"
      "  def __del__(self): log.append('gone')\n"
      "threshold = gc.get_threshold()\n"
      "gc.set_threshold(1)\n");
  compiler_.on_compile = [&](const CompileRequest&) {
    ns_.run("Cycle()\nkeep = [[] for i in range(100)]\nlog.append('made')");
    return CompileOutcome{};
  };
  EXPECT_EQ(ns_.repr("f(1)"), "1");
  ns_.run("keep = [[] for i in range(100)]\ngc.set_threshold(*threshold)");
  ns_.run("gc.collect()");
  EXPECT_EQ(ns_.repr("log[0]"), "'made'");
  EXPECT_TRUE(ns_.truth("log.count('gone') == 1 and gc.isenabled()"));
}

TEST_F(InterjectionsTest, AnExceptionOfAHandlerIsKnownByItsTraceback) {
  ns_.run(
      "def by_handler():\n"
      "  try: handle(0, None)\n"
      "  except Late as e: return e\n"
      "def other():\n"
      "  try: raise Late\n"
      "  except Late as e: return e\n"
      "def wrapped():\n"
      "  try:\n"
      "    try: handle(0, None)\n"
      "    except Late as e: raise ValueError from e\n"
      "  except ValueError as e: return e\n");
  EXPECT_TRUE(raised_by_handler(ns_.eval("by_handler()").get()));
  EXPECT_TRUE(raised_by_handler(ns_.eval("wrapped()").get()));
  EXPECT_TRUE(raised_by_handler(ns_.eval("KeyboardInterrupt()").get()));
  EXPECT_FALSE(raised_by_handler(ns_.eval("other()").get()));
}

// What was raised, and is raised in the code that runs next.
void raise_late(Namespace& ns) {
  Ref late = ns.get("Late");
  PyErr_SetString(late.get(), "late");
  ASSERT_TRUE(raise_in_next_code());
}

// Runs code that nobody sees the errors of; returns whether it raised.
bool run_swallowed(Namespace& ns, const char* source) {
  Ref done =
      Ref::steal(PyRun_String(source, Py_file_input, ns.dict(), ns.dict()));
  PyErr_Clear();
  return !done;
}

TEST_F(InterjectionsTest, CodeOfOursThatComesFirstDoesNotSwallowIt) {
  raise_late(ns_);
  {
    Interjections interjections;
    EXPECT_TRUE(run_swallowed(ns_, "log.append('ours')"));
    EXPECT_TRUE(interrupted());
    EXPECT_FALSE(run_swallowed(ns_, "log.append('ours')"));
  }
  EXPECT_FALSE(interrupted());
  EXPECT_EQ(ns_.repr("f(1)"), "Late: late");
  EXPECT_EQ(ns_.repr("log"), "['ours']");
  EXPECT_EQ(ns_.repr("f(1)"), "1");
}

TEST_F(InterjectionsTest, NothingIsCompiledWhileOneWaits) {
  raise_late(ns_);
  EXPECT_TRUE(interruption_waits());
  Ref function = ns_.get("f"), argument = Ref::steal(PyLong_FromLong(1));
  Ref result = Ref::steal(PyObject_CallOneArg(function.get(), argument.get()));
  EXPECT_FALSE(result);
  PyErr_Clear();
  EXPECT_FALSE(interruption_waits());
  EXPECT_EQ(compiler_.calls, 0);
}

TEST_F(InterjectionsTest, AFinalizerIsPassedOver) {
  ns_.run(
      "class Final:\n"
      "  def __del__(self):\n"
      "    for i in range(100): pass\n"
      "    log.append('gone')\n");
  Ref object = ns_.eval("Final()");
  raise_late(ns_);
  object.reset();
  EXPECT_TRUE(interruption_waits());
  EXPECT_EQ(ns_.repr("f(1)"), "Late: late");
  EXPECT_EQ(ns_.repr("log"), "['gone']");
}

TEST_F(InterjectionsTest, AnExitIsPassedOver) {
  ns_.run(
      "class Opened:\n"
      "  def __exit__(self, *error):\n"
      "    for i in range(100): pass\n"
      "    log.append('closed')\n");
  Ref close = ns_.eval("Opened().__exit__");
  raise_late(ns_);
  EXPECT_TRUE(Ref::steal(PyObject_CallNoArgs(close.get())));
  EXPECT_TRUE(interruption_waits());
  EXPECT_EQ(ns_.repr("f(1)"), "Late: late");
  EXPECT_EQ(ns_.repr("log"), "['closed']");
}

// At the first instruction of a watched frame CPython 3.11 makes pending calls
// until there are none, so it cannot wait for the end of `__exit__`.
TEST_F(InterjectionsTest, CleanupBeneathAProfilerEnds) {
  ns_.run(
      "import sys, time\n"
      "class Opened:\n"
      "  def __exit__(self, *error): log.append('closed')\n"
      "  __del__ = __exit__\n"
      "def leave(watch):\n"
      "  watch(lambda *a: None)\n"
      "  try: Opened().__exit__()\n"
      "  except Late as error: log.append(str(error))\n"
      "  finally: watch(None)\n"
      "  for i in range(100): pass\n"
      "def drop(watch):\n"
      "  sys.unraisablehook = lambda raised: "
      "log.append(str(raised.exc_value))\n"
      "  object = Opened()\n"
      "  watch(lambda *a: None)\n"
      "  try: object = None\n"
      "  except Late as error: log.append(str(error))\n"
      "  finally: watch(None)\n"
      "  for i in range(100): pass\n");
  for (const char* call : {"leave(sys.setprofile)", "leave(sys.settrace)",
                           "drop(sys.setprofile)", "drop(sys.settrace)"}) {
    ns_.run("log.clear()");
    Ref code = Ref::steal(Py_CompileString(call, "<test>", Py_eval_input));
    raise_late(ns_);
    Ref done = Ref::steal(PyEval_EvalCode(code.get(), ns_.dict(), ns_.dict()));
    PyErr_Clear();
    EXPECT_FALSE(interruption_waits()) << call;
    EXPECT_TRUE(!done || ns_.truth("'late' in log")) << call;
  }
  ns_.run("sys.unraisablehook = sys.__unraisablehook__");
}

TEST_F(InterjectionsTest, WithinAScopeItIsThatOnes) {
  compiler_.on_compile = [&](const CompileRequest&) {
    {
      Interjections inner;
      raise(SIGUSR1);
      look_for_signals();
      EXPECT_EQ(inner.end(), Interjections::End::kInterrupted);
    }
    EXPECT_TRUE(interrupted());
    EXPECT_FALSE(interruption_waits());
    return CompileOutcome{};
  };
  EXPECT_EQ(ns_.repr("f(1)"), "Late: late");
}

TEST_F(InterjectionsTest, AnImportIsNotCutOff) {
  ns_.run(
      "import sys, importlib.util\n"
      "class Finder:\n"
      "  def find_spec(self, name, path, target=None):\n"
      "    if name == 'interrupted_module':\n"
      "      return importlib.util.spec_from_loader(name, self)\n"
      "  def create_module(self, spec): return None\n"
      "  def exec_module(self, module):\n"
      "    signal.raise_signal(signal.SIGUSR1)\n"
      "    for i in range(100): pass\n"
      "    module.whole = True\n"
      "sys.meta_path.append(Finder())\n");
  compiler_.on_compile = [&](const CompileRequest&) {
    EXPECT_FALSE(run_swallowed(ns_, "import interrupted_module"));
    EXPECT_TRUE(interrupted());
    return CompileOutcome{};
  };
  EXPECT_EQ(ns_.repr("f(1)"), "Late: late");
  EXPECT_TRUE(ns_.truth("sys.modules['interrupted_module'].whole"));
  EXPECT_EQ(ns_.repr("log"), "['handled']");
  ns_.run("sys.meta_path.pop()\ndel sys.modules['interrupted_module']");
}

TEST_F(InterjectionsTest, ErrorsThatMeanNothingAreDroppedButAHandlersIsNot) {
  ns_.run("class Text:\n  def __str__(self): raise ValueError\n");
  Ref text = ns_.eval("Text()");
  EXPECT_FALSE(Ref::steal(PyObject_Str(text.get())));
  drop_error();
  EXPECT_FALSE(interruption_waits());
  raise(SIGUSR1);
  EXPECT_FALSE(Ref::steal(PyObject_Str(text.get())));  // looks for signals
  drop_error();
  EXPECT_FALSE(PyErr_Occurred());
  EXPECT_EQ(ns_.repr("f(1)"), "Late: late");
}

TEST_F(InterjectionsTest, ALogDoesNotSwallowIt) {
  set_event_sink([&](const Event&) {
    raise(SIGUSR1);
    EXPECT_TRUE(run_swallowed(ns_, "for i in range(100): pass"));
  });
  log_event(Channel::k_fallbacks, "text", Severity::kWarning);
  set_event_sink({});
  EXPECT_TRUE(interruption_waits());
  EXPECT_EQ(ns_.repr("f(1)"), "Late: late");
}

TEST_F(InterjectionsTest, AnExecutorEndedByAHandlerRunsTheOriginal) {
  compiler_.on_compile = [&](const CompileRequest&) {
    auto entry =
        value_entry(gather_first, [](PyObject*) { return PyLong_FromLong(7); });
    entry->owned_executor =
        std::make_unique<FakeExecutor>([](PyObject* const*, PyObject**) {
          raise(SIGUSR1);
          return PyErr_CheckSignals() < 0 ? RunStatus::kFailedBeforeCommit
                                          : RunStatus::kOk;
        });
    entry->executor = entry->owned_executor.get();
    CompileOutcome outcome;
    outcome.entry = entry;
    return outcome;
  };
  EXPECT_EQ(ns_.repr("f(1)"), "Late: late");
  EXPECT_EQ(ns_.repr("log"), "['handled']");
  ns_.run("log.clear()\nraising = False");
  EXPECT_EQ(ns_.repr("f(1)"), "7");
}

}  // namespace
}  // namespace framejit::testing
