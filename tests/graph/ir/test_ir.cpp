// Graph: construction, use lists, edits, clone, verifier, text.
#include "graph/ir/ir.h"

#include <gtest/gtest.h>

#include "graph/ir/graph_text.h"
#include "tests/graph/tracing/trace_helpers.h"

namespace framejit::graph {
namespace {

using testing::start_torch;

TensorMeta vector_meta(int64_t size) {
  TensorMeta meta;
  meta.sizes = {Expr(size)};
  meta.strides = {Expr(1)};
  return meta;
}

c10::OperatorHandle op(const char* name, const char* overload) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload);
}

std::unique_ptr<Node> call(const char* name, const char* overload,
                           std::vector<Arg> args) {
  auto node = std::make_unique<Node>();
  node->aten = op(name, overload);
  node->args = std::move(args);
  return node;
}

Value* append(Graph& graph, const char* name, const char* overload,
              std::vector<Arg> args) {
  Node* node = graph.append(call(name, overload, std::move(args)));
  Value* value = graph.add_output(node);
  value->meta = vector_meta(10);
  return value;
}

class IrTest : public ::testing::Test {
 protected:
  void SetUp() override { start_torch(); }
};

TEST_F(IrTest, NodesMoveAndLeave) {
  Graph graph;
  Value* x = graph.add_input("x", vector_meta(10));
  Value* a = append(graph, "aten::cos", "", {Arg(x)});
  Value* b = append(graph, "aten::sin", "", {Arg(x)});
  auto& nodes = graph.block().nodes;
  EXPECT_TRUE(graph.is_before(a->node, b->node));
  graph.move(b->node, a->node->position);
  EXPECT_TRUE(graph.is_before(b->node, a->node));
  EXPECT_EQ(verify(graph), "");
  // More insertions in one place than there are numbers in between.
  for (int i = 0; i < 100; ++i)
    graph.add_output(
        graph.insert_before(a->node, call("aten::cos", "", {Arg(b)})));
  const Node* before = nullptr;
  for (const auto& node : nodes) {
    if (before) {
      EXPECT_TRUE(graph.is_before(before, node.get()));
    }
    before = node.get();
  }
  // The users of one input become those of the other, in the order of the
  // edits.
  graph.replace_input(b->node, x, a);
  graph.set_arguments(a->node, {Arg(x), Arg(x)}, {});
  EXPECT_EQ(x->users.size(), 2u);
  EXPECT_EQ(x->users.num_users(), 1u);
  std::unique_ptr<Node> gone = graph.detach(nodes.back().get());
  EXPECT_EQ(gone.get(), a->node);
  EXPECT_TRUE(gone->args[0].is<Arg::None>());
  EXPECT_TRUE(x->users.empty());
}

TEST_F(IrTest, UsesFollowEdits) {
  Graph graph;
  Value* x = graph.add_input("x", vector_meta(10));
  Value* a = append(graph, "aten::cos", "", {Arg(x)});
  Value* b = append(graph, "aten::mul", "Tensor", {Arg(a), Arg(a)});
  graph.set_outputs({Arg(b)});
  EXPECT_EQ(verify(graph), "");
  EXPECT_EQ(a->users.size(), 2u);
  graph.replace_all_uses(a, x);
  EXPECT_EQ(verify(graph), "");
  EXPECT_TRUE(a->users.empty());
  EXPECT_EQ(x->users.size(), 3u);  // cos and both operands of mul
  graph.erase(a->node);
  EXPECT_EQ(verify(graph), "");
  EXPECT_EQ(graph.num_calls(), 1u);
}

TEST_F(IrTest, OutputsFollowReplacement) {
  Graph graph;
  Value* x = graph.add_input("x", vector_meta(10));
  Value* a = append(graph, "aten::cos", "", {Arg(x)});
  graph.set_outputs({Arg(a), Arg()});
  graph.mutations.push_back({0, a});
  graph.replace_all_uses(a, x);
  EXPECT_EQ(graph.outputs[0].get<Value*>(), x);
  EXPECT_EQ(graph.mutations[0].value, x);
  graph.erase(a->node);
  EXPECT_EQ(verify(graph), "");
}

TEST_F(IrTest, AppendGoesBeforeTheOutput) {
  Graph graph;
  Value* x = graph.add_input("x", vector_meta(10));
  graph.set_outputs({Arg(x)});
  Value* a = append(graph, "aten::cos", "", {Arg(x)});
  Value* late = graph.add_input("y", vector_meta(10));
  graph.set_outputs({Arg(a), Arg(late)});
  EXPECT_EQ(verify(graph), "");
  EXPECT_EQ(graph.inputs.size(), 2u);
}

TEST_F(IrTest, EraseOfAUsedNodeIsRefused) {
  Graph graph;
  Value* x = graph.add_input("x", vector_meta(10));
  Value* a = append(graph, "aten::cos", "", {Arg(x)});
  graph.set_outputs({Arg(a)});
  EXPECT_THROW(graph.erase(a->node), InternalError);
}

TEST_F(IrTest, CloneIsDeep) {
  Graph graph;
  Value* x = graph.add_input("x", vector_meta(10));
  auto slice = std::make_shared<Arg::Slice>();
  slice->start = Arg(x);
  auto node = std::make_unique<Node>();
  node->callable = testing::eval("torch.cos");
  node->args = {Arg(slice), Arg(Arg::List{{Arg(x), Arg(int64_t{1})}})};
  Node* placed = graph.append(std::move(node));
  Value* a = graph.add_output(placed);
  a->meta = vector_meta(10);
  graph.set_outputs({Arg(a)});
  auto copy = graph.clone();
  std::string before = copy->str();
  EXPECT_EQ(verify(*copy), "");
  Value* y = graph.add_input("y", vector_meta(10));
  graph.replace_all_uses(x, y);
  EXPECT_EQ(copy->str(), before);
  EXPECT_EQ(verify(*copy), "");
  EXPECT_EQ(verify(graph), "");
}

TEST_F(IrTest, VerifierSeesWhatIsWrong) {
  Graph graph;
  Value* x = graph.add_input("x", vector_meta(10));
  Value* a = append(graph, "aten::cos", "", {Arg(x)});
  graph.set_outputs({Arg(a)});
  // An argument changed behind the use lists.
  a->node->args[0] = Arg(int64_t{1});
  EXPECT_NE(verify(graph), "");
  graph.rebuild_uses();
  EXPECT_EQ(verify(graph), "");
  // Wrong number of arguments for the schema.
  a->node->args.push_back(Arg());
  EXPECT_NE(verify(graph), "");
  a->node->args.pop_back();
  // Used before its definition.
  a->node->args[0] = Arg(a);
  graph.rebuild_uses();
  EXPECT_NE(verify(graph), "");
}

TEST_F(IrTest, Text) {
  Graph graph;
  TensorMeta meta;
  meta.sizes = {Expr::symbol(0), Expr(4)};
  meta.strides = {Expr(1), Expr::symbol(0)};
  meta.requires_grad = true;
  Value* x = graph.add_input("x", meta);
  graph.add_symbol_input("s0", Expr::symbol(0));
  Value* a =
      append(graph, "aten::add", "Tensor", {Arg(x), Arg(2.0), Arg(int64_t{1})});
  graph.set_outputs({Arg(a), Arg()});
  EXPECT_EQ(graph.str(),
            "graph(%0 \"x\" : f32[s0, 4] strides[1, s0] cpu grad, "
            "%1 \"s0\" : int(s0)) {\n"
            "  %2 = aten.add.Tensor(%0, 2.0, 1) : f32[10] cpu\n"
            "  return (%2, None)\n"
            "}\n");
}

TEST_F(IrTest, ImportPathsLeadBack) {
  for (const char* name :
       {"torch.cos", "torch.Tensor.view", "torch._C._nn.gelu",
        "torch.nn.functional.softmax", "torch._C._set_grad_enabled"}) {
    Ref object = testing::eval(name);
    EXPECT_EQ(import_path(object.get()), name);
    EXPECT_EQ(resolve_import_path(name).get(), object.get());
  }
  testing::exec("import operator");
  Ref add = testing::eval("operator.add");
  EXPECT_EQ(resolve_import_path(import_path(add.get())).get(), add.get());
  Ref lambda = testing::eval("lambda: 0");
  EXPECT_EQ(import_path(lambda.get()), "");
}

}  // namespace
}  // namespace framejit::graph
