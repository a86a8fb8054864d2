#include <ATen/ops/cos.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/randn.h>

#include "graph/ops/meta_inference.h"
#include "graph/tensors/libtorch_private.h"
#include "tests/graph/tracing/trace_helpers.h"

namespace framejit::graph::testing {
namespace {

class TraceTensor : public ::testing::Test {
 protected:
  void SetUp() override { start_torch(); }

  // Traces `function` on stand-ins of the inputs, replays what was recorded on
  // the inputs, and compares with eager.
  void check(const std::string& source, const std::vector<at::Tensor>& inputs) {
    exec("def function" + source);
    RecordingSession session(nullptr);
    std::map<int, at::Tensor> values;
    std::vector<at::Tensor> traced, copies;
    for (const at::Tensor& input : inputs)
      copies.push_back(input.detach().clone());
    {
      TracingScope scope(session);
      std::vector<at::Tensor> stand_ins;
      for (size_t i = 0; i < inputs.size(); ++i) {
        stand_ins.push_back(make_trace_input(session, inputs[i]));
        values[as_trace(stand_ins.back())->value_id()] = copies[i];
      }
      Ref result = call("function", stand_ins);
      ASSERT_TRUE(result) << take_error();
      traced = tensors_of(result);
    }
    EXPECT_FALSE(session.has_break());
    std::vector<at::Tensor> eager = tensors_of(call("function", inputs));
    ASSERT_EQ(eager.size(), traced.size()) << take_error();
    values = session.replay(values, {});
    for (size_t i = 0; i < eager.size(); ++i) {
      EXPECT_EQ(traced[i].sizes(), eager[i].sizes());
      EXPECT_EQ(traced[i].strides(), eager[i].strides());
      EXPECT_EQ(traced[i].scalar_type(), eager[i].scalar_type());
      EXPECT_EQ(traced[i].device(), eager[i].device());
      EXPECT_EQ(traced[i].requires_grad(), eager[i].requires_grad());
      EXPECT_TRUE(same(values.at(as_trace(traced[i])->value_id()), eager[i]))
          << source << "\n"
          << session.text();
    }
  }
};

TEST_F(TraceTensor, LooksLikeATensor) {
  RecordingSession session(nullptr);
  at::Tensor real = at::randn({3, 4}).t();
  real.set_requires_grad(true);
  at::Tensor stand_in = make_trace_input(session, real);
  EXPECT_EQ(stand_in.sizes(), real.sizes());
  EXPECT_EQ(stand_in.strides(), real.strides());
  EXPECT_TRUE(stand_in.requires_grad());
  EXPECT_TRUE(stand_in.is_leaf());
  set_global("x", wrap(stand_in).get());
  EXPECT_EQ(eval("isinstance(x, torch.Tensor) and x.shape == (4, 3) and "
                 "x.device.type == 'cpu' and x.is_cpu")
                .get(),
            Py_True);
}

TEST_F(TraceTensor, ForwardGraphsEqualEager) {
  check("(x, y): return (x.cos().cos() / 1.1 * y).sum()",
        {at::randn({4, 5}), at::randn({5})});
  check("(x, y): return torch.where(x > 0, x, -y).t(), x.mean(0)",
        {at::randn({4, 5}), at::randn({4, 5})});
  check("(x, w): return F.gelu(F.linear(x, w)).softmax(-1)",
        {at::randn({4, 5}), at::randn({3, 5})});
  check("(x,): return F.layer_norm(x, (5,)), x.var(0), x[1:3, ::2]",
        {at::randn({4, 5})});
  check("(x, w): return F.max_pool2d(F.relu(F.conv2d(x, w)), 2)",
        {at::randn({2, 3, 8, 8}), at::randn({4, 3, 3, 3})});
  check("(x,): return torch.cat([x, x.abs()], 1).split(3, 1)",
        {at::randn({4, 5})});
  check("(x,): return x.permute(1, 0) + 1, x.to(torch.float64), x.int()",
        {at::randn({4, 5})});
  check("(x,): return x + torch.tensor([1., 2.]), torch.arange(3) * 2",
        {at::randn({4, 2})});
  check("(x,): return torch.zeros(2, 3) + torch.full((3,), 2.), x",
        {at::randn({4, 2})});
}

TEST_F(TraceTensor, InPlaceOperations) {
  check("(x,):\n  y = x * 1\n  y.add_(1)\n  y[0].mul_(2)\n  return y",
        {at::randn({4, 2})});
  check("(x,):\n  y = x * 1\n  y.t_()\n  return y, y.sum(0)",
        {at::randn({4, 2})});
}

TEST_F(TraceTensor, GradientsAreBuilt) {
  at::Tensor x = at::randn({3});
  x.set_requires_grad(true);
  check("(x,): return (x * 2).cos()", {x});
  EXPECT_FALSE(x.grad().defined());
}

TEST_F(TraceTensor, DataCannotBeRead) {
  exec("def function(x): return x.item()");
  for (const char* source :
       {"x.item()", "bool(x.sum() > 0)", "x.tolist()", "x.numpy()",
        "x.data_ptr()", "x.nonzero()", "x[x > 0]", "torch.unique(x)"}) {
    exec(std::string("def function(x): return ") + source);
    RecordingSession session(nullptr);
    TracingScope scope(session);
    Ref result =
        call("function", {make_trace_input(session, at::randn({1, 3}))});
    EXPECT_FALSE(result) << source;
    take_error();
  }
}

TEST_F(TraceTensor, DataDependenceIsABreak) {
  struct Case {
    const char* source;
    BreakReason reason;
  };
  for (Case item : {Case{"x.sum().item()", BreakReason::kDataDependentValue},
                    Case{"x.nonzero()", BreakReason::kDataDependentShape},
                    Case{"x + y", BreakReason::kUnknownTensor}}) {
    exec("y = torch.ones(3)");
    exec(std::string("def function(x): return ") + item.source);
    RecordingSession session(nullptr);
    TracingScope scope(session);
    EXPECT_FALSE(
        call("function", {make_trace_input(session, at::randn({1, 3}))}));
    take_error();
    auto brk = session.take_break();
    ASSERT_TRUE(brk) << item.source;
    EXPECT_EQ(brk->reason, item.reason) << format_break(*brk);
  }
}

TEST_F(TraceTensor, StaleStandInsAreRecognised) {
  at::Tensor old;
  {
    RecordingSession first(nullptr);
    TracingScope scope(first);
    old = make_trace_input(first, at::randn({3}));
    EXPECT_FALSE(is_stale(old));
  }
  EXPECT_TRUE(is_stale(old));
  EXPECT_THROW(at::cos(old), c10::Error);
  RecordingSession second(nullptr);
  TracingScope scope(second);
  EXPECT_TRUE(is_stale(old));
  EXPECT_THROW(at::cos(old), c10::Error);
}

TEST_F(TraceTensor, OneSessionAtATime) {
  RecordingSession first(nullptr), second(nullptr);
  TracingScope outer(first);
  EXPECT_TRUE(outer.ok());
  {
    TracingScope inner(second);
    EXPECT_FALSE(inner.ok());
  }
  EXPECT_EQ(TraceSession::active(), &first);
}

TEST_F(TraceTensor, DispatchStateIsRestored) {
  auto before = c10::impl::tls_local_dispatch_key_set();
  {
    RecordingSession session(nullptr);
    TracingScope scope(session, true);
    SuspendTracing suspend;
    at::Tensor real = at::randn({2}).cos();
    EXPECT_FALSE(as_trace(real));
  }
  auto after = c10::impl::tls_local_dispatch_key_set();
  EXPECT_EQ(before.included_, after.included_);
  EXPECT_EQ(before.excluded_, after.excluded_);
  EXPECT_EQ(TraceSession::active(), nullptr);
}

TEST_F(TraceTensor, NativeOffsetsMatchAccessors) {
  TensorLayout layout = native_tensor_offsets();
  at::Tensor x = at::randn({3, 4});
  Ref object = wrap(x);
  auto at_offset = [](void* base, int offset) {
    return reinterpret_cast<char*>(base) + offset;
  };
  void* impl =
      *reinterpret_cast<void**>(at_offset(object.get(), layout.tensor_impl));
  EXPECT_EQ(impl, x.unsafeGetTensorImpl());
  EXPECT_EQ(*reinterpret_cast<uint64_t*>(at_offset(impl, layout.key_set)),
            x.key_set().raw_repr());
  EXPECT_EQ(*reinterpret_cast<int64_t*>(at_offset(impl, layout.storage_offset)),
            0);
}

}  // namespace
}  // namespace framejit::graph::testing
