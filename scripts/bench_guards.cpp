// Nanoseconds a call of native guard predicates, and microseconds to emit one:
// built and run by hand (cmake target bench_guards), never a timed test.
#include <chrono>
#include <cstdio>

#include "guards/emit/armed_guards.h"
#include "guards/set/evaluate.h"
#include "tests/fake_tracer.h"

namespace framejit {
namespace {

double now_ns() {
  return std::chrono::duration<double, std::nano>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Ref run(PyObject* dict, const char* source, int mode) {
  Ref result = Ref::steal(PyRun_String(source, mode, dict, dict));
  if (!result) PyErr_Print();
  return result;
}

void measure(const char* name, std::unique_ptr<GuardSet> set,
             std::vector<PyObject*> args) {
  size_t count = set->guards().size();
  std::vector<PyObject*> objects(set->gathered().size() + 1);
  std::vector<int64_t> symbols(set->symbols().size() + 1);
  ArmedGuards armed(std::move(set));
  double begin = now_ns();
  if (!armed.arm(args.data(), nullptr)) {
    std::printf("%s: not armed\n", name);
    return;
  }
  double emitted = now_ns() - begin;
  PredicateFn predicate = armed.predicate_functions()[0];
  double best = 1e18;
  for (int round = 0; round < 20; ++round) {
    const int kCalls = 20000;
    double start = now_ns();
    int held = 0;
    for (int i = 0; i < kCalls; ++i)
      held += predicate(args.data(), nullptr, objects.data(), symbols.data());
    best = std::min(best, (now_ns() - start) / kCalls);
    if (held != kCalls) std::printf("%s: does not hold\n", name);
  }
  double start = now_ns();
  for (int i = 0; i < 200; ++i)
    evaluate(armed.guards(), args.data(), nullptr, objects.data(),
             symbols.data());
  std::printf(
      "%-34s %5zu guards  %8.1f ns  reference %8.1f us  emit %7.1f us"
      "  %zu bytes\n",
      name, count, best, (now_ns() - start) / 200e3, emitted / 1e3,
      armed.code_size());
}

const Source* step(GuardSet& set, SourceKind kind, const Source* base,
                   const char* key) {
  Ref name = Ref::steal(PyUnicode_InternFromString(key));
  return set.sources().make(kind, base, name.get());
}

void add_module(GuardSet& set, const Source* source, PyObject* module,
                fake::FakeTracer& tracer) {
  set.add(GuardKind::kTypeIs, source,
          reinterpret_cast<PyObject*>(Py_TYPE(module)));
  Ref missing = Ref::steal(PyUnicode_InternFromString("forward"));
  set.add(GuardKind::kNoInstanceAttr, source, missing.get());
  set.add(GuardKind::kEquals,
          step(set, SourceKind::kInstanceAttr, source, "training"), Py_True);
  Ref empty = Ref::steal(PyTuple_New(0));
  for (const char* hooks : {"_forward_hooks", "_backward_hooks"})
    set.add(GuardKind::kDictKeys,
            step(set, SourceKind::kInstanceAttr, source, hooks), empty.get());
  for (const char* name : {"_parameters", "_modules"}) {
    const Source* dict_source =
        step(set, SourceKind::kInstanceAttr, source, name);
    Ref dict = Ref::steal(PyObject_GetAttrString(module, name));
    set.add(GuardKind::kTypeIs, dict_source,
            reinterpret_cast<PyObject*>(&PyDict_Type));
    PyObject *key, *value;
    Py_ssize_t position = 0;
    while (PyDict_Next(dict.get(), &position, &key, &value)) {
      const Source* item =
          set.sources().make(SourceKind::kDictItem, dict_source, key);
      if (fake::is_tensor(value)) {
        (void)tracer.stand_in(value, item, 0).ok();
        set.add(GuardKind::kNoTensorAttrs, item);
      } else {
        add_module(set, item, value, tracer);
      }
    }
  }
}

}  // namespace

void run_all() {
  fake::install();
  Ref dict = Ref::steal(PyDict_New());
  PyDict_SetItemString(dict.get(), "__builtins__", PyEval_GetBuiltins());
  run(dict.get(), R"(
import fake
x = fake.tensor([8, 4]); y = fake.tensor([8, 4])
inputs = {'x': x, 'y': y}
class Module:
    def __init__(self, parameters, modules):
        self.__dict__
        self.training = True
        self._parameters = parameters
        self._modules = modules
        self._forward_hooks = {}
        self._backward_hooks = {}
def model(count):
    return Module({}, {str(i): Module({'w': fake.Parameter([4, 4]),
        'b': fake.Parameter([4])} if i % 2 else {}, {}) for i in range(count)})
small, large = model(50), model(149)
)",
      Py_file_input);
  auto get = [&](const char* name) {
    return PyDict_GetItemString(dict.get(), name);
  };
  for (uint64_t dynamic : {0, 1}) {
    auto set = std::make_unique<GuardSet>();
    fake::FakeTracer tracer;
    (void)tracer.begin(set.get()).ok();
    (void)tracer.stand_in(get("x"), set->sources().arg(0), dynamic).ok();
    (void)tracer.finish({}).ok();
    measure(dynamic ? "one tensor, dynamic dim" : "one tensor", std::move(set),
            {get("x")});
  }
  {
    auto set = std::make_unique<GuardSet>();
    fake::FakeTracer tracer;
    (void)tracer.begin(set.get()).ok();
    for (const char* name : {"x", "y"}) {
      (void)tracer
          .stand_in(
              get(name),
              step(*set, SourceKind::kDictItem, set->sources().arg(0), name), 0)
          .ok();
    }
    (void)tracer.finish({}).ok();
    measure("a dict of two tensors", std::move(set), {get("inputs")});
  }
  for (const char* name : {"small", "large"}) {
    auto set = std::make_unique<GuardSet>();
    fake::FakeTracer tracer;
    (void)tracer.begin(set.get()).ok();
    add_module(*set, set->sources().arg(0), get(name), tracer);
    (void)tracer.stand_in(get("x"), set->sources().arg(1), 0).ok();
    (void)tracer.finish({}).ok();
    measure(name[0] == 's' ? "51 modules, 50 parameters"
                           : "150 modules, 148 parameters",
            std::move(set), {get(name), get("x")});
  }
}

}  // namespace framejit

int main() {
  Py_Initialize();
  framejit::run_all();
  return Py_FinalizeEx() < 0;
}
