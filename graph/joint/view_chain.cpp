#include "graph/joint/view_chain.h"

#include <algorithm>

#include "graph/passes/passes.h"

namespace framejit::graph {

std::optional<std::vector<ViewStep>> find_view_chain(const Value* base,
                                                     const Value* view) {
  std::vector<ViewStep> steps;
  for (const Value* value = view; value != base;) {
    const Node& node = *value->node;
    if (!is_view(node) || node.args.empty() || !node.args[0].is<Value*>())
      return std::nullopt;
    for (size_t i = 1; i < node.args.size(); ++i) {
      bool numbers_only = true;
      for_each_value(node.args[i], [&](Value* other) {
        numbers_only &= other->kind == Value::Kind::kInt;
      });
      if (!numbers_only) return std::nullopt;
    }
    ViewStep step{*node.aten, node.args,
                  node.outputs_are_list ? value->index : -1,
                  node.outputs_are_list ? node.outputs[0]->id : -1};
    if (!node.outputs_are_list && node.outputs.size() != 1) return std::nullopt;
    step.args[0] = Arg();
    steps.push_back(std::move(step));
    value = node.args[0].get<Value*>();
  }
  std::reverse(steps.begin(), steps.end());
  return steps;
}

bool keeps_order(const std::vector<ViewStep>& steps) {
  static const char* const kNames[] = {
      "aten::select",   "aten::slice",     "aten::narrow",
      "aten::view",     "aten::unsqueeze", "aten::detach",
      "aten::alias",    "aten::squeeze",   "aten::split",
      "aten::unbind",   "aten::chunk",     "aten::split_with_sizes",
      "aten::diagonal", "aten::unfold"};
  return !steps.empty() &&
         std::all_of(steps.begin(), steps.end(), [](const ViewStep& step) {
           return std::find(std::begin(kNames), std::end(kNames),
                            step.op.schema().name()) != std::end(kNames);
         });
}

}  // namespace framejit::graph
