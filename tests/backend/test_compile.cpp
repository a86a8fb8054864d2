// compile() by backend name: the same torch-level graph through every backend.
#include "graph/ir/fx_bridge.h"
#include "tests/backend/torch_helpers.h"

namespace framejit::backend::testing {
namespace {

using graph::Arg;
using graph::Graph;

// out = (x.sin() * y).sum(0), returned with the symbol s0 + 1.
std::shared_ptr<graph::TorchGraph> sample_graph() {
  auto torch = std::make_shared<graph::TorchGraph>();
  Graph& g = *torch->graph;
  Expr n = Expr::symbol(0);
  auto* x = g.add_input("x", meta({n}, true));
  auto* y = g.add_input("y", meta({n}));
  g.add_symbol_input("s0", n);
  torch->input_objects = {0, 1, -1};
  torch->symbol_hints = {4};
  auto* s = call(g, "torch.sin", {x});
  auto* out = call(g, "torch.mul", {s, y});
  g.set_outputs({out, Arg(n + 1)});
  return torch;
}

BackendRequest request(std::shared_ptr<graph::TorchGraph> torch,
                       const std::string& backend) {
  BackendRequest result;
  result.graph = std::move(torch);
  result.backend = backend;
  // Never destroyed: main() ends the interpreter first.
  static Ref& x = *new Ref;
  static Ref& y = *new Ref;
  x = eval("torch.randn(4, requires_grad=True)");
  y = eval("torch.randn(4)");
  result.example_inputs = {x.get(), y.get(), nullptr};
  return result;
}

void check_runs(Executor& executor) {
  for (int size : {4, 9}) {
    std::string n = std::to_string(size);
    exec("x = torch.randn(" + n + ", requires_grad=True); y = torch.randn(" +
         n + ")");
    auto result = run(executor, {eval("x"), eval("y")}, 2, {size});
    ASSERT_EQ(result.status, RunStatus::kOk) << take_error();
    set_global("out", result.outputs[0].get());
    exec(
        "assert torch.allclose(out, x.sin() * y)\n"
        "out.sum().backward()\n"
        "assert torch.allclose(x.grad, x.cos() * y)");
    EXPECT_EQ(PyLong_AsLong(result.outputs[1].get()), size + 1);
  }
}

TEST(Compile, UnknownNamesBreak) {
  auto compiled = compile(request(sample_graph(), "no_such_backend"));
  ASSERT_TRUE(compiled.broke());
  EXPECT_EQ(compiled.brk().reason, BreakReason::kBackendFailed);
}

TEST(Compile, EagerReplays) {
  auto compiled = compile(request(sample_graph(), "eager"));
  ASSERT_TRUE(compiled.ok());
  EXPECT_FALSE(compiled.value().info.fell_back_to_torch_level);
  check_runs(*compiled.value().executor);
}

TEST(Compile, CustomBackendsSeeEverySize) {
  exec(
      "calls = []\n"
      "def backend(gm, example_inputs):\n"
      "    calls.append([type(gm).__name__, example_inputs[-1]])\n"
      "    return gm.forward\n");
  BackendRequest custom = request(sample_graph(), "");
  custom.callable = eval("backend");
  auto compiled = compile(custom);
  ASSERT_TRUE(compiled.ok()) << compiled.brk().detail;
  check_runs(*compiled.value().executor);
  check_runs(*compiled.value().executor);
  // Compiled once for size 4 and once for size 9.
  EXPECT_EQ(eval("calls == [['GraphModule', 4], ['GraphModule', 9]]").get(),
            Py_True)
      << PyUnicode_AsUTF8(eval("str(calls)").get());
}

TEST(Compile, CustomBackendsThatFailBreak) {
  exec(
      "def bad(gm, example_inputs):\n    raise ValueError('no thanks')\n"
      "def worse(gm, example_inputs):\n    return 3\n");
  for (const char* name : {"bad", "worse"}) {
    BackendRequest custom = request(sample_graph(), "");
    custom.callable = eval(name);
    auto compiled = compile(custom);
    ASSERT_TRUE(compiled.broke()) << name;
    EXPECT_FALSE(PyErr_Occurred());
  }
}

// A callable that fails at run time leaves the original code to run.
TEST(Compile, CustomCallableThatRaises) {
  exec(
      "def once(gm, example_inputs):\n"
      "    def run(*args):\n        raise KeyError('late')\n"
      "    return run\n");
  BackendRequest custom = request(sample_graph(), "");
  custom.callable = eval("once");
  auto compiled = compile(custom);
  ASSERT_TRUE(compiled.ok());
  exec("x = torch.randn(4, requires_grad=True); y = torch.randn(4)");
  auto result = run(*compiled.value().executor, {eval("x"), eval("y")}, 2, {4});
  EXPECT_EQ(result.status, RunStatus::kFailedBeforeCommit);
  EXPECT_NE(take_error().find("KeyError"), std::string::npos);
}

}  // namespace
}  // namespace framejit::backend::testing
