// What predicates take for granted while no dict changes: the counter says so
// truly, what is no dict is looked at each time, and the walk is in use.
#include <cstdlib>
#include <optional>

#include "guards/emit/dict_epoch.h"
#include "tests/guards/guard_harness.h"

namespace framejit {
namespace {

// FJ_TEST_DICT_EPOCH=always: all tests of this program, small predicates, too.
class EveryPredicate : public testing::Environment {
 public:
  void SetUp() override {
    const char* value = std::getenv("FJ_TEST_DICT_EPOCH");
    if (value && std::string(value) == "always") set_dicts_worth_an_epoch(0);
  }
};
[[maybe_unused]] auto* const kEnvironment =
    testing::AddGlobalTestEnvironment(new EveryPredicate);

class DictEpochTest : public testing::Test {
 protected:
  void SetUp() override {
    if (PY_VERSION_HEX >= 0x030C0000) GTEST_SKIP() << "CPython 3.11";
    ASSERT_NE(dict_version_counter(), nullptr);
    fake::install();
    python.run(R"(
import fake
class Base: pass
class Module(Base):
    def __init__(self, **parts):
        self.__dict__
        self.training = True
        self.hooks = {}
        self.parts = parts
class Same(Base): pass
leaves = {'m%d' % i: Module(w=fake.tensor([2, 3])) for i in range(40)}
model = Module(**leaves)
leaf = leaves['m20']
weight = leaf.parts['w']
own, other = leaf.__dict__, dict(leaf.__dict__)
numbers = [1, 2]
args = (model, numbers, {'t': fake.tensor([5])})
def function(): pass
)");
  }

  // Of each module its type, training and that it has no hooks; of the leaves
  // the tensor; numbers[0] == 1.
  std::unique_ptr<ArmedGuards> armed(
      const std::function<void(GuardSet&)>& more = {}) {
    auto set = std::make_unique<GuardSet>();
    fake::FakeTracer tracer;
    EXPECT_TRUE(tracer.begin(set.get()).ok());
    // A small argument, looked at before the walks part.
    const Source* tensors = set->sources().arg(2);
    set->add(GuardKind::kTypeIs, tensors, object(&PyDict_Type));
    Ref name = Ref::steal(PyUnicode_InternFromString("t"));
    const Source* tensor =
        set->sources().make(SourceKind::kDictItem, tensors, name.get());
    EXPECT_TRUE(
        tracer.stand_in(python.value("args[2]['t']").get(), tensor, {}).ok());
    set->gather(tensor);
    add_module(tracer, *set, set->sources().arg(0),
               python.value("model").get());
    EXPECT_TRUE(tracer.finish({}).ok());
    const Source* numbers = set->sources().arg(1);
    set->add(GuardKind::kTypeIs, numbers, object(&PyList_Type));
    const Source* first =
        set->sources().make(SourceKind::kListItem, numbers, nullptr, 0);
    set->add(GuardKind::kEquals, first, Ref::steal(PyLong_FromLong(1)).get());
    set->gather(first);
    if (more) more(*set);
    auto made = std::make_unique<ArmedGuards>(std::move(set));
    call.emplace(python);
    EXPECT_TRUE(made->arm(call->args.data(), call->function.get()));
    return made;
  }
  static PyObject* object(PyTypeObject* type) {
    return reinterpret_cast<PyObject*>(type);
  }
  void add_module(fake::FakeTracer& tracer, GuardSet& set, const Source* source,
                  PyObject* module) {
    set.add(GuardKind::kTypeIs, source, object(Py_TYPE(module)));
    auto attribute = [&](const char* name) {
      Ref key = Ref::steal(PyUnicode_InternFromString(name));
      return set.sources().make(SourceKind::kInstanceAttr, source, key.get());
    };
    set.add(GuardKind::kEquals, attribute("training"), Py_True);
    Ref empty = Ref::steal(PyTuple_New(0));
    set.add(GuardKind::kDictKeys, attribute("hooks"), empty.get());
    const Source* parts = attribute("parts");
    set.add(GuardKind::kTypeIs, parts, object(&PyDict_Type));
    Ref dict = Ref::steal(PyObject_GetAttrString(module, "parts"));
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(dict.get(), &position, &key, &value)) {
      const Source* item =
          set.sources().make(SourceKind::kDictItem, parts, key);
      if (fake::is_tensor(value)) {
        EXPECT_TRUE(tracer.stand_in(value, item, {}).ok());
        set.gather(item);
      } else {
        add_module(tracer, set, item, value);
      }
    }
  }
  // The first predicate alone.
  Outcome outcome(ArmedGuards& armed) {
    return native_outcome(armed.guards(), armed.predicate_functions()[0],
                          *call);
  }
  bool holds(ArmedGuards& armed) {
    const Outcome native = outcome(armed);
    if (native.holds)
      expect_same(native, reference_outcome(armed.guards(), *call));
    return native.holds;
  }
  PythonSource python;
  std::optional<Call> call;  // made once: making one makes dicts
};

TEST_F(DictEpochTest, TheCounterFollowsEveryStore) {
  const uint64_t* counter = dict_version_counter();
  const char* const kStores[] = {
      "d['a'] = 1",
      "d['a'] = 2",
      "del d['a']",
      "d.update(b=1)",
      "d.setdefault('c')",
      "d.pop('c')",
      "d.popitem()",
      "d.clear()",
      "d |= {'x': 1}",
      "d.__init__(y=2)",
      "e = {}",
      "e = dict(d)",
      "m.attribute = 1",
      "m.attribute = 2",
      "del m.attribute",
      "m.__dict__ = {}",
      "global_name = 3",
      "s.x = 1; s.__dict__['x'] = 2",
  };
  python.run("d = {}; m = Module()\nclass Plain: pass\ns = Plain()");
  for (const char* store : kStores) {
    SCOPED_TRACE(store);
    // (Compiling and running the text makes dicts, too: the value counts.)
    const uint64_t before = *counter;
    python.run(store);
    EXPECT_GT(*counter, before);
    Ref d = python.value("d");
    EXPECT_LE(dict_version(d.get()), *counter);
  }
  Ref dict = Ref::steal(PyDict_New());
  EXPECT_EQ(*counter, dict_version(dict.get()));
  for (int i = 0; i < 100; ++i) {
    const uint64_t before = *counter;
    Ref value = Ref::steal(PyLong_FromLong(i));
    ASSERT_EQ(PyDict_SetItemString(dict.get(), "key", value.get()), 0);
    EXPECT_EQ(*counter, before + 1);
    EXPECT_EQ(*counter, dict_version(dict.get()));
  }
}

// Facts that change while no dict does.
TEST_F(DictEpochTest, WhatIsNoDictIsLookedAt) {
  python.run(R"(
def swap_class(): leaf.__class__ = Same
def put_class(): leaf.__class__ = Module
def swap_dict(): leaf.__dict__ = other
def put_dict(): leaf.__dict__ = own
def resize(): weight.resize_(two_two)
def restore(): weight.resize_(two_three)
def grad(): weight.requires_grad_(True)
def no_grad(): weight.requires_grad_(False)
def first(): numbers[0] = 5
def undo_first(): numbers[0] = 1
two_two, two_three = [2, 2], [2, 3]
)");
  const std::pair<const char*, const char*> kChanges[] = {
      {"swap_class", "put_class"}, {"swap_dict", "put_dict"},
      {"resize", "restore"},       {"grad", "no_grad"},
      {"first", "undo_first"},
  };
  auto entry = armed();
  const uint64_t* counter = dict_version_counter();
  for (auto [change, undo] : kChanges) {
    SCOPED_TRACE(change);
    Ref does = python.value(change), undoes = python.value(undo);
    auto call = [&](const Ref& callable) {
      Ref result = Ref::steal(PyObject_CallNoArgs(callable.get()));
      ASSERT_TRUE(result);
    };
    // Once: specialised code makes no dicts.
    call(does);
    call(undoes);
    ASSERT_TRUE(holds(*entry));
    const uint64_t before = *counter;
    for (int round = 0; round < 3; ++round) {
      EXPECT_TRUE(holds(*entry));
      call(does);
      EXPECT_FALSE(holds(*entry));
      call(undoes);
      EXPECT_TRUE(holds(*entry));
    }
    EXPECT_EQ(*counter, before) << "no test of what it is to test";
  }
}

// Seen from outside: a dict that changes behind CPython's back is believed
// until the next one changes properly.
TEST_F(DictEpochTest, UnchangedDictsAreNotRead) {
  auto entry = armed();
  Ref hooks = python.value("leaf.hooks"), another = Ref::steal(PyDict_New());
  auto* dict = reinterpret_cast<PyDictObject*>(hooks.get());
  EXPECT_TRUE(outcome(*entry).holds);
  dict->ma_used = 1;
  EXPECT_TRUE(outcome(*entry).holds);
  ASSERT_EQ(PyDict_SetItem(another.get(), Py_None, Py_None), 0);
  EXPECT_FALSE(outcome(*entry).holds);
  EXPECT_FALSE(outcome(*entry).holds);
  dict->ma_used = 0;
  EXPECT_TRUE(outcome(*entry).holds);
}

// Globals are read by slot: an entry holds for whatever equal object is there,
// also after the one it was made for is gone.
TEST_F(DictEpochTest, GlobalsMayBeReplaced) {
  python.run(
      "class Config:\n  def __init__(self): self.rate = 7\n"
      "config = Config()");
  auto entry = armed([&](GuardSet& set) {
    SourceArena& sources = set.sources();
    Ref name = Ref::steal(PyUnicode_InternFromString("config"));
    Ref rate = Ref::steal(PyUnicode_InternFromString("rate"));
    const Source* globals =
        sources.make(SourceKind::kGlobals, sources.function());
    const Source* config =
        sources.make(SourceKind::kDictItem, globals, name.get());
    set.add(GuardKind::kTypeIs, config, python.value("Config").get());
    set.add(GuardKind::kEquals,
            sources.make(SourceKind::kInstanceAttr, config, rate.get()),
            Ref::steal(PyLong_FromLong(7)).get());
    set.gather(config);
  });
  python.run("def set_rate(): config.rate = new_rate\nnew_rate = 8");
  Ref set_rate = python.value("set_rate");
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(holds(*entry));
    EXPECT_TRUE(holds(*entry));
    python.run("config = Config(); junk = [Config() for _ in range(20)]");
    EXPECT_TRUE(holds(*entry));
    EXPECT_TRUE(holds(*entry));
    Ref done = Ref::steal(PyObject_CallNoArgs(set_rate.get()));
    ASSERT_TRUE(done);
    EXPECT_FALSE(holds(*entry));
    python.run("config = Config()");
  }
}

// Another dict at the address of a dead one is another one.
TEST_F(DictEpochTest, NothingIsTakenForTheDead) {
  auto entry = armed();
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(holds(*entry));
    EXPECT_TRUE(holds(*entry));
    python.run("leaf.hooks = {}; leaf.hooks['x'] = 1");
    EXPECT_FALSE(holds(*entry));
    python.run("del leaf.hooks; leaf.hooks = {}");
    Call call(python);
    EXPECT_TRUE(check_call(*entry, call));
  }
  EXPECT_LE(entry->num_predicates(), ArmedGuards::kMaxPredicates);
}

}  // namespace
}  // namespace framejit
