// The frame hook: extents beneath broken functions, capture callbacks, and
// that it costs no recursion depth.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

#include "frame_hook/cpython_internals.h"
#include "frame_hook/hook_off.h"
#include "tests/frame_hook/support.h"

namespace framejit::testing {
namespace {

class FrameEval : public FrameHookTest {};

CompileOutcome outcome_of(std::shared_ptr<CacheEntry> entry) {
  CompileOutcome outcome;
  outcome.entry = std::move(entry);
  return outcome;
}

std::string name_of(const CompileRequest& request) {
  Ref name = Ref::steal(PyObject_GetAttrString(request.code, "co_name"));
  return PyUnicode_AsUTF8(name.get());
}

CodeVerdict all_but_skipped(PyObject* function, PyObject*) {
  Ref name = Ref::steal(PyObject_GetAttrString(function, "__name__"));
  bool skip = std::string(PyUnicode_AsUTF8(name.get())).find("skip") !=
              std::string::npos;
  return skip ? CodeVerdict::kSkip : CodeVerdict::kCallee;
}

// f breaks as a whole: what it calls is compiled, beneath skipped frames too.
TEST_F(FrameEval, CalleesOfABrokenFunctionAreDispatched) {
  Namespace ns(
      "def leaf(x, y=10): return x + y\n"
      "def skip_this(x): return leaf(x)\n"
      "def gen(n):\n  for i in range(n): yield leaf(i)\n"
      "def f(x):\n"
      "  class Body: value = leaf(x)\n"
      "  return [leaf(x), leaf(x, y=20), skip_this(x), Body.value,\n"
      "          list(map(leaf, [x])), list(gen(2)), (lambda z: leaf(z))(x)]\n"
      "plain = leaf");
  compile_in(ns, "f");
  set_should_compile(all_but_skipped);
  std::vector<std::string> compiled_names;
  compiler_.on_compile = [&](const CompileRequest& request) {
    CompileOutcome outcome;
    compiled_names.push_back(name_of(request));
    if (compiled_names.back() == "leaf") {
      EXPECT_EQ(request.num_args, 2u);
      return outcome_of(value_entry(first_is_int, [](PyObject* x) {
        return PyLong_FromLong(-PyLong_AsLong(x));
      }));
    }
    outcome.skip_forever = true;
    outcome.hook_callees = true;
    return outcome;
  };
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ns.repr("f(3)"), "[-3, -3, -3, -3, [-3], [0, -1], -3]");
  }
  EXPECT_EQ(ns.repr("leaf(3)"), "13");  // outside: untouched
  EXPECT_EQ(compiled_names,
            (std::vector<std::string>{"f", "leaf", "<lambda>"}));
  EXPECT_EQ(hook_installs(), 0);
}

TEST_F(FrameEval, ResidualFunctionHooksItsCallees) {
  Namespace ns(
      "def leaf(x): return x\n"
      "def f(x): return x\n"
      "def residual(x): return [leaf(x), leaf(x)]");
  Ref residual = ns.get("residual");
  Ref code = ns.eval("residual.__code__");
  mark_code(code.get(), CodeKind::kResidual);
  compile_in(ns, "f");
  set_should_compile(all_but_skipped);
  compiler_.on_compile = [&](const CompileRequest& request) {
    if (name_of(request) == "f") {
      return outcome_of(value_entry(gather_first, [&](PyObject* x) {
        return make_token(residual.get(), {x});
      }));
    }
    return outcome_of(value_entry(
        gather_first, [](PyObject*) { return PyLong_FromLong(7); }));
  };
  EXPECT_EQ(ns.repr("f(1), f(2)"), "([7, 7], [7, 7])");
  EXPECT_EQ(compiler_.calls, 2);
}

TEST_F(FrameEval, FinishThatRunsCodeHooksIt) {
  Namespace ns("def leaf(x): return x\ndef f(x): return x");
  Ref leaf = ns.get("leaf");
  compile_in(ns, "f");
  set_should_compile(all_but_skipped);
  compiler_.on_compile = [&](const CompileRequest& request) {
    if (name_of(request) == "f") {
      auto entry = value_entry(gather_first, [&](PyObject* x) {
        return PyObject_CallOneArg(leaf.get(), x);
      });
      entry->runs_code = true;
      return outcome_of(entry);
    }
    return outcome_of(value_entry(
        gather_first, [](PyObject*) { return PyLong_FromLong(7); }));
  };
  EXPECT_EQ(ns.repr("f(1)"), "7");
}

TEST_F(FrameEval, ExecutorsAndCompilersAreNotHooked) {
  Namespace ns(
      "def helper(x): return x\n"
      "def g(x): return x\n"
      "def f(x): return g(x)");
  Ref helper = ns.get("helper");
  compile_in(ns, "f");
  set_should_compile(all_but_skipped);
  std::vector<std::string> names;
  compiler_.on_compile = [&](const CompileRequest& request) {
    names.push_back(name_of(request));
    Ref ignored = Ref::steal(PyObject_CallOneArg(helper.get(), Py_None));
    if (names.back() == "g") {
      auto entry =
          value_entry(gather_first, [](PyObject* x) { return Py_NewRef(x); });
      entry->owned_executor = std::make_unique<FakeExecutor>(
          [&](PyObject* const* inputs, PyObject**) {
            Ref r = Ref::steal(PyObject_CallOneArg(helper.get(), inputs[0]));
            return RunStatus::kOk;
          });
      entry->executor = entry->owned_executor.get();
      return outcome_of(entry);
    }
    CompileOutcome outcome;
    outcome.skip_forever = outcome.hook_callees = true;
    return outcome;
  };
  EXPECT_EQ(ns.repr("f(1), f(2)"), "(1, 2)");
  EXPECT_EQ(names, (std::vector<std::string>{"f", "g"}));
}

TEST_F(FrameEval, ACompiledCalleeFallsBackOnce) {
  // inner has options of its own; beneath f its original frame must not be
  // dispatched again with f's.
  Namespace ns("def inner(x): return x\ndef f(x): return inner(x)");
  int inner_options = 0;
  Ref plain = ns.get("inner");
  Ref inner =
      Ref::steal(make_compiled_function(plain.get(), &inner_options, nullptr));
  ns.set("inner", inner.get());
  compile_in(ns, "f");
  set_should_compile(all_but_skipped);
  int with_outer_options = 0;
  compiler_.on_compile = [&](const CompileRequest& request) {
    CompileOutcome outcome;
    if (name_of(request) == "inner") {
      with_outer_options += request.options == &options_;
    } else {
      outcome.hook_callees = true;
    }
    outcome.skip_forever = true;
    return outcome;
  };
  EXPECT_EQ(ns.repr("f(1), f(2)"), "(1, 2)");
  EXPECT_EQ(with_outer_options, 0);
  forget_options(&inner_options);
}

TEST_F(FrameEval, DispatchedFramesLeakNothing) {
  Namespace ns(
      "import sys\n"
      "def leaf(x, *args, **kw): return x\n"
      "def f(x):\n"
      "  for i in range(100): leaf(x, x, x, k=x)\n"
      "o = object()");
  compile_in(ns, "f");
  set_should_compile(all_but_skipped);
  compiler_.on_compile = [&](const CompileRequest& request) {
    if (name_of(request) == "leaf") {
      return outcome_of(
          value_entry(gather_first, [](PyObject* x) { return Py_NewRef(x); }));
    }
    CompileOutcome outcome;
    outcome.skip_forever = outcome.hook_callees = true;
    return outcome;
  };
  ns.run(
      "f(o)\nbefore = sys.getrefcount(o), sys.getrefcount(leaf), "
      "sys.getrefcount(leaf.__code__)\n"
      "for i in range(20): f(o)\n"
      "after = sys.getrefcount(o), sys.getrefcount(leaf), "
      "sys.getrefcount(leaf.__code__)\n");
  EXPECT_TRUE(ns.truth("before == after")) << ns.repr("before, after");
}

// ---- captures

TEST_F(FrameEval, CaptureSeesFramesBeneathNativeCalls) {
  Namespace ns(
      "calls = []\n"
      "def key(x): calls.append(x); return -x\n"
      "class C:\n"
      "  def __lt__(self, other): calls.append('lt'); return True\n"
      "def gen():\n  yield 3\n");
  std::vector<std::string> seen;
  {
    CaptureCallbackScope scope([&](PyObject* function, PyObject* const* args,
                                   size_t n, PyObject** result) {
      Ref name = Ref::steal(PyObject_GetAttrString(function, "__name__"));
      seen.push_back(PyUnicode_AsUTF8(name.get()));
      if (seen.back() != "key") return false;
      EXPECT_EQ(n, 1u);
      *result = PyNumber_Negative(args[0]);
      return true;
    });
    EXPECT_EQ(ns.repr("sorted([1, 3, 2], key=key)"), "[3, 2, 1]");
    EXPECT_EQ(ns.repr("sorted([C(), C()]) and list(gen())"), "[3]");
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"key", "key", "key", "__lt__"}));
  EXPECT_EQ(ns.repr("calls"), "['lt']");
}

TEST_F(FrameEval, NothingIsOfferedBeneathARefusedFrame) {
  Namespace ns("def inner(): return 1\ndef outer(): return inner()");
  int offered = 0;
  {
    CaptureCallbackScope scope(
        [&](PyObject*, PyObject* const*, size_t, PyObject**) {
          ++offered;
          return false;
        });
    EXPECT_EQ(ns.repr("outer()"), "1");
  }
  EXPECT_EQ(offered, 1);
}

TEST_F(FrameEval, AllFramesAreOfferedToWhoFollowsAProgram) {
  Namespace ns(
      "def inner(x): return x\n"
      "def answered(x): return None\n"
      "def made(x):\n  yield inner(x)\n"
      "def outer():\n"
      "  return [inner(i) for i in range(2)], answered(3), list(made(4))");
  Ref answered = ns.get("answered");
  std::vector<std::string> offered;
  auto look = [&](PyObject* function, PyObject* const* args, size_t count,
                  PyObject** result) {
    Ref name = Ref::steal(PyObject_GetAttrString(function, "__name__"));
    if (function != answered.get()) {
      offered.push_back(PyUnicode_AsUTF8(name.get()));
      return false;
    }
    *result = PyNumber_Add(args[0], args[0]);
    return true;
  };
  suspend_thread();  // it compiles nothing, so that makes no difference
  {
    CaptureCallbackScope scope(look, CaptureCallbackScope::kOffered);
    EXPECT_EQ(ns.repr("outer()"), "([0, 1], 6, [4])");
  }
  resume_thread();
  EXPECT_EQ(offered.front(), "outer");
  EXPECT_EQ(std::count(offered.begin(), offered.end(), "inner"), 3);
  // The call of a generator function, not each turn of it.
  EXPECT_EQ(std::count(offered.begin(), offered.end(), "made"), 1);
}

TEST_F(FrameEval, CaptureCallbacksNestAndRaise) {
  Namespace ns("def f(x): return x\ndef g(x): return x");
  Ref g = ns.get("g");
  {
    CaptureCallbackScope scope([&](PyObject* function, PyObject* const* args,
                                   size_t, PyObject** result) {
      if (function == g.get()) {
        PyErr_SetString(PyExc_KeyError, "inside");
        *result = nullptr;
      } else {
        *result = PyObject_CallOneArg(g.get(), args[0]);
      }
      return true;
    });
    EXPECT_EQ(ns.repr("f(1)"), "KeyError: 'inside'");
  }
  {
    CaptureCallbackScope scope(
        [&](PyObject*, PyObject* const*, size_t, PyObject**) -> bool {
          throw std::runtime_error("a bug in the interpreter");
        });
    EXPECT_EQ(ns.repr("f(1)"),
              "RuntimeError: FrameJIT: a bug in the interpreter");
  }
}

TEST_F(FrameEval, CompiledFunctionsBeneathACaptureAreOffered) {
  Namespace ns("def f(x): return x");
  compile_in(ns, "f");
  int offered = 0;
  {
    CompilingScope compiling;
    CaptureCallbackScope scope(
        [&](PyObject*, PyObject* const*, size_t, PyObject** result) {
          ++offered;
          *result = PyLong_FromLong(5);
          return true;
        });
    EXPECT_EQ(ns.repr("f(1)"), "5");
  }
  EXPECT_EQ(offered, 1);
  EXPECT_EQ(compiler_.calls, 0);
}

TEST_F(FrameEval, OtherThreadsAreLeftAlone) {
  Namespace ns(
      "import threading\n"
      "out = []\n"
      "def work(): out.append('ran')\n"
      "def start():\n  pass\n");
  int offered = 0;
  {
    CaptureCallbackScope scope(
        [&](PyObject*, PyObject* const*, size_t, PyObject**) {
          ++offered;
          return false;
        });
    ns.run(
        "import _thread\n"
        "lock = _thread.allocate_lock(); lock.acquire()\n"
        "def body():\n  work(); lock.release()\n"
        "_thread.start_new_thread(body, ())\n"
        "lock.acquire()\n");
  }
  EXPECT_EQ(ns.repr("out"), "['ran']");
  EXPECT_EQ(offered, 0);
}

// ---- limits

// Depth reached by a recursion beneath the hook, against the same without it.
TEST_F(FrameEval, RecursionDepthIsNotReduced) {
  Namespace ns(
      "import sys\n"
      "def down(n):\n"
      "  global reached\n"
      "  reached = n\n"
      "  return down(n + 1)\n"
      "def skip_f():\n"
      "  try: down(0)\n"
      "  except RecursionError: pass\n"
      "  return reached\n"
      "def f(): return skip_f()\n");
  compile_in(ns, "f");
  set_should_compile([](PyObject*, PyObject*) { return CodeVerdict::kSkip; });
  never_compile(true);
  for (int limit : {1000, 4000}) {
    ns.run("sys.setrecursionlimit(" + std::to_string(limit) + ")");
    long plain = PyLong_AsLong(ns.eval("skip_f()").get());
    long hooked = PyLong_AsLong(ns.eval("f()").get());
    EXPECT_GT(plain, limit - 100);
    EXPECT_GT(hooked, plain - 20) << "limit " << limit;
  }
  ns.run("sys.setrecursionlimit(1000)");
}

TEST_F(FrameEval, CompiledRecursionEndsInRecursionError) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's frames fill the stack before the limit is "
                  "reached, and where little is left the original runs";
#endif
  Namespace ns(
      "def f(n): return 0\n"
      "def residual(n): return f(n + 1)\n");
  Ref residual = ns.get("residual");
  Ref code = ns.eval("residual.__code__");
  mark_code(code.get(), CodeKind::kResidual);
  compile_in(ns, "f");
  compiler_.on_compile = [&](const CompileRequest&) {
    return outcome_of(value_entry(gather_first, [&](PyObject* x) {
      return make_token(residual.get(), {x});
    }));
  };
  EXPECT_EQ(ns.repr("f(0)").substr(0, 15), "RecursionError:");
  EXPECT_EQ(ns.repr("1 + 1"), "2");
}

TEST_F(FrameEval, DeepRecursionSurvivesALowStack) {
  Namespace ns(
      "import sys\n"
      "def down(n): return 0 if n == 0 else 1 + down(n - 1)\n"
      "def f(n): return down(n)\n"
      "old = sys.getrecursionlimit()\n"
      "sys.setrecursionlimit(200000)\n");
  compile_in(ns, "f");
  set_should_compile([](PyObject*, PyObject*) { return CodeVerdict::kSkip; });
  never_compile(true);
  // Far more frames than the native stack holds when each nests there.
  EXPECT_EQ(ns.repr("f(100000)"), "100000");
  ns.run("sys.setrecursionlimit(old)");
  EXPECT_EQ(hook_installs(), 0);
}

// A hook that does nothing for this thread nests as well.
TEST_F(FrameEval, DeepRecursionOfASuspendedThread) {
  Namespace ns(
      "import sys\n"
      "def down(n): return 0 if n == 0 else 1 + down(n - 1)\n"
      "old = sys.getrecursionlimit()\n"
      "sys.setrecursionlimit(200000)\n");
  int options = 0;
  HookExtent extent(&options);
  suspend_thread();
  EXPECT_EQ(ns.repr("down(100000)"), "100000");
  resume_thread();
  {
    PauseHook pause;
    EXPECT_EQ(ns.repr("down(100000)"), "100000");
  }
  ns.run("sys.setrecursionlimit(old)");
}

// Another compiler's, which nests as ours does and looks at no stack.
internals::EvalFrame beneath_other;
size_t seen_by_other;
PyObject* other_hook(PyThreadState* thread, _PyInterpreterFrame* frame,
                     int throwflag) {
  ++seen_by_other;
  return beneath_other(thread, frame, throwflag);
}

TEST_F(FrameEval, DeepRecursionBeneathAndAboveAnotherHook) {
  Namespace ns(
      "import sys\n"
      "def down(n): return 0 if n == 0 else 1 + down(n - 1)\n"
      "old = sys.getrecursionlimit()\n"
      "sys.setrecursionlimit(200000)\n");
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  int options = 0;
  for (bool above : {false, true}) {
    seen_by_other = 0;
    auto put_on = [&] {
      beneath_other = internals::eval_frame_function(interpreter);
      internals::set_eval_frame_function(interpreter, other_hook);
    };
    if (!above) put_on();
    {
      HookExtent extent(&options);
      if (above) put_on();
      EXPECT_EQ(ns.repr("down(100000)"), "100000") << above;
      EXPECT_GT(seen_by_other, 100u);
      const size_t seen = seen_by_other;
      EXPECT_EQ(ns.repr("down(10)"), "10");
      EXPECT_GT(seen_by_other, seen) << "it is on again";
      if (above) {
        internals::set_eval_frame_function(interpreter, beneath_other);
      }
    }
    if (!above) {
      EXPECT_EQ(internals::eval_frame_function(interpreter), other_hook);
      internals::set_eval_frame_function(interpreter, beneath_other);
    }
    EXPECT_EQ(internals::eval_frame_function(interpreter),
              internals::default_eval_frame());
  }
  ns.run("sys.setrecursionlimit(old)");
}

// Where little stack is left, an extent does not put the hook back.
PyObject* call_in_extent(PyObject*, PyObject* function) {
  static int options = 0;
  HookExtent extent(&options);
  return PyObject_CallNoArgs(function);
}

TEST_F(FrameEval, ExtentsBeneathALowStackKeepTheHookOff) {
  static PyMethodDef method = {"call_in_extent", call_in_extent, METH_O,
                               nullptr};
  Namespace ns(
      "import sys\n"
      "def down(n):\n"
      "  if n == 0: return 0\n"
      "  if n == 50000: return 1 + call(lambda: down(n - 1))\n"
      "  return 1 + down(n - 1)\n"
      "old = sys.getrecursionlimit()\n"
      "sys.setrecursionlimit(200000)\n");
  Ref call = Ref::steal(PyCFunction_New(&method, nullptr));
  ns.set("call", call.get());
  int options = 0;
  {
    HookExtent extent(&options);
    EXPECT_EQ(ns.repr("down(100000)"), "100000");
    EXPECT_NE(internals::eval_frame_function(PyInterpreterState_Get()),
              internals::default_eval_frame());
  }
  EXPECT_EQ(hook_installs(), 0);
  ns.run("sys.setrecursionlimit(old)");
}

// What a break hands on is the frame's alone, also while some thread has the
// hook off (HookOff): `del` there ends its life at once.
TEST_F(FrameEval, GivesUpArgumentsWhetherTheHookIsOnOrOff) {
  Namespace ns(
      "log = []\n"
      "class Final:\n"
      "  def __del__(self): log.append('gone')\n"
      "def inner(): log.append('called')\n"
      "def f(x):\n"
      "  del x\n"
      "  log.append('deleted')\n"
      "  inner()\n");
  auto call = [&](const char* name) {
    PyObject* argument = ns.eval("Final()").release();
    Ref result = Ref::steal(call_owned(ns.get(name).get(), &argument, 1));
    EXPECT_EQ(argument, nullptr);
    EXPECT_EQ(hook_installs(), 1);
    return result;
  };
  int options = 0;
  HookExtent extent(&options);
  EXPECT_TRUE(call("f"));
  EXPECT_EQ(ns.repr("log"), "['gone', 'deleted', 'called']");
  ns.run("log.clear()");
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  {
    HookOff off;
    EXPECT_TRUE(call("f"));
    EXPECT_EQ(ns.repr("log"), "['gone', 'deleted', 'called']");
    EXPECT_EQ(internals::eval_frame_function(interpreter),
              internals::default_eval_frame());
    // No frame starts.
    EXPECT_FALSE(call("inner"));
    PyErr_Clear();
    EXPECT_EQ(internals::eval_frame_function(interpreter),
              internals::default_eval_frame());
  }
  EXPECT_NE(internals::eval_frame_function(interpreter),
            internals::default_eval_frame());
}

TEST_F(FrameEval, ForkedChildHasNoHookOfOtherThreads) {
  Namespace ns("def f(): return 1");
  CaptureCallbackScope scope(
      [](PyObject*, PyObject* const*, size_t, PyObject**) { return false; });
  // This thread's scope goes on in the child.
  ns.run(
      "import os\n"
      "pid = os.fork()\n"
      "if pid == 0:\n"
      "  os._exit(0 if f() == 1 else 1)\n"
      "status = os.waitpid(pid, 0)[1]");
  EXPECT_EQ(ns.repr("status"), "0");
  EXPECT_EQ(hook_installs(), 1);
}

// ---- somebody else's hook

internals::EvalFrame foreign_previous = nullptr;
int foreign_frames = 0;
PyObject* foreign_hook(PyThreadState* thread, _PyInterpreterFrame* frame,
                       int throwflag) {
  ++foreign_frames;
  return foreign_previous(thread, frame, throwflag);
}

TEST_F(FrameEval, AnotherHookOnTopOfOursIsNoLoop) {
  Namespace ns("def f(): return g()\ndef g(): return 1");
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  foreign_frames = 0;
  int offered = 0;
  auto refuse = [&](PyObject*, PyObject* const*, size_t, PyObject**) {
    ++offered;
    return false;
  };
  {
    CaptureCallbackScope outer(refuse);
    foreign_previous = internals::eval_frame_function(interpreter);
    internals::set_eval_frame_function(interpreter, foreign_hook);
    {
      CaptureCallbackScope inner(refuse);
      EXPECT_EQ(ns.repr("f()"), "1");
    }
    EXPECT_GT(foreign_frames, 0);
    EXPECT_GT(offered, 0);
  }
  // Ours is gone although theirs still calls it.
  offered = 0;
  EXPECT_EQ(ns.repr("f()"), "1");
  EXPECT_EQ(offered, 0);
  {
    CaptureCallbackScope again(refuse);  // now on top of theirs, and beneath
    EXPECT_EQ(ns.repr("f()"), "1");
    EXPECT_GT(offered, 0);
  }
  internals::set_eval_frame_function(interpreter,
                                     internals::default_eval_frame());
}

}  // namespace
}  // namespace framejit::testing
