#include "backend/interpreted_loops.h"

#include <ATen/ATen.h>

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

InterpretedLoops::InterpretedLoops(LoweredGraph graph,
                                   const LoopOperands::RegisterOf& register_of)
    : loops_(std::move(graph.loops)),
      operands_(graph, register_of),
      nodes_(describe_nodes(graph)) {}

void InterpretedLoops::run(const int64_t* symbols, c10::IValue* registers,
                           Call call, bool* /*wrote*/) const {
  std::vector<at::Tensor> kept;
  std::vector<const void*> inputs;
  for (const LoopOperand& input : operands_.inputs) {
    kept.push_back(registers[input.reg].toTensor());
    // What nobody reads (a gradient that did not come in) may be missing.
    inputs.push_back(kept.back().defined() ? kept.back().const_data_ptr()
                                           : nullptr);
  }
  std::vector<at::Tensor> results;
  std::vector<void*> outputs;
  for (const LoopOperand& output : operands_.outputs) {
    results.push_back(
        at::empty_strided(values_of(output.meta.sizes, symbols),
                          values_of(output.meta.strides, symbols),
                          at::TensorOptions().dtype(output.meta.dtype)));
    outputs.push_back(results.back().mutable_data_ptr());
  }
  auto call_extern = [&](const codegen::Definition& definition,
                         std::span<void* const> operands,
                         std::span<void* const> memory) {
    const LoopOperands::Callee& callee = operands_.callees[definition.callee];
    for (size_t i = 0; i < callee.operands.size(); ++i) {
      const LoopOperand& operand = callee.operands[i];
      if (!operand.is_input)
        registers[operand.reg] = tensor_at(operands[i], operand.meta, symbols);
    }
    call(definition.callee, nullptr);
    for (size_t i = 0; i < callee.results.size(); ++i) {
      const LoopOperand& result = callee.results[i];
      const at::Tensor tensor = registers[result.reg].toTensor();
      if (tensor.defined())
        tensor_at(memory[i], result.meta, symbols).copy_(tensor);
      registers[result.reg] = c10::IValue();
    }
    for (const LoopOperand& operand : callee.operands)
      if (!operand.is_input) registers[operand.reg] = c10::IValue();
    return true;
  };
  std::string failure =
      codegen::interpret(loops_, symbols, inputs, outputs, call_extern);
  TORCH_CHECK(failure.empty(), "framejit: ", failure);
  for (size_t i = 0; i < operands_.outputs.size(); ++i)
    registers[operands_.outputs[i].reg] =
        with_bits(results[i], operands_.outputs[i].meta);
}

std::vector<std::string> InterpretedLoops::texts() const {
  return {codegen::print(loops_) + nodes_};
}

}  // namespace framejit::backend
