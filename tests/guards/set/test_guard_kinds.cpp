// Every source kind and guard kind, against changes made by several routes:
// what must hold does, what must fail does, natively and by the reference.
#include "tests/guards/guard_harness.h"

namespace framejit {
namespace {

using S = SourceKind;
using G = GuardKind;

constexpr char kPrelude[] = R"(
import fake, collections, functools, weakref, types
class Base:
    shared = 1
class Obj(Base):
    kind = "obj"
class Other(Base):
    kind = "other"
class Slots:
    __slots__ = ("first", "second")
def make(**kw):
    o = Obj()
    for k, v in kw.items(): setattr(o, k, v)
    return o
def make_dict(**kw):     # an instance whose dict exists
    o = make(**kw)
    o.__dict__
    return o
def function(a, b=7, *, c=8):
    return a
args = (1,)
)";

// Adds guards to a set; `value` evaluates Python source.
class Build {
 public:
  Build(GuardSet& set, PythonSource& python) : set(set), python_(python) {}
  GuardSet& set;
  const Source* arg(int i = 0) { return set.sources().arg(i); }
  const Source* make(S kind, const Source* base, const char* key = nullptr,
                     int64_t index = 0) {
    Ref name = key ? Ref::steal(PyUnicode_InternFromString(key)) : nullptr;
    return set.sources().make(kind, base, name.get(), index);
  }
  void guard(G kind, const Source* source, const char* value = nullptr,
             int64_t number = 0) {
    Ref object = value ? python_.value(value) : nullptr;
    set.add(kind, source, object.get(), number);
    if (object) kept_.push_back(object);
  }
  void type_attr(const Source* type, const char* name, const char* value) {
    Guard guard;
    guard.kind = G::kTypeAttrIs;
    guard.source = type;
    guard.object = Ref::steal(PyUnicode_InternFromString(name));
    if (value) guard.object2 = python_.value(value);
    set.add(std::move(guard));
  }
  void same(G kind, const Source* a, const Source* b) {
    Guard guard;
    guard.kind = kind;
    guard.source = a;
    guard.other = b;
    set.add(std::move(guard));
  }

 private:
  PythonSource& python_;
  std::vector<Ref> kept_;
};

struct Change {
  const char* source;
  bool holds;
};
struct Case {
  const char* name;
  const char* setup;
  std::function<void(Build&)> build;
  std::vector<Change> changes;
};

void run_case(const Case& test) {
  SCOPED_TRACE(test.name);
  for (const Change& change : test.changes) {
    SCOPED_TRACE(change.source);
    PythonSource python;
    python.run(kPrelude);
    python.run(test.setup);
    auto set = std::make_unique<GuardSet>();
    Build build(*set, python);
    test.build(build);
    ArmedGuards armed(std::move(set));
    {
      Call before(python);
      ASSERT_TRUE(reference_outcome(armed.guards(), before).holds);
      ASSERT_TRUE(armed.arm(before.args.data(), before.function.get()));
      Outcome native = native_outcome(armed.guards(),
                                      armed.predicate_functions()[0], before);
      ASSERT_TRUE(native.holds) << "the native predicate fails at once";
      expect_same(native, reference_outcome(armed.guards(), before));
    }
    python.run(change.source);
    Call after(python);
    EXPECT_EQ(check_call(armed, after), change.holds);
    EXPECT_EQ(check_call(armed, after), change.holds);  // and re-armed
    if (!change.holds) {
      size_t failed = 0;
      std::vector<PyObject*> objects(armed.guards().gathered().size());
      std::vector<int64_t> symbols(armed.guards().symbols().size());
      evaluate(armed.guards(), after.args.data(), after.function.get(),
               objects.data(), symbols.data(), &failed);
      Ref code = python.value("function.__code__");
      std::string text =
          explain_failure(armed.guards(), failed, after.args.data(),
                          after.function.get(), code.get());
      EXPECT_FALSE(text.empty());
      EXPECT_NE(text, "no guard failed");
    }
  }
}

class GuardKinds : public testing::Test {
 protected:
  void SetUp() override { fake::install(); }
};

TEST_F(GuardKinds, Values) {
  run_case({"TypeIs",
            "args = (make(x=1),)",
            [](Build& b) { b.guard(G::kTypeIs, b.arg(), "Obj"); },
            {{"pass", true},
             {"args = (make(),)", true},
             {"args[0].__class__ = Other", false},
             {"args = (Other(),)", false},
             {"args = (1,)", false}}});
  run_case({"Is",
            "o = make(); args = (o,)",
            [](Build& b) { b.guard(G::kIs, b.arg(), "o"); },
            {{"pass", true}, {"args = (make(),)", false}}});
  run_case(
      {"Is None",
       "args = (None,)",
       [](Build& b) { b.guard(G::kEquals, b.arg(), "None"); },
       {{"pass", true}, {"args = (0,)", false}, {"args = (False,)", false}}});
  run_case({"Equals int",
            "args = (1024,)",
            [](Build& b) { b.guard(G::kEquals, b.arg(), "1024"); },
            {{"args = (int('1024'),)", true},
             {"args = (1025,)", false},
             {"args = (-1024,)", false},
             {"args = (1024.0,)", false}}});
  run_case(
      {"Equals big int",
       "args = (10**40,)",
       [](Build& b) { b.guard(G::kEquals, b.arg(), "10**40"); },
       {{"args = (int('1' + '0'*40),)", true}, {"args = (10**41,)", false}}});
  run_case({"Equals two digits",
            "args = (2**40,)",
            [](Build& b) { b.guard(G::kEquals, b.arg(), "2**40"); },
            {{"args = (2**41 // 2,)", true},
             {"args = (2**40 + 1,)", false},
             {"args = (2**40 + 2**30,)", false}}});
  run_case({"Equals bool",
            "args = (True,)",
            [](Build& b) { b.guard(G::kEquals, b.arg(), "True"); },
            {{"args = (1,)", false}, {"args = (False,)", false}}});
  run_case({"Equals zero",
            "args = (0,)",
            [](Build& b) { b.guard(G::kEquals, b.arg(), "0"); },
            {{"args = (False,)", false}, {"args = (int('0'),)", true}}});
  run_case({"Equals str",
            "args = ('abc',)",
            [](Build& b) { b.guard(G::kEquals, b.arg(), "'abc'"); },
            {{"args = (''.join(['a', 'bc']),)", true},
             {"args = ('abd',)", false},
             {"args = (b'abc',)", false}}});
  run_case({"FloatIs",
            "args = (float('nan'),)",
            [](Build& b) { b.guard(G::kFloatIs, b.arg(), "float('nan')"); },
            {{"args = (float('nan'),)", true}, {"args = (0.0,)", false}}});
  run_case({"Equals -0.0",
            "args = (-0.0,)",
            [](Build& b) { b.guard(G::kEquals, b.arg(), "-0.0"); },
            {{"args = (-float('0'),)", true},
             {"args = (0.0,)", false},
             {"args = (0,)", false}}});
  run_case(
      {"Equals nested",
       "args = ((1, ('a', frozenset({2, 3})), slice(1, None)),)",
       [](Build& b) {
         b.guard(G::kEquals, b.arg(),
                 "(1, ('a', frozenset({3, 2})), slice(1, None))");
       },
       {{"args = (tuple([1, ('a', frozenset([2, 3])), slice(1, None)]),)",
         true},
        {"args = ((1, ('a', frozenset({2, 4})), slice(1, None)),)", false},
        {"args = ((True, ('a', frozenset({2, 3})), slice(1, None)),)", false},
        {"args = ((1, ('a', frozenset({2, 3})), slice(2, None)),)", false}}});
  run_case({"Equals range",
            "args = (range(3),)",
            [](Build& b) { b.guard(G::kEquals, b.arg(), "range(3)"); },
            {{"args = (range(0, 3),)", true}, {"args = (range(4),)", false}}});
  run_case({"Same objects",
            "o = make(); args = (o, o, make())",
            [](Build& b) {
              b.same(G::kSameObject, b.arg(0), b.arg(1));
              b.same(G::kNotSameObject, b.arg(0), b.arg(2));
            },
            {{"o = make(); args = (o, o, 1)", true},
             {"args = (o, make(), 1)", false},
             {"args = (o, o, o)", false}}});
}

TEST_F(GuardKinds, Containers) {
  run_case({"DictItem",
            "d = {'x': 1, 'y': 2}; args = (d,)",
            [](Build& b) {
              b.guard(G::kEquals, b.make(S::kDictItem, b.arg(), "x"), "1");
            },
            {{"pass", true},
             {"d['y'] = 3", true},
             {"d['z'] = 3", true},
             {"[d.__setitem__(str(i), i) for i in range(100)]", true},
             {"args = ({'y': 2, 'x': 1},)", true},
             {"args = ({'x': 1},)", true},
             {"args = ({''.join(['', 'x']): 1},)", true},
             {"args = (collections.OrderedDict(y=2, x=1),)", true},
             {"del d['y']", true},
             {"d['x'] = 2", false},
             {"d['x'] = True", false},
             {"del d['x']", false},
             {"d.clear()", false},
             {"d.pop('x')", false},
             {"args = ([],)", false}}});
  run_case({"DictItem int key",
            "d = {1: 'a', 'x': 2}; args = (d,)",
            [](Build& b) {
              Ref key = Ref::steal(PyLong_FromLong(1));
              b.guard(G::kEquals,
                      b.set.sources().make(S::kDictItem, b.arg(), key.get()),
                      "'a'");
            },
            {{"pass", true},
             {"args = ({True: 'a'},)", true},
             {"d[1] = 'b'", false},
             {"args = ({2: 'a'},)", false}}});
  run_case({"HasKey NoKey",
            "d = {'x': 1, 'y': 2}; args = (d,)",
            [](Build& b) {
              b.guard(G::kHasKey, b.arg(), "'x'");
              b.guard(G::kNoKey, b.arg(), "'gone'");
            },
            {{"d['x'] = 5", true},
             {"d['more'] = 5", true},
             {"args = ({'a': 0, 'x': 1},)", true},
             {"[d.__setitem__('k%d' % i, i) for i in range(500)]", true},
             {"d['gone'] = 1", false},
             {"d['gone'] = 1; del d['gone']", true},
             {"del d['x']", false},
             {"d.update(gone=1)", false}}});
  run_case({"NoKey, user __eq__",
            "class K:\n  def __init__(s, h): s.h = h\n"
            "  def __hash__(s): return hash(s.h)\n"
            "  def __eq__(s, o): raise RuntimeError\n"
            "d = {'x': 1, 2: 3}; args = (d,)",
            [](Build& b) { b.guard(G::kNoKey, b.arg(), "'gone'"); },
            {{"d[3] = 4", true}, {"d[K('gone')] = 1", false}}});
  run_case({"DictKeys",
            "d = {'x': 1, 'y': 2}; args = (d,)",
            [](Build& b) { b.guard(G::kDictKeys, b.arg(), "('x', 'y')"); },
            {{"d['x'] = 9", true},
             {"args = (dict(x=0, y=1),)", true},
             {"args = ({'y': 2, 'x': 1},)", false},
             {"d['x'] = d.pop('x')", false},
             {"d['z'] = 1", false},
             {"d['z'] = 1; del d['z']", true},
             {"del d['x']", false}}});
  run_case({"DictKeys empty",
            "d = {}; args = (d,)",
            [](Build& b) { b.guard(G::kDictKeys, b.arg(), "()"); },
            {{"d['x'] = 1", false},
             {"args = (collections.OrderedDict(),)", true},
             {"args = ([],)", false}}});
  run_case({"DictKeys OrderedDict",
            "d = collections.OrderedDict(x=1, y=2); args = (d,)",
            [](Build& b) {
              b.guard(G::kDictKeys, b.arg(), "('x', 'y')");
              b.guard(G::kEquals, b.make(S::kDictItem, b.arg(), "x"), "1");
            },
            {{"d['y'] = 3", true},
             {"d.move_to_end('x')", false},
             {"d.move_to_end('y')", true},
             {"args = ({'x': 1, 'y': 2},)", true}}});
  run_case({"DictKeyAt",
            "d = {'x': 1, 'y': 2}; args = (d,)",
            [](Build& b) {
              b.guard(G::kEquals, b.make(S::kDictKeyAt, b.arg(), nullptr, 1),
                      "'y'");
            },
            {{"d['y'] = 9", true},
             {"d['z'] = 9", true},
             {"del d['x']", false},
             {"args = (collections.OrderedDict(y=1, x=2),)", false}}});
  run_case({"List",
            "l = [1, [2, 3]]; args = (l,)",
            [](Build& b) {
              const Source* inner = b.make(S::kListItem, b.arg(), nullptr, 1);
              b.guard(G::kEquals, b.make(S::kListItem, inner, nullptr, 0), "2");
              b.guard(G::kLength, b.arg(), nullptr, 2);
            },
            {{"pass", true},
             {"l[0] = 7", true},
             {"l[1].append(5)", true},
             {"args = ([0, [2]],)", true},
             {"l.append(1)", false},
             {"l[1][0] = 3", false},
             {"l[1].clear()", false},
             {"l[1] = (2,)", false},
             {"args = ((1, [2]),)", false}}});
  run_case({"Tuple",
            "t = (1, (2, make(v=3))); args = (t,)",
            [](Build& b) {
              const Source* inner = b.make(S::kTupleItem, b.arg(), nullptr, 1);
              const Source* object = b.make(S::kTupleItem, inner, nullptr, 1);
              b.guard(G::kEquals, b.make(S::kInstanceAttr, object, "v"), "3");
              b.guard(G::kLength, inner, nullptr, 2);
            },
            {{"pass", true},
             {"t[1][1].v = 4", false},
             {"t[1][1].w = 4", true},
             {"args = ((1, (2, make(v=3))),)", true},
             {"args = ((1, (2,)),)", false},
             {"args = ((1, (2, make(v=3), 4)),)", false}}});
  run_case({"Deque set str lengths",
            "args = (collections.deque([1, 2]), {1, 2, 3}, 'text', b'ab')",
            [](Build& b) {
              b.guard(G::kEquals, b.make(S::kDequeItem, b.arg(0), nullptr, 1),
                      "2");
              b.guard(G::kLength, b.arg(0), nullptr, 2);
              b.guard(G::kLength, b.arg(1), nullptr, 3);
              b.guard(G::kLength, b.arg(2), nullptr, 4);
              b.guard(G::kLength, b.arg(3), nullptr, 2);
            },
            {{"pass", true},
             {"args[0].rotate(1)", false},
             {"args[0].append(3)", false},
             {"args[1].add(1)", true},
             {"args[1].add(9)", false},
             {"args = args[:2] + ('four', b'xy')", true},
             {"args = args[:2] + ('five5', b'xy')", false}}});
}

TEST_F(GuardKinds, Instances) {
  for (const char* maker : {"make", "make_dict"}) {
    std::string setup =
        std::string("o = ") + maker + "(a=1, b=2); args = (o,); new = " + maker;
    run_case(
        {maker,
         setup.c_str(),
         [](Build& b) {
           b.guard(G::kTypeIs, b.arg(), "Obj");
           b.guard(G::kEquals, b.make(S::kInstanceAttr, b.arg(), "a"), "1");
           b.guard(G::kNoInstanceAttr, b.arg(), "'gone'");
         },
         {{"pass", true},
          {"o.b = 3", true},
          {"o.c = 3", true},
          {"del o.b", true},
          {"o.__dict__", true},
          {"o.__dict__['b'] = 9", true},
          {"o.__dict__ = {'a': 1}", true},
          {"o.__dict__ = {'z': 0, 'a': 1}", true},
          {"[setattr(o, 'k%d' % i, i) for i in range(100)]", true},
          {"args = (new(a=1),)", true},
          {"args = (new(b=5, a=1),)", true},
          {"x = Obj(); x.gone = 1; del x.gone; x.a = 1; args = (x,)", true},
          {"o.a = 2", false},
          {"o.__dict__['a'] = 2", false},
          {"object.__setattr__(o, 'a', 2)", false},
          {"vars(o).update(a=3)", false},
          {"del o.a", false},
          {"o.gone = 1", false},
          {"o.__dict__['gone'] = 1", false},
          {"o.__dict__ = {}", false},
          {"o.__dict__ = {'a': 1, 'gone': 1}", false},
          {"o.__class__ = Other", false},
          {"args = (make(),)", false}}});
    run_case({"InstanceDict",
              setup.c_str(),
              [](Build& b) {
                const Source* dict = b.make(S::kInstanceDict, b.arg());
                b.guard(G::kDictKeys, dict, "('a', 'b')");
                b.guard(G::kEquals, b.make(S::kDictItem, dict, "a"), "1");
                b.guard(G::kEquals, b.make(S::kInstanceAttr, b.arg(), "b"),
                        "2");
              },
              {{"pass", true},
               {"o.c = 1", false},
               {"args = (new(a=1, b=2),)", true},
               {"args = (new(b=2, a=1),)", false},
               {"o.__dict__ = {'a': 1, 'b': 2}", true},
               {"o.a = 5", false}}});
  }
  run_case({"No instance attributes at all",
            "o = Obj(); args = (o,)",
            [](Build& b) { b.guard(G::kNoInstanceAttr, b.arg(), "'x'"); },
            {{"pass", true},
             {"o.y = 1", true},
             {"o.x = 1", false},
             {"args = (1,)", true},
             {"args = (make(x=1),)", false}}});
  run_case({"Slots",
            "o = Slots(); o.first = 1; args = (o,)",
            [](Build& b) {
              Ref offset;
              b.guard(G::kTypeIs, b.arg(), "Slots");
              b.guard(
                  G::kEquals,
                  b.make(S::kSlotMember, b.arg(), "first", sizeof(PyObject)),
                  "1");
            },
            {{"pass", true},
             {"o.second = 2", true},
             {"o.first = 2", false},
             {"del o.first", false},
             {"o = Slots(); o.first = 1; args = (o,)", true},
             {"del Slots.first", false},
             {"Slots.other = 1", true}}});
  run_case({"TypeAttrIs",
            "args = (make(),)",
            [](Build& b) {
              const Source* type = b.make(S::kTypeOf, b.arg());
              b.guard(G::kTypeIs, b.arg(), "Obj");
              b.type_attr(type, "kind", "Obj.kind");
              b.type_attr(type, "shared", "Base.shared");
              b.type_attr(type, "absent", nullptr);
            },
            {{"pass", true},
             {"Obj.unrelated = 1", true},
             {"Base.unrelated = 1", true},
             {"Obj.kind = 'new'", false},
             {"Obj.shared = 2", false},
             {"Base.shared = 2", false},
             {"Obj.absent = 2", false},
             {"Base.absent = 2", false},
             {"del Obj.kind", false},
             {"Obj.__bases__ = (Slots2 := type('Slots2', (Base,), {}),)", true},
             {"k = Obj.kind; Obj.kind = 1; Obj.kind = k", true},
             {"args[0].__class__ = Other", false}}});
  run_case({"TypeAttr source",
            "args = (make(),)",
            [](Build& b) {
              const Source* type = b.make(S::kTypeOf, b.arg());
              b.guard(G::kEquals, b.make(S::kTypeAttr, type, "kind"), "'obj'");
            },
            {{"pass", true},
             {"Obj.kind = ''.join(['o', 'bj'])", true},
             {"Obj.kind = 'x'", false},
             {"Obj.other = 1", true},
             {"args = (Other(),)", false},
             {"args = (type('T', (), {'kind': 'obj'})(),)", true}}});
  run_case({"TypeAttrIs of a constant type",
            "args = ()",
            [](Build& b) {
              Ref type = Ref::borrow(reinterpret_cast<PyObject*>(&PyDict_Type));
              b.type_attr(b.set.sources().constant(type.get()), "get",
                          "dict.__dict__['get']");
            },
            {{"pass", true}}});
}

TEST_F(GuardKinds, FunctionsAndFriends) {
  run_case({"Globals",
            "scale = 2\nargs = ()",
            [](Build& b) {
              const Source* globals =
                  b.make(S::kGlobals, b.set.sources().function());
              b.guard(G::kEquals, b.make(S::kDictItem, globals, "scale"), "2");
              b.guard(G::kNoKey, globals, "'len'");
              const Source* builtins =
                  b.make(S::kBuiltins, b.set.sources().function());
              b.guard(G::kIs, b.make(S::kDictItem, builtins, "len"), "len");
            },
            {{"pass", true},
             {"unrelated = 1", true},
             {"for i in range(200): globals()['g%d' % i] = i", true},
             {"scale = 3", false},
             {"del scale", false},
             {"len = 3", false},
             {"globals()['scale'] = 4", false}}});
  run_case({"Closure",
            "def outer(v):\n  def function(a): return v\n"
            "  def put(x):\n    nonlocal v\n    v = x\n"
            "  return function, put\nfunction, put = outer(5)\nargs = ()",
            [](Build& b) {
              const Source* cell =
                  b.make(S::kClosureCell, b.set.sources().function());
              b.guard(G::kEquals, b.make(S::kCellContents, cell), "5");
            },
            {{"pass", true},
             {"put(6)", false},
             {"function, put = outer(5)", true},
             {"function, put = outer('x')", false},
             {"del function.__closure__[0].cell_contents", false}}});
  run_case({"Defaults",
            "args = ()",
            [](Build& b) {
              const Source* f = b.set.sources().function();
              b.guard(G::kEquals, b.make(S::kDefault, f, nullptr, 0), "7");
              b.guard(G::kEquals, b.make(S::kKwDefault, f, "c"), "8");
              b.guard(G::kIs, b.make(S::kFunctionCode, f), "function.__code__");
            },
            {{"pass", true},
             {"function.__defaults__ = (7, 8)", true},
             {"function.__defaults__ = (9,)", false},
             {"function.__defaults__ = None", false},
             {"function.__kwdefaults__['c'] = 9", false},
             {"function.__kwdefaults__ = {'d': 1, 'c': 8}", true},
             {"function.__kwdefaults__ = None", false},
             {"def g(a, b=7, *, c=8): return 1\nfunction.__code__ = g.__code__",
              false}}});
  run_case({"Method",
            "o = make(v=1)\nm = types.MethodType(function, o)\nargs = (m,)",
            [](Build& b) {
              const Source* self = b.make(S::kMethodSelf, b.arg());
              b.guard(G::kEquals, b.make(S::kInstanceAttr, self, "v"), "1");
              b.guard(G::kIs, b.make(S::kMethodFunc, b.arg()), "function");
            },
            {{"pass", true},
             {"args = (types.MethodType(function, make(v=1)),)", true},
             {"args = (types.MethodType(len, o),)", false},
             {"o.v = 2", false},
             {"args = (function,)", false}}});
  run_case({"Partial",
            "p = functools.partial(function, 1, x=2)\nargs = (p,)",
            [](Build& b) {
              b.guard(G::kIs, b.make(S::kPartialPart, b.arg(), nullptr, 0),
                      "function");
              const Source* positional =
                  b.make(S::kPartialPart, b.arg(), nullptr, 1);
              b.guard(G::kEquals, positional, "(1,)");
              const Source* keywords =
                  b.make(S::kPartialPart, b.arg(), nullptr, 2);
              b.guard(G::kEquals, b.make(S::kDictItem, keywords, "x"), "2");
            },
            {{"pass", true},
             {"args = (functools.partial(function, 1, y=0, x=2),)", true},
             {"args = (functools.partial(function, 2, x=2),)", false},
             {"p.keywords['x'] = 3", false},
             {"p.__setstate__((len, (1,), {'x': 2}, None))", false}}});
  run_case(
      {"Property",
       "def get(self): return 1\nargs = (property(get), staticmethod(get))",
       [](Build& b) {
         b.guard(G::kIs, b.make(S::kPropertyFunc, b.arg(0), nullptr, 0), "get");
         b.guard(G::kIs, b.make(S::kPropertyFunc, b.arg(1), nullptr, 0), "get");
       },
       {{"pass", true},
        {"args = (property(get), classmethod(get))", true},
        {"args = (property(len), staticmethod(get))", false},
        {"args = (property(get), staticmethod(len))", false},
        {"args = (property(None), staticmethod(get))", false}}});
  run_case({"Weakref",
            "o = make(v=1); r = weakref.ref(o); args = (r,)",
            [](Build& b) {
              const Source* referent = b.make(S::kWeakReferent, b.arg());
              b.guard(G::kEquals, b.make(S::kInstanceAttr, referent, "v"), "1");
            },
            {{"pass", true}, {"o.v = 2", false}, {"del o", false}}});
  run_case({"GetSet",
            "args = (fake.tensor([2, 3]),)",
            [](Build& b) {
              b.guard(G::kEquals, b.make(S::kGetSet, b.arg(), "shape"),
                      "(2, 3)");
            },
            {{"pass", true},
             {"args = (fake.tensor([2, 3]),)", true},
             {"args[0].t_()", false},
             {"args = (1,)", false}}});
}

}  // namespace
}  // namespace framejit
