// Dict and type watchers: a change by any route is seen, one that matters is a
// miss, nothing that died is touched, nothing stays watched, and without ids
// the version tags take over.
#include <cstdlib>

#include "guards/emit/watchers.h"
#include "tests/guards/guard_harness.h"

namespace framejit {
namespace {

constexpr bool kHasWatchers = PY_VERSION_HEX >= 0x030C0000;

// FJ_TEST_WATCHERS=off runs all tests of this program without watchers.
class WatchersOff : public testing::Environment {
 public:
  static bool wanted() {
    const char* value = std::getenv("FJ_TEST_WATCHERS");
    return value && std::string(value) == "off";
  }
  void SetUp() override {
    if (wanted()) set_watchers_available(false);
  }
};
[[maybe_unused]] auto* const kEnvironment =
    testing::AddGlobalTestEnvironment(new WatchersOff);

class WatchersTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!kHasWatchers) GTEST_SKIP() << "CPython 3.12 on";
    if (WatchersOff::wanted()) GTEST_SKIP() << "switched off";
    fake::install();
    python.run(R"(
import collections, fake, gc, sys, weakref
class Meta(type): pass
class Base:
    inherited = 1
class Other(Base): pass
class Model(Base):
    scale = 2
    def __init__(self):
        self.__dict__     # as nn.Module: the dict exists
        self.items = {'a': 1, 'b': {'c': 5}}
        self.training = True
        self.n = 0
class Same(Model): pass
def function(model, d): pass
def fresh():
    global model, args
    model = Model()
    args = [model, {'k': 1, 'z': 2}]
fresh()
)");
  }

  // model.training is True, model.items['a'] is 1, model.items['b']['c'] is 5,
  // no model.hook, Model.scale is 2, Model.inherited is 1, d['k'] is 1, no
  // d['m']
  std::unique_ptr<GuardSet> guards() {
    auto set = std::make_unique<GuardSet>();
    SourceArena& sources = set->sources();
    auto name = [](const char* text) {
      return Ref::steal(PyUnicode_InternFromString(text));
    };
    auto number = [](long value) { return Ref::steal(PyLong_FromLong(value)); };
    const Source* model = sources.arg(0);
    set->add(GuardKind::kTypeIs, model, python.value("Model").get());
    auto attr = [&](const char* key) {
      return sources.make(SourceKind::kInstanceAttr, model, name(key).get());
    };
    auto item = [&](const Source* dict, const char* key) {
      return sources.make(SourceKind::kDictItem, dict, name(key).get());
    };
    set->add(GuardKind::kEquals, attr("training"), Py_True);
    set->add(GuardKind::kNoInstanceAttr, model, name("hook").get());
    const Source* items = attr("items");
    PyObject* dict_type = reinterpret_cast<PyObject*>(&PyDict_Type);
    set->add(GuardKind::kTypeIs, items, dict_type);
    set->add(GuardKind::kEquals, item(items, "a"), number(1).get());
    const Source* inner = item(items, "b");
    set->add(GuardKind::kTypeIs, inner, dict_type);
    set->add(GuardKind::kEquals, item(inner, "c"), number(5).get());
    for (const char* key : {"scale", "inherited"}) {
      Guard guard;
      guard.kind = GuardKind::kTypeAttrIs;
      guard.source = sources.make(SourceKind::kTypeOf, model);
      guard.object = name(key);
      guard.object2 = python.value(std::string("Model.") + key);
      set->add(std::move(guard));
    }
    const Source* d = sources.arg(1);
    set->add(GuardKind::kTypeIs, d, dict_type);
    set->add(GuardKind::kEquals, item(d, "k"), number(1).get());
    set->add(GuardKind::kNoKey, d, name("m").get());
    set->gather(items);
    return set;
  }
  std::unique_ptr<ArmedGuards> armed() {
    auto made = std::make_unique<ArmedGuards>(guards());
    Call call(python);
    EXPECT_TRUE(made->arm(call.args.data(), call.function.get()));
    return made;
  }
  bool check(ArmedGuards& armed, const std::string& source = "") {
    python.run(source);
    Call call(python);
    return check_call(armed, call);
  }
  PythonSource python;
};

TEST_F(WatchersTest, WatchesAndLetsGo) {
  size_t before = num_watched();
  {
    auto entry = armed();
    // Items, the inner one, d, and the class; the instance's dict where it does
    // not share the values of the instance.
    EXPECT_EQ(num_watched(), before + (PY_VERSION_HEX < 0x030D0000 ? 5 : 4));
    EXPECT_TRUE(check(*entry));
    EXPECT_EQ(entry->num_rearmed(), 0u);
  }
  EXPECT_EQ(num_watched(), before);
}

// Each route changes a fact: a miss, both natively and structurally; undone,
// the facts hold again.
TEST_F(WatchersTest, EveryRouteIsSeen) {
  const std::pair<const char*, const char*> kRoutes[] = {
      {"model.training = False", "model.training = True"},
      {"setattr(model, 'training', 0)", "setattr(model, 'training', True)"},
      {"object.__setattr__(model, 'training', False)", "model.training = True"},
      {"model.__dict__['training'] = False",
       "model.__dict__['training'] = True"},
      {"vars(model).update(training=False)",
       "vars(model).update(training=True)"},
      {"del model.training", "model.training = True"},
      {"model.__dict__.pop('training')", "model.training = True"},
      {"old = dict(vars(model)); vars(model).clear()",
       "vars(model).update(old)"},
      {"old = model.__dict__; model.__dict__ = dict(old, training=False)",
       "model.__dict__ = old"},
      {"old = model.__dict__; model.__dict__ = {}", "model.__dict__ = old"},
      {"del model.__dict__", "model.__init__()"},
      {"model.hook = 1", "del model.hook"},
      {"model.__dict__.setdefault('hook', 1)", "del model.hook"},
      {"model.items = {}", "model.items = {'a': 1, 'b': {'c': 5}}"},
      {"model.items['a'] = 2", "model.items['a'] = 1"},
      {"del model.items['a']", "model.items['a'] = 1"},
      {"model.items.clear()", "model.items.update({'a': 1, 'b': {'c': 5}})"},
      {"model.items |= {'a': 2}", "model.items |= {'a': 1}"},
      {"dict.__setitem__(model.items, 'a', 2)", "model.items['a'] = 1"},
      {"dict.__init__(model.items, a=2)", "model.items['a'] = 1"},
      {"x = model.items.pop('b')", "model.items['b'] = x"},
      {"x = model.items.popitem()", "model.items[x[0]] = x[1]"},
      {"model.items['b']['c'] = 6", "model.items['b']['c'] = 5"},
      {"model.items['b'].__delitem__('c')", "model.items['b']['c'] = 5"},
      {"model.items['b'] = {'c': 6}", "model.items['b'] = {'c': 5}"},
      {"model.__class__ = Same", "model.__class__ = Model"},
      {"Model.scale = 3", "Model.scale = 2"},
      {"type.__setattr__(Model, 'scale', 3)", "Model.scale = 2"},
      {"del Model.scale", "Model.scale = 2"},
      {"Base.inherited = 2", "Base.inherited = 1"},
      {"Model.inherited = 2", "del Model.inherited"},
      {"del Base.inherited", "Base.inherited = 1"},
      {"Model.__bases__ = (Other,); Other.inherited = 7",
       "del Other.inherited; Model.__bases__ = (Base,)"},
      {"args[1] = {}", "args[1] = {'k': 1}"},
      {"args[1]['k'] = 2", "args[1]['k'] = 1"},
      {"args[1]['m'] = 2", "del args[1]['m']"},
      {"args[1] = collections.OrderedDict(k=1)", "args[1] = {'k': 1}"},
      {"args[0] = Same()", "args[0] = model"},
  };
  for (auto [change, undo] : kRoutes) {
    SCOPED_TRACE(change);
    python.run("fresh()");
    auto entry = armed();
    EXPECT_TRUE(check(*entry));
    for (int round = 0; round < 3; ++round) {
      EXPECT_FALSE(check(*entry, change));
      EXPECT_TRUE(check(*entry, undo));
      EXPECT_TRUE(check(*entry));
    }
  }
}

// Changes of what no guard says anything about: never a miss.
TEST_F(WatchersTest, WhatIsNotUsedMayChange) {
  const char* const kChanges[] = {
      "model.n += 1",
      "model.other = 1",
      "model.items['new'] = 1",
      "model.items['b']['d'] = 1",
      "Model.unused = 1",
      "Base.more = 1",
      "args[1]['unused'] = 1",
      "for i in range(100): model.items[i] = i",
      "for i in range(100): del model.items[i]",
      "model.__dict__ = dict(model.__dict__)",
      "model.items = dict(model.items)",
      "fresh()",
      "args[1] = {'x': 0, 'k': 1}",
  };
  auto entry = armed();
  for (int round = 0; round < 3; ++round) {
    for (const char* change : kChanges) {
      SCOPED_TRACE(change);
      EXPECT_TRUE(check(*entry, change));
      EXPECT_TRUE(check(*entry));
    }
  }
  EXPECT_LE(entry->num_predicates(), ArmedGuards::kMaxPredicates);
}

// A dict that is written to at each call is soon read by slots, and no longer
// watched.
TEST_F(WatchersTest, ACounterSettlesInSlots) {
  size_t before = num_watched();
  auto entry = armed();
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(check(*entry, "model.n += 1"));
  EXPECT_LE(entry->num_rearmed(), 4u);
  EXPECT_EQ(num_watched(), before + 4);
}

TEST_F(WatchersTest, NothingDeadIsTouched) {
  size_t before = num_watched();
  auto entry = armed();
  python.run(
      "w = weakref.ref(model); model = None; args = [None, {'k': 1}]\n"
      "gc.collect()");
  EXPECT_EQ(python.value("w()"), Ref::borrow(Py_None));
  // New objects in the places of the dead ones.
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(check(*entry, "fresh()"));
    EXPECT_FALSE(check(*entry, "fresh(); model.items['b']['c'] = 6"));
    EXPECT_FALSE(check(*entry, "args[0] = None"));
    python.run("model = None; args = [None, None]; gc.collect()");
  }
  EXPECT_LE(num_watched(), before + 10);
  entry.reset();
  EXPECT_EQ(num_watched(), before);
}

TEST_F(WatchersTest, ClassesThatDieAreLetGo) {
  size_t before = num_watched();
  python.run("keep = Model");
  for (int i = 0; i < 20; ++i) {
    python.run("class Model(Model): pass\nfresh()");
    auto entry = armed();
    EXPECT_TRUE(check(*entry));
    EXPECT_FALSE(check(*entry, "Model.scale = 3"));
    python.run("w = weakref.ref(Model); Model = keep; model = args = None");
    entry.reset();
    python.run("gc.collect()");
    EXPECT_EQ(python.value("w()"), Ref::borrow(Py_None));
    python.run("fresh()");
  }
  EXPECT_EQ(num_watched(), before);
}

// A metaclass with an mro() of its own: CPython does not report all changes.
TEST_F(WatchersTest, MetaclassesAreReadByVersion) {
  python.run(R"(
class Meta(type):
    def mro(cls):
        return list(type.mro(cls))
class Model(Base, metaclass=Meta):
    scale = 2
    __init__ = Model.__init__
fresh()
)");
  auto entry = armed();
  EXPECT_TRUE(check(*entry));
  EXPECT_FALSE(check(*entry, "Model.scale = 3"));
  EXPECT_TRUE(check(*entry, "Model.scale = 2"));
  EXPECT_FALSE(
      check(*entry, "Model.__bases__ = (Other,); Other.inherited = 7"));
}

// Stores to inline values: CPython 3.13.0 tells no watcher of them.
TEST_F(WatchersTest, InlineValues) {
  python.run(R"(
class Model(Base):
    scale = 2
    def __init__(self):
        self.items = {'a': 1, 'b': {'c': 5}}
        self.training = True
        self.n = 0
def store(v): model.training = v
fresh()
)");
  auto entry = armed();
  for (const char* before : {"", "model.__dict__", "vars(model)['n'] = 2"}) {
    SCOPED_TRACE(before);
    for (int round = 0; round < 20; ++round) {
      EXPECT_TRUE(check(*entry, before));
      EXPECT_FALSE(check(*entry, "store(False)"));
      EXPECT_TRUE(check(*entry, "store(True)"));
      EXPECT_FALSE(check(*entry, "vars(model)['training'] = False"));
      EXPECT_TRUE(check(*entry, "vars(model)['training'] = True"));
    }
  }
}

#if PY_VERSION_HEX >= 0x030C0000
// Eight ids are all there are: the entry works on version tags.
TEST_F(WatchersTest, WithoutIdsVersionTagsServe) {
  set_watchers_available(false);
  set_watchers_available(true);
  std::vector<int> dict_ids, type_ids;
  while (true) {
    int id = PyDict_AddWatcher(
        [](PyDict_WatchEvent, PyObject*, PyObject*, PyObject*) { return 0; });
    if (id < 0) break;
    dict_ids.push_back(id);
  }
  PyErr_Clear();
  while (true) {
    int id = PyType_AddWatcher([](PyTypeObject*) { return 0; });
    if (id < 0) break;
    type_ids.push_back(id);
  }
  PyErr_Clear();
  EXPECT_GT(dict_ids.size(), 3u);
  EXPECT_GT(type_ids.size(), 3u);
  size_t before = num_watched();
  {
    auto entry = armed();
    EXPECT_EQ(num_watched(), before);
    EXPECT_TRUE(check(*entry));
    EXPECT_EQ(entry->num_rearmed(), 0u);
    EXPECT_FALSE(check(*entry, "model.items['b']['c'] = 6"));
    EXPECT_TRUE(check(*entry, "model.items['b']['c'] = 5"));
    EXPECT_FALSE(check(*entry, "Model.scale = 3"));
    EXPECT_TRUE(check(*entry, "Model.scale = 2"));
  }
  for (int id : dict_ids) EXPECT_EQ(PyDict_ClearWatcher(id), 0);
  for (int id : type_ids) EXPECT_EQ(PyType_ClearWatcher(id), 0);
  // With ids again, they are asked for again.
  set_watchers_available(false);
  set_watchers_available(true);
  auto entry = armed();
  EXPECT_GT(num_watched(), before);
}

// Ids taken away in the middle: no predicate may go on believing.
TEST_F(WatchersTest, LosingTheIdsEndsThePredicates) {
  auto entry = armed();
  set_watchers_available(false);
  EXPECT_FALSE(check(*entry, "model.items['a'] = 2"));
  EXPECT_TRUE(check(*entry, "model.items['a'] = 1"));
  set_watchers_available(true);
  EXPECT_TRUE(check(*entry));
}
#endif

}  // namespace
}  // namespace framejit
