// The torch-level executor: values, argument trees, state regions, and that a
// failed run can be started again.
#include "backend/torch_executor.h"

#include "tests/backend/torch_helpers.h"

namespace framejit::backend::testing {
namespace {

using graph::Arg;
using graph::Graph;

std::unique_ptr<Executor> make(std::shared_ptr<graph::TorchGraph> graph) {
  auto executor = make_torch_executor(std::move(graph));
  EXPECT_TRUE(executor.ok());
  return executor.take();
}

bool close(const Ref& a, const std::string& expression) {
  set_global("_a", a.get());
  return eval("bool(torch.equal(_a, " + expression + "))").get() == Py_True;
}

TEST(TorchExecutor, RunsNodesInOrder) {
  auto graph = torch_graph(2);
  Graph& g = *graph->graph;
  auto* cos = call(g, "torch.cos", {g.inputs[0]});
  auto* sum = method(g, "add", {cos, g.inputs[1]});
  auto* scaled = call(g, "torch.add", {sum, cos}, {{"alpha", Arg(2.5)}});
  g.set_outputs({scaled, cos, Arg(int64_t{7})});
  auto executor = make(graph);
  exec("x = torch.randn(5); y = torch.randn(5)");
  for (int round = 0; round < 2; ++round) {
    auto result = run(*executor, {eval("x"), eval("y")}, 3);
    ASSERT_EQ(result.status, RunStatus::kOk) << take_error();
    EXPECT_TRUE(
        close(result.outputs[0], "torch.add(x.cos() + y, x.cos(), alpha=2.5)"));
    EXPECT_TRUE(close(result.outputs[1], "x.cos()"));
    EXPECT_EQ(PyLong_AsLong(result.outputs[2].get()), 7);
  }
}

TEST(TorchExecutor, KeepsAutogradHistory) {
  auto graph = torch_graph(1);
  Graph& g = *graph->graph;
  g.set_outputs({call(g, "torch.sin", {g.inputs[0]})});
  auto executor = make(graph);
  exec("x = torch.randn(5, requires_grad=True)");
  auto result = run(*executor, {eval("x")}, 1);
  ASSERT_EQ(result.status, RunStatus::kOk);
  set_global("out", result.outputs[0].get());
  exec("out.sum().backward()");
  EXPECT_TRUE(close(eval("x.grad"), "x.detach().cos()"));
}

TEST(TorchExecutor, BuildsArgumentTrees) {
  auto graph = torch_graph(2);
  Graph& g = *graph->graph;
  auto* cat =
      call(g, "torch.cat",
           {Arg(Arg::List{{g.inputs[0], g.inputs[1]}}), Arg(int64_t{0})});
  auto slice = std::make_shared<Arg::Slice>();
  slice->start = Arg(int64_t{1});
  slice->stop = Arg(Expr::symbol(0) * 2 + 1);
  auto* part = call(g, "operator.getitem", {cat, Arg(slice)});
  auto* typed = method(g, "to", {part, Arg(c10::ScalarType::Double)});
  auto* viewed = method(
      g, "view",
      {typed, Arg(Arg::Tuple{{Arg(int64_t{1}), Arg(Expr::symbol(0) * 2)}})});
  g.set_outputs({viewed, Arg(Expr::symbol(0) + 4)});
  auto executor = make(graph);
  exec("x = torch.randn(4); y = torch.randn(4)");
  for (int64_t size : {3, 2}) {
    auto result = run(*executor, {eval("x"), eval("y")}, 2, {size});
    ASSERT_EQ(result.status, RunStatus::kOk) << take_error();
    std::string n = std::to_string(2 * size);
    EXPECT_TRUE(close(result.outputs[0], "torch.cat([x, y])[1:1+" + n +
                                             "].double().view(1, " + n + ")"));
    EXPECT_EQ(PyLong_AsLong(result.outputs[1].get()), size + 4);
  }
}

TEST(TorchExecutor, UnpacksSeveralResults) {
  auto graph = torch_graph(1);
  Graph& g = *graph->graph;
  auto node = std::make_unique<graph::Node>();
  node->callable = eval("torch.max");
  node->args = {g.inputs[0], Arg(int64_t{1})};
  graph::Node* placed = g.append(std::move(node));
  g.add_output(placed);
  auto* indices = g.add_output(placed);
  g.set_outputs({indices});
  auto executor = make(graph);
  exec("x = torch.randn(3, 4)");
  auto result = run(*executor, {eval("x")}, 1);
  ASSERT_EQ(result.status, RunStatus::kOk) << take_error();
  EXPECT_TRUE(close(result.outputs[0], "x.max(1)[1]"));
}

TEST(TorchExecutor, GradModeRegionsEndWithTheGraph) {
  auto graph = torch_graph(1);
  Graph& g = *graph->graph;
  auto state = [&](bool enter, bool mode) {
    auto node = std::make_unique<graph::Node>();
    node->op = enter ? graph::Opcode::kStateEnter : graph::Opcode::kStateExit;
    node->callable = eval("torch._C._set_grad_enabled");
    node->args = {Arg(mode)};
    g.append(std::move(node));
  };
  auto* before = call(g, "torch.sin", {g.inputs[0]});
  state(true, false);
  auto* inside = call(g, "torch.sin", {g.inputs[0]});
  auto* fails = call(g, "torch.cat",
                     {Arg(Arg::List{{g.inputs[0]}}), Arg(Expr::symbol(0))});
  state(false, true);
  auto* after = call(g, "torch.sin", {g.inputs[0]});
  g.set_outputs({before, inside, after, fails});
  auto executor = make(graph);
  exec("x = torch.randn(3, requires_grad=True)");
  auto result = run(*executor, {eval("x")}, 4, {0});
  ASSERT_EQ(result.status, RunStatus::kOk) << take_error();
  EXPECT_TRUE(tensor(result.outputs[0]).requires_grad());
  EXPECT_FALSE(tensor(result.outputs[1]).requires_grad());
  EXPECT_TRUE(tensor(result.outputs[2]).requires_grad());
  // A failure inside the region must not leave grad mode off.
  result = run(*executor, {eval("x")}, 4, {5});
  EXPECT_EQ(result.status, RunStatus::kFailedBeforeCommit);
  EXPECT_NE(take_error().find("IndexError"), std::string::npos);
  EXPECT_EQ(eval("torch.is_grad_enabled()").get(), Py_True);
}

// Making the executor collects garbage, whose finalizer asks for it, too.
TEST(TorchExecutor, TheFirstOneMadeStays) {
  auto graph = torch_graph(1);
  Graph& g = *graph->graph;
  // More than CPython keeps tuples of at hand.
  Arg::Tuple sizes{std::vector<Arg>(40, Arg(int64_t{1}))};
  g.set_outputs({method(g, "view", {g.inputs[0], Arg(sizes)})});
  TorchLevel level(graph);
  Executor* inner = nullptr;
  set_global("ask", callable([&](PyObject*) {
                      inner = level.get();
                      Py_RETURN_NONE;
                    }).get());
  exec(
      "gc.collect()\n"
      "gc.disable()\n"
      "before = gc.get_threshold()\n"
      "gc.set_threshold(1)\n"
      "class Late:\n"
      "  def __del__(self): ask()\n"
      "late = Late()\n"
      "late.itself = late\n"
      "del late\n");
  PyGC_Enable();
  Executor* outer = level.get();
  PyGC_Disable();
  exec("gc.set_threshold(*before)\ngc.enable()\ngc.collect()");
  ASSERT_TRUE(outer);
  ASSERT_TRUE(inner);
  EXPECT_EQ(outer, inner);
  exec("x = torch.randn(1)");
  auto result = run(*inner, {eval("x")}, 1);
  ASSERT_EQ(result.status, RunStatus::kOk) << take_error();
  EXPECT_TRUE(close(result.outputs[0], "x.view((1,) * 40)"));
}

// x.add_(1); x[index]: with a bad index x must be as it was, so that the
// original code changes it exactly once.
TEST(TorchExecutor, FailureUndoesInputWrites) {
  auto graph = torch_graph(2);
  Graph& g = *graph->graph;
  method(g, "add_", {g.inputs[0], Arg(int64_t{1})});
  auto* item = call(g, "operator.getitem", {g.inputs[0], g.inputs[1]});
  g.set_outputs({item});
  graph->mutated_inputs = {0};
  auto executor = make(graph);
  exec(
      "x = torch.arange(4.); good = torch.tensor([2]); "
      "bad = torch.tensor([9]); v = x[1:3]");
  auto result = run(*executor, {eval("x"), eval("good")}, 1);
  ASSERT_EQ(result.status, RunStatus::kOk) << take_error();
  EXPECT_TRUE(close(eval("x"), "torch.arange(4.) + 1"));
  result = run(*executor, {eval("x"), eval("bad")}, 1);
  EXPECT_EQ(result.status, RunStatus::kFailedBeforeCommit);
  EXPECT_NE(take_error().find("IndexError"), std::string::npos);
  EXPECT_TRUE(close(eval("x"), "torch.arange(4.) + 1"));
  // Through a view of a bigger tensor.
  result = run(*executor, {eval("v"), eval("bad")}, 1);
  EXPECT_EQ(result.status, RunStatus::kFailedBeforeCommit);
  take_error();
  EXPECT_TRUE(close(eval("x"), "torch.arange(4.) + 1"));
}

// x.add_(w); x[index] for each kind of x: x, and what it is a view of, must
// have the history that they had.
TEST(TorchExecutor, FailureUndoesTheHistoryOfInputs) {
  auto graph = torch_graph(3);
  Graph& g = *graph->graph;
  method(g, "add_", {g.inputs[0], g.inputs[1]});
  g.set_outputs({call(g, "operator.getitem", {g.inputs[0], g.inputs[2]})});
  graph->mutated_inputs = {0};
  auto executor = make(graph);
  exec(
      "w = torch.ones(4, requires_grad=True); bad = torch.tensor([9])\n"
      "good = torch.tensor([1])\n"
      "inputs = {\n"
      "    'leaf': lambda: torch.zeros(4),\n"
      "    'inner': lambda: w * 2,\n"
      "    'second result': lambda: (w * torch.ones(2, 4)).unbind()[1] * 1,\n"
      "    'view': lambda: torch.zeros(2, 4)[1],\n"
      "    'view of a view': lambda: torch.zeros(2, 2, 4)[1][0],\n"
      "    'inner view': lambda: (w * torch.ones(2, 4))[1],\n"
      "    'same size': lambda: (w * 2).view(4),\n"
      "}\n"
      "def edge(t):\n"
      "    return None if t is None else (t.grad_fn, t.output_nr,\n"
      "        t.requires_grad, t.is_leaf, t._version)\n");
  for (const char* kind : {"leaf", "inner", "second result", "view",
                           "view of a view", "inner view", "same size"}) {
    SCOPED_TRACE(kind);
    exec(std::string("x = inputs['") + kind +
         "'](); before = edge(x), edge(x._base); content = x.tolist()");
    auto result = run(*executor, {eval("x"), eval("w"), eval("bad")}, 1);
    EXPECT_EQ(result.status, RunStatus::kFailedBeforeCommit);
    EXPECT_NE(take_error().find("IndexError"), std::string::npos);
    EXPECT_EQ(eval("(edge(x), edge(x._base)) == before").get(), Py_True);
    EXPECT_EQ(eval("x.tolist() == content").get(), Py_True);
    // It is as good as before.
    result = run(*executor, {eval("x"), eval("w"), eval("good")}, 1);
    ASSERT_EQ(result.status, RunStatus::kOk) << take_error();
    exec("w.grad = None; x.sum().backward(); once = w.grad");
    exec(std::string("y = inputs['") + kind +
         "'](); y.add_(w); w.grad = None; y.sum().backward()");
    EXPECT_TRUE(close(eval("once"), "w.grad"));
  }
}

TEST(TorchExecutor, HistoryWithHooksIsReportedAsCommitted) {
  auto graph = torch_graph(3);
  Graph& g = *graph->graph;
  method(g, "add_", {g.inputs[0], g.inputs[1]});
  g.set_outputs({call(g, "operator.getitem", {g.inputs[0], g.inputs[2]})});
  graph->mutated_inputs = {0};
  auto executor = make(graph);
  for (const char* hook : {"x.retain_grad()", "x.register_hook(print)"}) {
    exec(
        "w = torch.ones(4, requires_grad=True); bad = torch.tensor([9])\n"
        "x = w * 2; first = x.grad_fn");
    exec(hook);
    auto result = run(*executor, {eval("x"), eval("w"), eval("bad")}, 1);
    EXPECT_EQ(result.status, RunStatus::kFailedInCommit);
    EXPECT_NE(take_error().find("IndexError"), std::string::npos);
    EXPECT_EQ(eval("x.grad_fn is first").get(), Py_False);  // as in eager
  }
}

TEST(TorchExecutor, FailureRestoresTheGenerator) {
  auto graph = torch_graph(2);
  graph->uses_random = true;
  Graph& g = *graph->graph;
  auto* noise = call(g, "torch.rand_like", {g.inputs[0]});
  g.set_outputs({call(g, "operator.getitem", {noise, g.inputs[1]})});
  auto executor = make(graph);
  exec(
      "x = torch.zeros(4); bad = torch.tensor([9]); good = torch.tensor([1])\n"
      "torch.manual_seed(3); first = torch.rand(1); torch.manual_seed(3)");
  auto result = run(*executor, {eval("x"), eval("bad")}, 1);
  EXPECT_EQ(result.status, RunStatus::kFailedBeforeCommit);
  take_error();
  EXPECT_TRUE(close(eval("torch.rand(1)"), "first"));
  exec(
      "torch.manual_seed(3); ref = torch.rand(4)[good]; after = torch.rand(1);"
      " torch.manual_seed(3)");
  result = run(*executor, {eval("x"), eval("good")}, 1);
  ASSERT_EQ(result.status, RunStatus::kOk);
  EXPECT_TRUE(close(result.outputs[0], "ref"));
  EXPECT_TRUE(close(eval("torch.rand(1)"), "after"));
}

TEST(TorchExecutor, FreesIntermediatesAtTheirLastUse) {
  auto graph = torch_graph(1);
  Graph& g = *graph->graph;
  exec(
      "alive = []\n"
      "def track(t):\n"
      "    r = t + 1\n"
      "    alive.append(weakref.ref(r))\n"
      "    return r\n"
      "def count(t):\n"
      "    seen = sum(r() is not None for r in alive)\n"
      "    return t + seen\n");
  auto* one = call(g, "track", {g.inputs[0]});
  auto* two = call(g, "track", {one});
  auto* three = call(g, "track", {two});
  g.set_outputs({call(g, "count", {three})});
  auto executor = make(graph);
  exec("x = torch.zeros(1)");
  auto result = run(*executor, {eval("x")}, 1);
  ASSERT_EQ(result.status, RunStatus::kOk) << take_error();
  EXPECT_EQ(tensor(result.outputs[0]).item<float>(), 4.f);  // 3 + one alive
}

// A write nobody announced cannot be undone, and is never run twice.
TEST(TorchExecutor, UnannouncedWriteIsReportedAsCommitted) {
  auto graph = torch_graph(2);
  Graph& g = *graph->graph;
  method(g, "add_", {g.inputs[0], Arg(int64_t{1})});
  g.set_outputs({call(g, "operator.getitem", {g.inputs[0], g.inputs[1]})});
  auto executor = make(graph);
  exec("x = torch.zeros(4); bad = torch.tensor([9])");
  auto result = run(*executor, {eval("x"), eval("bad")}, 1);
  EXPECT_EQ(result.status, RunStatus::kFailedInCommit);
  EXPECT_NE(take_error().find("IndexError"), std::string::npos);
  EXPECT_TRUE(close(eval("x"), "torch.ones(4)"));
}

}  // namespace
}  // namespace framejit::backend::testing
