// Compiled graphs with several threads in them, forward and backward, while
// other threads build graphs and let them go with their machine code. Values
// are eager's, whoever comes first. Made for the sanitizers, too.
#include "frame_hook/dispatcher.h"
#include "graph/tracing/tracer.h"
#include "guards/emit/machine_code.h"
#include "tests/backend/torch_helpers.h"

namespace framejit::backend::testing {
namespace {

using graph::Graph;

// Sets the Python error where the graph did not run.
PyObject* call_executor(Executor& executor, PyObject* args,
                        const int64_t* symbols) {
  PyObject* output = nullptr;
  if (executor.run(&PyTuple_GET_ITEM(args, 0), symbols, &output) !=
          RunStatus::kOk &&
      !PyErr_Occurred())
    PyErr_SetString(PyExc_RuntimeError, "the graph failed");
  return output;
}

// sin(x) * y + x, of any length, compiled by a backend.
std::shared_ptr<Executor> compile_graph(const std::string& backend) {
  auto torch = std::make_shared<graph::TorchGraph>();
  Graph& g = *torch->graph;
  const Expr n = Expr::symbol(0);
  auto* x = g.add_input("x", meta({n}, true));
  auto* y = g.add_input("y", meta({n}, true));
  g.add_symbol_input("s0", n);
  torch->input_objects = {0, 1, -1};
  auto made = [&](const char* function, std::vector<graph::Arg> args) {
    auto* value = call(g, function, std::move(args));
    value->meta = meta({n}, true);
    return value;
  };
  auto* product = made("torch.mul", {made("torch.sin", {x}), y});
  g.set_outputs({made("torch.add", {product, x})});
  torch->symbol_hints = {7};
  GuardSet guards;
  guards.add_symbol(guards.sources().arg(0), 7);
  BackendRequest request;
  request.graph = torch;
  request.guards = &guards;
  request.backend = backend;
  auto compiled = compile(request);
  EXPECT_TRUE(compiled.ok());
  EXPECT_EQ(compiled.value().info.fallback_reason, "");
  return std::shared_ptr<Executor>(std::move(compiled.value().executor));
}

Ref graph_callable(std::shared_ptr<Executor> executor) {
  return callable([executor = std::move(executor)](PyObject* args) {
    const int64_t size =
        graph::unpack_tensor(PyTuple_GET_ITEM(args, 0)).size(0);
    return call_executor(*executor, args, &size);
  });
}

// What each thread does in turn i: raises where a value is not eager's.
struct Work {
  const char* name;
  const char* body;
};

constexpr char kThreads[] = R"(
import sys, threading

def make(i):
    size = 5 + 3000 * (i % 4)
    x = torch.linspace(-1, 1, size).mul_(i % 5 + 1).requires_grad_()
    y = torch.linspace(1, 3, size).requires_grad_()
    return x, y

def same(found, expected):
    assert torch.allclose(found, expected, rtol=1e-5, atol=1e-4), (found, expected)

def gradients(x, y, t=1.0):
    with torch.no_grad():
        return (x.cos() * y + 1) * t, x.sin() * t

def in_threads(work, threads=4, turns=12):
    errors = []
    start = threading.Barrier(threads)
    def run(number):
        start.wait()
        try:
            for i in range(turns): work(number, i + number)
        except BaseException as error:
            errors.append(repr(error))
    everybody = [threading.Thread(target=run, args=(n,)) for n in range(threads)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in everybody: thread.start()
        for thread in everybody: thread.join()
    finally:
        sys.setswitchinterval(interval)
    return errors
)";

constexpr Work kWork[] = {
    {"Forward",
     "x, y = make(i)\n"
     "with torch.no_grad(): same(f(x, y), x.sin() * y + x)\n"},
    {"Training",
     "x, y = make(i)\n"
     "f(x, y).sum().backward()\n"
     "gx, gy = gradients(x, y)\n"
     "same(x.grad, gx)\n"
     "same(y.grad, gy)\n"},
    {"Patterns",
     "x, y = make(i)\n"
     "one = (x, y)[i % 2]\n"
     "found, = torch.autograd.grad(f(x, y).sum(), [one])\n"
     "same(found, gradients(x, y)[i % 2])\n"},
    // Above a few of them calls run at torch level.
    {"Differentiated",
     "x, y = make(i)\n"
     "found, = torch.autograd.grad(f(x, y).sum(), [x], create_graph=True)\n"
     "again, = torch.autograd.grad(found.sum(), [y])\n"
     "same(again, x.detach().cos())\n"},
    {"OneNode",
     "gx, gy = torch.autograd.grad(shared, shared_inputs,\n"
     "    torch.full_like(shared, float(i)), retain_graph=True)\n"
     "ex, ey = gradients(*shared_inputs, t=float(i))\n"
     "same(gx, ex)\n"
     "same(gy, ey)\n"},
    {"BackwardElsewhere",
     "x, y = make(i)\n"
     "out = f(x, y)\n"
     "thread = threading.Thread(target=out.sum().backward)\n"
     "del out\n"
     "thread.start()\n"
     "thread.join()\n"
     "same(y.grad, gradients(x, y)[1])\n"},
    {"Building",
     "x, y = make(i)\n"
     "g = (build() if i % 2 else None) or f\n"
     "out = g(x, y)\n"
     "del g\n"
     "out.sum().backward()\n"
     "same(x.grad, gradients(x, y)[0])\n"},
    {"AllAtOnce",
     "x, y = make(i)\n"
     "g = (build() if number == 0 else None) or f\n"
     "out = g(x, y)\n"
     "del g\n"
     "if number == 1:\n"
     "  found, = torch.autograd.grad(out.sum(), [y])\n"
     "  same(found, gradients(x, y)[1])\n"
     "else:\n"
     "  out.sum().backward()\n"
     "  same(x.grad, gradients(x, y)[0])\n"},
};

class GraphThreads
    : public ::testing::TestWithParam<std::tuple<Work, const char*>> {};

TEST_P(GraphThreads, GiveWhatEagerGives) {
  const auto& [work, backend] = GetParam();
  exec(kThreads);
  ASSERT_TRUE(graph::initialize_tracing()) << take_error();
  const size_t mapped = MachineCode::mapped_bytes();
  set_global("f", graph_callable(compile_graph(backend)).get());
  set_global("build",
             callable([backend = std::string(backend)](PyObject*) -> PyObject* {
               const OnlyCompilation only;
               if (!only.ok()) Py_RETURN_NONE;
               return graph_callable(compile_graph(backend)).release();
             }).get());
  exec("shared_inputs = make(3)\nshared = f(*shared_inputs)");
  std::string body = work.body;
  for (size_t at = 0; (at = body.find('\n', at)) != std::string::npos; ++at)
    if (at + 1 < body.size()) body.replace(at, 1, "\n    ");
  exec("def work(number, i):\n    " + body);
  EXPECT_STREQ(PyUnicode_AsUTF8(eval("repr(in_threads(work))").get()), "[]");
  exec("del f, build, work, shared, shared_inputs\ngc.collect()");
  EXPECT_EQ(MachineCode::mapped_bytes(), mapped);
}

INSTANTIATE_TEST_SUITE_P(Work, GraphThreads,
                         ::testing::Combine(::testing::ValuesIn(kWork),
                                            ::testing::Values("aot_eager",
                                                              "native")),
                         [](const auto& info) {
                           return std::string(std::get<0>(info.param).name) +
                                  "_" + std::get<1>(info.param);
                         });

}  // namespace
}  // namespace framejit::backend::testing
