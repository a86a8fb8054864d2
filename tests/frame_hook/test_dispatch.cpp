// The dispatcher: entries, misses, failures, and what a hot call costs.
#include <sched.h>

#include <stdexcept>

#include "frame_hook/notices.h"
#include "tests/frame_hook/support.h"

namespace framejit::testing {
namespace {

class Dispatch : public FrameHookTest {};

CompileOutcome outcome_of(std::shared_ptr<CacheEntry> entry) {
  CompileOutcome outcome;
  outcome.entry = std::move(entry);
  return outcome;
}

PyObject* plus_100(PyObject* object) {
  return PyLong_FromLong(PyLong_AsLong(object) + 100);
}

TEST_F(Dispatch, MissCompilesOnceThenHits) {
  Namespace ns("def f(x): return x");
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest& request) {
    EXPECT_EQ(request.num_args, 1u);
    EXPECT_EQ(request.options, &options_);
    EXPECT_FALSE(request.is_resume);
    return outcome_of(value_entry(first_is_int, plus_100));
  };
  EXPECT_EQ(ns.repr("[f(1), f(2), f(3)]"), "[101, 102, 103]");
  EXPECT_EQ(compiler_.calls, 1);
  Ref f = ns.get("f");
  Ref code = ns.eval("f.__code__");
  CodeCache* cache = find_code_cache(code.get(), &options_);
  ASSERT_NE(cache, nullptr);
  EXPECT_EQ(cache->entries()[0]->hits, 3u);
  EXPECT_EQ(cache->misses, 1u);
  EXPECT_EQ(event_counters().compiles, 1u);
}

TEST_F(Dispatch, EntriesAreKeptInOrderOfUse) {
  Namespace ns("def f(x): return x");
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest& request) {
    if (PyLong_CheckExact(request.args[0])) {
      return outcome_of(value_entry(first_is_int, plus_100));
    }
    return outcome_of(value_entry(
        first_is_str, [](PyObject*) { return PyUnicode_FromString("s"); }));
  };
  EXPECT_EQ(ns.repr("[f(1), f('a'), f(2), f('b'), f(3)]"),
            "[101, 's', 102, 's', 103]");
  EXPECT_EQ(compiler_.calls, 2);
  Ref code = ns.eval("f.__code__");
  CodeCache* cache = find_code_cache(code.get(), &options_);
  EXPECT_EQ(cache->entries()[0]->predicates[0], &first_is_int);
  EXPECT_EQ(event_counters().recompiles, 1u);
}

TEST_F(Dispatch, FunctionsOfOneCodeShareTheCache) {
  Namespace ns("def make():\n  def f(x): return x\n  return f");
  compiler_.on_compile = [&](const CompileRequest&) {
    return outcome_of(value_entry(first_is_int, plus_100));
  };
  ns.run("a = make(); b = make()");
  compile_in(ns, "a");
  compile_in(ns, "b");
  EXPECT_EQ(ns.repr("a(1), b(2)"), "(101, 102)");
  EXPECT_EQ(compiler_.calls, 1);
}

TEST_F(Dispatch, OptionsAreSeparateKeys) {
  Namespace ns("def f(x): return x");
  Ref f = ns.get("f");
  int other_options = 0;
  compile_in(ns, "f");
  Ref g = Ref::steal(make_compiled_function(f.get(), &other_options, nullptr));
  ns.set("g", g.get());
  compiler_.on_compile = [&](const CompileRequest& request) {
    if (request.options == &other_options) {
      return outcome_of(value_entry(
          gather_first, [](PyObject*) { return PyLong_FromLong(-1); }));
    }
    return outcome_of(value_entry(first_is_int, plus_100));
  };
  EXPECT_EQ(ns.repr("f(1), g(1), f(1), g(1)"), "(101, -1, 101, -1)");
  EXPECT_EQ(compiler_.calls, 2);
  forget_options(&other_options);
  EXPECT_EQ(FakeEntry::alive, 1);
  EXPECT_EQ(ns.repr("f(1)"), "101");
}

TEST_F(Dispatch, NothingToCompileRunsTheOriginal) {
  Namespace ns("def f(x): return x * 2");
  compile_in(ns, "f");
  never_compile();
  EXPECT_EQ(ns.repr("[f(1), f(2)]"), "[2, 4]");
  EXPECT_EQ(compiler_.calls, 1);
}

TEST_F(Dispatch, CompilerThatGivesNothingIsNotAskedForever) {
  Namespace ns("def f(x): return x * 2");
  compile_in(ns, "f");
  EXPECT_EQ(ns.repr("[f(i) for i in range(50)] == [2*i for i in range(50)]"),
            "True");
  EXPECT_EQ(compiler_.calls, options().recompile_limit);
}

TEST_F(Dispatch, RecompileLimit) {
  ASSERT_TRUE(set_option("recompile_limit", "3", nullptr));
  Namespace ns("def f(x): return x");
  compile_in(ns, "f");
  // Every entry matches only the call it was made for.
  compiler_.on_compile = [&](const CompileRequest& request) {
    PyObject* key = request.args[0];
    auto entry = value_entry(never, plus_100);
    entry->on_match = [key](PyObject* const* args, PyObject** objects) {
      objects[0] = args[0];
      return args[0] == key;
    };
    return outcome_of(entry);
  };
  EXPECT_EQ(ns.repr("[f(i) for i in range(6)]"), "[100, 101, 102, 3, 4, 5]");
  EXPECT_EQ(ns.repr("[f(i) for i in range(6)]"), "[100, 101, 102, 3, 4, 5]");
  EXPECT_EQ(compiler_.calls, 3);
  int logged = 0;
  for (const Event& event : recent_events()) {
    logged += event.text.find("recompile_limit") != std::string::npos;
  }
  EXPECT_EQ(logged, 1);
}

TEST_F(Dispatch, AtTheLimitFewCallsLookThroughTheEntries) {
  ASSERT_TRUE(set_option("recompile_limit", "1", nullptr));
  Namespace ns("def f(x): return x");
  compile_in(ns, "f");
  FakeEntry* raw = nullptr;
  compiler_.on_compile = [&](const CompileRequest& request) {
    auto entry = value_entry(never, plus_100);
    entry->on_match = [](PyObject* const* args, PyObject** objects) {
      objects[0] = args[0];
      return PyLong_AsLong(args[0]) == 0;
    };
    raw = entry.get();
    return outcome_of(entry);
  };
  EXPECT_EQ(ns.repr("f(0)"), "100");
  EXPECT_EQ(ns.repr("all(f(1) == 1 for i in range(1000))"), "True");
  EXPECT_GE(raw->slow_matches, 16);
  EXPECT_LE(raw->slow_matches, 16 + 1000 / 64 + 2);
  // What it answers is found again, and then at once.
  EXPECT_EQ(ns.repr("any(f(0) == 100 for i in range(64))"), "True");
  EXPECT_EQ(ns.repr("all(f(0) == 100 for i in range(64))"), "True");
}

TEST_F(Dispatch, OptionsMayHaveALimitOfTheirOwn) {
  Namespace ns("def f(x): return x");
  compile_in(ns, "f");
  static const void* asked;
  asked = nullptr;
  set_recompile_limit({[](const void* options) {
                         asked = options;
                         return RecompileLimit{2, true};
                       },
                       [](const CompileRequest&, size_t limit) {
                         PyErr_Format(PyExc_KeyError, "at %zu", limit);
                       }});
  EXPECT_EQ(ns.repr("[f(i) for i in range(2)]"), "[0, 1]");
  EXPECT_EQ(ns.repr("f(3)"), "KeyError: 'at 2'");
  EXPECT_EQ(ns.repr("f(3)"), "KeyError: 'at 2'");
  EXPECT_EQ(asked, &options_);
  set_recompile_limit({nullptr, nullptr});
  EXPECT_EQ(ns.repr("f(3)"), "3");
  EXPECT_EQ(compiler_.calls, 3);
}

TEST_F(Dispatch, TheStricterStanceIsInForce) {
  Namespace ns("def f(x): return x");
  compile_in(ns, "f");
  set_other_stance(Stance::kForceEager);
  EXPECT_EQ(ns.repr("f(1)"), "1");
  set_stance(Stance::kEagerOnRecompile);
  EXPECT_EQ(ns.repr("f(1)"), "1");
  EXPECT_EQ(current_stance(), Stance::kEagerOnRecompile);
  set_other_stance(Stance::kDefault);
  EXPECT_EQ(ns.repr("f(1)"), "1");
  EXPECT_EQ(compiler_.calls, 0);
  set_stance(Stance::kDefault);
  EXPECT_EQ(ns.repr("f(1)"), "1");
  EXPECT_EQ(compiler_.calls, 1);
}

TEST_F(Dispatch, SlowMatchIsNotAMiss) {
  Namespace ns("def f(x): return x");
  compile_in(ns, "f");
  auto entry = value_entry(never, plus_100);
  FakeEntry* raw = entry.get();
  entry->on_match = [](PyObject* const* args, PyObject** objects) {
    objects[0] = args[0];
    return true;
  };
  compiler_.on_compile = [entry](const CompileRequest&) {
    return outcome_of(entry);
  };
  EXPECT_EQ(ns.repr("[f(1), f(2)]"), "[101, 102]");
  EXPECT_EQ(raw->slow_matches, 2);
  EXPECT_EQ(compiler_.calls, 1);
  // Re-armed: the native form answers from now on.
  raw->predicates.insert(raw->predicates.begin(), first_is_int);
  EXPECT_EQ(ns.repr("f(3)"), "103");
  EXPECT_EQ(raw->slow_matches, 2);
  compiler_.on_compile = nullptr;
}

// ---- failures

TEST_F(Dispatch, FailureBeforeCommitRunsTheOriginal) {
  Namespace ns(
      "log = []\n"
      "def f(x):\n  log.append(x)\n  return x[100]");
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest&) {
    auto entry = value_entry(gather_first, plus_100);
    entry->owned_executor =
        std::make_unique<FakeExecutor>([](PyObject* const*, PyObject**) {
          PyErr_SetString(PyExc_ValueError, "the graph's own error");
          return RunStatus::kFailedBeforeCommit;
        });
    entry->executor = entry->owned_executor.get();
    return outcome_of(entry);
  };
  EXPECT_EQ(ns.repr("f([1])"), "IndexError: list index out of range");
  EXPECT_EQ(ns.repr("log"), "[[1]]");
  EXPECT_EQ(event_counters().fallbacks, 1u);
}

// The last reference to what the graph was given goes behind its failure, and a
// finalizer calls what is not compiled: that this call returns says nothing of
// the other.
TEST_F(Dispatch, WhatACallBeganIsNotEndedByAnother) {
  Namespace ns(
      "class Late:\n"
      "  def __del__(self): ended.append(g(1))\n"
      "ended = []\n"
      "def f(x): return x[100]\n"
      "def g(x): return x\n");
  compile_in(ns, "f");
  compile_in(ns, "g");
  Ref f_code = ns.eval("f.__code__"), g_code = ns.eval("g.__code__");
  PyObject* items = nullptr;
  compiler_.on_compile = [&](const CompileRequest& request) {
    if (request.code == g_code.get()) return CompileOutcome{};
    auto entry = value_entry(
        [](PyObject* const* args, PyObject*, PyObject** objects, int64_t*) {
          objects[0] = PyList_GET_ITEM(args[0], 0);
          return 1;
        },
        plus_100);
    items = request.args[0];
    entry->owned_executor =
        std::make_unique<FakeExecutor>([&](PyObject* const*, PyObject**) {
          PyList_SetSlice(items, 0, 1, nullptr);
          PyErr_SetString(PyExc_ValueError, "the graph's own error");
          return RunStatus::kFailedBeforeCommit;
        });
    entry->executor = entry->owned_executor.get();
    return outcome_of(entry);
  };
  EXPECT_EQ(ns.repr("f([Late()])"), "IndexError: list index out of range");
  EXPECT_EQ(ns.repr("ended"), "[1]");
  EXPECT_FALSE(was_noticed(Notice::kOriginalRuns, f_code.get()));
}

TEST_F(Dispatch, OwnMistakeOfARunningGraphRaisesWhenStrict) {
  Namespace ns("def f(x): return x");
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest&) {
    auto entry = value_entry(gather_first, plus_100);
    entry->owned_executor =
        std::make_unique<FakeExecutor>([](PyObject* const*, PyObject**) {
          set_internal_error("running a graph: injected");
          return RunStatus::kFailedBeforeCommit;
        });
    entry->executor = entry->owned_executor.get();
    return outcome_of(entry);
  };
  EXPECT_EQ(ns.repr("f(1)"), "1");
  ASSERT_TRUE(set_option("strict", "1", nullptr));
  EXPECT_EQ(ns.repr("f(1)"),
            "RuntimeError: FrameJIT: running a graph: injected");
}

TEST_F(Dispatch, InterruptBeforeCommitPropagates) {
  Namespace ns("def f(x): return x");
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest&) {
    auto entry = value_entry(gather_first, plus_100);
    entry->owned_executor =
        std::make_unique<FakeExecutor>([](PyObject* const*, PyObject**) {
          PyErr_SetNone(PyExc_KeyboardInterrupt);
          return RunStatus::kFailedBeforeCommit;
        });
    entry->executor = entry->owned_executor.get();
    return outcome_of(entry);
  };
  EXPECT_EQ(ns.repr("f(1)").substr(0, 17), "KeyboardInterrupt");
}

TEST_F(Dispatch, FailureInCommitPropagatesAndNothingRunsTwice) {
  Namespace ns("log = []\ndef f(x):\n  log.append(x)\n  return x");
  compile_in(ns, "f");
  bool throw_instead = false;
  compiler_.on_compile = [&](const CompileRequest&) {
    auto entry = value_entry(gather_first, plus_100);
    entry->owned_executor =
        std::make_unique<FakeExecutor>([&](PyObject* const*, PyObject**) {
          if (throw_instead) throw std::runtime_error("a bug in a kernel");
          PyErr_SetString(PyExc_ValueError, "half way");
          return RunStatus::kFailedInCommit;
        });
    entry->executor = entry->owned_executor.get();
    return outcome_of(entry);
  };
  EXPECT_EQ(ns.repr("f(1)"), "ValueError: half way");
  throw_instead = true;
  EXPECT_EQ(ns.repr("f(1)"), "RuntimeError: FrameJIT: a bug in a kernel");
  EXPECT_EQ(ns.repr("log"), "[]");
}

TEST_F(Dispatch, ErrorOfFinishPropagates) {
  Namespace ns("log = []\ndef f(x):\n  log.append(x)\n  return x");
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest&) {
    return outcome_of(value_entry(gather_first, [](PyObject*) -> PyObject* {
      throw std::runtime_error("bug in finish");
    }));
  };
  EXPECT_EQ(ns.repr("f(1)"), "RuntimeError: FrameJIT: bug in finish");
  EXPECT_EQ(ns.repr("log"), "[]");
}

TEST_F(Dispatch, BugInTheCompilerRunsTheOriginalOrRaisesWhenStrict) {
  Namespace ns("def f(x): return x + 1");
  compile_in(ns, "f");
  compiler_.on_compile = [](const CompileRequest&) -> CompileOutcome {
    throw std::runtime_error("injected");
  };
  EXPECT_EQ(ns.repr("f(1)"), "2");
  ASSERT_FALSE(recent_events().empty());
  EXPECT_NE(recent_events().back().text.find("injected"), std::string::npos);
  EXPECT_NE(recent_events().back().text.find("f (<string>:1)"),
            std::string::npos);
  ASSERT_TRUE(set_option("strict", "1", nullptr));
  EXPECT_NE(ns.repr("f(1)").find("injected"), std::string::npos);
  EXPECT_EQ(event_counters().failures, 2u);
}

TEST_F(Dispatch, StrayErrorOfTheCompilerIsAnInternalError) {
  Namespace ns("def f(x): return x + 1");
  compile_in(ns, "f");
  compiler_.on_compile = [](const CompileRequest&) {
    PyErr_SetString(PyExc_KeyError, "left behind");
    return CompileOutcome{};
  };
  EXPECT_EQ(ns.repr("f(1)"), "2");
  EXPECT_EQ(event_counters().failures, 1u);
}

TEST_F(Dispatch, RequestedErrorIsRaised) {
  Namespace ns("def f(x): return x + 1");
  compile_in(ns, "f");
  compiler_.on_compile = [](const CompileRequest&) {
    PyErr_SetString(PyExc_KeyError, "fullgraph");
    CompileOutcome outcome;
    outcome.raise = true;
    return outcome;
  };
  EXPECT_EQ(ns.repr("f(1)"), "KeyError: 'fullgraph'");
}

TEST_F(Dispatch, ThrowingMatchRunsTheOriginal) {
  Namespace ns("def f(x): return x + 1");
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest&) {
    auto entry = value_entry(first_is_str, plus_100);
    entry->throw_in_match = true;
    return outcome_of(entry);
  };
  EXPECT_EQ(ns.repr("f(1)"), "2");
  EXPECT_EQ(ns.repr("f(1)"), "2");
}

TEST_F(Dispatch, NewEntryThatRejectsItsCallIsABug) {
  Namespace ns("def f(x): return x + 1");
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest&) {
    return outcome_of(value_entry(never, plus_100));
  };
  EXPECT_EQ(ns.repr("f(1)"), "2");
  EXPECT_EQ(event_counters().failures, 1u);
}

// ---- re-entrancy

TEST_F(Dispatch, CompilerMayCallTheFunction) {
  Namespace ns("def f(x): return x + 1");
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest&) {
    EXPECT_EQ(ns.repr("f(5)"), "6");  // the original, no recursion
    return outcome_of(value_entry(first_is_int, plus_100));
  };
  EXPECT_EQ(ns.repr("f(1)"), "101");
  EXPECT_EQ(compiler_.calls, 1);
}

TEST_F(Dispatch, ResetDuringACallKeepsTheEntryAlive) {
  Namespace ns("def f(x): return x");
  compile_in(ns, "f");
  int alive_inside = -1;
  compiler_.on_compile = [&](const CompileRequest&) {
    return outcome_of(value_entry(first_is_int, [&](PyObject* object) {
      clear_all_caches();
      alive_inside = FakeEntry::alive;
      return plus_100(object);
    }));
  };
  EXPECT_EQ(ns.repr("[f(1), f(2)]"), "[101, 102]");
  EXPECT_EQ(alive_inside, 1);
  EXPECT_EQ(FakeEntry::alive, 0);
  EXPECT_EQ(compiler_.calls, 2);
}

TEST_F(Dispatch, RecursiveResetReleasesAfterTheOutermostCall) {
  Namespace ns("def f(x): return x");
  compile_in(ns, "f");
  auto finish = [&](PyObject* object) -> PyObject* {
    if (PyLong_AsLong(object) == 0) {
      clear_all_caches();
      EXPECT_EQ(FakeEntry::alive, 1);
      return PyLong_FromLong(0);
    }
    Ref inner = ns.eval("f(" + std::to_string(PyLong_AsLong(object) - 1) + ")");
    EXPECT_EQ(FakeEntry::alive, 1);
    return PyLong_FromLong(PyLong_AsLong(inner.get()) + 1);
  };
  compiler_.on_compile = [&](const CompileRequest&) {
    return outcome_of(value_entry(first_is_int, finish));
  };
  EXPECT_EQ(ns.repr("f(5)"), "5");
  EXPECT_EQ(FakeEntry::alive, 0);
}

TEST_F(Dispatch, CodeReplacedDuringACall) {
  Namespace ns("def f(x): return x\ndef g(x): return -x\nwrapped = f");
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest& request) {
    Ref name = Ref::steal(PyObject_GetAttrString(request.code, "co_name"));
    if (PyUnicode_CompareWithASCIIString(name.get(), "g") == 0) {
      CompileOutcome none;
      none.skip_forever = true;
      return none;
    }
    return outcome_of(value_entry(first_is_int, [&](PyObject* object) {
      ns.run("wrapped.__code__ = g.__code__");
      EXPECT_EQ(ns.repr("f(7)"), "-7");
      return plus_100(object);
    }));
  };
  EXPECT_EQ(ns.repr("f(1)"), "101");
  EXPECT_EQ(ns.repr("f(1)"), "-1");
}

TEST_F(Dispatch, GatheredObjectsOutliveTheirContainer) {
  Namespace ns("class C: pass\nholder = [C()]\ndef f(x): return x");
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest&) {
    auto entry =
        value_entry(never, [](PyObject* object) { return Py_NewRef(object); });
    entry->on_match = [](PyObject* const* args, PyObject** objects) {
      objects[0] = PyList_GET_ITEM(args[0], 0);  // borrowed
      return true;
    };
    entry->owned_executor =
        std::make_unique<FakeExecutor>([&](PyObject* const*, PyObject**) {
          ns.run("holder.clear()");
          return RunStatus::kOk;
        });
    entry->executor = entry->owned_executor.get();
    return outcome_of(entry);
  };
  EXPECT_EQ(ns.repr("type(f(holder)).__name__"), "'C'");
}

TEST_F(Dispatch, TracedThreadsRunTheOriginal) {
  Namespace ns("import sys\ndef f(x): return x");
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest&) {
    return outcome_of(value_entry(first_is_int, plus_100));
  };
  EXPECT_EQ(ns.repr("f(1)"), "101");
  ns.run(
      "sys.settrace(lambda *a: None)\ntraced = f(1)\nsys.settrace(None)\n"
      "sys.setprofile(lambda *a: None)\nprofiled = f(1)\n"
      "sys.setprofile(None)\nafter = f(1)");
  EXPECT_EQ(ns.repr("traced, profiled, after"), "(1, 1, 101)");
}

TEST_F(Dispatch, MonitoredThreadsRunTheOriginal) {
  if (PY_VERSION_HEX < 0x030C0000) GTEST_SKIP() << "CPython 3.12";
  Namespace ns("import sys\ndef f(x): return x");
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest&) {
    return outcome_of(value_entry(first_is_int, plus_100));
  };
  EXPECT_EQ(ns.repr("f(1)"), "101");
  ns.run(
      "m = sys.monitoring\nm.use_tool_id(3, 'test')\n"
      "m.set_events(3, m.events.PY_START)\neverywhere = f(1)\n"
      "m.set_events(3, 0)\ncode = f.__wrapped__.__code__\n"
      "m.set_local_events(3, code, m.events.LINE)\nhere = f(1)\n"
      "m.set_local_events(3, code, 0)\nm.free_tool_id(3)\nafter = f(1)");
  EXPECT_EQ(ns.repr("everywhere, here, after"), "(1, 1, 101)");
}

TEST_F(Dispatch, SuspendedThreadsRunTheOriginal) {
  Namespace ns("def f(x): return x");
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest&) {
    return outcome_of(value_entry(first_is_int, plus_100));
  };
  suspend_thread();
  EXPECT_EQ(ns.repr("f(1)"), "1");
  suspend_thread();
  resume_thread();
  EXPECT_EQ(ns.repr("f(1)"), "1");
  resume_thread();
  EXPECT_EQ(ns.repr("f(1)"), "101");
}

TEST_F(Dispatch, ThousandsOfRecompilesAndResetsLeakNothing) {
  Namespace ns(
      "class C: pass\n"
      "def f(x): return x\n"
      "probe = C()");
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest& request) {
    PyObject* key = request.args[0];
    auto entry =
        value_entry(never, [](PyObject* object) { return Py_NewRef(object); });
    entry->on_match = [key](PyObject* const* args, PyObject** objects) {
      objects[0] = args[0];
      return args[0] == key;
    };
    return outcome_of(entry);
  };
  Ref probe = ns.get("probe");
  Py_ssize_t before = Py_REFCNT(probe.get());
  for (int i = 0; i < 10000; ++i) {
    Ref f = ns.get("f");
    Ref result = Ref::steal(PyObject_CallOneArg(f.get(), probe.get()));
    EXPECT_EQ(result.get(), probe.get());
    if (i % 10 == 0) clear_all_caches();
  }
  clear_all_caches();
  EXPECT_EQ(Py_REFCNT(probe.get()), before);
  EXPECT_EQ(FakeEntry::alive, 0);
}

TEST_F(Dispatch, ThreadsAndResetsDoNotMeetADeadEntry) {
  Namespace ns(
      "import threading\n"
      "def f(x): return x\n"
      "errors = []\n"
      "def work():\n"
      "  for i in range(1000):\n"
      "    if f(i) != i + 100: errors.append(i)\n"
      "    if f('a') != 's': errors.append('a')\n");
  compile_in(ns, "f");
  // Threads meet inside entries, and some take them out meanwhile.
  int runs = 0;
  auto executor = [&runs] {
    return std::make_unique<FakeExecutor>(
        [&runs](PyObject* const*, PyObject**) {
          Py_BEGIN_ALLOW_THREADS;
          sched_yield();
          Py_END_ALLOW_THREADS;
          if (++runs % 50 == 0) clear_all_caches();
          return RunStatus::kOk;
        });
  };
  compiler_.on_compile = [&](const CompileRequest& request) {
    bool is_int = PyLong_CheckExact(request.args[0]);
    auto entry = value_entry(
        is_int ? first_is_int : first_is_str, [is_int](PyObject* x) {
          return is_int ? plus_100(x) : PyUnicode_FromString("s");
        });
    entry->owned_executor = executor();
    entry->executor = entry->owned_executor.get();
    return outcome_of(entry);
  };
  ns.run(
      "threads = [threading.Thread(target=work) for _ in range(4)]\n"
      "for t in threads: t.start()");
  ns.run("for t in threads: t.join()");
  EXPECT_EQ(ns.repr("errors"), "[]");
  EXPECT_GT(compiler_.calls, 100);
}

TEST_F(Dispatch, CacheDiesWithItsCode) {
  {
    Namespace ns("def f(x): return x");
    compile_in(ns, "f");
    compiler_.on_compile = [&](const CompileRequest&) {
      return outcome_of(value_entry(first_is_int, plus_100));
    };
    EXPECT_EQ(ns.repr("f(1)"), "101");
    EXPECT_EQ(FakeEntry::alive, 1);
    ns.run("del f");
  }
  PyGC_Collect();
  EXPECT_EQ(FakeEntry::alive, 0);
}

TEST_F(Dispatch, ManyGatheredObjects) {
  Namespace ns("def f(x): return x");
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest&) {
    auto entry = std::make_shared<FakeEntry>();
    entry->num_objects = entry->num_outputs = 500;
    entry->num_symbols = 300;
    entry->predicates = {[](PyObject* const* args, PyObject*,
                            PyObject** objects, int64_t* symbols) {
      for (int i = 0; i < 500; ++i) objects[i] = args[0];
      for (int i = 0; i < 300; ++i) symbols[i] = i;
      return 1;
    }};
    entry->owned_executor = std::make_unique<FakeExecutor>(
        [](PyObject* const* inputs, PyObject** outputs) {
          for (int i = 0; i < 500; ++i) outputs[i] = Py_NewRef(inputs[i]);
          return RunStatus::kOk;
        });
    entry->executor = entry->owned_executor.get();
    entry->on_finish = [](PyObject* const*, PyObject* const* outputs,
                          PyObject*) { return Py_NewRef(outputs[499]); };
    return outcome_of(entry);
  };
  EXPECT_EQ(ns.repr("f('x'), f('y')"), "('x', 'y')");
}

// Not a timed test: prints what a hot call costs.
TEST_F(Dispatch, CostOfAHotCall) {
  Namespace ns("def f(x): return x\ndef g(x): return x");
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest&) {
    auto entry = std::make_shared<FakeEntry>();
    entry->predicates = {gather_first};
    entry->num_objects = 1;
    entry->identity_result = 0;
    return outcome_of(entry);
  };
  ns.run(
      "from timeit import timeit\n"
      "def run(h):\n"
      "  from itertools import repeat\n"
      "  return min(timeit('h(o)', globals={'h': h, 'o': object()},"
      " number=200000) for _ in range(5)) / 200000 * 1e9");
  RecordProperty("compiled_ns", ns.repr("run(f)"));
  RecordProperty("plain_ns", ns.repr("run(g)"));
  printf("  ns a call: compiled %s, plain function %s\n",
         ns.repr("run(f)").c_str(), ns.repr("run(g)").c_str());
}

}  // namespace
}  // namespace framejit::testing
