#include "backend/loop_runner.h"

#include <unordered_set>

namespace framejit::backend {

using graph::Value;

LoopOperands::LoopOperands(const LoweredGraph& graph,
                           const RegisterOf& register_of) {
  const std::unordered_set<const Value*> given(graph.inputs.begin(),
                                               graph.inputs.end());
  auto operand = [&](const Value* value) {
    return LoopOperand{register_of(value), given.contains(value), value->meta};
  };
  for (const Value* input : graph.inputs) inputs.push_back(operand(input));
  for (const Value* output : graph.outputs) outputs.push_back(operand(output));
  for (const auto& callee : graph.callees) {
    Callee out;
    for (const Value* value : callee.operands)
      out.operands.push_back(operand(value));
    for (const auto& result : callee.node->outputs)
      out.results.push_back(operand(result.get()));
    callees.push_back(std::move(out));
  }
}

}  // namespace framejit::backend
