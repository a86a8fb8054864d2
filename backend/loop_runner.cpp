#include "backend/loop_runner.h"

#include <unordered_set>

namespace framejit::backend {

using graph::Value;

std::string describe_nodes(const LoweredGraph& graph) {
  std::string text;
  for (const graph::Node* node : graph.lowered)
    text += "# loops: " + node->target_name() + "\n";
  for (size_t i = 0; i < graph.callees.size(); ++i)
    text += "# extern " + std::to_string(i) + ": " +
            graph.callees[i].node->target_name() + ": " +
            graph.callees[i].reason + "\n";
  return text;
}

std::vector<std::string> describe_calls(const LoweredGraph& graph) {
  std::vector<std::string> lines;
  for (const auto& callee : graph.callees) {
    std::string line = callee.node->target_name();
    if (callee.node->span.code) line += " at " + format_span(callee.node->span);
    lines.push_back(line + ": " + callee.reason);
  }
  return lines;
}

LoopOperands::LoopOperands(const LoweredGraph& graph,
                           const RegisterOf& register_of) {
  const std::unordered_set<const Value*> given(graph.inputs.begin(),
                                               graph.inputs.end());
  auto operand = [&](const Value* value) {
    return LoopOperand{register_of(value), given.contains(value), value->meta};
  };
  for (const Value* input : graph.inputs) inputs.push_back(operand(input));
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    outputs.push_back(operand(graph.outputs[i]));
    outputs.back().meta = graph.layouts[i]->meta;
  }
  for (const auto& callee : graph.callees) {
    Callee out;
    for (const Value* value : callee.operands)
      out.operands.push_back(operand(value));
    for (const auto& result : callee.node->outputs)
      if (result->kind == Value::Kind::kTensor)
        out.results.push_back(operand(result.get()));
    callees.push_back(std::move(out));
  }
}

}  // namespace framejit::backend
