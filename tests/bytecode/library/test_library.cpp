// Rows that a library registers, each kind against CPython and against a twin
// in the library that has no row.
#include "bytecode/library/library.h"
#include "bytecode/objects/dim_marks.h"
#include "bytecode/objects/overrides.h"
#include "guards/known_objects.h"
#include "tests/bytecode/capture/capture_support.h"
#include "tests/toy_library.h"

namespace framejit::bytecode::testing {
namespace {

class LibraryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    toy::install();
    toy::take_native_calls();
  }

  // Captured whole, and equal to CPython.
  static CaptureRun whole(const std::string& body,
                          const std::string& arguments = "()") {
    return check_whole(kImports + body, arguments);
  }
  // Equal to CPython, but not captured whole.
  static CaptureRun broken(const std::string& body, const char* reason,
                           const std::string& arguments = "()") {
    CaptureRun run = check(kImports + body, arguments);
    EXPECT_FALSE(run.reasons.empty()) << "no break: " << body;
    if (!run.reasons.empty()) {
      EXPECT_EQ(run.reasons[0], reason) << run.details[0] << "\n" << body;
    }
    return run;
  }

  // `name show_...`: not compared as globals of the program.
  static constexpr char kImports[] = "import toys as show_toys\n";
};

// The break reasons that the tests expect.
constexpr char kUnknownCallee[] = "FJ201";
constexpr char kDisabled[] = "FJ205";
constexpr char kUserBreak[] = "FJ206";
constexpr char kSideEffect[] = "FJ207";
constexpr char kTensorSubclass[] = "FJ302";
constexpr char kUnknownOperation[] = "FJ202";
constexpr char kEscapingObject[] = "FJ405";
constexpr char kThreadState[] = "FJ503";

// Objects of the module `toys`.
Ref toys(const char* name) {
  return Ref::steal(PyObject_GetAttrString(
      PyDict_GetItemString(PyImport_GetModuleDict(), "toys"), name));
}

// ---- callees

TEST_F(LibraryTest, PureCalleesAreCalledWhenCaptured) {
  whole("def f(x):\n  return show_toys.double(x)\n", "(21,)");
  // Natively in the plain run, and in the capture.
  EXPECT_EQ(toy::take_native_calls(), 2);
  broken("def f(x):\n  return show_toys.other_double(x)\n", kUnknownCallee,
         "(21,)");
}

TEST_F(LibraryTest, ModelledCalleesWorkOnObjectsOfTheProgram) {
  const char* body =
      "class Row:\n"
      "  def __getitem__(self, i):\n    return i + 5\n"
      "def f(row, numbers):\n"
      "  return show_toys.first(row), show_toys.first(numbers)\n";
  whole(body, "(Row(), [1, 2])");
  EXPECT_EQ(toy::take_native_calls(), 2) << "the capture called C code";
}

TEST_F(LibraryTest, RowsOfWhatTheLibraryHasNotHaveNoEffect) {
  EXPECT_FALSE(PyDict_GetItemString(
      PyModule_GetDict(PyDict_GetItemString(PyImport_GetModuleDict(), "toys")),
      "absent"));
  whole("def f(x):\n  return x + 1\n", "(1,)");
}

TEST_F(LibraryTest, FamiliesAreWhatTheModuleHolds) {
  CaptureRun run = whole("def f(x):\n  return show_toys.triple(x)\n", "(5,)");
  EXPECT_EQ(run.inlined_calls, 0u);
  whole("def f(x):\n  return show_toys.Small(x)\n", "(5,)");
  broken("four = show_toys.Kind(4)\ndef f(x):\n  return four(x)\n",
         kUnknownCallee, "(5,)");
  broken("class Big(show_toys.Number): pass\ndef f(x):\n  return Big(x)\n",
         kUnknownCallee, "(5,)");
}

TEST_F(LibraryTest, ModelsMayLeaveACallToWhatKnowsItsType) {
  // Not an int: the object's own __call__ is interpreted.
  CaptureRun run = broken("def f(x):\n  return show_toys.triple(x)\n",
                          kUnknownCallee, "(2.5,)");
  EXPECT_NE(run.details.at(0).find("bare"), std::string::npos);
}

// ---- fast paths

TEST_F(LibraryTest, FastPathsRunInPlaceOfTheirFunction) {
  const char* body =
      "def f(box):\n"
      "  try:\n    box.c\n"
      "  except AttributeError as e:\n    return box.a + box.b, str(e)\n";
  CaptureRun fast = whole(body, "(show_toys.Box(a=1, b=2),)");
  CaptureRun slow = whole(body, "(show_toys.OtherBox(a=1, b=2),)");
  // box.c is not there: its function is inlined in both.
  EXPECT_EQ(fast.inlined_calls, 1u);
  EXPECT_EQ(slow.inlined_calls, 3u);
  EXPECT_LT(fast.instructions, slow.instructions);
  EXPECT_LE(fast.guards, slow.guards);
}

TEST_F(LibraryTest, CodeOfAnotherVersionIsInlined) {
  const char* body = "def f(box):\n  return box.a\n";
  EXPECT_EQ(whole(body, "(show_toys.Box(a=1),)").inlined_calls, 0u);
  EXPECT_EQ(whole(body, "(show_toys.NewerBox(a=1),)").inlined_calls, 1u);
}

TEST_F(LibraryTest, FunctionsAreFoundByTheirCodeAndNotByName) {
  // The same names on other code: no row. Other names on its code: the row.
  CaptureRun impostor = whole(
      "def __getattr__(self, name):\n"
      "  items = self.__dict__['items']\n"
      "  if name in items: return items[name] + 1\n"
      "  raise AttributeError(name)\n"
      "__getattr__.__qualname__ = 'Box.__getattr__'\n"
      "__getattr__.__module__ = 'toys'\n"
      "class Fake:\n"
      "  pass\n"
      "Fake.__getattr__ = __getattr__\n"
      "def make():\n"
      "  box = Fake()\n  box.__dict__['items'] = {'a': 1}\n  return box\n"
      "def f(box):\n  return box.a\n",
      "(make(),)");
  EXPECT_EQ(impostor.inlined_calls, 1u);
  CaptureRun renamed = whole(
      "import types as show_types\n"
      "get = show_types.FunctionType(show_toys.Box.__getattr__.__code__, {},"
      " 'other')\n"
      "get.__qualname__ = 'other'\nget.__module__ = 'other'\n"
      "class Other:\n  pass\n"
      "Other.__getattr__ = get\n"
      "def make():\n"
      "  box = Other()\n  box.__dict__['items'] = {'a': 1}\n  return box\n"
      "def f(box):\n  return box.a\n",
      "(make(),)");
  EXPECT_EQ(renamed.inlined_calls, 0u);
}

TEST_F(LibraryTest, FunctionsMayBeToldThatNothingCompiles) {
  Ref globals = make_globals(std::string(kImports) +
                             "def f():\n"
                             "  return show_toys.asks(), show_toys.other_asks()"
                             "\n");
  CaptureRun run;
  Ref result = run.call(PyDict_GetItemString(globals.get(), "f"), {});
  ASSERT_TRUE(result) << take_error();
  EXPECT_EQ(PyTuple_GET_ITEM(result.get(), 0), Py_False);
  EXPECT_EQ(PyTuple_GET_ITEM(result.get(), 1), Py_True);
}

// ---- wrappers

TEST_F(LibraryTest, WrappersAreLookedThrough) {
  const char* body =
      "def g(x, y):\n  return x * y\n"
      "g = show_toys.%s(g)\n"
      "def f(x):\n  return g(x, 2.0)\n";
  auto with = [&](const char* wrapper) {
    std::string text = body;
    return text.replace(text.find("%s"), 2, wrapper);
  };
  const char* x = "(fake.tensor([2], [1., 2.]),)";
  CaptureRun by_variable = whole(with("noted"), x);
  CaptureRun by_attribute = whole(with("attached"), x);
  EXPECT_EQ(by_variable.inlined_calls, 1u);
  EXPECT_EQ(by_attribute.inlined_calls, 1u);
  broken(with("other_noted"), kUnknownCallee, x);
  // Two functions in it have the name: nobody can say which one is meant.
  broken(with("twice_nested"), kUnknownCallee, x);
}

// ---- marks

TEST_F(LibraryTest, MarksSayWhatAFunctionMeans) {
  auto marked = [](const char* mark, const char* body = "return x + 1") {
    return "def g(x=1):\n  " + std::string(body) + "\ng." + mark + " = True\n";
  };
  broken(marked("_toy_off") + "def f(x):\n  return g(x)\n", kDisabled, "(1,)");
  broken(marked("_toy_break") + "def f(x):\n  return g(x)\n", kUserBreak,
         "(1,)");
  whole(marked("_other") + "def f(x):\n  return g(x)\n", "(1,)");
}

TEST_F(LibraryTest, MarksMayBeOfOnePackage) {
  // In toys the mark means that the function is a wrapper of another.
  const char* source =
      "def h(x):\n  return x + 1\n"
      "def g(x):\n  show_toys.bare()\n  return h(x)\n"
      "g.__wrapped__ = h\ng._toy_off = True\ng.__module__ = '%s'\n"
      "def f(x):\n  return g(x)\n";
  auto in = [&](const char* module) {
    std::string text = source;
    return text.replace(text.find("%s"), 2, module);
  };
  whole(in("toys"), "(1,)");
  whole(in("toys.part"), "(1,)");
  broken(in("toys2"), kDisabled, "(1,)");
  // Nothing is wrapped: the next row with the mark.
  broken(
      "def g(x):\n  return x\ng._toy_off = True\ng.__module__ = 'toys'\n"
      "def f(x):\n  return g(x)\n",
      kDisabled, "(1,)");
}

TEST_F(LibraryTest, MarkedConstantsAreAskedOnce) {
  const char* source =
      "calls = []\n"
      "def g(x):\n  calls.append(x)\n  return len(calls)\n"
      "g.%s = True\n"
      "def f(x):\n  return g(x), len(calls)\n";
  auto calls = [&](const char* mark) -> Py_ssize_t {
    std::string text = kImports + std::string(source);
    text.replace(text.find("%s"), 2, mark);
    Ref globals = make_globals(text);
    CaptureRun run;
    Ref one = Ref::steal(PyLong_FromLong(1));
    Ref result = run.call(PyDict_GetItemString(globals.get(), "f"), {one});
    EXPECT_TRUE(result) << take_error();
    EXPECT_EQ(run.captured, 1);
    // Inlined, the append waits until the steps run.
    return Py_ssize_t(run.inlined_calls);
  };
  EXPECT_EQ(calls("_toy_constant"), 0);
  EXPECT_EQ(calls("_other"), 1);
}

TEST_F(LibraryTest, MarkedFunctionsSayThatACaptureRuns) {
  Ref globals = make_globals(
      "def asks():\n  return False\nasks._toy_compiling = True\n"
      "def f():\n  return asks()\n");
  CaptureRun run;
  Ref result = run.call(PyDict_GetItemString(globals.get(), "f"), {});
  EXPECT_EQ(result.get(), Py_True);
}

TEST_F(LibraryTest, MarkedFunctionsRunOthersWithoutEffects) {
  const char* source =
      "def run(function, *args):\n  return function(*args)\n"
      "run._toy_without_effects = True\n"
      "def pure(x):\n  return x * 2.0\n"
      "def writes(x):\n  seen.append(1)\n  return x\n"
      "seen = []\n";
  std::string text = source;
  whole(text + "def f(x):\n  return run(pure, x)\n",
        "(fake.tensor([1], [2.]),)");
  broken(text + "def f(x):\n  return run(writes, x)\n", kSideEffect,
         "(fake.tensor([1], [2.]),)");
}

TEST_F(LibraryTest, MarksOnDimsAreRead) {
  Ref globals = make_globals(
      "x = fake.tensor([2, 3])\n"
      "x._toy_dynamic = {0}\nx._toy_maybe = {1}\nx._toy_static = {2}\n"
      "x._other = {3}\n");
  DimMarks marks = read_dim_marks(PyDict_GetItemString(globals.get(), "x"));
  EXPECT_EQ(marks.dynamic, 1u);
  EXPECT_EQ(marks.maybe, 2u);
  EXPECT_EQ(marks.fixed, 4u);
  CaptureRun run = whole(
      "def make():\n  x = fake.tensor([2, 3])\n  x._toy_dynamic = {0}\n"
      "  return x\n"
      "def f(x):\n  return x * 2.0, x.shape[0]\n",
      "(make(),)");
}

// ---- types

TEST_F(LibraryTest, ConstantsAreGuardedByValue) {
  auto holds_for_another = [](const char* type) {
    Ref globals = make_globals(std::string(kImports) +
                               "def f(x):\n  return x + 1\na = show_toys." +
                               type + "(3)\nb = show_toys." + type +
                               "(3)\nc = show_toys." + type + "(4)\n");
    PyObject* function = PyDict_GetItemString(globals.get(), "f");
    PyObject* slots[] = {PyDict_GetItemString(globals.get(), "a")};
    CaptureRequest request{function, slots, 1};
    fake::FakeTracer tracer;
    auto outcome = capture(request, tracer);
    EXPECT_TRUE(outcome.ok());
    if (!outcome.ok()) return std::pair(false, false);
    const GuardSet& guards = *outcome.value().guards;
    std::vector<PyObject*> objects(guards.gathered().size() + 1);
    std::vector<int64_t> symbols(guards.symbols().size() + 1);
    auto holds = [&](const char* name) {
      slots[0] = PyDict_GetItemString(globals.get(), name);
      return evaluate(guards, slots, function, objects.data(), symbols.data());
    };
    return std::pair(holds("b"), holds("c"));
  };
  EXPECT_EQ(holds_for_another("Metre"), std::pair(true, false));
  EXPECT_TRUE(is_foreign_constant(
      evaluate_text(make_globals(kImports).get(), "show_toys.Metre(1)").get()));
  EXPECT_FALSE(is_foreign_constant(
      evaluate_text(make_globals(kImports).get(), "show_toys.Mile(1)").get()));
}

TEST_F(LibraryTest, TupleTypesAreRebuilt) {
  const char* x = "(fake.tensor([1], [2.]),)";
  // What a capture returns it makes again from its items.
  whole("def f(x):\n  p = show_toys.Pair([x * 2.0, 3])\n  return p\n", x);
  broken("def f(x):\n  p = show_toys.OtherPair([x * 2.0, 3])\n  return p\n",
         kEscapingObject, x);
}

TEST_F(LibraryTest, ManagersAreReplaced) {
  whole("def f(x):\n  with show_toys.Region():\n    return x + 1\n", "(1,)");
  broken("def f(x):\n  with show_toys.OtherRegion():\n    return x + 1\n",
         kUnknownCallee, "(1,)");
}

// ---- sub-blocks

TEST_F(LibraryTest, SubBlocksHaveSubstitutes) {
  CaptureRun run = whole(
      "def g(x):\n  return x * 2.0\n"
      "def f(x):\n  return fake.region(g, x)\n",
      "(fake.tensor([1], [2.]),)");
  EXPECT_EQ(run.graphs.at(0).find("region"), std::string::npos);
  broken("def f(x):\n  return fake.checkpoint(x)\n", kUnknownOperation,
         "(fake.tensor([1], [2.]),)");
}

// ---- overrides

constexpr char kLoud[] =
    "class Loud:\n"
    "  def __init__(self, x):\n    self.x = x\n"
    "  @classmethod\n"
    "  def __fake_function__(cls, function, types, args, kwargs):\n"
    "    args = [a.x if isinstance(a, cls) else a for a in args]\n"
    "    return function(*args, **kwargs) * 10.0, types == (cls,)\n"
    "class Quiet:\n"
    "  def __init__(self, x):\n    self.x = x\n"
    "  @classmethod\n"
    "  def __fake_function__(cls, function, types, args, kwargs):\n"
    "    return NotImplemented\n"
    "class Mode:\n"
    "  def __init__(self):\n    self.seen = []\n"
    "  def __fake_function__(self, function, types, args, kwargs):\n"
    "    self.seen.append(len(args))\n"
    "    return function(*args, **kwargs) + 100.0\n";

TEST_F(LibraryTest, ClassesOverrideFunctions) {
  const char* x = "(fake.tensor([2], [1., 2.]),)";
  std::string classes = kLoud;
  whole(classes + "def f(x):\n  return fake.add(x, Loud(3.0))\n", x);
  whole(classes + "loud = Loud(3.0)\ndef f(x):\n  return x.mul(loud)\n", x);
  whole(classes +
            "def f(x):\n  return show_toys.has_override(x, Loud(1)),"
            " show_toys.has_override(x, 1)\n",
        x);
}

TEST_F(LibraryTest, NotImplementedAsksTheNextClass) {
  const char* x = "(fake.tensor([2], [1., 2.]),)";
  std::string classes = kLoud;
  // Loud says in its answer that it was not the only one.
  whole(classes + "def f(x):\n  return fake.add(Quiet(x), Loud(x))\n", x);
  broken(classes + "def f(x):\n  return fake.add(x, Quiet(3.0))\n",
         kTensorSubclass, x);
}

TEST_F(LibraryTest, ModesOverrideFunctions) {
  const char* x = "(fake.tensor([2], [1., 2.]),)";
  std::string classes = kLoud;
  whole(classes +
            "mode = Mode()\n"
            "def f(x):\n"
            "  show_toys.push_mode(mode)\n"
            "  a = fake.add(x, 1.0)\n"
            "  b = x * 2.0\n"
            "  show_toys.pop_mode()\n"
            "  return a, b, x * 2.0\n",
        x);
  // The innermost first, and it is not asked about what it does itself.
  whole(classes +
            "outer, inner = Mode(), Mode()\n"
            "def f(x):\n"
            "  show_toys.push_mode(outer)\n"
            "  show_toys.push_mode(inner)\n"
            "  a = fake.add(x, 1.0)\n"
            "  show_toys.pop_mode()\n"
            "  show_toys.pop_mode()\n"
            "  return a\n",
        x);
}

TEST_F(LibraryTest, AskingIsSwitchedOff) {
  whole(std::string(kLoud) +
            "mode = Mode()\n"
            "def f(x):\n"
            "  show_toys.push_mode(mode)\n"
            "  a = show_toys.plainly(fake.add, x, 1.0)\n"
            "  b = fake.add(x, 1.0)\n"
            "  show_toys.pop_mode()\n"
            "  return a, b\n",
        "(fake.tensor([2], [1., 2.]),)");
}

TEST_F(LibraryTest, ABreakUnderAModeLiesBeforeTheMode) {
  CaptureRun run = broken(std::string(kLoud) +
                              "mode = Mode()\n"
                              "def f(x):\n"
                              "  y = x * 2.0\n"
                              "  show_toys.push_mode(mode)\n"
                              "  a = fake.add(y, 1.0)\n"
                              "  show_toys.bare()\n"
                              "  b = fake.add(a, 1.0)\n"
                              "  show_toys.pop_mode()\n"
                              "  return a, b\n",
                          kThreadState, "(fake.tensor([2], [1., 2.]),)");
  EXPECT_EQ(run.graphs.at(0).find("add"), std::string::npos) << run.graphs[0];
}

TEST_F(LibraryTest, ClassesOfThePackageAreTheLibrarysOwn) {
  Ref globals =
      make_globals(std::string(kImports) +
                   "class Derived(show_toys.Own):\n  def other(self): pass\n"
                   "class Beside:\n  def method(self): pass\n"
                   "Beside.__module__ = 'toys2'\n"
                   "class Within(Beside):\n  def method(self): pass\n"
                   "Within.__module__ = 'toys.part'\n");
  auto own = [&](const char* type, const char* name) {
    return is_library_attribute(reinterpret_cast<PyTypeObject*>(
                                    PyDict_GetItemString(globals.get(), type)),
                                interned(name));
  };
  EXPECT_TRUE(own("Derived", "method"));
  EXPECT_FALSE(own("Derived", "other"));
  EXPECT_FALSE(own("Beside", "method"));
  EXPECT_TRUE(own("Within", "method"));
  EXPECT_TRUE(own("Beside", "__hash__")) << "of C";
}

// ---- registering

TEST_F(LibraryTest, RegisteringImportsNothingAndImportingLaterIsEnough) {
  PyObject* modules = PyImport_GetModuleDict();
  ASSERT_FALSE(PyDict_GetItemString(modules, "toys_later"));
  std::string body = "def f(x):\n  return double(x)\n";
  broken("from toys import other_double as double\n" + body, kUnknownCallee,
         "(1,)");
  EXPECT_FALSE(PyDict_GetItemString(modules, "toys_later"))
      << "a capture imported what nobody uses";
  // The program imports it: it holds other_double, under a name with a row.
  Ref later = Ref::steal(PyModule_New("toys_later"));
  ASSERT_EQ(
      PyModule_AddObjectRef(later.get(), "double", toys("other_double").get()),
      0);
  PyDict_SetItemString(modules, "toys_later", later.get());
  whole("from toys_later import double\n" + body, "(1,)");
  PyDict_DelItemString(modules, "toys_later");
}

TEST_F(LibraryTest, ModulesBeingImportedWait) {
  PyObject* modules = PyImport_GetModuleDict();
  Ref globals = make_globals(
      "import types\n"
      "module = types.ModuleType('toys_later')\n"
      "module.__spec__ = types.SimpleNamespace(_initializing=True)\n");
  PyObject* module = PyDict_GetItemString(globals.get(), "module");
  PyDict_SetItemString(modules, "toys_later", module);
  resolve_libraries();
  // Only now it gets its function.
  Ref function = toys("first");
  Ref bare = toys("bare");
  PyModule_AddObjectRef(module, "double", bare.get());
  EXPECT_FALSE(find_callee(bare.get()));
  resolve_libraries();
  EXPECT_FALSE(find_callee(bare.get())) << "its import has not ended";
  Ref done =
      Ref::steal(PyRun_String("module.__spec__._initializing = False",
                              Py_file_input, globals.get(), globals.get()));
  ASSERT_TRUE(done);
  Ref own = Ref::steal(PyObject_GetAttrString(module, "double"));
  // `bare` must stay without a row: other tests call it.
  Ref other = toys("other_first");
  PyDict_SetItemString(PyModule_GetDict(module), "double", other.get());
  resolve_libraries();
  EXPECT_TRUE(find_callee(other.get()));
  PyDict_DelItemString(modules, "toys_later");
}

TEST_F(LibraryTest, ALibraryIsRegisteredOnce) {
  static constexpr OverrideProtocol kProtocol = {"__other__", "other"};
  static constexpr CalleeRow kRows[] = {{"toys", "other_first", nullptr}};
  static constexpr Library kPlain = {.name = "plain"};
  static constexpr Library kSecond = {
      .name = "second", .callees = kRows, .overrides = &kProtocol};
  EXPECT_TRUE(register_library(kPlain));
  EXPECT_FALSE(register_library(kPlain));
  EXPECT_FALSE(register_library(kSecond)) << "a second override protocol";
  EXPECT_STREQ(override_protocol()->method, "__fake_function__");
}

TEST_F(LibraryTest, RowsOutliveAReplacedModule) {
  PyObject* modules = PyImport_GetModuleDict();
  Ref first = Ref::steal(PyModule_New("toys_later"));
  Ref second = Ref::steal(PyModule_New("toys_later"));
  Ref globals = make_globals("");
  Ref a = evaluate_text(globals.get(), "[].__class__.append");
  Ref b = evaluate_text(globals.get(), "[].__class__.extend");
  PyModule_AddObjectRef(first.get(), "double", a.get());
  PyModule_AddObjectRef(second.get(), "double", b.get());
  PyDict_SetItemString(modules, "toys_later", first.get());
  resolve_libraries();
  PyDict_SetItemString(modules, "toys_later", second.get());
  resolve_libraries();
  EXPECT_TRUE(find_callee(a.get()));
  EXPECT_TRUE(find_callee(b.get()));
  PyDict_DelItemString(modules, "toys_later");
}

}  // namespace
}  // namespace framejit::bytecode::testing
