// CompiledFunction as a Python object: everything a function is used for.
#include "tests/frame_hook/support.h"

namespace framejit::testing {
namespace {

class CompiledFunctionTest : public FrameHookTest {
 protected:
  void SetUp() override {
    FrameHookTest::SetUp();
    never_compile();
  }
};

TEST_F(CompiledFunctionTest, LooksLikeTheFunction) {
  Namespace ns(
      "import inspect\n"
      "def f(a: int, /, b=2, *args, c: str = 'x', **kw) -> float:\n"
      "  'documented'\n"
      "  return b\n"
      "f.mark = 'own'\n"
      "plain = f");
  compile_in(ns, "f");
  EXPECT_TRUE(ns.truth("f.__name__ == 'f' and f.__qualname__ == 'f'"));
  EXPECT_TRUE(ns.truth("f.__doc__ == 'documented'"));
  EXPECT_TRUE(ns.truth("f.__module__ == 'test_module'"));
  EXPECT_TRUE(ns.truth("f.__wrapped__ is plain"));
  EXPECT_TRUE(ns.truth("inspect.unwrap(f) is plain"));
  EXPECT_TRUE(ns.truth("inspect.signature(f) == inspect.signature(plain)"));
  EXPECT_TRUE(ns.truth("f.__annotations__ == plain.__annotations__"));
  EXPECT_TRUE(ns.truth("f.__code__ is plain.__code__"));
  EXPECT_TRUE(ns.truth("f.__globals__ is plain.__globals__"));
  EXPECT_TRUE(ns.truth("f.__defaults__ == (2,)"));
  EXPECT_TRUE(ns.truth("f.mark == 'own'"));
  EXPECT_TRUE(ns.truth("callable(f) and inspect.isroutine(f)"));
  EXPECT_TRUE(ns.truth("repr(f).startswith('<compiled function f at 0x')"));
  EXPECT_EQ(ns.repr("f.missing"),
            "AttributeError: 'function' object has no attribute 'missing'");
}

TEST_F(CompiledFunctionTest, AttributesAreItsOwn) {
  Namespace ns("def f(): pass\nplain = f");
  compile_in(ns, "f");
  ns.run("f.x = 1\nf.__name__ = 'renamed'\nf.__doc__ = 'd'");
  EXPECT_TRUE(ns.truth("f.x == 1 and not hasattr(plain, 'x')"));
  EXPECT_TRUE(ns.truth("f.__name__ == 'renamed' and plain.__name__ == 'f'"));
  ns.run("del f.__name__");
  EXPECT_TRUE(ns.truth("f.__name__ == 'f'"));
  ns.run("plain.late = 2");
  EXPECT_TRUE(ns.truth("f.late == 2"));
  ns.run("import functools\ndef g(): 'other'\nfunctools.update_wrapper(f, g)");
  EXPECT_TRUE(ns.truth("f.__name__ == 'g' and f.__wrapped__ is g"));
  EXPECT_TRUE(ns.truth("f() is None"));
}

TEST_F(CompiledFunctionTest, WorksAsMethod) {
  Namespace ns("def m(self, x=1): return (self, x)");
  compile_in(ns, "m");
  ns.run(
      "class A:\n  m = m\n  s = staticmethod(m)\n  c = classmethod(m)\n"
      "a = A()");
  EXPECT_TRUE(ns.truth("a.m() == (a, 1) and a.m(2) == (a, 2)"));
  EXPECT_TRUE(ns.truth("a.m(x=3) == (a, 3)"));
  EXPECT_TRUE(ns.truth("A.m is m and A.m(a) == (a, 1)"));
  EXPECT_TRUE(ns.truth("a.s(5) == (5, 1) and a.c() == (A, 1)"));
  EXPECT_TRUE(ns.truth("a.m.__self__ is a and a.m.__func__ is m"));
  ns.run("bound = a.m\nmethods = [bound(i)[1] for i in range(5)]");
  EXPECT_EQ(ns.repr("methods"), "[0, 1, 2, 3, 4]");
}

TEST_F(CompiledFunctionTest, PickleCopyAndWeakReference) {
  Namespace ns(
      "import pickle, copy, weakref, sys, types\n"
      "module = types.ModuleType('pickled_module')\n"
      "sys.modules['pickled_module'] = module\n"
      "exec('def f(x): return x', module.__dict__)\n"
      "f = module.f");
  compile_in(ns, "f");
  ns.run("module.f = f");
  EXPECT_TRUE(ns.truth("pickle.loads(pickle.dumps(f)) is f"));
  EXPECT_TRUE(ns.truth("copy.copy(f) is f and copy.deepcopy(f) is f"));
  ns.run("del sys.modules['pickled_module'], module.f\nr = weakref.ref(f)");
  EXPECT_TRUE(ns.truth("r() is f and hash(f) == hash(f) and f == f"));
  ns.run("del f");
  EXPECT_TRUE(ns.truth("r() is None"));
}

TEST_F(CompiledFunctionTest, CyclesAreCollected) {
  Namespace ns(
      "import gc, weakref\n"
      "class C: pass\n"
      "def make(compile_it):\n"
      "  c = C()\n"
      "  def f(): return c\n"
      "  return c, f");
  Ref make = ns.get("make");
  Ref made = Ref::steal(PyObject_CallOneArg(make.get(), Py_None));
  Ref object = Ref::borrow(PyTuple_GET_ITEM(made.get(), 0));
  Ref wrapped = compiled(PyTuple_GET_ITEM(made.get(), 1));
  ASSERT_EQ(PyObject_SetAttrString(object.get(), "f", wrapped.get()), 0);
  ASSERT_EQ(PyObject_SetAttrString(wrapped.get(), "me", wrapped.get()), 0);
  ns.set("c", object.get());
  ns.run("r = weakref.ref(c); c.f(); del c");
  made.reset();
  object.reset();
  wrapped.reset();
  EXPECT_TRUE(ns.truth("r() is not None"));
  ns.run("gc.collect()");
  EXPECT_TRUE(ns.truth("r() is None"));
}

TEST_F(CompiledFunctionTest, GeneratorsAndCoroutinesRunAsTheyAre) {
  Namespace ns(
      "def g(n):\n  for i in range(n): yield i\n"
      "async def c(): return 5\n"
      "async def ag():\n  yield 1");
  for (const char* name : {"g", "c", "ag"}) compile_in(ns, name);
  EXPECT_EQ(ns.repr("list(g(3))"), "[0, 1, 2]");
  ns.run(
      "co = c()\n"
      "try: co.send(None)\n"
      "except StopIteration as e: value = e.value\n"
      "type_name = type(ag()).__name__");
  EXPECT_EQ(ns.repr("value, type_name"), "(5, 'async_generator')");
  EXPECT_EQ(compiler_.calls, 0);
}

TEST_F(CompiledFunctionTest, OnlyFunctionsAreWrapped) {
  Ref result = Ref::steal(make_compiled_function(Py_None, &options_, nullptr));
  EXPECT_FALSE(result);
  EXPECT_EQ(take_error(),
            "TypeError: expected a Python function, got NoneType");
}

TEST_F(CompiledFunctionTest, ErrorsAndTracebacksAreTheFunctions) {
  Namespace ns(
      "import traceback\n"
      "def f(x):\n  return 1 / x");
  compile_in(ns, "f");
  ns.run(
      "try: f(0)\n"
      "except ZeroDivisionError as e:\n"
      "  names = [s.name for s in traceback.extract_tb(e.__traceback__)]");
  EXPECT_EQ(ns.repr("names"), "['<module>', 'f']");
}

TEST_F(CompiledFunctionTest, OptionsOwnerIsKept) {
  Namespace ns("class Owner: pass\ndef f(): pass\no = Owner()");
  Ref owner = ns.get("o");
  Ref f = ns.get("f");
  Py_ssize_t before = Py_REFCNT(owner.get());
  Ref wrapped =
      Ref::steal(make_compiled_function(f.get(), &options_, owner.get()));
  EXPECT_EQ(Py_REFCNT(owner.get()), before + 1);
  wrapped.reset();
  EXPECT_EQ(Py_REFCNT(owner.get()), before);
}

}  // namespace
}  // namespace framejit::testing
