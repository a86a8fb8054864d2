// Guards of the object model: after a capture one fact is changed. Guards must
// fail when the program would notice, and hold when it would not.
#include "tests/bytecode/capture/capture_support.h"

namespace framejit::bytecode::testing {
namespace {

// Captures f(*args) of the source, runs `change` in its globals (which can see
// `args`), and asks the guards again.
bool holds_after(const std::string& source, const std::string& arguments,
                 const std::string& change) {
  Ref globals = make_globals(source);
  Ref args = evaluate_text(globals.get(), arguments);
  if (!args) {
    ADD_FAILURE() << take_error();
    return false;
  }
  PyDict_SetItemString(globals.get(), "args", args.get());
  Ref function = Ref::borrow(PyDict_GetItemString(globals.get(), "f"));
  std::vector<PyObject*> slots;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args.get()); ++i) {
    slots.push_back(PyTuple_GET_ITEM(args.get(), i));
  }
  fake::FakeTracer tracer;
  CaptureRequest request{function.get(), slots.data(), slots.size()};
  Result<CaptureOutcome> outcome = capture(request, tracer);
  if (!outcome.ok()) {
    ADD_FAILURE() << (outcome.broke() ? format_break(outcome.brk())
                                      : take_error())
                  << source;
    return false;
  }
  GuardSet& guards = *outcome.value().guards;
  std::vector<PyObject*> objects(guards.gathered().size() + 1);
  std::vector<int64_t> symbols(guards.symbols().size() + 1);
  EXPECT_TRUE(evaluate(guards, slots.data(), function.get(), objects.data(),
                       symbols.data()))
      << "right after the capture: " << source;
  Ref done = Ref::steal(PyRun_String(change.c_str(), Py_file_input,
                                     globals.get(), globals.get()));
  EXPECT_TRUE(done) << take_error() << change;
  return evaluate(guards, slots.data(), function.get(), objects.data(),
                  symbols.data());
}

struct Case {
  const char* source;
  const char* arguments;
  std::vector<const char*> noticed;
  std::vector<const char*> unnoticed;
};

void check_cases(const std::string& prelude, const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    for (const char* change : one.noticed) {
      EXPECT_FALSE(holds_after(prelude + one.source, one.arguments, change))
          << one.source << "not noticed: " << change;
    }
    for (const char* change : one.unnoticed) {
      EXPECT_TRUE(holds_after(prelude + one.source, one.arguments, change))
          << one.source << "noticed: " << change;
    }
  }
}

TEST(ObjectModelGuardTest, Attributes) {
  check_cases(
      "class B:\n  base = 1\nclass C(B):\n  k = 2.0\n"
      "  def __init__(self): self.n = 3; self.other = 4\n"
      "  def m(self, x): return x * self.n\n"
      "  @property\n  def p(self): return self.n\n"
      "class H(B):\n  def __getattr__(self, name): return 5\n"
      "class S:\n  __slots__ = ('a', 'b')\n"
      "  def __init__(self): self.a = 1; self.b = 2\n",
      {{"def f(o, x): return x * o.n\n",
        "(C(), fake.tensor([1], [1.]))",
        {"args[0].n = 4", "args[0].n = 3.0", "C.n = property(lambda s: 9)",
         "args[0].__class__ = B", "C.__getattribute__ = lambda s, n: 1"},
        {"args[0].other = 9", "args[0].fresh = 1", "C.q = 1", "C.k = 3"}},
       {"def f(o, x): return o.m(x)\n",
        "(C(), fake.tensor([1], [1.]))",
        {"C.m = lambda s, x: x", "args[0].m = lambda x: x",
         "C.m.__code__ = (lambda s, x: x).__code__", "args[0].n = 9"},
        {"args[0].other = 9", "B.m = 3"}},
       {"def f(o, x): return x * o.k + o.base\n",
        "(C(), fake.tensor([1], [1.]))",
        {"C.k = 3.0", "B.base = 2", "C.base = 5", "args[0].k = 2.0"},
        {"B.k = 7", "args[0].n = 0"}},
       {"def f(o, x): return x * o.p\n",
        "(C(), fake.tensor([1], [1.]))",
        {"C.p = property(lambda s: 1)", "args[0].n = 4"},
        {"args[0].__dict__['p'] = 1"}},
       {"def f(o, x): return x * o.missing\n",
        "(H(), fake.tensor([1], [1.]))",
        {"args[0].missing = 1", "H.missing = 1", "B.missing = 1",
         "H.__getattr__ = lambda s, n: 6", "del H.__getattr__"},
        {"args[0].others = 1"}},
       {"def f(o, x): return hasattr(o, 'zz'), x\n",
        "(C(), fake.tensor([1], [1.]))",
        {"args[0].zz = 1", "B.zz = 1", "C.__getattr__ = lambda s, n: 6"},
        {"args[0].yy = 1"}},
       {"def f(o, x): return x * o.a\n",
        "(S(), fake.tensor([1], [1.]))",
        {"args[0].a = 2", "del args[0].a", "S.a = 1"},
        {"args[0].b = 5"}}});
}

TEST(ObjectModelGuardTest, Super) {
  check_cases(
      "class A:\n  def g(self): return 1\nclass B(A):\n  pass\n"
      "class C(B):\n  def g(self): return super().g() + 1\n",
      {{"def f(o, x): return x * o.g()\n",
        "(C(), fake.tensor([1], [1.]))",
        {"A.g = lambda s: 5", "B.g = lambda s: 5", "C.g = lambda s: 5"},
        {"A.h = 1", "B.q = 2"}}});
}

TEST(ObjectModelGuardTest, Containers) {
  const char* args =
      "({'a': 1, 'b': 2.0, 'c': [1, 2, 3]}, fake.tensor([1], [1.]))";
  check_cases("",
              {{"def f(d, x): return x * d['a']\n",
                args,
                {"args[0]['a'] = 2", "del args[0]['a']", "args[0]['a'] = True"},
                {"args[0]['b'] = 3", "args[0]['new'] = 1", "del args[0]['b']"}},
               {"def f(d, x): return x, d.get('z'), 'a' in d\n",
                args,
                {"args[0]['z'] = 1", "del args[0]['a']"},
                {"args[0]['a'] = 9", "args[0]['b'] = 9"}},
               {"def f(d, x): return x, [k for k in d]\n",
                args,
                {"args[0]['z'] = 1", "del args[0]['a']",
                 "v = args[0].pop('a'); args[0]['a'] = v"},
                {"args[0]['a'] = 9"}},
               {"def f(d, x): return x * len(d)\n",
                args,
                {"args[0]['z'] = 1"},
                {"args[0]['a'] = 5"}},
               {"def f(d, x): return x * d['c'][1]\n",
                args,
                {"args[0]['c'][1] = 9", "del args[0]['c'][:2]",
                 "args[0]['c'] = (1, 2)"},
                {"args[0]['c'][0] = 9", "args[0]['c'].append(1)"}},
               {"def f(d, x): return x * d['c'][-1]\n",
                args,
                {"args[0]['c'].append(3)", "args[0]['c'][2] = 0"},
                {"args[0]['c'][0] = 9"}},
               {"def f(d, x):\n  for v in d['c']: x = x + v\n  return x\n",
                args,
                {"args[0]['c'].append(3)", "args[0]['c'][0] = 0"},
                {"args[0]['a'] = 9"}},
               {"def f(d, x): return x * (1 if d['c'] else 2)\n",
                args,
                {"args[0]['c'].clear()"},
                {"args[0]['c'][0] = 9"}},
               {"def f(d, x):\n  d['c'].append(x)\n  return x\n",
                args,
                {"args[0]['c'] = ()"},
                {"args[0]['c'].append(3)", "args[0]['c'].clear()",
                 "args[0]['c'] = []"}},
               {"def f(s, x): return x * (1 if 2 in s else 3)\n",
                "({1, 2}, fake.tensor([1], [1.]))",
                {"args[0].discard(2)"},
                {}}});
}

TEST(ObjectModelGuardTest, IdentityAndAliases) {
  check_cases(
      "class C: pass\na = C(); a.n = 1\nb = C(); b.n = 1\nbox = [a]\n"
      "def g(x): return x\n",
      {{"def f(x): return x * a.n + box[0].n\n",
        "(fake.tensor([1], [1.]),)",
        {"box[0] = b"},
        {"a.other = 1"}},
       {"def f(x): return x, a is b\n",
        "(fake.tensor([1], [1.]),)",
        {"a = b"},
        {"a.other = 1"}},
       {"def f(x):\n  a.n = 5\n  return x * b.n\n",
        "(fake.tensor([1], [1.]),)",
        {"b = a"},
        {"a.other = 1"}},
       {"def f(x): return g(x)\n",
        "(fake.tensor([1], [1.]),)",
        {"g = lambda x: x", "del g", "g.__code__ = (lambda x: x + 1).__code__"},
        {"h = 3"}},
       {"def f(x): return x, len(box)\n",
        "(fake.tensor([1], [1.]),)",
        {"len = lambda l: 3"},
        {"max = 1"}}});
}

TEST(ObjectModelGuardTest, FreshSetOfObjects) {
  check_cases(
      "class C: pass\na = C()\nb = C()\n",
      {{"def f(x):\n  seen = set()\n  seen.add(a)\n  return x, b in seen\n",
        "(fake.tensor([1], [1.]),)",
        {"b = a"},
        {"b.other = 1"}}});
}

TEST(ObjectModelGuardTest, Constants) {
  check_cases("k = 1\nn = 2.0\nt = (1, ('a', None))\nnan = float('nan')\n",
              {{"def f(x): return x * k\n",
                "(fake.tensor([1], [1.]),)",
                {"k = 2", "k = True", "k = 1.0"},
                {"k = int('1')", "n = 3"}},
               {"def f(x): return x * n\n",
                "(fake.tensor([1], [1.]),)",
                {"n = 2", "n = -2.0"},
                {"n = float('2.0')"}},
               {"def f(x): return x, t[1][0], nan\n",
                "(fake.tensor([1], [1.]),)",
                {"t = (1, ('b', None))", "t = [1]", "nan = 1.0"},
                {"t = (int('1'), ('a', None))"}}});
}

TEST(ObjectModelGuardTest, FunctionsAndDefaults) {
  check_cases(
      "def make(k):\n  def g(x, d=2, *, e=3): return x * k * d * e\n  return "
      "g\n"
      "g = make(4)\n",
      {{"def f(x): return g(x)\n",
        "(fake.tensor([1], [1.]),)",
        {"g.__defaults__ = (5,)", "g.__kwdefaults__['e'] = 1",
         "g.__closure__[0].cell_contents = 9", "g = make(4)"},
        {"g.attribute = 1", "g.__name__ = 'other'"}}});
}

}  // namespace
}  // namespace framejit::bytecode::testing
