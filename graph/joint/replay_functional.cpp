// The functional form of a replayed graph for those who keep it as a program of
// its own (graph/export): values alone count, so outputs may share memory in
// any way, and what an input becomes is one more value.
#include <ATen/FunctionalTensorWrapper.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "graph/joint/joint_replay.h"
#include "graph/ops/shape_rules.h"
#include "graph/tensors/memory_places.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/sym_node.h"
#include "graph/tensors/tensor_check.h"

namespace framejit::graph {

namespace {

namespace functional = at::functionalization::impl;

}  // namespace

Status JointReplay::find_final_inputs() {
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const at::Tensor& input = inputs_[i];
    if (!input.defined()) continue;
    const TensorMeta& meta = source_.graph->inputs[i]->meta;
    if (input.requires_grad() && !meta.requires_grad && !input.grad_fn())
      return torch_level_only(TorchLevel::kRequiresGradChanged,
                              place_of_input(i));
    auto* wrapper = functional::unsafeGetFunctionalWrapper(input);
    if (wrapper->has_metadata_mutation() || wrapper->was_storage_changed())
      return torch_level_only(TorchLevel::kInputReshaped, place_of_input(i));
    Value* now = tracer_.value_of(input);
    if (now == initial_[i]) continue;
    if (!now)
      return torch_level_only(TorchLevel::kUnexpected, place_of_input(i),
                              "an input lost its value");
    if (decide_repeats(meta.sizes, meta.strides))
      return torch_level_only(TorchLevel::kWrittenRepeats, place_of_input(i));
    if (guards_ && shares_storage(static_cast<int>(i)))
      return Break{BreakReason::kAliasedMutation,
                   "an input is written to and shares memory with another one",
                   {}};
    mutations_.push_back({static_cast<int>(i), now});
  }
  return ok_status();
}

Status JointReplay::find_final_outputs(std::vector<Arg>* outputs) {
  for (const Arg& arg : source_.graph->outputs) {
    if (!arg.is<Value*>()) {
      outputs->push_back(arg);
      continue;
    }
    Value* value = arg.get<Value*>();
    PyObject* object = objects_.at(value).get();
    if (!is_tensor_object(object)) {
      if (auto symbol = symbols_.find(value); symbol != symbols_.end()) {
        outputs->push_back(Arg(symbol->second));
        continue;
      }
      auto expr = expr_of_object(object);
      if (!expr)
        return torch_level_only(TorchLevel::kUnexpected, place_of_value(*value),
                                "an output that is no tensor");
      outputs->push_back(Arg(*std::move(expr)));
      continue;
    }
    Value* output = tracer_.value_of(unpack_tensor(object));
    if (!output)
      return torch_level_only(TorchLevel::kUnexpected, place_of_value(*value),
                              "an output that is not in it");
    outputs->push_back(Arg(output));
  }
  return ok_status();
}

// A program of operators has no grad mode: what was computed without one ends
// in a detach where something that was not reads it.
void JointReplay::detach_parts(Graph& graph, std::vector<Arg>* outputs) {
  if (!source_.grad_enabled_at_entry) return;
  static const auto detach =
      c10::Dispatcher::singleton().findSchemaOrThrow("aten::detach", "");
  std::vector<Node*> parts;
  for (const auto& node : graph.block().nodes)
    if (tracer_.is_without_grad(node.get())) parts.push_back(node.get());
  for (Node* part : parts) {
    for (const auto& output : part->outputs) {
      Value* value = output.get();
      if (value->kind != Value::Kind::kTensor ||
          !torch::autograd::isDifferentiableType(value->meta.dtype))
        continue;
      std::vector<Node*> readers;
      for (const UseList::Entry& entry : value->users.entries())
        if (entry.node && !tracer_.is_without_grad(entry.node))
          readers.push_back(entry.node);
      auto is_value = [&](const Arg& arg) {
        return arg.is<Value*>() && arg.get<Value*>() == value;
      };
      if (readers.empty() &&
          std::none_of(outputs->begin(), outputs->end(), is_value))
        continue;
      auto node = std::make_unique<Node>();
      node->aten = detach;
      node->span = part->span;
      node->caller = part->caller;
      node->receivers = part->receivers;
      node->args = {Arg(value)};
      Node* added = graph.insert(std::next(part->position), std::move(node));
      Value* detached = graph.add_output(added);
      detached->meta = value->meta;
      for (Node* reader : readers) graph.replace_input(reader, value, detached);
      for (Arg& arg : *outputs)
        if (is_value(arg)) arg = Arg(detached);
    }
  }
}

}  // namespace framejit::graph
