// Guards keep no class, function or module alive, and never match what comes
// to lie where a dead one was; the guard on a whole MRO.
#include "guards/set/weak_objects.h"
#include "tests/guards/guard_harness.h"

namespace framejit {
namespace {

class WeakObjectsTest : public testing::Test {
 protected:
  void SetUp() override {
    python.run(R"(
import gc, types, weakref
class Base: pass
class Mixin: pass
class Thing(Base): pass
def helper(): pass
module = types.ModuleType('m')
def function(a): pass
args = [Thing()]
)");
  }

  static Guard guard_on(GuardKind kind, const Source* source, Ref object,
                        Ref object2 = {}) {
    Guard guard;
    guard.kind = kind;
    guard.source = source;
    guard.object = std::move(object);
    guard.object2 = std::move(object2);
    return guard;
  }
  Ref name(const char* text) {
    return Ref::steal(PyUnicode_InternFromString(text));
  }
  // An attribute of the argument is this very object.
  std::unique_ptr<ArmedGuards> attribute_is(const std::string& expression) {
    python.run("args[0].part = " + expression);
    auto set = std::make_unique<GuardSet>();
    SourceArena& sources = set->sources();
    Ref key = name("part");
    set->add(guard_on(
        GuardKind::kIs,
        sources.make(SourceKind::kInstanceAttr, sources.arg(0), key.get()),
        python.value(expression)));
    return arm(std::move(set));
  }
  // What a class has under this name is this very object.
  std::unique_ptr<ArmedGuards> class_attribute_is(const std::string& type,
                                                  const char* attribute) {
    auto set = std::make_unique<GuardSet>();
    Ref held = python.value(type + ".__dict__['" + attribute + "']");
    set->add(guard_on(GuardKind::kTypeAttrIs,
                      set->sources().constant(python.value(type).get()),
                      name(attribute), std::move(held)));
    return arm(std::move(set));
  }
  std::unique_ptr<ArmedGuards> arm(std::unique_ptr<GuardSet> set) {
    auto armed = std::make_unique<ArmedGuards>(std::move(set));
    Call call(python);
    EXPECT_TRUE(armed->arm(call.args.data(), call.function.get()));
    armed->hold_weakly([this] { ++deaths; });
    return armed;
  }
  bool check(ArmedGuards& armed) {
    Call call(python);
    return check_call(armed, call);
  }
  bool is_true(const char* expression) {
    return python.value(expression).get() == Py_True;
  }
  PythonSource python;
  int deaths = 0;
};

TEST_F(WeakObjectsTest, ClassesFunctionsAndModulesDie) {
  for (const char* object : {"helper", "module", "Mixin"}) {
    SCOPED_TRACE(object);
    deaths = 0;
    auto armed = attribute_is(object);
    EXPECT_TRUE(check(*armed));
    EXPECT_FALSE(armed->dead());
    python.run(std::string("seen = weakref.ref(") + object + "); del " +
               object + "; args[0].part = None; gc.collect()");
    EXPECT_TRUE(is_true("seen() is None"));
    EXPECT_EQ(deaths, 1);
    EXPECT_TRUE(armed->dead());
    // Whatever lies there now: a dead entry matches nothing.
    Call call(python);
    EXPECT_FALSE(armed->match_slow(call.args.data(), call.function.get(),
                                   nullptr, nullptr));
  }
}

TEST_F(WeakObjectsTest, OnlyTheFirstDeathIsTold) {
  python.run("args[0].part = helper; args[0].other = Mixin");
  auto set = std::make_unique<GuardSet>();
  SourceArena& sources = set->sources();
  for (auto [attr, object] :
       {std::pair{"part", "helper"}, {"other", "Mixin"}}) {
    set->add(guard_on(GuardKind::kIs,
                      sources.make(SourceKind::kInstanceAttr, sources.arg(0),
                                   name(attr).get()),
                      python.value(object)));
  }
  auto armed = arm(std::move(set));
  python.run("args[0].__dict__.clear(); del helper, Mixin; gc.collect()");
  EXPECT_EQ(deaths, 1);
}

// An owner that goes in the callback takes the guards with it.
TEST_F(WeakObjectsTest, TheCallbackMayDestroyTheGuards) {
  auto set = std::make_unique<GuardSet>();
  SourceArena& sources = set->sources();
  python.run("args[0].part = helper");
  set->add(guard_on(GuardKind::kIs,
                    sources.make(SourceKind::kInstanceAttr, sources.arg(0),
                                 name("part").get()),
                    python.value("helper")));
  auto armed = std::make_unique<ArmedGuards>(std::move(set));
  Call call(python);
  ASSERT_TRUE(armed->arm(call.args.data(), call.function.get()));
  armed->hold_weakly([&] {
    ++deaths;
    armed.reset();
  });
  python.run("args[0].part = None; del helper; gc.collect()");
  EXPECT_EQ(deaths, 1);
  EXPECT_EQ(armed, nullptr);
}

// What cannot be referenced weakly is kept: its address is not used again.
TEST_F(WeakObjectsTest, OtherObjectsStayStrong) {
  python.run("kept = property(helper)");
  auto armed = attribute_is("kept");
  EXPECT_TRUE(check(*armed));
  python.run("args[0].part = None; del kept; gc.collect()");
  EXPECT_EQ(deaths, 0);
  EXPECT_FALSE(check(*armed));
  for (int i = 0; i < 100; ++i) {
    python.run("args[0].part = property(helper)");
    EXPECT_FALSE(check(*armed));
  }
}

// A property that is compared holds its class through its functions.
TEST_F(WeakObjectsTest, WrappersOfFunctionsLetTheirClassGo) {
  for (const char* wrapper :
       {"property(made)", "property(made, made, made)", "property(None, made)",
        "classmethod(made)", "staticmethod(made)"}) {
    SCOPED_TRACE(wrapper);
    deaths = 0;
    python.run(std::string(R"(
def make():
    class Held:
        def value(self, *rest): return __class__
    made = Held.__dict__['value']
    Held.value = )") +
               wrapper + R"(
    return Held
Held = make()
args[0].kind = Held
seen = weakref.ref(Held)
)");
    auto armed = class_attribute_is("Held", "value");
    EXPECT_TRUE(check(*armed));
    python.run("Held.other = 1");  // another version: looked up anew
    EXPECT_TRUE(check(*armed));
    // The same functions in another place, and other functions in its own.
    python.run("kept = Held.__dict__['value']; Held.value = 2");
    EXPECT_FALSE(check(*armed));
    python.run("Held.value = kept; del kept");
    EXPECT_TRUE(check(*armed));
    python.run("del Held, args[0].kind; gc.collect()");
    EXPECT_TRUE(is_true("seen() is None"));
    EXPECT_TRUE(armed->dead());
    EXPECT_EQ(deaths, 1);
  }
}

// Replaced again and again, so that one comes to lie where another was.
TEST_F(WeakObjectsTest, AnotherWrapperInItsPlaceIsAnother) {
  python.run("def first(self): pass\ndef second(self): pass");
  python.run("Thing.part = property(first)");
  auto armed = class_attribute_is("Thing", "part");
  EXPECT_TRUE(check(*armed));
  for (const char* other : {"property(second)", "property(first, second)",
                            "staticmethod(first)", "classmethod(second)"}) {
    SCOPED_TRACE(other);
    for (int i = 0; i < 50; ++i) {
      python.run(std::string("Thing.part = None; Thing.part = ") + other);
      EXPECT_FALSE(check(*armed));
    }
  }
  EXPECT_FALSE(armed->dead());
}

TEST_F(WeakObjectsTest, ReferencesAreGivenUpOnce) {
  Ref helper = python.value("helper"), type = python.value("Mixin");
  Py_ssize_t before = Py_REFCNT(helper.get());
  Py_ssize_t type_before = Py_REFCNT(type.get());
  {
    auto armed = attribute_is("helper");
    // One reference is the attribute's; the guard and the predicate have none.
    EXPECT_EQ(Py_REFCNT(helper.get()), before + 1);
    EXPECT_TRUE(check(*armed));
    EXPECT_EQ(Py_REFCNT(helper.get()), before + 1);
  }
  python.run("del args[0].part");
  EXPECT_EQ(Py_REFCNT(helper.get()), before);
  {
    auto armed = attribute_is("Mixin");
    EXPECT_TRUE(check(*armed));
  }
  python.run("del args[0].part; gc.collect()");
  EXPECT_EQ(Py_REFCNT(type.get()), type_before);
  EXPECT_EQ(deaths, 0);
}

class MroGuardTest : public WeakObjectsTest {
 protected:
  std::unique_ptr<ArmedGuards> mro_guards() {
    auto set = std::make_unique<GuardSet>();
    Ref type = python.value("Thing");
    const Source* source = set->sources().constant(type.get());
    Ref addresses = mro_addresses(reinterpret_cast<PyTypeObject*>(type.get()));
    EXPECT_TRUE(addresses);
    set->add(guard_on(GuardKind::kTypeAttrIs, source, name("__mro__"),
                      std::move(addresses)));
    return arm(std::move(set));
  }
};

TEST_F(MroGuardTest, SeesEveryChangeOfTheBases) {
  auto armed = mro_guards();
  EXPECT_TRUE(is_mro_guard(armed->guards().guards()[0]));
  EXPECT_TRUE(check(*armed));
  python.run("Thing.__bases__ = (Mixin, Base)");
  EXPECT_FALSE(check(*armed));
  python.run("Thing.__bases__ = (Base, Mixin)");
  EXPECT_FALSE(check(*armed));
  python.run("Thing.__bases__ = (Base,)");
  EXPECT_TRUE(check(*armed));
  // A base of the base.
  python.run("class Root: pass\nclass Base2(Root): pass\n");
  python.run("Thing.__bases__ = (Base2,)");
  EXPECT_FALSE(check(*armed));
  python.run("Thing.__bases__ = (Base,)");
  EXPECT_TRUE(check(*armed));
}

TEST_F(MroGuardTest, AttributesOfTheClassMayChange) {
  auto armed = mro_guards();
  for (int i = 0; i < 20; ++i) {
    python.run("Thing.counter = " + std::to_string(i));
    EXPECT_TRUE(check(*armed));
    python.run("Base.other = " + std::to_string(i));
    EXPECT_TRUE(check(*armed));
  }
}

// The guard holds addresses of classes, of a base that dies, too.
TEST_F(MroGuardTest, ABaseThatDiesEndsTheEntry) {
  python.run("class Passing: pass\nThing.__bases__ = (Passing,)");
  auto armed = mro_guards();
  EXPECT_TRUE(check(*armed));
  python.run(
      "Thing.__bases__ = (Base,)\nseen = weakref.ref(Passing)\ndel Passing\n"
      "gc.collect()");
  EXPECT_TRUE(is_true("seen() is None"));
  EXPECT_EQ(deaths, 1);
  EXPECT_TRUE(armed->dead());
}

}  // namespace
}  // namespace framejit
