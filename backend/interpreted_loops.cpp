#include "backend/interpreted_loops.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "codegen/loops/interpreter.h"
#include "codegen/loops/text.h"

namespace framejit::backend {

using graph::TensorMeta;
using graph::Value;

namespace {

std::vector<int64_t> values_of(const std::vector<Expr>& list,
                               const int64_t* symbols) {
  std::vector<int64_t> out;
  for (const Expr& e : list) out.push_back(e.evaluate(symbols));
  return out;
}

at::Tensor with_bits(at::Tensor tensor, const TensorMeta& meta) {
  if (meta.is_conj) tensor = at::_conj(tensor);
  if (meta.is_neg) tensor = at::_neg_view(tensor);
  return tensor;
}

// Memory of the interpreter as a tensor, which must not outlive it.
at::Tensor tensor_at(void* memory, const TensorMeta& meta,
                     const int64_t* symbols) {
  return with_bits(at::from_blob(memory, values_of(meta.sizes, symbols),
                                 values_of(meta.strides, symbols),
                                 at::TensorOptions().dtype(meta.dtype)),
                   meta);
}

}  // namespace

InterpretedLoops::InterpretedLoops(
    LoweredGraph graph, const std::function<int(const Value*)>& register_of)
    : loops_(std::move(graph.loops)) {
  auto place = [&](const Value* value) {
    return Place{register_of(value), value->meta};
  };
  for (const Value* input : graph.inputs) inputs_.push_back(place(input));
  for (const Value* output : graph.outputs) outputs_.push_back(place(output));
  for (const auto& callee : graph.callees) {
    Callee out;
    out.name = callee.node->target_name();
    out.reason = callee.reason;
    for (const Value* operand : callee.operands)
      out.operands.push_back(place(operand));
    for (const auto& result : callee.node->outputs)
      out.results.push_back(place(result.get()));
    callees_.push_back(std::move(out));
  }
  for (const graph::Node* node : graph.lowered)
    lowered_.push_back(node->target_name());
}

void InterpretedLoops::run(const int64_t* symbols, c10::IValue* registers,
                           const std::function<void(int)>& call) const {
  std::vector<at::Tensor> kept;
  std::vector<const void*> inputs;
  for (const Place& input : inputs_) {
    kept.push_back(registers[input.reg].toTensor());
    inputs.push_back(kept.back().const_data_ptr());
  }
  std::vector<at::Tensor> results;
  std::vector<void*> outputs;
  for (const Place& output : outputs_) {
    results.push_back(
        at::empty_strided(values_of(output.meta.sizes, symbols),
                          values_of(output.meta.strides, symbols),
                          at::TensorOptions().dtype(output.meta.dtype)));
    outputs.push_back(results.back().mutable_data_ptr());
  }
  auto is_input = [&](int reg) {
    return std::any_of(inputs_.begin(), inputs_.end(),
                       [&](const Place& input) { return input.reg == reg; });
  };
  auto call_extern = [&](const codegen::Definition& definition,
                         std::span<void* const> operands,
                         std::span<void* const> memory) {
    const Callee& callee = callees_[definition.callee];
    for (size_t i = 0; i < callee.operands.size(); ++i) {
      const Place& operand = callee.operands[i];
      if (!is_input(operand.reg))
        registers[operand.reg] = tensor_at(operands[i], operand.meta, symbols);
    }
    call(definition.callee);
    for (size_t i = 0; i < callee.results.size(); ++i) {
      const Place& result = callee.results[i];
      const at::Tensor tensor = registers[result.reg].toTensor();
      if (tensor.defined())
        tensor_at(memory[i], result.meta, symbols).copy_(tensor);
      registers[result.reg] = c10::IValue();
    }
    for (const Place& operand : callee.operands)
      if (!is_input(operand.reg)) registers[operand.reg] = c10::IValue();
    return true;
  };
  std::string failure =
      codegen::interpret(loops_, symbols, inputs, outputs, call_extern);
  TORCH_CHECK(failure.empty(), "framejit: ", failure);
  for (size_t i = 0; i < outputs_.size(); ++i)
    registers[outputs_[i].reg] = with_bits(results[i], outputs_[i].meta);
}

std::string InterpretedLoops::text() const {
  std::string out = codegen::print(loops_);
  for (const std::string& name : lowered_) out += "# loops: " + name + "\n";
  for (size_t i = 0; i < callees_.size(); ++i)
    out += "# extern " + std::to_string(i) + ": " + callees_[i].name + ": " +
           callees_[i].reason + "\n";
  return out;
}

}  // namespace framejit::backend
