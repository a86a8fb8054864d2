// Profilers that only observe see compiled code; everything else the original.
#include "frame_hook/observers.h"

#include <signal.h>

#include "frame_hook/frame_eval.h"
#include "frame_hook/interjections.h"
#include "frame_hook/options.h"
#include "tests/frame_hook/support.h"

namespace framejit::testing {
namespace {

CompileOutcome adds_100() {
  CompileOutcome outcome;
  outcome.entry = value_entry(first_is_int, [](PyObject* object) {
    return PyLong_FromLong(PyLong_AsLong(object) + 100);
  });
  return outcome;
}

class Observers : public FrameHookTest {
 protected:
  Observers()
      : ns_("import cProfile, sys, signal, _lsprof\n"
            "def f(x): return x\n"
            "def compile_time(): pass\n"
            "def names(profile):\n"
            "  codes = [row.code for row in profile.getstats()]\n"
            "  return {getattr(code, 'co_name', code) for code in codes}\n"
            "def profiled(profile, run):\n"
            "  profile.enable()\n"
            "  try: return run()\n"
            "  finally: profile.disable()\n") {}
  void SetUp() override {
    FrameHookTest::SetUp();
    compile_in(ns_, "f");
    compiler_.on_compile = [&](const CompileRequest&) {
      ns_.run("compile_time()");
      return adds_100();
    };
  }
  Namespace ns_;
};

TEST_F(Observers, CProfileSeesCompiledCode) {
  ns_.run("profile = cProfile.Profile()");
  EXPECT_EQ(ns_.repr("profiled(profile, lambda: [f(1), f(2), abs(-3)])"),
            "[101, 102, 3]");
  EXPECT_EQ(compiler_.calls, 1);
  EXPECT_TRUE(ns_.truth("'<lambda>' in names(profile)"));
  EXPECT_TRUE(ns_.truth("any('abs' in name for name in names(profile))"));
  EXPECT_FALSE(ns_.truth("'f' in names(profile)"));
  EXPECT_EQ(ns_.repr("profiled(_lsprof.Profiler(), lambda: f(1))"), "101");
}

TEST_F(Observers, NoToolIsToldOfACompilation) {
  ns_.run("profile = cProfile.Profile()\nprofiled(profile, lambda: f(1))");
  EXPECT_EQ(compiler_.calls, 1);
  EXPECT_FALSE(ns_.truth("'compile_time' in names(profile)"));
  ns_.run("profiled(profile, compile_time)");
  EXPECT_TRUE(ns_.truth("'compile_time' in names(profile)"));
}

TEST_F(Observers, HandlersDuringACompilationAreTheProgram) {
  compiler_.on_compile = [&](const CompileRequest&) {
    raise(SIGUSR1);
    look_for_signals();
    ns_.run("compile_time()");
    return adds_100();
  };
  ns_.run(
      "seen = []\n"
      "def handle(number, frame): seen.append(number)\n"
      "old = signal.signal(signal.SIGUSR1, handle)\n"
      "profile = cProfile.Profile()\nprofiled(profile, lambda: f(1))\n"
      "signal.signal(signal.SIGUSR1, old)");
  EXPECT_EQ(ns_.repr("len(seen)"), "1");
  EXPECT_TRUE(ns_.truth("'handle' in names(profile)"));
  EXPECT_FALSE(ns_.truth("'compile_time' in names(profile)"));
}

struct Watched {
  const char *by, *program;
  const char *asked, *answer;  // 1: the original ran
  int since = 0;               // a version of CPython
};

// Some only resemble an observer.
constexpr Watched kWatched[] = {
    {"a tracer besides an observer",
     "def traced():\n"
     "  sys.settrace(lambda *a: None)\n"
     "  try: return f(1)\n"
     "  finally: sys.settrace(None)\n"
     "inside = profiled(cProfile.Profile(), traced)",
     "inside, f(1)", "(1, 101)"},
    {"a profile function in Python",
     "class Own(cProfile.Profile):\n"
     "  def __call__(self, *event): pass\n"
     "sys.setprofile(Own())\nwith_own = f(1)\nsys.setprofile(None)",
     "with_own, f(1)", "(1, 101)"},
    {"a tool of sys.monitoring with an observer's name",
     "m = sys.monitoring\nm.use_tool_id(2, 'cProfile')\n"
     "m.register_callback(2, m.events.PY_START, lambda *a: None)\n"
     "m.set_events(2, m.events.PY_START)\nimpostor = f(1)\n"
     "m.set_events(2, 0)\nm.register_callback(2, m.events.PY_START, None)\n"
     "m.free_tool_id(2)",
     "impostor, f(1)", "(1, 101)", 0x030C0000},
    {"a profile function of another thread",
     "import threading\n"
     "def thread(profile):\n"
     "  sys.setprofile(profile)\n"
     "  ready.set()\n  done.wait()\n"
     "ready, done = threading.Event(), threading.Event()\n"
     "other = threading.Thread(target=thread, args=(lambda *a: None,))\n"
     "other.start()\nready.wait()\nhere = f(1)\ndone.set()\nother.join()",
     "here, f(1)", "(101, 101)"},
};

TEST_F(Observers, WhoElseWatchesSeesTheOriginal) {
  EXPECT_EQ(ns_.repr("f(1)"), "101");
  for (const Watched& row : kWatched) {
    if (PY_VERSION_HEX < row.since) continue;
    SCOPED_TRACE(row.by);
    ns_.run(row.program);
    EXPECT_EQ(ns_.repr(row.asked), row.answer);
  }
}

TEST_F(Observers, TheOriginalCanBeAskedFor) {
  std::string error;
  ASSERT_TRUE(set_option("profile", "original", &error)) << error;
  ns_.run("profile = cProfile.Profile()");
  EXPECT_EQ(ns_.repr("profiled(profile, lambda: f(1))"), "1");
  EXPECT_TRUE(ns_.truth("'f' in names(profile)"));
  ASSERT_TRUE(set_option("profile", "compiled", &error)) << error;
  EXPECT_EQ(ns_.repr("profiled(profile, lambda: f(1))"), "101");
}

}  // namespace
}  // namespace framejit::testing
