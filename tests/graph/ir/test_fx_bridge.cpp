// Graphs to torch.fx and back, run on real tensors.
#include "graph/ir/fx_bridge.h"

#include <gtest/gtest.h>

#include "tests/graph/ir/graph_text_helpers.h"

namespace framejit::graph {
namespace {

using testing::eval;
using testing::exec;
using testing::parsed;

TEST(FxBridge, TorchLevelGraph) {
  auto graph = parsed(
      R"(graph(%0 "self.layers[0].weight" : f32[s0, 4] cpu, %1 "x" : f32[4] cpu, %2 "s0" : int(s0)) {
  enter torch._C._set_grad_enabled(False) @keep
  %3 = Tensor.cos(%0) : f32[s0, 4] cpu
  %4, %5 = torch.max(%3, dim=1) : f32[s0] cpu, i64[s0] cpu
  %6 = torch.zeros([sym(s0*2 + 1), 4]) : f32[s0*2 + 1, 4] cpu
  %7 = _operator.getitem(%6, (slice(None, sym(s0), None), 1)) : f32[s0] cpu
  %8 = _operator.add(%4, %7) : f32[s0] cpu
  enter torch._C._set_grad_enabled(True) @keep
  return (%8, None, sym(s0 + 3), %1)
})");
  ASSERT_TRUE(graph);
  auto module = to_fx(*graph);
  ASSERT_TRUE(module.ok()) << testing::take_error();
  testing::set_global("gm", module.value().get());
  exec(
      "w = torch.arange(12.).view(3, 4); x = torch.ones(4)\n"
      "out = gm(w, x, 3)\n"
      "assert torch.equal(out[0], w.cos().max(dim=1)[0])\n"
      "assert out[1] is None and out[2] == 6 and out[3] is x\n"
      "assert torch.is_grad_enabled()\n"
      "gm.graph.lint()\n"
      "names = [n.name for n in gm.graph.nodes if n.op == 'placeholder']\n"
      "assert names == ['self_layers_0_weight', 'x', 's0'], names\n");
}

TEST(FxBridge, AtenGraph) {
  auto graph = parsed(R"(graph(%0 "x" : f32[4] cpu) {
  %1 = aten.add.Tensor(%0, 2, 3) : f32[4] cpu
  %2 = aten._to_copy.default(%1, dtype(f64), None, None, None, False, None) : f64[4] cpu
  return (%2)
})");
  auto module = to_fx(*graph);
  ASSERT_TRUE(module.ok()) << testing::take_error();
  testing::set_global("gm", module.value().get());
  exec(
      "out = gm(torch.ones(4))[0]\n"
      "assert out.dtype is torch.float64 and out.tolist() == [7.] * 4");
}

TEST(FxBridge, FromFx) {
  testing::start_torch();
  exec(
      "import torch.fx\n"
      "class M(torch.nn.Module):\n"
      "  def __init__(self):\n"
      "    super().__init__()\n"
      "    self.lin = torch.nn.Linear(3, 3)\n"
      "    self.register_buffer('b', torch.ones(3))\n"
      "  def forward(self, x, y):\n"
      "    a, c = torch.chunk(self.lin(x) + self.b, 2)\n"
      "    return a.cos() * y[1:], c\n"
      "traced = torch.fx.symbolic_trace(M())");
  Ref traced = eval("traced");
  auto graph = from_fx(traced.get());
  ASSERT_TRUE(graph.ok()) << testing::take_error();
  EXPECT_EQ(verify(*graph.value()), "");
  EXPECT_EQ(graph.value()->inputs.size(), 2u);
  EXPECT_EQ(graph.value()->outputs.size(), 2u);
  size_t modules = 0;
  for (const auto& node : graph.value()->block().nodes)
    modules += node->op == Opcode::kCallModule;
  EXPECT_EQ(modules, 1u);
}

}  // namespace
}  // namespace framejit::graph
