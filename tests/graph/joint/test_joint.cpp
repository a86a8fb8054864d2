#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/autograd.h>

#include "graph/ops/shape_rules.h"
#include "graph/tensors/python_tensor.h"
#include "tests/graph/joint/joint_helpers.h"

namespace framejit::graph::testing {
namespace {

using Tensors = std::vector<at::Tensor>;

at::Tensor parameter(at::IntArrayRef sizes) {
  at::Tensor value = at::randn(sizes);
  value.set_requires_grad(true);
  return value;
}

Tensors detached(const Tensors& inputs) {
  Tensors copies;
  for (const at::Tensor& input : inputs) {
    copies.push_back(input.detach().clone());
    copies.back().set_requires_grad(input.requires_grad());
  }
  return copies;
}

class Joint : public ::testing::Test {
 protected:
  void SetUp() override { start_torch(); }

  Result<JointGraph> trace(const Tensors& inputs, size_t num_outputs,
                           GuardSet* guards = nullptr,
                           const std::vector<std::vector<Expr>>& sizes = {}) {
    FunctionGraph source("function", inputs, num_outputs, sizes);
    return trace_joint(source.graph, guards ? guards : &guards_);
  }

  // Runs a joint graph and eager on the same inputs and compares outputs,
  // mutated inputs and gradients, bit by bit.
  void compare(const JointGraph& joint, const Tensors& inputs,
               const std::vector<int64_t>& symbols = {}) {
    Tensors eager_inputs = detached(inputs), joint_inputs = detached(inputs);
    Tensors eager = tensors_of(call("function", eager_inputs));
    ASSERT_EQ(eager.size(), joint.num_user_outputs) << take_error();
    Tensors differentiable, tangents, wanted;
    for (int output : joint.tangent_of) {
      differentiable.push_back(eager[output]);
      tangents.push_back(at::randn_like(eager[output]));
    }
    Tensors all = joint_inputs;
    all.insert(all.end(), tangents.begin(), tangents.end());
    JointResult result = run_graph(*joint.graph, all, symbols);
    for (size_t i = 0; i < eager.size(); ++i) {
      // A view of an input is not computed: the executor makes it.
      if (joint.outputs[i].remade) continue;
      EXPECT_TRUE(same(result.outputs[i], eager[i])) << "output " << i << "\n"
                                                     << joint.graph->str();
      EXPECT_EQ(joint.outputs[i].requires_grad, eager[i].requires_grad());
    }
    for (size_t i = 0; i < result.mutated.size(); ++i) {
      int input = joint.graph->mutations[i].input;
      EXPECT_TRUE(same(result.mutated[i], eager_inputs[input])) << input;
    }
    if (!joint.has_backward) return;
    std::vector<size_t> positions;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!inputs[i].requires_grad()) continue;
      wanted.push_back(eager_inputs[i]);
      positions.push_back(i);
    }
    Tensors gradients;
    {
      ReleaseGil released;
      gradients = torch::autograd::grad(differentiable, wanted, tangents, false,
                                        false, true);
    }
    for (size_t i = 0; i < wanted.size(); ++i) {
      const at::Tensor& ours =
          result.outputs[joint.num_user_outputs + positions[i]];
      EXPECT_TRUE(ours.defined() == gradients[i].defined() &&
                  (!ours.defined() || ours.equal(gradients[i])))
          << "gradient of " << positions[i] << "\n"
          << joint.graph->str();
    }
  }

  void check(const std::string& source, const Tensors& inputs,
             size_t num_outputs = 1) {
    exec("def function" + source);
    auto joint = trace(inputs, num_outputs);
    ASSERT_TRUE(joint.ok()) << source << format_break(joint.brk());
    EXPECT_EQ(verify(*joint.value().graph), "");
    compare(joint.value(), inputs);
  }

  bool has_node(const Graph& graph, const std::string& name) {
    return graph.str().find(name) != std::string::npos;
  }

  GuardSet guards_;
};

TEST_F(Joint, Cosines) {
  exec("def function(x, y): return (x.cos().cos() * y,)");
  Tensors inputs = {parameter({10}), parameter({10})};
  auto joint = trace(inputs, 1);
  ASSERT_TRUE(joint.ok()) << format_break(joint.brk());
  EXPECT_TRUE(joint.value().has_backward);
  EXPECT_EQ(joint.value().tangent_of, std::vector<int>{0});
  bool seen_backward = false;
  for (const auto& node : joint.value().graph->block().nodes) {
    if (node->op != Opcode::kCallFunction) continue;
    EXPECT_FALSE(seen_backward && !node->is_backward);
    seen_backward |= node->is_backward;
  }
  EXPECT_TRUE(seen_backward);
  compare(joint.value(), inputs);
}

TEST_F(Joint, Networks) {
  check(
      "(x, w1, b1, w2):\n"
      "  return (F.linear(F.relu(F.linear(x, w1, b1)), w2),)",
      {at::randn({4, 5}), parameter({7, 5}), parameter({7}),
       parameter({3, 7})});
  check(
      "(x, w, b):\n"
      "  return (F.dropout(F.gelu(F.layer_norm(x, (5,), w, b)), 0.0),)",
      {parameter({4, 5}), parameter({5}), parameter({5})});
  check("(x, w): return (F.gelu(F.linear(x, w), approximate='tanh').sum(),)",
        {parameter({4, 5}), parameter({3, 5})});
  check("(x, t): return (F.cross_entropy(x, t),)",
        {parameter({6, 5}), at::randint(5, {6}, at::kLong)});
  check("(x, w): return (F.embedding(x, w).mean(1),)",
        {at::randint(5, {2, 3}, at::kLong), parameter({5, 4})});
  check("(q, k, v): return (F.scaled_dot_product_attention(q, k, v),)",
        {parameter({2, 2, 4, 8}), parameter({2, 2, 4, 8}),
         parameter({2, 2, 4, 8})});
  check("(x, y): return (torch.cat([x, y], 1).softmax(-1), x.sum(), y / 3)",
        {parameter({4, 5}), parameter({4, 2})}, 3);
}

TEST_F(Joint, ConvolutionAndBatchNorm) {
  exec(
      "def function(x, w, g, b, m, v):\n"
      "  y = F.batch_norm(F.conv2d(x, w), m, v, g, b, training=True)\n"
      "  return (F.max_pool2d(F.relu(y, inplace=True), 2),)");
  Tensors inputs = {at::randn({2, 3, 8, 8}), parameter({4, 3, 3, 3}),
                    parameter({4}),          parameter({4}),
                    at::zeros({4}),          at::ones({4})};
  auto joint = trace(inputs, 1);
  ASSERT_TRUE(joint.ok()) << format_break(joint.brk());
  // The running statistics are written although no schema says so.
  ASSERT_EQ(joint.value().graph->mutations.size(), 2u);
  EXPECT_EQ(joint.value().graph->mutations[0].input, 4);
  EXPECT_EQ(joint.value().graph->mutations[1].input, 5);
  EXPECT_FALSE(has_node(*joint.value().graph, "aten.native_batch_norm("));
  compare(joint.value(), inputs);
}

TEST_F(Joint, MutationAndViews) {
  check("(x, y):\n  x[0].add_(y)\n  return (x * 2,)",
        {at::randn({3, 4}), at::randn({4})});
  check("(x, y):\n  z = x * 1\n  z[:, 1:3].mul_(y)\n  return (z.t().cos(),)",
        {parameter({3, 4}), parameter({2})});
  check("(x,):\n  y = x.clone()\n  F.relu_(y)\n  return (y + 1,)",
        {parameter({3, 4})});
}

TEST_F(Joint, GradModeAndConstants) {
  check(
      "(x, w):\n"
      "  with torch.no_grad(): y = w * 2\n"
      "  return (x * y + torch.tensor([1., 2.]), y)",
      {parameter({3, 2}), parameter({2})}, 2);
  check("(x,): return (x + torch.arange(4) * torch.full((4,), 2.),)",
        {parameter({3, 4})});
}

TEST_F(Joint, OutputAliases) {
  using Alias = OutputInfo::Alias;
  exec(
      "def function(x):\n"
      "  y = x * 2\n"
      "  return x, x[0], y, y.t(), y.clone()");
  auto joint = trace({at::randn({3, 4})}, 5);
  ASSERT_TRUE(joint.ok()) << format_break(joint.brk());
  const auto& outputs = joint.value().outputs;
  EXPECT_EQ(outputs[0].alias, Alias::kInput);
  EXPECT_EQ(outputs[1].alias, Alias::kViewOfInput);
  EXPECT_EQ(outputs[2].alias, Alias::kNone);
  EXPECT_EQ(outputs[3].alias, Alias::kOutput);
  EXPECT_EQ(outputs[3].base, 2);
  EXPECT_EQ(outputs[4].alias, Alias::kNone);
}

TEST_F(Joint, RandomOperationsStay) {
  exec("def function(x): return (F.dropout(x, 0.5, True),)");
  at::Tensor x = parameter({8, 8});
  at::Tensor before = tensor(eval("torch.get_rng_state()"));
  auto joint = trace({x}, 1);
  ASSERT_TRUE(joint.ok()) << format_break(joint.brk());
  EXPECT_TRUE(has_node(*joint.value().graph, "bernoulli") ||
              has_node(*joint.value().graph, "native_dropout"));
  // Tracing draws no number.
  EXPECT_TRUE(before.equal(tensor(eval("torch.get_rng_state()"))));
}

TEST_F(Joint, FunctionalWrappersCannotBeRead) {
  for (const char* source :
       {"x.numpy()", "x.data_ptr()", "x.tolist()", "float(x.sum())"}) {
    exec(std::string("def function(x):\n  y = ") + source +
         "\n  return (x + 1,)");
    // As an input, and as the result of another node.
    FunctionGraph source_graph("function", {at::randn({3})}, 1);
    EXPECT_FALSE(trace_joint(source_graph.graph, &guards_).ok()) << source;
    Graph& graph = *source_graph.graph.graph;
    auto made = std::make_unique<Node>();
    made->callable = eval("torch.cos");
    made->args = {Arg(graph.inputs[0])};
    Node* reader = std::prev(graph.block().nodes.end(), 2)->get();
    Value* cosine =
        graph.add_output(graph.insert_before(reader, std::move(made)));
    reader->args = {Arg(cosine)};
    graph.rebuild_uses();
    EXPECT_FALSE(trace_joint(source_graph.graph, &guards_).ok()) << source;
  }
}

TEST_F(Joint, FailuresLeaveNoTrace) {
  exec(
      "def function(x):\n  y = torch._C._set_grad_enabled(False)\n"
      "  x.cos()\n  raise ValueError('no')");
  auto before = c10::impl::tls_local_dispatch_key_set();
  at::Tensor x = parameter({3});
  auto joint = trace({x}, 1);
  ASSERT_FALSE(joint.ok());
  EXPECT_NE(joint.brk().detail.find("no"), std::string::npos);
  EXPECT_TRUE(at::GradMode::is_enabled());
  EXPECT_EQ(TraceSession::active(), nullptr);
  auto after = c10::impl::tls_local_dispatch_key_set();
  EXPECT_EQ(before.included_, after.included_);
  EXPECT_EQ(before.excluded_, after.excluded_);
  EXPECT_FALSE(x.grad().defined());
  EXPECT_FALSE(PyErr_Occurred());
}

TEST_F(Joint, InputsThatCannotBeReplayed) {
  struct Case {
    const char* body;
    BreakReason reason;
  };
  for (Case item : {Case{"x.t_()", BreakReason::kBackendFailed},
                    Case{"x.add_(w)", BreakReason::kBackendFailed},
                    Case{"x.sum().item()", BreakReason::kDataDependentValue},
                    Case{"x.nonzero()", BreakReason::kDataDependentShape}}) {
    exec(std::string("def function(x, w):\n  ") + item.body +
         "\n  return (x * 1,)");
    auto joint = trace({at::randn({3, 3}), parameter({3})}, 1);
    ASSERT_FALSE(joint.ok()) << item.body;
    EXPECT_EQ(joint.brk().reason, item.reason) << format_break(joint.brk());
  }
}

// x and y have one storage, z its own.
class SharedInputs : public Joint {
 protected:
  Result<JointGraph> trace_body(const char* body) {
    exec(std::string("def function(x, y, z):\n  ") + body +
         "\n  return (y * 2,)");
    GuardSet guards;
    std::vector<const Source*> sources;
    for (int i = 0; i < 3; ++i) {
      sources.push_back(guards.sources().arg(i));
      guards.gather(sources.back());
    }
    guards.add_storage_relation(sources, {0, 0, 1});
    at::Tensor x = at::randn({3});
    return trace({x, x.view({3}), at::randn({3})}, 1, &guards);
  }
};

TEST_F(SharedInputs, AWriteToOneOfThemIsABreak) {
  auto joint = trace_body("x.add_(1)");
  ASSERT_FALSE(joint.ok());
  EXPECT_EQ(joint.brk().reason, BreakReason::kAliasedMutation);
}

TEST_F(SharedInputs, AWriteToAnotherInputIsNone) {
  auto joint = trace_body("z.add_(x)");
  ASSERT_TRUE(joint.ok()) << format_break(joint.brk());
  ASSERT_EQ(joint.value().graph->mutations.size(), 1u);
  EXPECT_EQ(joint.value().graph->mutations[0].input, 2);
}

// ---- symbolic sizes

class SymbolicJoint : public Joint {
 protected:
  // Traces with the first dim of every input symbolic at size 8, and runs the
  // same graph at other sizes. make: the inputs at a size.
  template <class Make>
  void check_sizes(const std::string& source, Make make,
                   std::vector<bool> symbolic, size_t num_outputs = 1,
                   std::vector<int64_t> sizes = {8, 11, 300}) {
    exec("def function" + source);
    Symbols symbols({8});
    Tensors inputs = make(8);
    std::vector<std::vector<Expr>> exprs;
    for (size_t i = 0; i < inputs.size(); ++i) {
      std::vector<Expr> list;
      for (int64_t size : inputs[i].sizes()) list.emplace_back(size);
      if (symbolic[i]) list[0] = Expr::symbol(0);
      exprs.push_back(list);
    }
    int64_t mismatches = shape_rule_mismatches();
    auto joint = trace(inputs, num_outputs, &symbols.guards, exprs);
    ASSERT_TRUE(joint.ok()) << source << format_break(joint.brk());
    EXPECT_EQ(shape_rule_mismatches(), mismatches) << source;
    for (int64_t size : sizes) {
      std::string texts;
      for (const auto& text : symbols.guard_texts()) texts += text + "; ";
      EXPECT_TRUE(symbols.hold({size}))
          << source << " at " << size << ": " << texts;
      compare(joint.value(), make(size), {size});
    }
  }
};

TEST_F(SymbolicJoint, OneGraphForAllSizes) {
  check_sizes("(x, y): return ((x.cos().cos() / 1.1) * y,)",
              [](int64_t n) { return Tensors{parameter({n}), parameter({n})}; },
              {true, true});
  check_sizes("(x, w, b): return (F.gelu(F.linear(x, w, b)).mean(),)",
              [](int64_t n) {
                return Tensors{parameter({n, 4}), parameter({3, 4}),
                               parameter({3})};
              },
              {true, false, false});
  check_sizes("(x, w, b): return (F.layer_norm(x, (4,), w, b),)",
              [](int64_t n) {
                return Tensors{parameter({n, 4}), parameter({4}),
                               parameter({4})};
              },
              {true, false, false});
  check_sizes("(x, t): return (F.cross_entropy(x, t),)",
              [](int64_t n) {
                return Tensors{parameter({n, 5}),
                               at::randint(5, {n}, at::kLong)};
              },
              {true, true});
  check_sizes(
      "(x,): return (x.view(-1, 2).sum(0), x.t().reshape(-1), x[2:5])",
      [](int64_t n) { return Tensors{parameter({n, 4})}; }, {true}, 3);
  check_sizes(
      "(x, w):\n"
      "  return (F.max_pool2d(F.relu(F.conv2d(x, w, padding=1)), 2),)",
      [](int64_t n) {
        return Tensors{parameter({n, 3, 8, 8}), parameter({4, 3, 3, 3})};
      },
      {true, false});
}

TEST_F(SymbolicJoint, SymbolicNumbersInArithmetic) {
  // A SymInt operand arrives as a wrapped number with the value 7777777.
  check_sizes(
      "(x,): return (x * x.shape[0], x / x.shape[0] + x.shape[0])",
      [](int64_t n) { return Tensors{parameter({n, 2})}; }, {true}, 2);
}

TEST_F(SymbolicJoint, ClampedSlicesAreGuarded) {
  exec("def function(x): return (x[:64] * 2,)");
  Symbols symbols({8});
  auto joint = trace({parameter({8})}, 1, &symbols.guards, {{Expr::symbol(0)}});
  ASSERT_TRUE(joint.ok()) << format_break(joint.brk());
  EXPECT_TRUE(symbols.hold({11}));
  EXPECT_FALSE(symbols.hold({65}));
}

TEST_F(SymbolicJoint, BroadcastingIsGuarded) {
  exec("def function(x, y): return (x + y,)");
  Symbols symbols({8, 8});
  auto joint = trace({parameter({8, 2}), parameter({8, 2})}, 1, &symbols.guards,
                     {{Expr::symbol(0), Expr(2)}, {Expr::symbol(1), Expr(2)}});
  ASSERT_TRUE(joint.ok()) << format_break(joint.brk());
  EXPECT_TRUE(symbols.hold({11, 11}));
  EXPECT_FALSE(symbols.hold({11, 1}));
  EXPECT_FALSE(symbols.hold({1, 11}));
}

TEST_F(SymbolicJoint, OperationsWithoutARulePinTheSizes) {
  exec(
      "def function(x): return (torch.fake_quantize_per_tensor_affine("
      "x, 1.0, 0, 0, 255),)");
  Symbols symbols({8});
  auto joint = trace({at::randn({8, 4})}, 1, &symbols.guards,
                     {{Expr::symbol(0), Expr(4)}});
  ASSERT_TRUE(joint.ok()) << format_break(joint.brk());
  EXPECT_TRUE(symbols.hold({8}));
  EXPECT_FALSE(symbols.hold({11}));
}

}  // namespace
}  // namespace framejit::graph::testing
