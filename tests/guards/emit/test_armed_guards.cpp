// Re-arming: fast forms fail, facts hold; predicates neither pile up nor
// thrash, nothing leaks, and no dead object is touched.
#include <signal.h>

#include <chrono>

#include "frame_hook/interjections.h"
#include "guards/emit/emit_helpers.h"
#include "tests/guards/guard_harness.h"

namespace framejit {
namespace {

class ArmedGuardsTest : public testing::Test {
 protected:
  void SetUp() override {
    fake::install();
    python.run(R"(
import fake, gc
class Layer:
    def __init__(self, n):
        self.__dict__     # as nn.Module: the dict exists
        self.parameters = {'weight': fake.Parameter([2]), 'bias': None}
        self.hooks = {}
        self.n = n
        self.training = True
def function(layer, x): pass
layers = [Layer(i) for i in range(24)]
args = [layers[0], 1]
)");
  }

  // The guards of one layer's forward.
  std::unique_ptr<GuardSet> layer_guards() {
    auto set = std::make_unique<GuardSet>();
    SourceArena& sources = set->sources();
    auto name = [](const char* text) {
      return Ref::steal(PyUnicode_InternFromString(text));
    };
    auto attr = [&](const Source* base, const char* key) {
      return sources.make(SourceKind::kInstanceAttr, base, name(key).get());
    };
    const Source* layer = sources.arg(0);
    Ref type = python.value("Layer");
    set->add(GuardKind::kTypeIs, layer, type.get());
    set->add(GuardKind::kEquals, attr(layer, "training"), Py_True);
    Ref missing = name("forward_hook");
    set->add(GuardKind::kNoInstanceAttr, layer, missing.get());
    Ref empty = Ref::steal(PyTuple_New(0));
    set->add(GuardKind::kDictKeys, attr(layer, "hooks"), empty.get());
    const Source* dict = attr(layer, "parameters");
    set->add(GuardKind::kTypeIs, dict,
             reinterpret_cast<PyObject*>(&PyDict_Type));
    const Source* bias =
        sources.make(SourceKind::kDictItem, dict, name("bias").get());
    set->add(GuardKind::kIs, bias, Py_None);
    const Source* weight =
        sources.make(SourceKind::kDictItem, dict, name("weight").get());
    fake::FakeTracer tracer;
    EXPECT_TRUE(tracer.begin(set.get()).ok());
    Ref parameter = python.value("layers[0].parameters['weight']");
    EXPECT_TRUE(tracer.stand_in(parameter.get(), weight, {}).ok());
    EXPECT_TRUE(tracer.finish({}).ok());
    return set;
  }
  bool check(ArmedGuards& armed, const std::string& source) {
    python.run(source);
    Call call(python);
    return check_call(armed, call);
  }
  PythonSource python;
};

TEST_F(ArmedGuardsTest, EqualLayersShareOneEntry) {
  ArmedGuards armed(layer_guards());
  Call call(python);
  ASSERT_TRUE(armed.arm(call.args.data(), call.function.get()));
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 24; ++i) {
      EXPECT_TRUE(check(armed, "args[0] = layers[" + std::to_string(i) + "]"));
    }
  }
  // Another instance is read by slots after the first miss.
  EXPECT_LE(armed.num_rearmed(), 3u);
  EXPECT_LE(armed.num_predicates(), 4u);
}

TEST_F(ArmedGuardsTest, AStoreEveryCallEndsInSlots) {
  ArmedGuards armed(layer_guards());
  Call call(python);
  ASSERT_TRUE(armed.arm(call.args.data(), call.function.get()));
  for (int i = 0; i < 50; ++i) EXPECT_TRUE(check(armed, "layers[0].n += 1"));
  EXPECT_LE(armed.num_rearmed(), 5u);
  EXPECT_LE(armed.num_predicates(), ArmedGuards::kMaxPredicates);
}

// A counter of the class: its attributes are looked up in the end, the rest
// stays as it was.
TEST_F(ArmedGuardsTest, AStoreToTheClassEveryCallEndsInLookups) {
  auto set = layer_guards();
  Guard guard;
  guard.kind = GuardKind::kTypeAttrIs;
  guard.source =
      set->sources().make(SourceKind::kTypeOf, set->sources().arg(0));
  guard.object = Ref::steal(PyUnicode_InternFromString("__init__"));
  guard.object2 = python.value("Layer.__init__");
  set->add(std::move(guard));
  ArmedGuards armed(std::move(set));
  Call call(python);
  ASSERT_TRUE(armed.arm(call.args.data(), call.function.get()));
  for (int i = 0; i < 50; ++i) {
    EXPECT_TRUE(check(armed, "Layer.n = " + std::to_string(i)));
  }
  EXPECT_LE(armed.num_rearmed(), 4u);
  EXPECT_FALSE(check(armed, "init = Layer.__init__\ndel Layer.__init__"));
  EXPECT_TRUE(check(armed, "Layer.__init__ = init"));
}

// Built-in functions are told apart by their names, natively.
TEST_F(ArmedGuardsTest, NamesOfBuiltinFunctions) {
  for (const char* name : {"len", "id", "isinstance", "__build_class__"}) {
    SCOPED_TRACE(name);
    python.run(std::string("import builtins\nargs = [builtins.") + name + "]");
    auto set = std::make_unique<GuardSet>();
    SourceArena& sources = set->sources();
    Ref key = Ref::steal(PyUnicode_InternFromString("__name__"));
    Ref expected = Ref::steal(PyUnicode_FromString(name));
    set->add(GuardKind::kTypeIs, sources.arg(0),
             reinterpret_cast<PyObject*>(&PyCFunction_Type));
    set->add(GuardKind::kEquals,
             sources.make(SourceKind::kGetSet, sources.arg(0), key.get()),
             expected.get());
    ArmedGuards armed(std::move(set));
    Call call(python);
    ASSERT_TRUE(armed.arm(call.args.data(), call.function.get()));
    EXPECT_TRUE(check(armed, "pass"));
    for (const char* other :
         {"le = builtins.abs", "le = [].append", "le = builtins.iter",
          "le = builtins.issubclass", "le = builtins.int", "le = 3"}) {
      EXPECT_FALSE(check(armed, std::string(other) + "\nargs = [le]"));
    }
    EXPECT_TRUE(check(armed, std::string("args = [builtins.") + name + "]"));
    EXPECT_EQ(armed.num_rearmed(), 0u);
  }
}

// Reading an attribute of C code may look for signals.
TEST_F(ArmedGuardsTest, WhatASignalHandlerRaisesIsHandedOn) {
  python.run(
      "import signal\n"
      "class Late(Exception): pass\n"
      "def handle(*_): raise Late\n"
      "old = signal.signal(signal.SIGUSR1, handle)\n"
      "args = [[].append]");
  Ref late = python.value("Late");
  auto set = std::make_unique<GuardSet>();
  SourceArena& sources = set->sources();
  Ref key = Ref::steal(PyUnicode_InternFromString("__qualname__"));
  Ref expected = Ref::steal(PyUnicode_FromString("list.append"));
  set->add(GuardKind::kEquals,
           sources.make(SourceKind::kGetSet, sources.arg(0), key.get()),
           expected.get());
  const GuardSet& guards = *set;
  ArmedGuards armed(std::move(set));
  Call call(python);
  ASSERT_TRUE(armed.arm(call.args.data(), call.function.get()));
  EXPECT_TRUE(check(armed, "pass"));
  auto comes = [&](auto&& asked) {
    raise(SIGUSR1);
    EXPECT_FALSE(asked());
    EXPECT_FALSE(PyErr_Occurred());
    EXPECT_TRUE(interruption_waits());
    // The code that runs next, at its first instruction.
    Ref result = Ref::steal(
        PyRun_String("0", Py_eval_input, python.dict(), python.dict()));
    EXPECT_FALSE(result);
    EXPECT_TRUE(PyErr_ExceptionMatches(late.get()));
    PyErr_Clear();
    EXPECT_FALSE(interruption_waits());
  };
  comes([&] { return predicate_guard(&guards, 0, call.args.data(), nullptr); });
  comes([&] { return reference_outcome(guards, call).holds; });
  EXPECT_TRUE(check(armed, "pass"));
  python.run("signal.signal(signal.SIGUSR1, old)");
}

TEST_F(ArmedGuardsTest, ManyLayoutsEndInLookups) {
  ArmedGuards armed(layer_guards());
  Call call(python);
  ASSERT_TRUE(armed.arm(call.args.data(), call.function.get()));
  for (int i = 0; i < 60; ++i) {
    // Keys in another order and place every time.
    EXPECT_TRUE(check(armed,
                      "l = Layer(1); d = dict(l.__dict__); l.__dict__ = {}\n"
                      "for i in range(" +
                          std::to_string(i % 17) +
                          "): l.__dict__['k%d' % i] = 0\n"
                          "l.__dict__.update(d); args[0] = l"));
  }
  EXPECT_LE(armed.num_rearmed(), 15u);
  EXPECT_FALSE(check(armed, "l.forward_hook = 1"));
  EXPECT_FALSE(check(armed, "del l.forward_hook; l.hooks[1] = 1"));
}

TEST_F(ArmedGuardsTest, PlainSourcesNeverPileUp) {
  auto set = std::make_unique<GuardSet>();
  set->add(GuardKind::kEquals, set->sources().arg(1),
           python.value("10**30").get());
  set->gather(set->sources().arg(0));
  ArmedGuards armed(std::move(set));
  python.run("args[1] = 10**30");
  Call call(python);
  ASSERT_TRUE(armed.arm(call.args.data(), call.function.get()));
  for (int i = 0; i < 20; ++i)
    EXPECT_TRUE(check(armed, "args = [object(), int('1' + '0' * 30)]"));
  EXPECT_FALSE(check(armed, "args[1] = 5"));
  EXPECT_EQ(armed.num_rearmed(), 0u);
  EXPECT_EQ(armed.num_predicates(), 1u);
}

// The predicate of a dead model must not touch it, nor keep it alive.
TEST_F(ArmedGuardsTest, KeepsNoModelAliveAndTouchesNoDeadOne) {
  python.run("import weakref\nl = Layer(1)\nw = weakref.ref(l)\nargs = [l, 1]");
  ArmedGuards armed(layer_guards());
  {
    Call call(python);
    ASSERT_TRUE(armed.arm(call.args.data(), call.function.get()));
  }
  python.run("args = [layers[0], 1]; del l; gc.collect()");
  EXPECT_EQ(python.value("w()"), Ref::borrow(Py_None));
  for (int i = 0; i < 200; ++i)
    EXPECT_TRUE(check(armed, "args = [Layer(3), 1]"));
  EXPECT_FALSE(check(armed, "args[0].training = False"));
}

TEST_F(ArmedGuardsTest, NothingLeaks) {
  python.run(
      "import sys\n"
      "watched = [Layer, layers[0], layers[0].parameters, None,\n"
      "           layers[0].parameters['weight']]\n"
      "def counts(): return [sys.getrefcount(o) for o in watched[:3]]");
  Ref before = python.value("counts()");
  for (int i = 0; i < 50; ++i) {
    ArmedGuards armed(layer_guards());
    Call call(python);
    ASSERT_TRUE(armed.arm(call.args.data(), call.function.get()));
    EXPECT_TRUE(check(armed, "args[0] = layers[1]"));
    EXPECT_TRUE(check(armed, "layers[0].n += 1; args[0] = layers[0]"));
    EXPECT_FALSE(check(armed, "layers[0].training = False"));
    python.run("layers[0].training = True");
  }
  Ref after = python.value("counts()");
  EXPECT_EQ(PyObject_RichCompareBool(before.get(), after.get(), Py_EQ), 1);
}

// Random object graphs, random guards that hold for them, random mutations:
// check_call compares the native answer with the reference each time.
TEST_F(ArmedGuardsTest, RandomGraphsAndMutations) {
  python.run(R"(
import random, collections
random.seed(11)
class Node: pass
class Node2: pass
NAMES = ['a', 'b', 'c', 'd', 'e']
def value(depth):
    kind = random.randrange(11 if depth else 5)
    if kind < 2: return random.choice([0, 1, 300, True, None, 1.5, 'text', 2**40])
    if kind == 2: return random.choice(NAMES)
    if kind == 3: return fake.tensor([random.randrange(1, 4)])
    if kind == 4: return ()
    if kind == 5: return [value(depth - 1) for _ in range(random.randrange(4))]
    if kind == 6: return tuple(value(depth - 1) for _ in range(random.randrange(4)))
    if kind in (7, 8):
        make = random.choice([dict, dict, collections.OrderedDict])
        return make((random.choice(NAMES + [1, 2]), value(depth - 1))
                    for _ in range(random.randrange(5)))
    node = random.choice([Node, Node2])()
    if random.random() < .5: node.__dict__
    for _ in range(random.randrange(4)):
        setattr(node, random.choice(NAMES), value(depth - 1))
    return node
def reachable(o, out, depth=0):
    if depth < 6:
        out.append(o)
        if isinstance(o, (list, tuple)): children = list(o)
        elif isinstance(o, dict): children = list(o.values())
        elif isinstance(o, (Node, Node2)): children = list(vars(o).values()) if random.random() < .5 else []
        else: children = []
        for c in children: reachable(c, out, depth + 1)
    return out
def mutate(root):
    o = random.choice(reachable(root, []))
    new = lambda: value(random.randrange(3))
    if isinstance(o, list):
        r = random.randrange(4)
        if r == 0: o.append(new())
        elif r == 1 and o: o[random.randrange(len(o))] = new()
        elif r == 2 and o: o.pop()
        else: o.reverse()
    elif isinstance(o, dict):
        k = random.choice(NAMES + [1, 2])
        r = random.randrange(6)
        if r == 0: o[k] = new()
        elif r == 1: o.pop(k, None)
        elif r == 2 and k in o: o[k] = o.pop(k)
        elif r == 3:
            for i in range(20): o['x%d' % i] = i
            for i in range(20): del o['x%d' % i]
        elif r == 4: items = list(o.items()); o.clear(); o.update(items)
    elif isinstance(o, (Node, Node2)):
        k = random.choice(NAMES)
        r = random.randrange(7)
        if r == 0: setattr(o, k, new())
        elif r == 1: o.__dict__.pop(k, None)
        elif r == 2: o.__class__ = random.choice([Node, Node2])
        elif r == 3: o.__dict__ = dict(o.__dict__)
        elif r == 4: setattr(type(o), k, random.randrange(3))
        elif r == 5: vars(o)
        elif hasattr(type(o), k) and k in vars(type(o)): delattr(type(o), k)
    elif isinstance(o, fake.Tensor):
        random.choice([lambda: o.resize_([random.randrange(1, 4)]),
                       lambda: o.requires_grad_(random.random() < .5),
                       lambda: o.add_(1.0)])()
def rebuild(o, depth=0):
    # An equal graph of other objects.
    if isinstance(o, list): return [rebuild(x) for x in o]
    if type(o) is tuple: return tuple(rebuild(x) for x in o)
    if isinstance(o, dict): return type(o)((k, rebuild(v)) for k, v in o.items())
    if isinstance(o, (Node, Node2)):
        n = type(o)()
        for k, v in vars(o).items(): setattr(n, k, rebuild(v))
        return n
    if isinstance(o, str): return ''.join(list(o))
    return o
)");
  uint64_t state = 99;
  auto random = [&](uint64_t bound) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<int64_t>((state >> 33) % bound);
  };
  const char* const kNames[] = {"a", "b", "c", "d", "e"};
  int held = 0, failed = 0;
  for (int round = 0; round < 400; ++round) {
    python.run("root = value(4); args = [root, 1]");
    auto set = std::make_unique<GuardSet>();
    SourceArena& sources = set->sources();
    Call call(python);
    // Walks random paths and guards what it finds there.
    for (int path = 0; path < 8; ++path) {
      const Source* source = sources.arg(0);
      for (int step = 0; step < 5; ++step) {
        Ref now = evaluate_source(source, call.args.data(), nullptr);
        if (!now) break;
        PyObject* object = now.get();
        Ref name = Ref::steal(PyUnicode_InternFromString(kNames[random(5)]));
        int64_t choice = random(8);
        PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
        if (choice == 0) set->add(GuardKind::kTypeIs, source, type);
        if (choice == 1) set->add(GuardKind::kExists, source);
        if (choice == 2 && constant_equal(object, object))
          set->add(GuardKind::kEquals, source, object);
        if (choice == 3 && container_length(object) >= 0)
          set->add(GuardKind::kLength, source, nullptr,
                   container_length(object));
        if (choice == 4 && random(4) == 0)
          set->add(GuardKind::kIs, source, object);
        if (choice == 5) {
          Guard guard;
          guard.kind = GuardKind::kTypeAttrIs;
          guard.source = sources.make(SourceKind::kTypeOf, source);
          guard.object = name;
          guard.object2 =
              Ref::borrow(_PyType_Lookup(Py_TYPE(object), name.get()));
          set->add(std::move(guard));
        }
        if (choice == 6) set->gather(source);
        const Source* next = nullptr;
        if (PyDict_Check(object)) {
          Ref key = name;
          if (random(4) == 0) key = Ref::steal(PyLong_FromLong(1 + random(2)));
          PyObject* found;
          Lookup there = dict_find(object, key.get(), &found);
          if (there == Lookup::kAbsent)
            set->add(GuardKind::kNoKey, source, key.get());
          if (there == Lookup::kFound) {
            if (random(2)) set->add(GuardKind::kHasKey, source, key.get());
            next = sources.make(SourceKind::kDictItem, source, key.get());
          }
          // (An OrderedDict with other keys than str is never guarded so.)
          if (random(3) == 0 &&
              (!PyODict_Check(object) ||
               dict_keys(object)->kind != DictKeys::kGeneral)) {
            Ref keys = Ref::steal(PySequence_Tuple(object));
            set->add(GuardKind::kDictKeys, source, keys.get());
          }
          if (PyDict_GET_SIZE(object) && random(3) == 0)
            next = sources.make(SourceKind::kDictKeyAt, source, nullptr,
                                random(PyDict_GET_SIZE(object)));
        } else if (PyList_Check(object) && PyList_GET_SIZE(object)) {
          next = sources.make(SourceKind::kListItem, source, nullptr,
                              random(PyList_GET_SIZE(object)));
        } else if (PyTuple_Check(object) && PyTuple_GET_SIZE(object)) {
          next = sources.make(SourceKind::kTupleItem, source, nullptr,
                              random(PyTuple_GET_SIZE(object)));
        } else if (fake::is_tensor(object)) {
          TensorFields fields = tensor_fields(object);
          TensorSpec spec;
          spec.type = Py_TYPE(object);
          spec.key_set = fields.key_set;
          spec.dtype = fields.dtype;
          spec.device_index = fields.device_index;
          spec.requires_grad = fields.requires_grad;
          for (int64_t d = 0; d < fields.dim; ++d) {
            spec.sizes.push_back(random(2)
                                     ? Expr(fields.sizes[d])
                                     : Expr::symbol(set->add_symbol(
                                           sources.make(SourceKind::kTensorSize,
                                                        source, nullptr, d),
                                           fields.sizes[d])));
            spec.strides.push_back(Expr(fields.strides[d]));
          }
          set->add_tensor(source, spec);
          break;
        } else {
          PyObject* found;
          Lookup there = instance_find(object, name.get(), &found);
          if (there == Lookup::kAbsent)
            set->add(GuardKind::kNoInstanceAttr, source, name.get());
          if (there == Lookup::kFound)
            next = sources.make(SourceKind::kInstanceAttr, source, name.get());
        }
        if (!next) break;
        source = next;
      }
      if (random(3) == 0) set->gather(source);
    }
    ArmedGuards armed(std::move(set));
    ASSERT_TRUE(reference_outcome(armed.guards(), call).holds);
    ASSERT_TRUE(armed.arm(call.args.data(), call.function.get()));
    for (int change = 0; change < 12; ++change) {
      python.run(random(4) == 0 ? "args = [rebuild(root), 1]"
                                : "mutate(root); args = [root, 1]");
      Call changed(python);
      (check_call(armed, changed) ? held : failed)++;
      if (HasFailure()) return;
    }
  }
  // Both answers must occur, or the test says nothing.
  EXPECT_GT(held, 500);
  EXPECT_GT(failed, 500);
}

}  // namespace
}  // namespace framejit
