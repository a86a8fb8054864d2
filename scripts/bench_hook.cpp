// What whole-script mode costs Python code without tensors, on the CPython this
// is built for (no torch): built and run by hand (cmake target bench_hook),
// never a timed test. Off; awake: the hook stays on, as in a program that goes
// on doing tensor work; asleep: after the calls in vain that make it sleep;
// watched: by function watchers (CPython 3.12+), tensor work or not. In place
// of tensors: floats.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <memory>
#include <vector>

#include "frame_hook/dispatcher.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/function_watcher.h"
#include "frame_hook/script_mode.h"

namespace {

using framejit::Ref;

const char* const kPrograms = R"(
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
def calls():
    fib(21)
class Point:
    def __init__(self, x, y):
        self.x, self.y = x, y
    def moved(self, dx):
        return Point(self.x + dx, self.y)
    @property
    def size(self):
        return self.x * self.x + self.y * self.y
def objects():
    point, total = Point(1, 2), 0
    for i in range(20_000):
        point = point.moved(i & 3)
        total += point.size
    return total
def loops():
    words = [str(i % 97) for i in range(60_000)]
    counts = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return sum(sorted(x * x for x in counts.values()))
def closures():
    total = 0
    for i in range(20_000):
        add = lambda x, i=i: x + i
        total += add(1)
    return total
def made():
    for i in range(20_000):
        def f(x, i=i):
            return x + i
def step(x):
    return x
def work():
    for i in range(64):
        step(0.5)
def answered():
    for i in range(20_000):
        step(0.5)
def training():
    for i in range(64):
        step(0.5)
        fib(12)
)";

double now_ms() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

double once(PyObject* function) {
  double start = now_ms();
  Ref result = Ref::steal(PyObject_CallNoArgs(function));
  if (!result) PyErr_Print();
  return now_ms() - start;
}

// What other processes do to the core only adds.
double best(const std::vector<double>& times) {
  return *std::min_element(times.begin(), times.end());
}

// Answers calls whose first argument is a float, with that argument.
class Identity : public framejit::CacheEntry {
 public:
  Identity() {
    predicates = {[](PyObject* const* args, PyObject*, PyObject** objects,
                     int64_t*) -> int {
      objects[0] = args[0];
      return PyFloat_CheckExact(args[0]);
    }};
    num_objects = 1;
    identity_result = 0;
  }
  bool match_slow(PyObject* const*, PyObject*, PyObject**, int64_t*) override {
    return false;
  }
  PyObject* finish(PyObject* const* objects, const int64_t*, PyObject* const*,
                   PyObject*) override {
    return Py_NewRef(objects[0]);
  }
  bool finish_runs_code() const override { return false; }
};

class IdentityCompiler : public framejit::Compiler {
 public:
  framejit::CompileOutcome compile(const framejit::CompileRequest&) override {
    framejit::CompileOutcome outcome;
    outcome.entry = std::make_shared<Identity>();
    return outcome;
  }
};

bool holds_float(PyObject* const* slots, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (slots[i] && PyFloat_CheckExact(slots[i])) return true;
  }
  return false;
}

struct Programs {
  PyObject* program;
  PyObject* work;
};

// One round: tensor work in turn with the program, which is timed.
double timed(const Programs& programs) {
  once(programs.work);
  once(programs.program);  // CPython specialises anew after each change
  once(programs.work);
  return once(programs.program);
}

void run() {
  Ref names = Ref::steal(PyDict_New());
  PyDict_SetItemString(names.get(), "__builtins__", PyEval_GetBuiltins());
  Ref made = Ref::steal(
      PyRun_String(kPrograms, Py_file_input, names.get(), names.get()));
  if (!made) return PyErr_Print();
  framejit::set_should_compile([](PyObject*, PyObject*) {
    return framejit::CodeVerdict::kTensors;  // the user's code, all of it
  });
  framejit::ScriptPolicy policy;
  policy.holds_tensor = holds_float;
  policy.watch = policy.unwatch = [] {};
  static IdentityCompiler compiler;
  framejit::set_compiler(&compiler);
  static int options;
  auto get = [&](const char* name) {
    return PyDict_GetItemString(names.get(), name);
  };
  Ref one = Ref::steal(PyLong_FromLong(1));
  for (const char* name : {"calls", "objects", "loops", "closures", "made",
                           "training", "answered"}) {
    Programs programs{get(name), get("work")};
    std::vector<double> off, awake, asleep, watched;
    for (int round = 0; round < 31; ++round) {
      off.push_back(timed(programs));
      framejit::start_script_mode(&options, policy,
                                  framejit::ScriptView::kHook);
      framejit::set_script_patience(uint64_t{1} << 50);
      awake.push_back(timed(programs));
      framejit::start_script_mode(&options, policy,
                                  framejit::ScriptView::kHook);
      for (int i = 0; i < 30'000; ++i)
        Ref::steal(PyObject_CallOneArg(get("fib"), one.get()));
      once(programs.program);
      asleep.push_back(once(programs.program));
      framejit::start_script_mode(&options, policy);
      if (framejit::watches_functions()) watched.push_back(timed(programs));
      framejit::stop_script_mode();
    }
    double base = best(off);
    auto print = [&](const char* mode, const std::vector<double>& times) {
      if (times.empty()) return;
      std::printf("   %s %6.2f ms %5.2fx", mode, best(times),
                  best(times) / base);
    };
    std::printf("%-9s off %6.2f ms", name, base);
    print("awake", awake);
    print("asleep", asleep);
    print("watched", watched);
    std::printf("\n");
  }
  framejit::set_compiler(nullptr);
}

}  // namespace

int main() {
  PyConfig config;
  PyConfig_InitPythonConfig(&config);
  PyConfig_SetBytesString(&config, &config.program_name, FJ_TEST_PYTHON);
  PyStatus status = Py_InitializeFromConfig(&config);
  PyConfig_Clear(&config);
  if (PyStatus_Exception(status)) Py_ExitStatusException(status);
  std::printf("CPython %s\n", PY_VERSION);
  run();
  return Py_FinalizeEx() < 0;
}
