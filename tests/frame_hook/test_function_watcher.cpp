// The function watcher (CPython 3.12+): programs give what they give without
// it, calls with tensors are dispatched however they are made, and functions
// without get CPython's own slot back. In place of tensors: floats.
#include "frame_hook/function_watcher.h"

#include <sys/wait.h>
#include <unistd.h>

#include <map>

#include "frame_hook/cpython_internals.h"
#include "frame_hook/script_mode.h"
#include "tests/frame_hook/support.h"

#if FJ_FUNCTION_WATCHERS

namespace framejit::testing {
namespace {

std::string text_of(PyObject* object, const char* attribute) {
  Ref text = Ref::steal(PyObject_GetAttrString(object, attribute));
  return text && PyUnicode_Check(text.get()) ? PyUnicode_AsUTF8(text.get())
                                             : take_error();
}

// Functions of the test's own source (its file name is "<string>").
CodeVerdict users_only(PyObject* function, PyObject* code) {
  if (text_of(code, "co_filename") != "<string>") return CodeVerdict::kSkip;
  std::string name = text_of(code, "co_name");
  if (name.starts_with("skip")) return CodeVerdict::kSkip;
  return name.starts_with("__init__") ? CodeVerdict::kCallee
                                      : CodeVerdict::kTensors;
}

bool holds_float(PyObject* const* slots, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (!slots[i]) continue;
    if (PyFloat_Check(slots[i])) return true;
    if (PyTuple_Check(slots[i]) && holds_float(&PyTuple_GET_ITEM(slots[i], 0),
                                               PyTuple_GET_SIZE(slots[i]))) {
      return true;
    }
  }
  return false;
}

int slots_of(PyObject* function) {
  return internals::parameter_slots(reinterpret_cast<PyCodeObject*>(
      reinterpret_cast<PyFunctionObject*>(function)->func_code));
}

int gather_all(PyObject* const* args, PyObject* function, PyObject** objects,
               int64_t*) {
  for (int i = 0, n = slots_of(function); i < n; ++i) objects[i] = args[i];
  return 1;
}

// The function with code that takes every slot by position.
Ref shadow_of(PyObject* function) {
  auto* original = reinterpret_cast<PyFunctionObject*>(function);
  auto* code = reinterpret_cast<PyCodeObject*>(original->func_code);
  Ref replace =
      Ref::steal(PyObject_GetAttrString(original->func_code, "replace"));
  Ref none = Ref::steal(PyTuple_New(0));
  Ref changes = Ref::steal(
      Py_BuildValue("{s:i,s:i,s:i,s:i}", "co_argcount", slots_of(function),
                    "co_posonlyargcount", 0, "co_kwonlyargcount", 0, "co_flags",
                    code->co_flags & ~(CO_VARARGS | CO_VARKEYWORDS)));
  Ref made =
      Ref::steal(PyObject_Call(replace.get(), none.get(), changes.get()));
  if (!made || !mark_code(made.get(), CodeKind::kResidual)) return {};
  Ref result = Ref::steal(PyFunction_NewWithQualName(
      made.get(), original->func_globals, original->func_qualname));
  if (result && original->func_closure) {
    PyFunction_SetClosure(result.get(), original->func_closure);
  }
  return result;
}

// Entries run the body as a residual function: a dispatched call gives what
// the original gives.
class FunctionWatcher : public FrameHookTest {
 protected:
  void SetUp() override {
    FrameHookTest::SetUp();
    set_should_compile(users_only);
    compiler_.on_compile = [this](const CompileRequest& request) {
      auto entry = std::make_shared<FakeEntry>();
      entry->predicates = {gather_all};
      entry->num_objects = static_cast<uint32_t>(request.num_args);
      size_t count = request.num_args;
      entry->on_finish = [this, count](PyObject* const* objects,
                                       PyObject* const*, PyObject* function) {
        ++dispatched_[text_of(function, "__name__")];
        Ref shadow = shadow_of(function);
        if (!shadow) return static_cast<PyObject*>(nullptr);
        return make_token(shadow.get(), {objects, objects + count});
      };
      CompileOutcome outcome;
      outcome.entry = entry;
      return outcome;
    };
  }
  void TearDown() override {
    stop_script_mode();
    FrameHookTest::TearDown();
  }
  void start() {
    start_script_mode(&options_, {holds_float, nullptr, nullptr});
    ASSERT_TRUE(watches_functions());
    ASSERT_EQ(hook_installs(), 0);
  }
  // No entry, and no verdict either: every call runs the original, stubbed.
  void compile_nothing() {
    compiler_.on_compile = [](const CompileRequest&) {
      return CompileOutcome{};
    };
  }
  int total() const {
    int sum = 0;
    for (const auto& [name, count] : dispatched_) sum += count;
    return sum;
  }
  bool watched(Namespace& ns, const std::string& expression) {
    Ref function = ns.eval(expression);
    return function && is_watched_function(function.get());
  }
  std::map<std::string, int> dispatched_;
};

// ---- programs

// `setup` defines functions, `run` leaves `result`; {x} stands for a number.
struct Program {
  const char* name;
  const char* setup;
  const char* run;
  int dispatched;  // calls, with floats, that the watcher or an extent answers
};

const Program kPrograms[] = {
    {"functions",
     "def f(a, b=2): return a + b\n"
     "def g(a): return f(a) * f(b=a, a=3)\n",
     "result = [g({x}), f({x}), f({x}, {x}), f(b=1, a={x})]", 6},
    {"signatures",
     "def f(a, /, b, *rest, c=3, **more):\n"
     "  return a, b, rest, c, sorted(more.items())\n"
     "def k(*, c): return c\n",
     "result = [f({x}, 2), f(1, 2, {x}, 4), f(1, b={x}, c=5), f({x}, 2, d=6),\n"
     "          f(1, 2, *[{x}], **dict(c=7, e=8)), k(c={x})]",
     6},
    {"methods",
     "class A:\n"
     "  def __init__(self, n): self.n = n\n"
     "  def m(self, x): return self.n + x\n"
     "  def __call__(self, x): return self.m(x)\n"
     "  def __add__(self, x): return self.n - x\n"
     "  def __getitem__(self, x): return self.n * x\n"
     "  @classmethod\n  def c(cls, x): return cls(x).n\n"
     "  @staticmethod\n  def s(x): return x\n"
     "  @property\n  def p(self): return self.n\n"
     "class B(A):\n"
     "  def m(self, x): return super().m(x) + 1\n",
     "b = B({x})\nbound = b.m\n"
     "result = [b.m({x}), bound({x}), b({x}), b + {x}, b[{x}], B.c({x}),\n"
     "          b.s({x}), b.p, A.m(b, {x}), list(map(b.m, [{x}, 2]))]",
     15},
    {"closures",
     "def make(n):\n"
     "  total = 0\n"
     "  def add(x):\n"
     "    nonlocal total\n"
     "    total += x * n\n"
     "    return total\n"
     "  return add\n"
     "adders = [make(1), make(2)]\n",
     "result = [a({x}) for a in adders * 3] + [make(i)({x}) for i in "
     "range(40)]\n"
     "result += [(lambda y, k=i: y + k)({x}) for i in range(40)]",
     86},
    {"decorators",
     "import functools\n"
     "def wrap(f):\n"
     "  @functools.wraps(f)\n"
     "  def wrapper(*args, **kw): return [f(*args, **kw)]\n"
     "  return wrapper\n"
     "@wrap\n"
     "def f(x, y=1): return x + y\n"
     "@functools.lru_cache\n"
     "def cached(x): return x\n"
     "part = functools.partial(f, y=5)\n",
     "result = [f({x}), f({x}, y=3), part({x}), cached({x}), cached({x}),\n"
     "          sorted([3, {x}], key=lambda v: -v), f.__name__]",
     8},
    {"generators",
     "def g(x):\n  for i in range(3): yield h(x + i)\n"
     "def h(x): return x\n"
     "async def c(x): return h(x)\n",
     "co = c({x})\n"
     "try: co.send(None)\n"
     "except StopIteration as stop: done = stop.value\n"
     "result = [list(g({x})), done, [h(v) for v in [{x}]],\n"
     "          sum(h(v) for v in [{x}])]",
     6},
    {"errors",
     "def f(x, y): return 1 // (y - y) if x else x\n"
     "class S(str): pass\n"
     "def attempt(*args, **kw):\n"
     "  try: return f(*args, **kw)\n"
     "  except Exception as e:\n"
     "    frames = []\n"
     "    tb = e.__traceback__\n"
     "    while tb:\n"
     "      frames.append((tb.tb_frame.f_code.co_name, tb.tb_lineno))\n"
     "      tb = tb.tb_next\n"
     "    return type(e).__name__, str(e), frames\n",
     "result = [attempt({x}), attempt({x}, 2), attempt({x}, 2, 3),\n"
     "          attempt({x}, z=3), attempt({x}, x={x}),\n"
     "          attempt({x}, **{S('y'): 1})]",
     6},
    {"code swapped",
     "def f(x): return x\n"
     "def g(x): return x + 1\n"
     "def gen(x): yield x\n",
     "result = []\n"
     "for i in range(40): result.append(f(i))\n"
     "f.__code__ = g.__code__\n"
     "result.append(f({x}))\n"
     "f.__code__ = gen.__code__\n"
     "result.append(list(f({x})))\n"
     "f.__code__, f.__defaults__ = g.__code__, (7,)\n"
     "result += [f({x}), f()]",
     2},
    {"threads",
     "import threading\n"
     "def f(x): return x + 1\n",
     "result = []\n"
     "def run():\n  for i in range(50): result.append(f({x}))\n"
     "ts = [threading.Thread(target=run) for i in range(3)]\n"
     "for t in ts: t.start()\n"
     "for t in ts: t.join()\n",
     150},
    {"tracers",
     "import sys\n"
     "def f(x): return h(x)\n"
     "def h(x): return x\n",
     "result = []\n"
     "def tracer(frame, event, arg):\n"
     "  if frame.f_code.co_name in 'fh':\n"
     "    result.append((frame.f_code.co_name, event, frame.f_lineno))\n"
     "  return tracer\n"
     "sys.settrace(tracer)\nf({x})\nsys.settrace(None)\n"
     "sys.setprofile(lambda *a: tracer(*a) and None)\nf({x})\n"
     "sys.setprofile(None)\n"
     "result.append(f({x}))",
     2},
    {"lifetimes",
     "import weakref, sys\n"
     "class T:\n  pass\n"
     "def f(x, *rest, t=None): return sys.getrefcount(t)\n"
     "def local(x):\n"
     "  t = T()\n  w = weakref.ref(t)\n  del t\n  return w() is None\n",
     "t = T()\n"
     "result = [local({x}), len(str(f({x}, 1, t=t)))]\n"
     "def dies(x): return x\n"
     "w = weakref.ref(dies)\n"
     "result += [dies({x})]\n"
     "del dies\n"
     "result += [w() is None]",
     3},
};

class ProgramTest : public FunctionWatcher,
                    public ::testing::WithParamInterface<Program> {
 protected:
  // The result, with the mode started before or after the definitions.
  std::string result_of(const char* number, int when) {
    auto fill = [&](std::string source) {
      for (size_t at; (at = source.find("{x}")) != std::string::npos;) {
        source.replace(at, 3, number);
      }
      return source;
    };
    Namespace ns;
    if (when == 1) start();
    ns.run(fill(GetParam().setup));
    if (when == 2) start();
    ns.run(fill(GetParam().run));
    std::string text = ns.repr("result");
    stop_script_mode();
    return text;
  }
};

TEST_P(ProgramTest, GivesWhatCPythonGives) {
  for (const char* number : {"2", "2.5"}) {
    std::string plain = result_of(number, 0);
    ASSERT_NE(plain.substr(0, 5), "NameE") << plain;
    for (int when : {1, 2}) {
      dispatched_.clear();
      EXPECT_EQ(result_of(number, when), plain) << number << " " << when;
      int expected = number[1] ? GetParam().dispatched : 0;
      EXPECT_EQ(total(), expected) << number << " " << when;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Programs, ProgramTest, ::testing::ValuesIn(kPrograms),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           for (char& c : name) c = c == ' ' ? '_' : c;
                           return name;
                         });

// The same without entries: originals run, from stubs that stay.
TEST_P(ProgramTest, OriginalsGiveWhatCPythonGives) {
  compile_nothing();
  for (const char* number : {"2", "2.5"}) {
    std::string plain = result_of(number, 0);
    for (int when : {1, 2}) {
      EXPECT_EQ(result_of(number, when), plain) << number << " " << when;
    }
  }
}

// ---- stubs

TEST_F(FunctionWatcher, FunctionsWithoutTensorsGetTheirSlotBack) {
  Namespace ns(
      "def f(x): return x\n"
      "def twin(x): return x\n"
      "twin.__code__ = f.__code__\n"
      "def skip(x): return x\n"
      "def gen(x): yield x\n"
      "async def co(x): pass\n"
      "class C:\n  def m(self, x): return x");
  start();
  EXPECT_TRUE(watched(ns, "f") && watched(ns, "twin") && watched(ns, "C.m"));
  EXPECT_FALSE(watched(ns, "gen") || watched(ns, "co"));
  ns.run("def new(x): return x\ndef newgen(x): yield x");
  EXPECT_TRUE(watched(ns, "new"));
  EXPECT_FALSE(watched(ns, "newgen"));
  ns.run("for i in range(15): f(i)\nskip(1)");
  EXPECT_TRUE(watched(ns, "f") && watched(ns, "twin"));
  EXPECT_FALSE(watched(ns, "skip"));
  ns.run("f(1)");
  EXPECT_FALSE(watched(ns, "f"));
  ns.run("twin(1)");
  EXPECT_FALSE(watched(ns, "twin"));
  ns.run("f(1.5), skip(1.5), twin(1.5)");
  EXPECT_EQ(total(), 0);
  // framejit.reset() has them looked at again.
  clear_all_caches();
  EXPECT_TRUE(watched(ns, "f") && watched(ns, "skip") && watched(ns, "C.m"));
  ns.run("f(1.5)");
  EXPECT_EQ(total(), 1);
  stop_script_mode();
  EXPECT_FALSE(watched(ns, "f") || watched(ns, "C.m") || watched(ns, "new"));
  ns.run("f(1.5)");
  EXPECT_EQ(total(), 1);
  start();
  EXPECT_TRUE(watched(ns, "f") && watched(ns, "C.m") && watched(ns, "new"));
  ns.run("f(1.5)");
  EXPECT_EQ(total(), 2);
}

TEST_F(FunctionWatcher, CodeTheCompilerHasNothingForIsLetGo) {
  never_compile();
  Namespace ns("def f(x): return x");
  start();
  ns.run("f(1.5)");
  EXPECT_FALSE(watched(ns, "f"));
  EXPECT_EQ(compiler_.calls, 1);
  // Other options are another matter.
  int other = 0;
  start_script_mode(&other, {holds_float, nullptr, nullptr});
  ns.run("f(1.5)");
  EXPECT_EQ(compiler_.calls, 2);
  stop_script_mode();
  forget_options(&other);
}

const char* const kOpcodes =
    "import dis\n"
    "def opcodes(f):\n"
    "  return [i.opname for i in dis.get_instructions(f, adaptive=True)]\n";

TEST_F(FunctionWatcher, CallsOfQuietFunctionsAreSpecialisedAgain) {
  Namespace ns(
      "def f(x): return x\n"
      "def caller(n):\n"
      "  for i in range(n): f(i)\n"
      "def closures(n):\n"
      "  for i in range(n):\n"
      "    def inner(x): return x + i\n"
      "    inner(i)\n");
  ns.run(kOpcodes);
  start();
  ns.run("caller(300)\nclosures(300)");
  EXPECT_TRUE(ns.truth("'CALL_PY_EXACT_ARGS' in opcodes(caller)"));
  EXPECT_TRUE(ns.truth("'CALL_PY_EXACT_ARGS' in opcodes(closures)"));
  // Specialised before the mode starts: the site lets go of the function.
  ns.run(
      "def g(x): return x\n"
      "def hot(x):\n  for i in range(300): r = g(x)\n  return r\n");
  stop_script_mode();
  ns.run("hot(1)");
  EXPECT_TRUE(ns.truth("'CALL_PY_EXACT_ARGS' in opcodes(hot)"));
  start();
  EXPECT_EQ(ns.repr("hot(1.5)"), "1.5");
  EXPECT_EQ(dispatched_["g"] + dispatched_["hot"], 301);
}

// Functions of one code share a version: a call site specialised for one must
// not take the next past its stub.
TEST_F(FunctionWatcher, FunctionsMadeAnewAreSeenAtHotCallSites) {
  Namespace ns(
      "def skip_loop(xs):\n"
      "  total = 0\n"
      "  for x in xs:\n"
      "    def inner(y): return y + x\n"
      "    total += inner(x)\n"
      "  return total\n"
      "def skip_many(fs, x):\n"
      "  for f in fs: f(x)\n"
      "fs = []\n"
      "for i in range(100):\n"
      "  def g(x): return x\n"
      "  fs.append(g)");
  std::string plain = ns.repr("skip_loop([1.5] * 500)");
  start();
  EXPECT_EQ(ns.repr("skip_loop([1.5] * 500)"), plain);
  EXPECT_EQ(dispatched_["inner"], 500);
  ns.run("skip_many(fs, 1.5)\nskip_many(fs, 1.5)");
  EXPECT_EQ(dispatched_["g"], 200);
}

// Every way in which the interpreter enters a function without looking at its
// slot, at call sites that were specialised before.
TEST_F(FunctionWatcher, SpecialisedCallSitesComeToTheStub) {
  Namespace ns(
      "class F(float):\n"
      "  def m(self): return 1\n"
      "  @property\n  def p(self): return 2\n"
      "  def __getitem__(self, i): return 3\n"
      "  def __add__(self, other): return 4\n"
      "class G(float):\n"
      "  def __getattribute__(self, name): return 5\n"
      "def plain(x): return 6\n"
      "def default(x, y=1): return 7\n"
      "def star(*xs): return 8\n"
      "def skip_hot(x, g, n):\n"
      "  for i in range(n):\n"
      "    r = [x.m(), x.p, x[0], x + 0, g.any, plain(x), default(x),\n"
      "         default(y=2, x=x), star(*[x])]\n"
      "  return r");
  std::string hot = ns.repr("skip_hot(F(1.5), G(1.5), 300)");
  start();
  EXPECT_EQ(ns.repr("skip_hot(F(1.5), G(1.5), 100)"), hot);
  std::map<std::string, int> expected = {{"m", 100},
                                         {"p", 100},
                                         {"__getitem__", 100},
                                         {"__add__", 100},
                                         {"__getattribute__", 100},
                                         {"plain", 100},
                                         {"default", 200},
                                         {"star", 100}};
  EXPECT_EQ(dispatched_, expected);
}

TEST_F(FunctionWatcher, FrozenAndYoungFunctionsAreFound) {
  Namespace ns(
      "import gc\n"
      "def f(x): return x\n"
      "gc.collect()\ngc.freeze()\n"
      "def g(x): return x\n");
  start();
  ns.run("f(1.5), g(1.5)\ngc.unfreeze()");
  EXPECT_EQ(total(), 2);
}

TEST_F(FunctionWatcher, CodesThatDieLeaveNoVersionsBehind) {
  Namespace ns;
  start();
  ns.run(
      "def turn(i, x):\n"
      "  names = {}\n"
      "  exec(f'def f(x):\\n return x + {i}\\n'\n"
      "       'def caller(x):\\n for i in range(4): r = f(x)\\n return r',\n"
      "       names)\n"
      "  return [names['caller'](x) for k in range(5)][-1]\n"
      "total = sum(turn(i, i % 2 and 1 or 0.5) for i in range(3000))");
  EXPECT_GT(dispatched_["f"], 0);
  EXPECT_EQ(ns.repr("total"), "4500750.0");
}

// ---- beside others

int foreign_calls = 0;
vectorcallfunc beneath_foreign = nullptr;
PyObject* foreign(PyObject* function, PyObject* const* args, size_t nargsf,
                  PyObject* kwnames) {
  ++foreign_calls;
  return beneath_foreign(function, args, nargsf, kwnames);
}

TEST_F(FunctionWatcher, OthersKeepTheirSlots) {
  Namespace ns("def f(x): return x\ndef g(x): return x");
  Ref f = ns.get("f");
  Ref g = ns.get("g");
  auto* first = reinterpret_cast<PyFunctionObject*>(f.get());
  auto* second = reinterpret_cast<PyFunctionObject*>(g.get());
  foreign_calls = 0;
  vectorcallfunc own = beneath_foreign = first->vectorcall;
  PyFunction_SetVectorcall(first, foreign);
  start();
  ns.run("f(1.5)");
  EXPECT_EQ(foreign_calls, 1);
  EXPECT_EQ(total(), 0);
  // On top of our stub, which it calls.
  beneath_foreign = second->vectorcall;
  PyFunction_SetVectorcall(second, foreign);
  ns.run("g(1.5)");
  EXPECT_EQ(dispatched_["g"], 1);
  ns.run("for i in range(40): g(i)");
  EXPECT_EQ(second->vectorcall, foreign);
  stop_script_mode();
  EXPECT_EQ(first->vectorcall, foreign);
  EXPECT_EQ(second->vectorcall, foreign);
  EXPECT_EQ(ns.repr("g(1.5)"), "1.5");  // through a stub that only passes on
  EXPECT_EQ(total(), 1);
  PyFunction_SetVectorcall(first, own);
  PyFunction_SetVectorcall(second, own);
}

TEST_F(FunctionWatcher, WithoutAFreeWatcherTheHookIsUsed) {
  std::vector<int> taken;
  auto nothing = [](PyFunction_WatchEvent, PyFunctionObject*, PyObject*) {
    return 0;
  };
  for (int id; (id = PyFunction_AddWatcher(nothing)) >= 0;) taken.push_back(id);
  PyErr_Clear();
  Namespace ns("def f(x): return x");
  start_script_mode(&options_, {holds_float, nullptr, nullptr});
  EXPECT_FALSE(watches_functions());
  EXPECT_EQ(hook_installs(), 1);
  ns.run("f(1.5)");
  EXPECT_EQ(total(), 1);
  stop_script_mode();
  for (int id : taken) PyFunction_ClearWatcher(id);
  start();
  ns.run("f(1.5)");
  EXPECT_EQ(total(), 2);
}

TEST_F(FunctionWatcher, BeneathAResidualFunctionTheHookDispatchesOnce) {
  Namespace ns(
      "log = []\n"
      "def leaf(x):\n  log.append(x)\n  return x\n"
      "def f(x): return leaf(x) + leaf(1)");
  start();
  EXPECT_EQ(ns.repr("f(1.5)"), "2.5");
  EXPECT_EQ(ns.repr("log"), "[1.5, 1]");
  EXPECT_EQ(dispatched_["f"], 1);
  EXPECT_EQ(dispatched_["leaf"], 2);
  EXPECT_EQ(hook_installs(), 0);
}

TEST_F(FunctionWatcher, StoppedWhileACallIsAnswered) {
  Namespace ns("def f(x):\n  stop()\n  return x");
  PyMethodDef definition = {"stop",
                            [](PyObject*, PyObject*) -> PyObject* {
                              stop_script_mode();
                              Py_RETURN_NONE;
                            },
                            METH_NOARGS, nullptr};
  Ref stop = Ref::steal(PyCFunction_New(&definition, nullptr));
  ns.set("stop", stop.get());
  start();
  EXPECT_EQ(ns.repr("f(1.5), f(1.5)"), "(1.5, 1.5)");
  EXPECT_EQ(total(), 1);
  compile_nothing();
  clear_all_caches();
  start();
  EXPECT_EQ(ns.repr("f(1.5)"), "1.5");
  ns.set("stop", Py_None);
}

TEST_F(FunctionWatcher, ForkedChildrenGoOn) {
  Namespace ns("def f(x): return x");
  start();
  ns.run("f(1.5)");
  Ref child = ns.eval("__import__('os').fork()");
  if (PyLong_AsLong(child.get()) == 0) {
    ns.run("def g(x): return x\nf(1.5), g(1.5)");
    stop_script_mode();
    _exit(total() == 3 && !watched(ns, "f") ? 0 : 1);
  }
  int status = 1;
  waitpid(static_cast<pid_t>(PyLong_AsLong(child.get())), &status, 0);
  EXPECT_EQ(status, 0);
  ns.run("f(1.5)");
  EXPECT_EQ(total(), 2);
}

TEST_F(FunctionWatcher, MonitoredThreadsRunTheOriginal) {
  Namespace ns(
      "import sys\n"
      "m = sys.monitoring\n"
      "def f(x): return x\n"
      "starts = []\n"
      "m.use_tool_id(3, 'test')\n"
      "m.register_callback(3, m.events.PY_START,\n"
      "                    lambda code, at: starts.append(code.co_name))");
  start();
  ns.run("m.set_events(3, m.events.PY_START)\nf(1.5)\nm.set_events(3, 0)");
  EXPECT_EQ(total(), 0);
  EXPECT_EQ(ns.repr("starts.count('f')"), "1");
  // Only f itself knows of events that are set for its code.
  ns.run(
      "m.set_local_events(3, f.__code__, m.events.PY_START)\nf(1.5)\n"
      "m.set_local_events(3, f.__code__, 0)");
  EXPECT_EQ(total(), 0);
  EXPECT_EQ(ns.repr("starts.count('f')"), "2");
  ns.run("m.free_tool_id(3)\nf(1.5)");
  EXPECT_EQ(total(), 1);
}

// ---- recursion

TEST_F(FunctionWatcher, StubsThatStayCostNoRecursionDepth) {
  compile_nothing();
  Namespace ns(
      "import sys\n"
      "def depth(n, x):\n"
      "  try: return depth(n + 1, x)\n"
      "  except RecursionError: return n\n"
      "def down(n, x): return 0 if n == 0 else 1 + down(n - 1, x)\n"
      "def ping(n, x): return 0 if n == 0 else 1 + pong(n - 1, x)\n"
      "def pong(n, x): return 0 if n == 0 else 1 + ping(n - 1, x)\n"
      "def through_c(n, x):\n"
      "  try: return next(map(through_c, [n + 1], [x]))\n"
      "  except RecursionError: return n\n");
  Ref plain = ns.eval("depth(0, 1.5)");
  start();
  Ref stubbed = ns.eval("depth(0, 1.5)");
  EXPECT_TRUE(watched(ns, "depth"));
  EXPECT_NEAR(PyLong_AsLong(stubbed.get()), PyLong_AsLong(plain.get()), 2);
  // More than the native stack holds in stubs.
  ns.run("sys.setrecursionlimit(200_000)");
  EXPECT_EQ(ns.repr("down(150_000, 1.5)"), "150000");
  EXPECT_EQ(ns.repr("ping(150_000, 1.5)"), "150000");
  EXPECT_TRUE(watched(ns, "down") && watched(ns, "ping"));
  // Calls that nest on it whatever we do end as in CPython: no crash.
  EXPECT_TRUE(ns.truth("through_c(0, 1.5) > 300"));
  ns.run("sys.setrecursionlimit(1000)");
  EXPECT_EQ(ns.repr("down(900, 1.5)"), "900");
}

TEST_F(FunctionWatcher, AnsweredCallsNestAsDeep) {
  Namespace ns(
      "def down(n, x): return 0 if n == 0 else 1 + down(n - 1, x)\n"
      "def forever(x): return forever(x)");
  start();
  EXPECT_EQ(ns.repr("down(900, 1.5)"), "900");
  EXPECT_EQ(dispatched_["down"], 901);
  EXPECT_EQ(ns.repr("forever(1.5)").substr(0, 14), "RecursionError");
}

TEST_F(FunctionWatcher, SmallStacksAreEnough) {
  compile_nothing();
  Namespace ns(
      "import sys, threading\n"
      "def down(n, x): return 0 if n == 0 else 1 + down(n - 1, x)\n"
      "result = []\n"
      "def run(): result.append(down(3000, 1.5))\n"
      "sys.setrecursionlimit(4000)\n"
      "threading.stack_size(256 * 1024)");
  start();
  ns.run(
      "t = threading.Thread(target=run)\nt.start()\nt.join()\n"
      "threading.stack_size(0)\nsys.setrecursionlimit(1000)");
  EXPECT_EQ(ns.repr("result"), "[3000]");
}

}  // namespace
}  // namespace framejit::testing

#endif
