#include "graph/tracing/float_args.h"

#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/python_symnode.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "graph/tensors/sym_node.h"
#include "graph/tracing/callees.h"
#include "guards/set/number_expr.h"

namespace framejit::graph {

namespace {

bool uses_floats(const Arg& arg) {
  auto any = [](const std::vector<Arg>& items) {
    return std::any_of(items.begin(), items.end(),
                       [](const Arg& item) { return uses_floats(item); });
  };
  if (arg.is<Expr>()) return arg.get<Expr>().is_float();
  if (arg.is<Arg::List>()) return any(arg.get<Arg::List>().items);
  if (arg.is<Arg::Tuple>()) return any(arg.get<Arg::Tuple>().items);
  if (!arg.is<Arg::Dict>()) return false;
  const auto& items = arg.get<Arg::Dict>().items;
  return std::any_of(items.begin(), items.end(), [](const auto& item) {
    return uses_floats(item.first) || uses_floats(item.second);
  });
}

}  // namespace

bool uses_floats(const Node& node) {
  auto uses = [](const Arg& arg) { return uses_floats(arg); };
  return std::any_of(node.args.begin(), node.args.end(), uses) ||
         std::any_of(node.kwargs.begin(), node.kwargs.end(),
                     [&](const auto& item) { return uses(item.second); });
}

bool hands_floats_on(const Node& node) {
  static constexpr std::string_view kNames[] = {
      "torch._fused_adagrad_",
      "torch._fused_adam_",
      "torch._fused_adamw_",
      "torch._fused_sgd_",
  };
  if (!uses_floats(node) || !node.callable) return false;
  std::string name = canonical_name(node.callable.get());
  return std::find(std::begin(kNames), std::end(kNames), name) !=
         std::end(kNames);
}

Result<Ref> number_in_place_of(PyObject* sym_float) {
  auto value = pybind11::handle(sym_float).cast<c10::SymFloat>();
  return from_api(PyFloat_FromDouble(hint_of(value)));
}

void pin_floats(Arg* arg, GuardSet* guards) {
  auto each = [&](std::vector<Arg>& items) {
    for (Arg& item : items) pin_floats(&item, guards);
  };
  if (auto* expr = std::get_if<Expr>(&arg->value)) {
    if (expr->is_float()) *arg = Arg(pin_float(*expr, guards));
  } else if (auto* list = std::get_if<Arg::List>(&arg->value)) {
    each(list->items);
  } else if (auto* tuple = std::get_if<Arg::Tuple>(&arg->value)) {
    each(tuple->items);
  } else if (auto* dict = std::get_if<Arg::Dict>(&arg->value)) {
    for (auto& [key, item] : dict->items) {
      pin_floats(&key, guards);
      pin_floats(&item, guards);
    }
  }
}

void pin_floats(TorchGraph* torch_graph, GuardSet* guards) {
  Graph& graph = *torch_graph->graph;
  for (auto& node : graph.block().nodes) {
    for (Arg& arg : node->args) pin_floats(&arg, guards);
    for (auto& [name, arg] : node->kwargs) pin_floats(&arg, guards);
  }
  for (Arg& output : graph.outputs) pin_floats(&output, guards);
  // Their values are in the graph now.
  for (size_t i = graph.inputs.size(); i-- > 0;) {
    Value* input = graph.inputs[i];
    if (input->kind != Value::Kind::kInt || !input->expr.is_float()) continue;
    torch_graph->input_objects.erase(torch_graph->input_objects.begin() + i);
    graph.erase(input->node);
  }
}

}  // namespace framejit::graph
