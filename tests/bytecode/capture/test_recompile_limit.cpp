// What counts towards the recompile limit, on the whole lower half: calls that
// raise, and calls under a mode that no capture supports, do not.
#include "frame_hook/options.h"
#include "tests/bytecode/capture/capture_support.h"
#include "tests/bytecode/capture/toy_compiler.h"

namespace framejit::bytecode::testing {
namespace {

// `bad` (an expression of i) raises, whatever i is; `good` does not.
struct Raising {
  const char* name;
  const char* function;
  const char* bad;
  const char* good;
};

constexpr Raising kRaising[] = {
    {"raise",
     "def f(x, i):\n"
     "  if i >= 0: raise ValueError(i)\n"
     "  return x * 2.0\n",
     "(x, i)", "(x, -1)"},
    {"key", "def f(x, d):\n  return x * d['k']\n", "(x, {str(i): 1.0})",
     "(x, {'k': 2.0})"},
    {"attribute", "def f(x, o):\n  return x * o.k\n", "(x, make(i))",
     "(x, make(-1))"},
    {"zero", "def f(x, i):\n  return x * (i / (i - i % 97))\n", "(x, i)",
     "(x, 97)"},
    {"assert", "def f(x, n):\n  assert n == 3, n\n  return x * 2.0\n",
     "(x, i + 5)", "(x, 3)"},
    {"index", "def f(x, i):\n  return x * [1., 2.][i]\n", "(x, i + 2)",
     "(x, 1)"},
    {"unpack", "def f(x, items):\n  a, b = items\n  return x * a + b\n",
     "(x, [1.] * (i + 3))", "(x, [1., 2.])"},
    {"call", "def f(x, g):\n  return x * g()\n", "(x, i)", "(x, two)"},
    {"nested",
     "def g(i):\n"
     "  if i >= 0: raise KeyError(i)\n"
     "  return 2.0\n"
     "def f(x, i):\n"
     "  return x * g(i)\n",
     "(x, i)", "(x, -1)"},
    {"finally",
     "log = []\n"
     "def f(x, i):\n"
     "  try:\n    return x * [1., 2.][i]\n"
     "  finally:\n    log.append(i)\n",
     "(x, i + 2)", "(x, 1)"},
    {"except",
     "def f(x, i):\n"
     "  try:\n    return x * [1., 2.][i]\n"
     "  except IndexError as e:\n    raise ValueError(i) from e\n",
     "(x, i + 2)", "(x, 1)"},
    {"with",
     "def f(x, i):\n"
     "  with fake.no_grad():\n"
     "    if i >= 0: raise RuntimeError(i)\n"
     "    return x * 2.0\n",
     "(x, i)", "(x, -1)"},
    {"generator",
     "def numbers(i):\n"
     "  yield 1.0\n"
     "  if i >= 0: raise RuntimeError(i)\n"
     "  yield 2.0\n"
     "def f(x, i):\n"
     "  for n in numbers(i): x = x * n\n"
     "  return x\n",
     "(x, i)", "(x, -1)"},
    {"stop", "def f(x, items):\n  return x * next(iter(items))\n",
     "(x, [None] * 0 if i else ())", "(x, [2.0])"},
    // A leaf that raises is a break: the residual code raises.
    {"leaf", "def f(x, y):\n  return x * 2.0 + y\n", "(x, str(i))", "(x, x)"},
    // So is the call of a C function that nobody knows.
    {"unknown",
     "from time import sleep\n"
     "def f(x, t):\n  x = x * 2.0\n  sleep(t)\n  return x\n",
     "(x, str(i))", "(x, 0)"},
    // Behind a break: the resume function raises.
    {"behind",
     "def f(x, i):\n"
     "  fake.mystery(x)\n"
     "  if i != 'good': raise ValueError(i)\n"
     "  return x * 2.0\n",
     "(x, str(i))", "(x, 'good')"},
    // The first part is another for each call, and completes.
    {"between",
     "def f(x, i):\n"
     "  x = x * len(i)\n"
     "  fake.mystery(x)\n"
     "  if i != 'good': raise ValueError(i)\n"
     "  return x * 2.0\n",
     "(x, str(i))", "(x, 'good')"},
    // A frame that breaks before anything was captured, and then raises.
    {"whole",
     "def f(i):\n"
     "  fake.mystery(1)\n"
     "  if i != 'good': raise ValueError(i)\n"
     "  return fake.tensor([2])\n",
     "(str(i),)", "('good',)"},
};

constexpr char kMake[] =
    "class O: pass\n"
    "def make(i):\n"
    "  o = O()\n"
    "  if i < 0: o.k = 2.0\n"
    "  return o\n"
    "def two(): return 2.0\n";

class RecompileLimitTest : public ::testing::Test {
 protected:
  void define(const std::string& source) {
    globals_ = make_globals(kMake + source);
    Ref x = evaluate_text(globals_.get(), "fake.tensor([2], [1., 2.])");
    PyDict_SetItemString(globals_.get(), "x", x.get());
    plain_ = Ref::borrow(PyDict_GetItemString(globals_.get(), "f"));
    compiled_ = compiler_.compiled(plain_.get());
  }

  std::string outcome(PyObject* function, PyObject* args) {
    Ref result = Ref::steal(PyObject_Call(function, args, nullptr));
    if (!result) return take_error();
    PyDict_SetItemString(globals_.get(), "result_", result.get());
    Ref text = evaluate_text(globals_.get(), "repr(show(result_))");
    return text ? PyUnicode_AsUTF8(text.get()) : "?";
  }

  // Calls the compiled function as CPython would; the outcome.
  std::string call(const std::string& arguments, int i = 0) {
    Ref number = Ref::steal(PyLong_FromLong(i));
    PyDict_SetItemString(globals_.get(), "i", number.get());
    Ref plain_args = evaluate_text(globals_.get(), arguments);
    Ref args = evaluate_text(globals_.get(), arguments);
    std::string expected = outcome(plain_.get(), plain_args.get());
    std::string found = outcome(compiled_.get(), args.get());
    EXPECT_EQ(expected, found) << arguments << " with i = " << i;
    return found;
  }

  size_t limit() const { return options().recompile_limit; }

  ToyCompiler compiler_;
  Ref globals_, plain_, compiled_;
};

TEST_F(RecompileLimitTest, CallsThatRaiseDoNotCount) {
  for (const Raising& row : kRaising) {
    SCOPED_TRACE(row.name);
    define(row.function);
    int calls = 3 * int(limit());
    for (int i = 0; i < calls; ++i) {
      std::string raised = call(row.bad, i);
      EXPECT_EQ(raised.find("tensor"), std::string::npos) << raised;
    }
    int attempts = compiler_.attempts;
    // The first may be one of those that are passed over, in each part.
    for (int i = 0; i < 3; ++i) {
      std::string good = call(row.good);
      EXPECT_NE(good.find("tensor"), std::string::npos) << good;
    }
    EXPECT_GT(compiler_.attempts, attempts) << "it is never compiled again";
    attempts = compiler_.attempts;
    call(row.good);
    if (std::string(row.name) != "whole") {
      EXPECT_EQ(compiler_.attempts, attempts) << "no entry was made";
    }
    // And they did not push out what is good.
    for (int i = calls; i < calls + 2 * int(limit()); ++i) call(row.bad, i);
    attempts = compiler_.attempts;
    call(row.good);
    if (std::string(row.name) != "whole") {
      EXPECT_EQ(compiler_.attempts, attempts) << "the entry is gone";
    }
  }
}

TEST_F(RecompileLimitTest, CallsThatRaiseAreSoonCapturedRarely) {
  for (const Raising& row : kRaising) {
    SCOPED_TRACE(row.name);
    define(row.function);
    for (int i = 0; i < 20; ++i) call(row.bad, i);
    int attempts = compiler_.attempts;
    for (int i = 20; i < 400; ++i) call(row.bad, i);
    // Of each of two parts: after 17 calls, 33, 65 ...
    EXPECT_LE(compiler_.attempts, attempts + 12);
  }
}

TEST_F(RecompileLimitTest, WhatARaisingCallDoesNotReadIsNoFactOfIt) {
  define("def f(x, n, unread):\n  if n: raise ValueError(n)\n");
  call("(x, 1, 0)");
  int attempts = compiler_.attempts;
  for (int i = 1; i < 5; ++i) call("(x, 1, i)", i);
  call("(x, 1, 'text')");
  call("(x, 1, x)");
  EXPECT_EQ(compiler_.attempts, attempts);
}

TEST_F(RecompileLimitTest, ACallThatRaisesAgainIsNotCapturedAgain) {
  define(
      "def f(x, n):\n"
      "  if n == 3: raise ValueError(n)\n"
      "  return x * 2.0\n");
  call("(x, 3)");
  int attempts = compiler_.attempts;
  for (int i = 0; i < 5; ++i) call("(x, 3)");
  EXPECT_EQ(compiler_.attempts, attempts);
  call("(x, 4)");
  EXPECT_EQ(compiler_.attempts, attempts + 1);
}

// What raised once may not raise again: the guards say when.
TEST_F(RecompileLimitTest, AChangeEndsWhatIsKnownToRaise) {
  struct Row {
    const char* function;
    const char* change;
  };
  constexpr Row kRows[] = {
      {"def f(x, n):\n  if flag: raise ValueError(n)\n  return x * 2.0\n",
       "flag = False"},
      {"def g():\n  raise KeyError\n"
       "def f(x, n):\n  g()\n  return x * 2.0\n",
       "def g(): pass"},
      {"class T:\n  def m(self):\n    raise KeyError\n"
       "t = T()\n"
       "def f(x, n):\n  t.m()\n  return x * 2.0\n",
       "T.m = lambda self: None"},
      {"items = []\n"
       "def f(x, n):\n  return x * items[0]\n",
       "items.append(2.0)"},
      {"def f(x, n):\n"
       "  if fake.is_grad_enabled(): raise KeyError\n"
       "  return x * 2.0\n",
       "fake.set_grad_enabled(False)"},
  };
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.change);
    define(std::string("flag = True\n") + row.function);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(call("(x, 1)").find("tensor"), std::string::npos);
    }
    Ref done = Ref::steal(PyRun_String(row.change, Py_file_input,
                                       globals_.get(), globals_.get()));
    ASSERT_TRUE(done) << take_error();
    EXPECT_NE(call("(x, 1)").find("tensor"), std::string::npos);
    int attempts = compiler_.attempts;
    call("(x, 1)");
    EXPECT_EQ(compiler_.attempts, attempts) << "no entry was made";
    Ref reset =
        Ref::steal(PyRun_String("fake.set_grad_enabled(True)", Py_file_input,
                                globals_.get(), globals_.get()));
  }
}

TEST_F(RecompileLimitTest, WhatIsKnownToRaiseKeepsNothingAlive) {
  define(
      "import weakref\n"
      "def f(x, g):\n"
      "  g()\n"
      "  return x * 2.0\n"
      "def raising():\n"
      "  def g():\n    raise KeyError\n"
      "  return g\n"
      "class T:\n"
      "  def __call__(self):\n    raise KeyError\n");
  Ref done =
      Ref::steal(PyRun_String("g = raising()\nw = weakref.ref(g)\n",
                              Py_file_input, globals_.get(), globals_.get()));
  ASSERT_TRUE(done) << take_error();
  call("(x, g)");
  done = Ref::steal(
      PyRun_String("del g", Py_file_input, globals_.get(), globals_.get()));
  Ref alive = evaluate_text(globals_.get(), "w() is not None");
  EXPECT_EQ(alive.get(), Py_False);
  // Another function may lie at its address now.
  for (int i = 0; i < 3; ++i) {
    EXPECT_NE(call("(x, lambda: None)").find("tensor"), std::string::npos);
  }
}

TEST_F(RecompileLimitTest, CallsUnderAModeDoNotCount) {
  define("def f(x, n):\n  return x * 2.0\n");
  Ref mode = evaluate_text(
      globals_.get(),
      "type('Mode', (), {'__fake_function__':"
      " lambda self, function, types, args, kwargs: function(*args)})()");
  PyDict_SetItemString(globals_.get(), "mode", mode.get());
  evaluate_text(globals_.get(), "fake.push_mode(mode)");
  for (int i = 0; i < 3 * int(limit()); ++i) call("(x, 1)");
  EXPECT_EQ(compiler_.captures, 0);
  evaluate_text(globals_.get(), "fake.pop_mode()");
  call("(x, 1)");
  EXPECT_EQ(compiler_.captures, 1);
}

TEST_F(RecompileLimitTest, CallsThatReturnDoCount) {
  // An entry for each string.
  define("def f(x, s):\n  return x * 2.0, s + '.'\n");
  for (int i = 0; i < 3 * int(limit()); ++i) call("(x, str(i))", i);
  EXPECT_EQ(compiler_.captures, int(limit()));
  // No entry at all, but an answer.
  define("def f(s):\n  fake.mystery(1)\n  return s + '.'\n");
  compiler_.attempts = 0;
  for (int i = 0; i < 3 * int(limit()); ++i) call("(str(i),)", i);
  // One of f itself, which does not read the string, and those of its rest.
  EXPECT_EQ(compiler_.attempts, 1 + int(limit()));
}

TEST_F(RecompileLimitTest, CallsThatRaiseAreFewEntries) {
  // Each raises behind a graph of its own; some of them come back.
  define("def f(x, y):\n  return x * 2.0 + y\n");
  constexpr int kCalls = 14;  // before few are captured
  for (int i = 0; i < kCalls; ++i) call("(x, str(i))", i);
  int captures = compiler_.captures;
  call("(x, str(i))", kCalls - 1);
  EXPECT_EQ(compiler_.captures, captures) << "the last ones are kept";
  call("(x, str(i))", 0);
  EXPECT_EQ(compiler_.captures, captures + 1) << "the first ones are not";
}

TEST_F(RecompileLimitTest, AMixtureOfAllIsStillCompiled) {
  define(
      "def f(x, n):\n"
      "  if n % 2: raise ValueError(n)\n"
      "  return x * 2.0\n");
  for (int i = 0; i < 4 * int(limit()); ++i) call("(x, i)", i);
  int attempts = compiler_.attempts;
  for (int i = 0; i < 4; ++i) call("(x, i)", i);
  EXPECT_LE(compiler_.attempts, attempts + 4);
}

}  // namespace
}  // namespace framejit::bytecode::testing
