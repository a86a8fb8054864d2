// What whole-script mode costs Python code without tensors, on the CPython this
// is built for (no torch): built and run by hand (cmake target bench_hook),
// never a timed test. Off; awake: the hook stays on; asleep: as users have it,
// after the calls in vain that make it sleep.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <vector>

#include "frame_hook/frame_eval.h"
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
  policy.holds_tensor = [](PyObject* const*, size_t) { return false; };
  policy.watch = policy.unwatch = [] {};
  static int options;
  PyObject* fib = PyDict_GetItemString(names.get(), "fib");
  Ref one = Ref::steal(PyLong_FromLong(1));
  for (const char* name : {"calls", "objects", "loops", "closures"}) {
    PyObject* program = PyDict_GetItemString(names.get(), name);
    std::vector<double> off, awake, asleep;
    for (int round = 0; round < 31; ++round) {
      once(program);  // CPython specialises anew after each change
      off.push_back(once(program));
      framejit::start_script_mode(&options, policy);
      framejit::set_script_patience(uint64_t{1} << 50);
      once(program);
      awake.push_back(once(program));
      framejit::start_script_mode(&options, policy);
      for (int i = 0; i < 30'000; ++i)
        Ref::steal(PyObject_CallOneArg(fib, one.get()));
      once(program);
      asleep.push_back(once(program));
      framejit::stop_script_mode();
    }
    double base = best(off);
    std::printf(
        "%-10s off %7.2f ms   awake %7.2f ms %5.2fx   asleep %7.2f ms %5.2fx\n",
        name, base, best(awake), best(awake) / base, best(asleep),
        best(asleep) / base);
  }
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
