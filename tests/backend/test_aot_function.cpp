// The AOT executor on hand-built forward and backward graphs: values, history,
// and that saved tensors behave as eager's do.
#include "backend/aot_function.h"

#include "backend/isa.h"
#include "graph/tracing/tracer.h"
#include "tests/backend/torch_helpers.h"

namespace framejit::backend::testing {
namespace {

using graph::AotGraphs;
using graph::Arg;
using graph::Graph;
using graph::OutputInfo;

struct Built {
  std::unique_ptr<Executor> executor;
  std::string broke;
};

Built make(std::shared_ptr<graph::TorchGraph> torch, const AotGraphs& graphs,
           bool fuse = false) {
  ProgramOptions options;
  if (fuse) options.loops = loop_target();
  ProgramReport report;
  auto executor = make_aot_executor(std::move(torch), graphs, options, &report);
  if (!executor.ok()) return {nullptr, executor.brk().detail};
  return {executor.take(), ""};
}

bool equal(const Ref& a, const std::string& expression) {
  set_global("_a", a.get());
  return eval("bool(torch.allclose(_a, " + expression + ", equal_nan=True))")
             .get() == Py_True;
}

void backward(const Ref& out, const std::string& call) {
  set_global("out", out.get());
  exec(call);
}

std::string backward_error(const Ref& out, const std::string& call) {
  set_global("out", out.get());
  exec("try:\n    " + call +
       "\n    message = ''\nexcept Exception as e:\n    message = "
       "type(e).__name__ + ': ' + str(e)\n");
  return PyUnicode_AsUTF8(eval("message").get());
}

// out = sin(x) * y; saves x and y, recomputes the sine.
AotGraphs sin_times() {
  AotGraphs graphs;
  Expr n = Expr::symbol(0);
  graphs.forward = std::make_unique<Graph>();
  Graph& f = *graphs.forward;
  auto* x = f.add_input("x", meta({n}, true));
  auto* y = f.add_input("y", meta({n}, true));
  f.add_symbol_input("s0", n);
  auto* s = aten(f, "sin", "", {x}, meta({n}));
  auto* out = aten(f, "mul", "Tensor", {s, y}, meta({n}));
  f.set_outputs({out, x, y});
  graphs.backward = std::make_unique<Graph>();
  Graph& b = *graphs.backward;
  auto* bx = b.add_input("x", meta({n}));
  auto* by = b.add_input("y", meta({n}));
  auto* t = b.add_input("tangent", meta({n}));
  auto* c = aten(b, "cos", "", {bx}, meta({n}));
  auto* s2 = aten(b, "sin", "", {bx}, meta({n}));
  auto* ty = aten(b, "mul", "Tensor", {t, by}, meta({n}));
  auto* gx = aten(b, "mul", "Tensor", {ty, c}, meta({n}));
  auto* gy = aten(b, "mul", "Tensor", {t, s2}, meta({n}));
  b.set_outputs({gx, gy, Arg()});
  graphs.num_user_outputs = 1;
  graphs.outputs = {OutputInfo{}};
  graphs.outputs[0].requires_grad = true;
  graphs.tangent_of = {0};
  graphs.num_saved_tensors = 2;
  graphs.readers = {0, 1};  // sin and mul
  graphs.read_inputs = {true, true, false};
  // Eager saves x for the sine, y for the product.
  graphs.held_inputs = {{{0}, true}, {{1}, true}, {}};
  return graphs;
}

std::shared_ptr<graph::TorchGraph> sin_times_torch() {
  auto torch = std::make_shared<graph::TorchGraph>();
  Graph& g = *torch->graph;
  Expr n = Expr::symbol(0);
  auto* x = g.add_input("x", meta({n}, true));
  auto* y = g.add_input("y", meta({n}, true));
  g.add_symbol_input("s0", n);
  torch->input_objects = {0, 1, -1};
  g.set_outputs({call(g, "torch.mul", {call(g, "torch.sin", {x}), y})});
  return torch;
}

class AotFunction : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    auto built = make(sin_times_torch(), sin_times(), GetParam());
    ASSERT_EQ(built.broke, "");
    executor = std::move(built.executor);
    exec(
        "x = torch.randn(5, requires_grad=True)\n"
        "y = torch.randn(5, requires_grad=True)\n");
  }
  Ref call() {
    auto result =
        run(*executor, {eval("x"), eval("y")}, 1, {tensor(eval("x")).size(0)});
    EXPECT_EQ(result.status, RunStatus::kOk) << take_error();
    return result.outputs[0];
  }
  std::unique_ptr<Executor> executor;
};

INSTANTIATE_TEST_SUITE_P(Fused, AotFunction, ::testing::Bool());

TEST_P(AotFunction, ForwardAndBackwardEqualEager) {
  for (int size : {5, 1, 16, 33, 1000}) {
    exec("x = torch.randn(" + std::to_string(size) +
         ", requires_grad=True); y = torch.randn(" + std::to_string(size) +
         ", requires_grad=True)");
    Ref out = call();
    EXPECT_TRUE(tensor(out).requires_grad());
    EXPECT_TRUE(equal(out, "x.sin() * y"));
    backward(out, "(out * torch.arange(out.numel())).sum().backward()");
    EXPECT_TRUE(equal(eval("x.grad"), "x.cos() * y * torch.arange(x.numel())"));
    EXPECT_TRUE(equal(eval("y.grad"), "x.sin() * torch.arange(x.numel())"));
  }
}

TEST_P(AotFunction, ExpandedTangent) {
  Ref out = call();
  backward(out, "out.sum().backward()");
  EXPECT_TRUE(equal(eval("x.grad"), "x.cos() * y"));
}

TEST_P(AotFunction, SecondBackwardRaises) {
  Ref out = call();
  backward(out, "out.sum().backward()");
  EXPECT_NE(backward_error(out, "out.sum().backward()")
                .find("backward through the graph a second time"),
            std::string::npos);
}

TEST_P(AotFunction, RetainGraph) {
  Ref out = call();
  backward(out,
           "s = out.sum()\ns.backward(retain_graph=True)\n"
           "s.backward()");
  EXPECT_TRUE(equal(eval("x.grad"), "2 * x.cos() * y"));
}

TEST_P(AotFunction, ChangingASavedInputRaises) {
  Ref out = call();
  exec("with torch.no_grad(): x.add_(1)");
  EXPECT_NE(backward_error(out, "out.sum().backward()")
                .find("modified by an inplace operation"),
            std::string::npos);
}

TEST_P(AotFunction, ChangingAViewOfASavedInputRaises) {
  exec("base = torch.randn(10); x = base[:5].requires_grad_()");
  Ref out = call();
  exec("with torch.no_grad(): x[0:1].add_(1)");
  EXPECT_NE(backward_error(out, "out.sum().backward()")
                .find("modified by an inplace operation"),
            std::string::npos);
}

TEST_P(AotFunction, NonLeafInputsAndHooks) {
  exec("w = torch.randn(5, requires_grad=True); x = w * 2; seen = []");
  Ref out = call();
  backward(out,
           "out.register_hook(lambda g: seen.append(g) or g * 3)\n"
           "out.sum().backward()");
  EXPECT_TRUE(equal(eval("w.grad"), "6 * x.cos() * y"));
  EXPECT_TRUE(equal(eval("seen[0]"), "torch.ones(5)"));
}

TEST_P(AotFunction, AutogradGradOfOneInput) {
  Ref out = call();
  backward(out, "g, = torch.autograd.grad(out.sum(), [y])");
  EXPECT_TRUE(equal(eval("g"), "x.sin()"));
}

TEST_P(AotFunction, GradientsCanBeDifferentiated) {
  for (int i = 0; i < 6; ++i) {  // at torch level in the end
    Ref out = call();
    backward(
        out,
        "g, h = torch.autograd.grad(out.sum(), [x, y], create_graph=True)");
    EXPECT_TRUE(equal(eval("g"), "x.cos() * y"));
    EXPECT_TRUE(equal(eval("h"), "x.sin()"));
    exec("a, b = torch.autograd.grad(g.sum() + (h * h).sum(), [x, y])");
    EXPECT_TRUE(equal(eval("a"), "-x.sin() * y + 2 * x.sin() * x.cos()"));
    EXPECT_TRUE(equal(eval("b"), "x.cos()"));
  }
}

TEST_P(AotFunction, BatchedGradients) {
  Ref out = call();
  backward(out,
           "v = torch.randn(3, 5)\n"
           "g, = torch.autograd.grad(out, [x], v, is_grads_batched=True)");
  EXPECT_TRUE(equal(eval("g"), "v * x.cos() * y"));
}

TEST_P(AotFunction, SavedTensorsAreFreedByTheBackward) {
  exec(
      "x0 = torch.randn(5, requires_grad=True); x = x0 * 1; "
      "ref = weakref.ref(x)");
  Ref out = call();
  exec("del x");
  EXPECT_NE(eval("ref()").get(), Py_None);
  backward(out, "out.sum().backward()");
  EXPECT_EQ(eval("ref()").get(), Py_None);
}

TEST_P(AotFunction, OutputDiesWithItsLastReference) {
  exec(
      "x0 = torch.randn(5, requires_grad=True); x = x0 * 1; "
      "ref = weakref.ref(x)");
  {
    Ref out = call();
    exec("del x");
  }
  exec("_a = None; out = None");
  EXPECT_EQ(eval("ref()").get(), Py_None);
}

TEST_P(AotFunction, FailureBeforeCommitLeavesTheErrorSet) {
  exec("x = torch.randn(4, requires_grad=True)");  // sizes do not broadcast
  auto result = run(*executor, {eval("x"), eval("y")}, 1, {4});
  EXPECT_EQ(result.status, RunStatus::kFailedBeforeCommit);
  EXPECT_NE(take_error(), "");
  EXPECT_FALSE(result.outputs[0]);
}

// Two outputs, one of them unused: nothing comes from it.
TEST(AotFunctionGraphs, UndefinedTangentsStayUndefined) {
  exec("pass");  // imports torch
  ASSERT_TRUE(graph::initialize_tracing()) << take_error();
  auto torch = std::make_shared<graph::TorchGraph>();
  Graph& g = *torch->graph;
  auto* x = g.add_input("x", meta({3}, true));
  auto* y = g.add_input("y", meta({3}, true));
  torch->input_objects = {0, 1};
  auto output = [&](const char* function, graph::Value* value) {
    auto* made = call(g, function, {value});
    made->meta = meta({3}, true);
    return made;
  };
  g.set_outputs({output("torch.log", x), Arg(Expr(11)), output("torch.exp", x),
                 output("torch.log", y)});
  BackendRequest request;
  request.graph = torch;
  request.backend = "aot_eager";
  auto compiled = compile(request);
  ASSERT_TRUE(compiled.ok());
  ASSERT_EQ(compiled.value().info.fallback_reason, "");
  exec("x = torch.zeros(3, requires_grad=True)");
  exec("y = torch.ones(3, requires_grad=True)");
  auto result = run(*compiled.value().executor, {eval("x"), eval("y")}, 4);
  ASSERT_EQ(result.status, RunStatus::kOk) << take_error();
  EXPECT_EQ(PyLong_AsLong(result.outputs[1].get()), 11);
  backward(result.outputs[2], "out.sum().backward()");
  EXPECT_TRUE(equal(eval("x.grad"), "torch.ones(3)"));
  EXPECT_EQ(eval("y.grad").get(), Py_None);
  // Another way than the first: nothing that it needs is freed.
  backward(result.outputs[3], "out.sum().backward()");
  EXPECT_TRUE(equal(eval("y.grad"), "torch.ones(3)"));
  EXPECT_NE(backward_error(result.outputs[2], "out.sum().backward()")
                .find("backward through the graph a second time"),
            std::string::npos);
}

// The backward keeps a view of the input; a change of the input must be seen.
TEST(AotFunctionGraphs, SavedViewsAreWatched) {
  AotGraphs graphs;
  graphs.forward = std::make_unique<Graph>();
  Graph& f = *graphs.forward;
  auto* x = f.add_input("x", meta({2, 3}, true));
  auto* w = f.add_input("w", meta({4, 3}));
  graph::TensorMeta transposed = meta({3, 4});
  transposed.strides = {1, 3};
  auto* t = aten(f, "t", "", {w}, transposed);
  f.set_outputs({aten(f, "mm", "", {x, t}, meta({2, 4})), t});
  graphs.backward = std::make_unique<Graph>();
  Graph& g = *graphs.backward;
  auto* st = g.add_input("t", transposed);
  auto* tangent = g.add_input("g", meta({2, 4}));
  auto* back = aten(g, "t", "", {st}, meta({4, 3}));
  g.set_outputs({aten(g, "mm", "", {tangent, back}, meta({2, 3})), Arg()});
  graphs.num_saved_tensors = 1;
  graphs.num_user_outputs = 1;
  graphs.outputs.resize(1);
  graphs.outputs[0].requires_grad = true;
  graphs.tangent_of = {0};
  auto built = make(torch_graph(2), graphs);
  ASSERT_EQ(built.broke, "");
  exec("x = torch.randn(2, 3, requires_grad=True); w = torch.randn(4, 3)");
  auto result = run(*built.executor, {eval("x"), eval("w")}, 1);
  ASSERT_EQ(result.status, RunStatus::kOk) << take_error();
  EXPECT_TRUE(equal(result.outputs[0], "x @ w.t()"));
  backward(result.outputs[0], "out.sum().backward(retain_graph=True)");
  EXPECT_TRUE(equal(eval("x.grad"), "torch.ones(2, 4) @ w"));
  exec("w.add_(1)");
  EXPECT_NE(backward_error(result.outputs[0], "out.sum().backward()")
                .find("modified by an inplace operation"),
            std::string::npos);
}

// x is overwritten by the commit, and its old content is saved.
TEST(AotFunctionGraphs, MutationsAreCommittedLast) {
  AotGraphs graphs;
  graphs.forward = std::make_unique<Graph>();
  Graph& f = *graphs.forward;
  auto* x = f.add_input("x", meta({3}));
  auto* w = f.add_input("w", meta({3}, true));
  auto* out = aten(f, "mul", "Tensor", {x, w}, meta({3}));
  auto* next = aten(f, "add", "Tensor", {x, Arg(1.0)}, meta({3}));
  f.set_outputs({out, x});
  f.mutations.push_back({0, next, false});
  graphs.backward = std::make_unique<Graph>();
  Graph& g = *graphs.backward;
  auto* sx = g.add_input("x", meta({3}));
  auto* t = g.add_input("g", meta({3}));
  g.set_outputs({Arg(), aten(g, "mul", "Tensor", {t, sx}, meta({3}))});
  graphs.num_saved_tensors = 1;
  graphs.num_user_outputs = 1;
  graphs.outputs.resize(1);
  graphs.outputs[0].requires_grad = true;
  graphs.tangent_of = {0};
  auto built = make(torch_graph(2), graphs);
  ASSERT_EQ(built.broke, "");
  exec(
      "x = torch.randn(3); old = x.clone(); v = x._version\n"
      "w = torch.randn(3, requires_grad=True)");
  auto result = run(*built.executor, {eval("x"), eval("w")}, 1);
  ASSERT_EQ(result.status, RunStatus::kOk) << take_error();
  EXPECT_TRUE(equal(eval("x"), "old + 1"));
  EXPECT_EQ(eval("x._version == v + 1").get(), Py_True);
  EXPECT_TRUE(equal(result.outputs[0], "old * w"));
  backward(result.outputs[0], "out.sum().backward()");
  EXPECT_TRUE(equal(eval("w.grad"), "old"));

  // The same with history on the new value is the torch level's business.
  graphs.forward->mutations[0].requires_grad = true;
  EXPECT_NE(make(torch_graph(2), graphs).broke, "");
}

// x.add_(1); return x, x.size(0): the input object itself comes back.
TEST(AotFunctionGraphs, AnInputIsReturnedAsItself) {
  AotGraphs graphs;
  graphs.forward = std::make_unique<Graph>();
  Graph& f = *graphs.forward;
  auto* x = f.add_input("x", meta({3}));
  auto* next = aten(f, "add", "Tensor", {x, Arg(1.0)}, meta({3}));
  f.set_outputs({next});
  f.mutations.push_back({0, next, false});
  graphs.num_user_outputs = 1;
  graphs.outputs.resize(1);
  graphs.outputs[0].alias = OutputInfo::Alias::kInput;
  graphs.outputs[0].base = 0;
  auto built = make(torch_graph(1), graphs, true);
  ASSERT_EQ(built.broke, "");
  exec("x = torch.randn(3); old = x.clone()");
  Ref input = eval("x");
  auto result = run(*built.executor, {input}, 1);
  ASSERT_EQ(result.status, RunStatus::kOk) << take_error();
  EXPECT_EQ(result.outputs[0].get(), input.get());
  EXPECT_TRUE(equal(input, "old + 1"));
}

TEST(AotFunctionGraphs, AliasedOutputsFallBack) {
  auto try_outputs = [](auto outputs) {
    AotGraphs graphs;
    graphs.forward = std::make_unique<Graph>();
    Graph& f = *graphs.forward;
    f.add_input("x", meta({3, 4}));
    auto list = outputs(f);
    graphs.num_user_outputs = list.size();
    graphs.outputs.resize(list.size());
    f.set_outputs(std::move(list));
    return make(torch_graph(1), graphs).broke;
  };
  using Args = std::vector<Arg>;
  EXPECT_NE(try_outputs([](Graph& f) { return Args{f.inputs[0]}; }), "");
  EXPECT_NE(try_outputs([](Graph& f) {
              return Args{aten(f, "t", "", {f.inputs[0]}, meta({4, 3}))};
            }),
            "");
  EXPECT_NE(try_outputs([](Graph& f) {
              auto* y = aten(f, "sin", "", {f.inputs[0]}, meta({3, 4}));
              return Args{y, aten(f, "t", "", {y}, meta({4, 3}))};
            }),
            "");
  EXPECT_EQ(try_outputs([](Graph& f) {
              auto* y = aten(f, "sin", "", {f.inputs[0]}, meta({3, 4}));
              return Args{aten(f, "t", "", {y}, meta({4, 3}))};
            }),
            "");
}

}  // namespace
}  // namespace framejit::backend::testing
