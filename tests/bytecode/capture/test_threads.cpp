// The whole lower half with several threads in it: they dispatch, miss, compile
// and re-arm guards, while others empty the caches, let guarded objects die and
// so free the machine code that has just run. What each call returns is what
// CPython returns, whoever comes first. Made for the sanitizers, too.
#include "frame_hook/code_cache.h"
#include "guards/emit/machine_code.h"
#include "tests/bytecode/capture/capture_support.h"
#include "tests/bytecode/capture/toy_compiler.h"

namespace framejit::bytecode::testing {
namespace {

// `f` is called with (x, i, o): a tensor, the number of the call, an object of
// a class that dies with the call. `sleep(0)` breaks, and gives the GIL away.
struct Program {
  const char* name;
  const char* source;
};

constexpr Program kPrograms[] = {
    {"graph", "def f(x, i, o):\n  return x * 2.0 + 1.0\n"},
    {"entries", "def f(x, i, o):\n  return x * float(len('a' * (i % 3)))\n"},
    {"attribute", "def f(x, i, o):\n  return x * o.k\n"},
    {"classes", "def f(x, i, o):\n  return x * o.twice(2.0)\n"},
    {"globals",
     "scale = 2.0\n"
     "def f(x, i, o):\n"
     "  return x * scale\n"},
    {"break",
     "def f(x, i, o):\n"
     "  y = x * 2.0\n"
     "  sleep(0)\n"
     "  return y + o.k\n"},
    {"loop",
     "def f(x, i, o):\n"
     "  for n in range(i % 3 + 1):\n"
     "    x = x + 1.0\n"
     "    sleep(0)\n"
     "  return x * o.k\n"},
    {"callee",
     "def g(x, k):\n"
     "  sleep(0)\n"
     "  return x * k\n"
     "def f(x, i, o):\n"
     "  return g(x, o.k) + g(x, 1.0)\n"},
    {"writes",
     "def f(x, i, o):\n"
     "  o.seen = x * 2.0\n"
     "  sleep(0)\n"
     "  return o.seen + o.k\n"},
    {"raises",
     "def f(x, i, o):\n"
     "  y = x * 2.0\n"
     "  if i % 3 == 1: raise ValueError(i)\n"
     "  return y\n"},
    {"closure",
     "def f(x, i, o):\n"
     "  def h(y): return y * o.k\n"
     "  sleep(0)\n"
     "  return h(x) + 1.0\n"},
};

// What other threads do meanwhile, again and again.
struct Disturbance {
  const char* name;
  const char* turn;
};

constexpr Disturbance kDisturbances[] = {
    {"none", "None"},
    {"reset", "clear_all()"},
    {"collect", "gc.collect()"},
    {"stores", "globals().update({'other%d' % (turn % 5): turn})"},
    {"calls", "outcome(f, turn) if turn % 2 else clear_all()"},
};

constexpr char kThreads[] = R"(
import gc, sys, threading
from time import sleep

def make(i):
    class O:
        def twice(self, value): return value * 2.0
    o = O()
    o.k = float(i % 4)
    return o

def outcome(function, i):
    x = fake.tensor([2], [1., float(i % 5)])
    try:
        return repr(show(function(x, i, make(i))))
    except ValueError as error:
        return repr(error)

def run(f, plain, disturb, threads, calls):
    expected = [outcome(plain, i) for i in range(calls)]
    wrong = []
    start = threading.Barrier(threads + 1)
    working = [threads]

    def work(number):
        start.wait()
        try:
            for i in range(calls):
                i = (i + 7 * number) % calls
                found = outcome(f, i)
                if found != expected[i]: wrong.append((i, found, expected[i]))
        except BaseException as error:
            wrong.append(error)
        finally:
            working[0] -= 1

    def trouble():
        start.wait()
        turn = 0
        try:
            while working[0]:
                disturb(turn)
                turn += 1
                sleep(0)
        except BaseException as error:
            wrong.append(error)

    everybody = [threading.Thread(target=work, args=(n,)) for n in range(threads)]
    everybody.append(threading.Thread(target=trouble))
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in everybody: thread.start()
        for thread in everybody: thread.join()
    finally:
        sys.setswitchinterval(interval)
    return wrong
)";

PyObject* clear_all(PyObject*, PyObject*) {
  clear_all_caches();
  Py_RETURN_NONE;
}
PyMethodDef clear_all_method = {"clear_all", clear_all, METH_NOARGS, nullptr};

using Case = std::tuple<Program, Disturbance>;

class LowerThreads : public ::testing::TestWithParam<Case> {};

TEST_P(LowerThreads, ReturnWhatCPythonReturns) {
  const auto& [program, disturbance] = GetParam();
  const size_t mapped = MachineCode::mapped_bytes();
  {
    ToyCompiler compiler;
    Ref globals = make_globals(std::string(kThreads) + program.source);
    auto set = [&](const char* name, const Ref& value) {
      ASSERT_TRUE(value) << take_error();
      ASSERT_EQ(PyDict_SetItemString(globals.get(), name, value.get()), 0);
    };
    set("clear_all", Ref::steal(PyCFunction_New(&clear_all_method, nullptr)));
    Ref plain = Ref::borrow(PyDict_GetItemString(globals.get(), "f"));
    set("plain", plain);
    set("f", compiler.compiled(plain.get()));
    set("disturb", evaluate_text(globals.get(), std::string("lambda turn: ") +
                                                    disturbance.turn));
    Ref wrong =
        evaluate_text(globals.get(), "repr(run(f, plain, disturb, 4, 30))");
    ASSERT_TRUE(wrong) << take_error();
    EXPECT_STREQ(PyUnicode_AsUTF8(wrong.get()), "[]");
    EXPECT_GT(compiler.attempts, 0);
    PyDict_Clear(globals.get());
  }
  clear_all_caches();
  PyGC_Collect();
  EXPECT_EQ(MachineCode::mapped_bytes(), mapped);
}

INSTANTIATE_TEST_SUITE_P(Programs, LowerThreads,
                         ::testing::Combine(::testing::ValuesIn(kPrograms),
                                            ::testing::ValuesIn(kDisturbances)),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) +
                                  "_" + std::get<1>(info.param).name;
                         });

}  // namespace
}  // namespace framejit::bytecode::testing
