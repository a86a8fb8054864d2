// Binding compared with CPython's own, over many signatures and calls. Every
// function returns its locals() by parameter; the compiled one returns what was
// bound through an entry that accepts any call.
#include "frame_hook/argument_binding.h"
#include "tests/frame_hook/support.h"

namespace framejit::testing {
namespace {

class Binding : public FrameHookTest {};

// Calls `compiled` and `plain` in the same ways and compares, errors included.
constexpr const char* kHarness = R"(
import itertools
def outcome(function, args, kwargs):
  try:
    return function(*args, **kwargs)
  except TypeError as error:
    return 'TypeError: ' + str(error)

def check(signature, names, calls):
  scope = {}
  exec(f'def function({signature}): return [{names}]', scope)
  plain = scope['function']
  fast = compile_function(plain)
  count = 0
  for args, kwargs in calls:
    expected = outcome(plain, args, kwargs)
    actual = outcome(fast, args, kwargs)
    assert repr(actual) == repr(expected), (signature, args, kwargs, actual, expected)
    assert type(actual) is type(expected)
    count += isinstance(expected, list)
  return count

values = [1, 'two', 3.0, None, (5,), 6, 7]
def calls():
  for n in range(6):
    yield values[:n], {}
    for k in range(1, 4):
      for keys in itertools.permutations('abcdz', k):
        yield values[:n], {key: key.upper() for key in keys}
)";

const char* const kSignatures[][2] = {
    {"", ""},
    {"a", "a"},
    {"a, b", "a, b"},
    {"a, b=2", "a, b"},
    {"a=1, b=2, c=3", "a, b, c"},
    {"a, /", "a"},
    {"a, b=2, /, c=3", "a, b, c"},
    {"a, /, b, *, c", "a, b, c"},
    {"*, a", "a"},
    {"*, a=1, b", "a, b"},
    {"*, a=1, b=2", "a, b"},
    {"*args", "args"},
    {"a, *args", "a, args"},
    {"a, b=2, *args", "a, b, args"},
    {"**kw", "kw"},
    {"a, **kw", "a, kw"},
    {"a, /, **kw", "a, kw"},
    {"a=1, /, b=2, **kw", "a, b, kw"},
    {"*args, **kw", "args, kw"},
    {"a, *args, b=2, **kw", "a, b, args, kw"},
    {"a, /, b, *args, c, d=4, **kw", "a, b, c, d, args, kw"},
    {"a, b, c, d, e, f, g, h, i, j, k, l, m, n=1",
     "a, b, c, d, e, f, g, h, i, j, k, l, m, n"},
};

class BindingHarness : public Binding {
 protected:
  void SetUp() override {
    Binding::SetUp();
    compiler_.on_compile = [](const CompileRequest& request) {
      auto entry = std::make_shared<FakeEntry>();
      entry->num_objects = request.num_args;
      size_t count = request.num_args;
      entry->on_match = [count](PyObject* const* args, PyObject** objects) {
        for (size_t i = 0; i < count; ++i) objects[i] = args[i];
        return true;
      };
      entry->on_finish = [count](PyObject* const* objects, PyObject* const*,
                                 PyObject*) {
        PyObject* list = PyList_New(count);
        for (size_t i = 0; i < count; ++i) {
          PyList_SET_ITEM(list, i, Py_NewRef(objects[i]));
        }
        return list;
      };
      CompileOutcome outcome;
      outcome.entry = entry;
      return outcome;
    };
    harness.run(kHarness);
    static FrameHookTest* current = nullptr;
    current = this;
    static PyMethodDef method = {"compile_function",
                                 [](PyObject*, PyObject* function) {
                                   return static_cast<BindingHarness*>(current)
                                       ->compiled(function)
                                       .release();
                                 },
                                 METH_O, nullptr};
    Ref maker = Ref::steal(PyCFunction_New(&method, nullptr));
    harness.set("compile_function", maker.get());
  }
  void TearDown() override {
    harness = Namespace();
    Binding::TearDown();
  }
  Namespace harness;
};

TEST_F(BindingHarness, EveryCallBindsAsCPythonDoes) {
  for (const auto& [signature, names] : kSignatures) {
    Ref count = harness.eval(std::string("check('") + signature + "', '" +
                             names + "', calls())");
    ASSERT_TRUE(count) << signature << ": " << take_error();
    if (std::string(signature).size() < 40) {
      EXPECT_GT(PyLong_AsLong(count.get()), 0) << signature;
    }
  }
}

TEST_F(BindingHarness, ManyParameters) {
  harness.run(
      "names = ', '.join('p%d' % i for i in range(40))\n"
      "sig = ', '.join('p%d=%d' % (i, i) for i in range(40))\n"
      "assert check(sig, names, [([], {}), ([1]*40, {}), ([], {'p39': 'x'}),"
      " ([1]*41, {}), ([1]*5, {'p4': 0})]) == 3");
}

TEST_F(BindingHarness, DefaultsAreReadAtEachCall) {
  harness.run(
      "def f(a, b=2, *, c=3): return [a, b, c]\n"
      "g = compile_function(f)\n"
      "assert g(1) == [1, 2, 3]\n"
      "f.__defaults__ = (7, 8)\n"
      "assert g() == f() == [7, 8, 3]\n"
      "g.__defaults__ = (5,)\n"
      "assert f(1) == g(1) == [1, 5, 3]\n"
      "f.__kwdefaults__['c'] = 9\n"
      "assert g(1) == [1, 5, 9]\n"
      "f.__kwdefaults__ = None\n"
      "assert outcome(g, [1], {}) == outcome(f, [1], {})\n"
      "f.__defaults__ = (1, 2, 3, 4, 5)\n"
      "assert g(c=1) == f(c=1) == [4, 5, 1]\n");
}

TEST_F(BindingHarness, KeywordsThatAreNotPlainStrings) {
  harness.run(
      "class S(str):\n"
      "  def __eq__(self, other): return str.__eq__(self, other)\n"
      "  __hash__ = str.__hash__\n"
      "def f(a, b=2): return [a, b]\n"
      "g = compile_function(f)\n"
      "assert outcome(g, [1], {S('b'): 5}) == outcome(f, [1], {S('b'): 5})\n"
      "assert outcome(g, [1], {3: 5}).startswith('TypeError')\n"
      "assert g(1, **{'b' * 1: 4}) == [1, 4]\n"
      "name = ''.join(['long_', 'name'])\n"
      "def h(long_name): return [long_name]\n"
      "assert compile_function(h)(**{name: 4}) == [4]\n");
}

TEST_F(BindingHarness, ReferencesAreReleased) {
  harness.run(
      "import sys\n"
      "def f(a, *args, b=None, **kw): return [a, b, args, kw]\n"
      "g = compile_function(f)\n"
      "o = object()\n"
      "before = sys.getrefcount(o)\n"
      "for i in range(1000):\n"
      "  g(o, o, o, b=o, c=o)\n"
      "  outcome(g, [], {'b': o})\n"
      "  outcome(g, [o], {'a': o})\n"
      "assert sys.getrefcount(o) == before, sys.getrefcount(o) - before\n");
}

TEST_F(BindingHarness, BindingObjectDirectly) {
  Namespace ns("def f(a, /, b, *r, c=5, **k): pass");
  Ref f = ns.get("f");
  Ref args = ns.eval("(1, 2, 3, 4)");
  Ref names = ns.eval("('x',)");
  BoundArguments bound;
  ASSERT_TRUE(bound.bind(reinterpret_cast<PyFunctionObject*>(f.get()),
                         &PyTuple_GET_ITEM(args.get(), 0), 3, names.get()));
  ASSERT_EQ(bound.size(), 5u);
  Ref slots = Ref::steal(PyTuple_New(5));
  for (int i = 0; i < 5; ++i) {
    PyTuple_SET_ITEM(slots.get(), i, Py_NewRef(bound.slots()[i]));
  }
  ns.set("slots", slots.get());
  EXPECT_EQ(ns.repr("slots"), "(1, 2, 5, (3,), {'x': 4})");
}

}  // namespace
}  // namespace framejit::testing
