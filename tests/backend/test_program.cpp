// Programs of ATen calls: argument templates, lists, lifetimes of registers.
#include "backend/program.h"

#include "tests/backend/torch_helpers.h"

namespace framejit::backend::testing {
namespace {

using graph::Arg;
using graph::Graph;

std::vector<at::Tensor> run_program(const Graph& graph,
                                    const std::vector<at::Tensor>& inputs,
                                    std::vector<int64_t> symbols = {}) {
  ProgramOptions options;
  options.check_results = false;
  auto program = Program::build(graph, options);
  EXPECT_TRUE(program.ok()) << program.brk().detail;
  if (!program.ok()) return std::vector<at::Tensor>(graph.outputs.size());
  std::vector<const at::Tensor*> raw;
  for (const at::Tensor& input : inputs) raw.push_back(&input);
  raw.resize(graph.inputs.size(), nullptr);
  std::vector<at::Tensor> outputs(graph.outputs.size());
  program.value()->run(raw.data(), symbols.data(), outputs.data(), nullptr);
  return outputs;
}

bool same(const at::Tensor& a, const std::string& expression) {
  Ref held = wrap(a);
  set_global("_a", held.get());
  return eval("_a.dtype == (" + expression + ").dtype and torch.equal(_a, " +
              expression + ")")
             .get() == Py_True;
}

TEST(Program, SchemaConversions) {
  exec("x = torch.randn(4, 6)");
  at::Tensor x = tensor(eval("x"));
  Graph g;
  auto* in = g.add_input("x", meta({4, 6}));
  Expr n = Expr::symbol(0);
  // Scalar, defaults, float from int, int list from symbols, optional dtype.
  auto* a = aten(g, "add", "Tensor", {in, in, Arg(int64_t{2})}, meta({4, 6}));
  auto* v = aten(g, "view", "", {a, Arg(Arg::List{{Arg(n), Arg(int64_t{-1})}})},
                 meta({n, 12}));
  auto* s = aten(g, "sum", "dim_IntList",
                 {v, Arg(Arg::List{{Arg(int64_t{1})}}), Arg(true),
                  Arg(c10::ScalarType::Double)},
                 meta({n, 1}));
  auto* p = aten(g, "pow", "Tensor_Scalar", {s, Arg(2.0)}, meta({n, 1}));
  auto* w = aten(g, "mul", "Tensor", {in, Arg(3.5)}, meta({4, 6}));
  auto* i = aten(g, "mul", "Tensor", {in, Arg(n)}, meta({4, 6}));
  auto* f = aten(g, "full", "",
                 {Arg(Arg::List{{Arg(n)}}), Arg(true),
                  Arg(c10::ScalarType::Bool), Arg(), Arg(c10::Device("cpu"))},
                 meta({n}));
  auto* c = aten(g, "cat", "", {Arg(Arg::List{{in, w, in}}), Arg(int64_t{1})},
                 meta({4, 18}));
  g.set_outputs({p, w, i, f, c, Arg()});
  auto out = run_program(g, {x}, {2});
  EXPECT_TRUE(
      same(out[0], "(x+2*x).view(2,-1).sum(1,True,dtype=torch.double)**2"));
  EXPECT_TRUE(same(out[1], "x * 3.5"));  // wrapped number: stays float
  EXPECT_TRUE(same(out[2], "x * 2"));
  EXPECT_TRUE(same(out[3], "torch.full((2,), True)"));
  EXPECT_TRUE(same(out[4], "torch.cat([x, x * 3.5, x], 1)"));
  EXPECT_FALSE(out[5].defined());
}

TEST(Program, SeveralResultsAndLists) {
  exec("x = torch.randn(4, 6)");
  Graph g;
  auto* in = g.add_input("x", meta({4, 6}));
  auto* max = aten_node(g, "max", "dim", {in, Arg(int64_t{1})});
  g.add_output(max);
  auto* index = g.add_output(max);
  auto* split =
      aten_node(g, "split", "Tensor", {in, Arg(int64_t{2}), Arg(int64_t{1})});
  split->outputs_are_list = true;
  g.add_output(split);
  auto* second = g.add_output(split);
  g.add_output(split);
  // Optional tensors in a list.
  auto* picked = aten(g, "index", "Tensor",
                      {in, Arg(Arg::List{{Arg(), index}})}, meta({4, 4}));
  g.set_outputs({index, second, picked});
  auto out = run_program(g, {tensor(eval("x"))});
  EXPECT_TRUE(same(out[0], "x.max(1)[1]"));
  EXPECT_TRUE(same(out[1], "x[:, 2:4]"));
  EXPECT_TRUE(same(out[2], "x[:, x.max(1)[1]]"));
}

TEST(Program, ConstantsAndRepeatedRuns) {
  exec("x = torch.randn(3); c = torch.tensor([1., 2., 3.])");
  Graph g;
  auto* in = g.add_input("x", meta({3}));
  auto node = std::make_unique<graph::Node>();
  node->op = graph::Opcode::kGetAttr;
  node->args = {Arg(eval("c"))};
  auto* constant = g.add_output(g.append(std::move(node)));
  auto* y = aten(g, "add", "Tensor", {in, constant}, meta({3}));
  auto* z = aten(g, "mul", "Tensor", {y, y}, meta({3}));
  g.set_outputs({z});
  auto program = Program::build(g, {});
  ASSERT_TRUE(program.ok());
  at::Tensor x = tensor(eval("x")), first, second;
  const at::Tensor* inputs[] = {&x};
  program.value()->run(inputs, nullptr, &first, nullptr);
  program.value()->run(inputs, nullptr, &second, nullptr);
  EXPECT_FALSE(first.is_same(second));
  EXPECT_NE(first.const_data_ptr(), second.const_data_ptr());
  EXPECT_TRUE(same(first, "(x + c) ** 2"));
  EXPECT_TRUE(same(second, "(x + c) ** 2"));
}

TEST(Program, RefusesWhatItCannotRun) {
  Graph g;
  auto* in = g.add_input("x", meta({3}));
  aten(g, "add_", "Tensor", {in, in}, meta({3}));
  g.set_outputs({});
  auto program = Program::build(g, {});
  ASSERT_TRUE(program.broke());
  EXPECT_EQ(program.brk().reason, BreakReason::kUnsupportedWrite);

  Graph h;
  call(h, "torch.sin", {h.add_input("x", meta({3}))});
  h.set_outputs({});
  EXPECT_TRUE(Program::build(h, {}).broke());
}

TEST(Program, NothingIsRecordedByAutograd) {
  exec("x = torch.randn(3, requires_grad=True)");
  Graph g;
  auto* in = g.add_input("x", meta({3}));
  g.set_outputs({aten(g, "sin", "", {in}, meta({3}))});
  auto out = run_program(g, {tensor(eval("x"))});
  EXPECT_FALSE(out[0].requires_grad());
}

}  // namespace
}  // namespace framejit::backend::testing
