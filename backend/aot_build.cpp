#include <algorithm>
#include <set>
#include <utility>

#include "backend/aot_executor.h"
#include "graph/ir/torch_level.h"

namespace framejit::backend {

using graph::AliasAnalysis;
using graph::AotGraphs;
using graph::Arg;
using graph::Graph;
using graph::OutputInfo;
using graph::TorchGraph;
using graph::Value;

namespace {

std::string place_of_output(const TorchGraph& torch_graph, size_t output) {
  const auto& outputs = torch_graph.graph->outputs;
  if (output >= outputs.size()) return "";
  const Value* value = tensor_of(outputs[output]);
  return value ? graph::place_of_value(*value) : "";
}

// The output is the input object itself.
bool is_input(const AotGraphs& graphs, size_t output) {
  return graphs.outputs[output].alias == OutputInfo::Alias::kInput;
}

}  // namespace

Status AotExecutor::build(std::shared_ptr<const TorchGraph> torch_graph,
                          const AotGraphs& graphs,
                          const ProgramOptions& options,
                          ProgramReport* report) {
  const Graph& forward = *graphs.forward;
  torch_graph_ = torch_graph;
  torch_level_.emplace(torch_graph->captured ? torch_graph->captured
                                             : torch_graph);
  input_objects_ = torch_graph->input_objects;
  uses_random_ = torch_graph->uses_random;
  num_user_outputs_ = graphs.num_user_outputs;
  num_given_outputs_ = torch_graph->captured
                           ? torch_graph->captured->graph->outputs.size()
                           : num_user_outputs_;
  FJ_CHECK(forward.inputs.size() == input_objects_.size());
  FJ_CHECK(forward.outputs.size() >= num_user_outputs_);
  AliasAnalysis aliases(forward);
  FJ_CHECK_OK(check_outputs(forward, aliases, graphs));
  FJ_CHECK_OK(check_mutations(forward, graphs.backward != nullptr));
  for (size_t i = 0; i < num_user_outputs_; ++i) {
    FJ_TRY(UserOutput output,
           UserOutput::build(forward.outputs[i], graphs.outputs[i],
                             input_objects_));
    user_outputs_.push_back(std::move(output));
  }
  for (const auto& mutation : forward.mutations) {
    InputWrite write{mutation.input, mutation.writes};
    // The memory of another input may be written to before.
    for (const Value* root : aliases.roots(mutation.value))
      write.shared |= root->node->op == graph::Opcode::kPlaceholder;
    writes_.push_back(write);
  }
  touched_ = graphs.touched;
  made_leaves_ = graphs.made_leaves;
  for (size_t i = 0; i < num_user_outputs_; ++i) {
    const OutputInfo& info = graphs.outputs[i];
    if (user_outputs_[i].kind == UserOutput::Kind::kTensor && info.writes)
      output_versions_.emplace_back(static_cast<int>(i), info.writes);
  }
  for (const InputWrite& write : writes_)
    inputs_used_later_.push_back(write.input);
  for (size_t i = 0; i < num_user_outputs_; ++i)
    if (graphs.outputs[i].spent) spent_outputs_.push_back(static_cast<int>(i));
  for (size_t i = 0; !spent_outputs_.empty() && i < forward.inputs.size(); ++i)
    if ((forward.inputs[i]->meta.requires_grad ||
         std::count(made_leaves_.begin(), made_leaves_.end(), i)) &&
        input_objects_[i] >= 0)
      gradient_inputs_.push_back(static_cast<int>(i));
  for (size_t i = 0; i < input_objects_.size(); ++i) {
    const Value* input = torch_graph->graph->inputs[i];
    if (input_objects_[i] >= 0 && input->meta.requires_grad &&
        !input->users.empty())
      read_histories_.push_back(static_cast<int>(i));
  }
  differentiates_ = graphs.differentiates;
  if (differentiates_) {
    differentiated_ = read_histories_;
    for (int input : made_leaves_)
      if (input_objects_[input] >= 0) differentiated_.push_back(input);
  }
  for (const UserOutput& output : user_outputs_) {
    if (output.kind == UserOutput::Kind::kViewOfInput &&
        !is_written(output.base))
      inputs_used_later_.push_back(output.base);
  }
  ProgramOptions own = options;
  own.hints = graphs.symbol_hints;
  for (size_t i = 0; i < num_user_outputs_; ++i)
    own.has_output.push_back(is_input(graphs, i));
  own.first_free_output = num_user_outputs_;
  FJ_TRY(program_, Program::build(forward, own));
  *report = program_->report();
  if (!graphs.backward) return ok_status();
  FJ_CHECK_OK(build_saved(forward, aliases));
  build_kept(graphs);
  FJ_CHECK_OK(build_backward(graphs, options));
  report->add(backward_->complete()->program->report());
  report->reason_of_calls = backward_->reason_of_calls();
  return ok_status();
}

// Aliasing between outputs and anything else is the torch level's business,
// but for views that can be made of an input or of another output.
Status AotExecutor::check_outputs(const Graph& forward,
                                  const AliasAnalysis& aliases,
                                  const AotGraphs& graphs) const {
  for (size_t i = 0; i < graphs.outputs.size(); ++i) {
    const OutputInfo& info = graphs.outputs[i];
    if (!info.remade && (info.alias == OutputInfo::Alias::kViewOfInput ||
                         info.alias == OutputInfo::Alias::kOutput)) {
      return torch_level_only(graph::TorchLevel::kSharesMemory,
                              place_of_output(*torch_graph_, i));
    }
  }
  for (size_t i = 0; i < num_user_outputs_; ++i) {
    const Value* output = tensor_of(forward.outputs[i]);
    if (!output || is_input(graphs, i)) continue;
    for (const Value* root : aliases.roots(output)) {
      if (root->node->op == graph::Opcode::kPlaceholder ||
          root->node->op == graph::Opcode::kGetAttr) {
        return torch_level_only(graph::TorchLevel::kMayShareWithInput,
                                place_of_output(*torch_graph_, i));
      }
    }
    for (size_t j = 0; j < i; ++j) {
      const Value* other = tensor_of(forward.outputs[j]);
      if (other && !is_input(graphs, j) && aliases.may_alias(output, other)) {
        return torch_level_only(graph::TorchLevel::kMayShareWithOutput,
                                place_of_output(*torch_graph_, i));
      }
    }
  }
  return ok_status();
}

Status AotExecutor::check_mutations(const Graph& forward,
                                    bool has_backward) const {
  if (!has_backward) return ok_status();
  for (const auto& mutation : forward.mutations) {
    if (mutation.requires_grad ||
        forward.inputs[mutation.input]->meta.requires_grad) {
      return torch_level_only(
          graph::TorchLevel::kWritesHistory,
          place_of_written(*torch_graph_->graph, mutation.input,
                           torch_graph_->written_at));
    }
  }
  return ok_status();
}

bool AotExecutor::is_written(size_t input) const {
  return std::any_of(writes_.begin(), writes_.end(), [&](const auto& write) {
    return write.input == static_cast<int>(input);
  });
}

Status AotExecutor::build_saved(const Graph& forward,
                                const AliasAnalysis& aliases) {
  for (size_t i = num_user_outputs_; i < forward.outputs.size(); ++i) {
    const Value* value = tensor_of(forward.outputs[i]);
    if (!value) continue;  // a symbol
    const int number = static_cast<int>(saved_.size());
    SavedSlot slot;
    slot.index = static_cast<int>(i);
    for (size_t j = 0; j < num_user_outputs_; ++j) {
      const Value* output = tensor_of(forward.outputs[j]);
      if (user_outputs_[j].kind != UserOutput::Kind::kTensor) continue;
      if (output == value) {
        slot = {SavedSlot::Kind::kUserOutput, static_cast<int>(j)};
      } else if (aliases.may_alias(output, value)) {
        watches_.push_back({number, true, static_cast<int>(j)});
      }
    }
    for (size_t j = 0; j < forward.inputs.size(); ++j) {
      const Value* input = forward.inputs[j];
      if (input->kind == Value::Kind::kInt) continue;
      bool is_input = input == value;
      if (!is_input && !aliases.may_alias(input, value)) continue;
      if (is_written(j)) {
        slot.clone = true;  // the old content is what the backward needs
      } else if (is_input) {
        slot = {SavedSlot::Kind::kInput, static_cast<int>(j)};
      } else {
        watches_.push_back({number, false, static_cast<int>(j)});
      }
    }
    saved_.push_back(slot);
  }
  return ok_status();
}

void AotExecutor::build_kept(const AotGraphs& graphs) {
  for (size_t i = 0; i < graphs.read_inputs.size(); ++i) {
    if (!graphs.read_inputs[i] || input_objects_[i] < 0) continue;
    Kept kept{static_cast<int>(i), -1, is_written(i)};
    for (size_t j = 0; j < saved_.size(); ++j) {
      if (saved_[j].kind == SavedSlot::Kind::kInput &&
          saved_[j].index == kept.input)
        kept.saved = static_cast<int>(j);
    }
    kept_.push_back(kept);
  }
}

Status AotExecutor::build_backward(const AotGraphs& graphs,
                                   const ProgramOptions& options) {
  for (size_t i = 0; i < num_user_outputs_; ++i) {
    if (graphs.outputs[i].requires_grad && !graphs.outputs[i].remade &&
        !graphs.outputs[i].spent &&
        !std::count(graphs.tangent_of.begin(), graphs.tangent_of.end(),
                    static_cast<int>(i))) {
      return torch_level_only(graph::TorchLevel::kNoTangent,
                              place_of_output(*torch_graph_, i));
    }
  }
  // Which saved values do not lie as eager's do.
  std::vector<bool> saved_last;
  const auto& last = program_->last_outputs();
  for (size_t i = num_user_outputs_; i < graphs.forward->outputs.size(); ++i)
    if (tensor_of(graphs.forward->outputs[i]))
      saved_last.push_back(i < last.size() && last[i]);
  FJ_TRY(backward_, BackwardCode::build(torch_graph_, graphs, options,
                                        std::move(saved_last), saved_as()));
  FJ_CHECK(backward_->num_saved() == saved_.size());
  find_held();
  return build_gates(graphs);
}

std::vector<int> AotExecutor::saved_as() const {
  std::vector<int> found(input_objects_.size(), -1);
  for (size_t i = 0; i < saved_.size(); ++i)
    if (saved_[i].kind == SavedSlot::Kind::kInput)
      found[saved_[i].index] = static_cast<int>(i);
  return found;
}

void AotExecutor::find_held() {
  const auto& inputs = backward_->held_inputs();
  auto is_touched = [&](int input) {
    return std::any_of(touched_.begin(), touched_.end(),
                       [&](const auto& row) { return row.first == input; });
  };
  const std::vector<int> saved = saved_as();
  for (int input = 0; input < static_cast<int>(inputs.size()); ++input) {
    if (inputs[input].readers.empty()) continue;
    const bool written = is_written(input) || is_touched(input);
    if (written)
      held_when_written_.push_back(input);
    else if (saved[input] < 0)
      held_inputs_.push_back(input);
    if (inputs[input].itself)
      (written ? originals_when_written_ : originals_)
          .push_back({input, /*is_output=*/false, saved[input]});
  }
  for (int output = 0; output < static_cast<int>(num_user_outputs_); ++output) {
    auto is_it = [&](const SavedSlot& slot) {
      return slot.kind == SavedSlot::Kind::kUserOutput && slot.index == output;
    };
    const graph::HeldTensor& held = backward_->held_outputs().at(output);
    if (user_outputs_[output].kind != UserOutput::Kind::kTensor ||
        held.readers.empty())
      continue;
    const auto slot = std::find_if(saved_.begin(), saved_.end(), is_it);
    if (slot == saved_.end()) held_outputs_.push_back(output);
    if (held.itself)
      original_outputs_.push_back(
          {output, /*is_output=*/true,
           slot == saved_.end() ? -1
                                : static_cast<int>(slot - saved_.begin())});
  }
}

Status AotExecutor::build_gates(const AotGraphs& graphs) {
  const std::vector<int>& outputs = graphs.tangent_of;
  const bool own_functions = backward_->replay().may_be_nonlinear();
  if (outputs.size() < 2 && !own_functions) return ok_status();
  const std::vector<int>& passed = backward_->passed();
  gates_behind_.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    gate_order_.push_back({/*is_view=*/false, i});
    for (int other : graphs.outputs[outputs[i]].behind) {
      auto found = std::find(passed.begin(), passed.end(), other);
      if (found == passed.end()) continue;  // spent
      if (own_functions)
        return torch_level_only(graph::TorchLevel::kFunctionBehind,
                                place_of_output(*torch_graph_, outputs[i]));
      gates_behind_[i].push_back(static_cast<int>(found - passed.begin()));
    }
  }
  // Of what is spent, a view has its history when the gates are there.
  for (size_t i = 0; i < num_user_outputs_; ++i)
    if (user_outputs_[i].kind == UserOutput::Kind::kViewOfOutput &&
        graphs.outputs[i].requires_grad &&
        std::count(outputs.begin(), outputs.end(), graphs.outputs[i].base))
      gate_order_.push_back({/*is_view=*/true, i});
  auto output_at = [&](const Place& place) -> const graph::OutputInfo& {
    return graphs.outputs[place.is_view ? place.index : outputs[place.index]];
  };
  std::stable_sort(gate_order_.begin(), gate_order_.end(),
                   [&](const Place& a, const Place& b) {
                     return output_at(a).made_at < output_at(b).made_at;
                   });
  // A view gets its history anew when its base is written to: what it passes
  // through may be younger than its own node.
  std::vector<Place> in_order;
  std::set<std::pair<bool, size_t>> placed;
  auto place = [&](auto&& self, const Place& next) -> void {
    if (!placed.emplace(next.is_view, next.index).second) return;
    if (next.is_view) {
      const auto base = std::find(outputs.begin(), outputs.end(),
                                  graphs.outputs[next.index].base);
      self(self, {false, static_cast<size_t>(base - outputs.begin())});
    } else {
      for (int behind : gates_behind_[next.index]) {
        const auto number = static_cast<size_t>(behind);
        const bool is_view = number >= outputs.size();
        self(self,
             {is_view, is_view ? static_cast<size_t>(passed[number]) : number});
      }
    }
    in_order.push_back(next);
  };
  for (const Place& next : gate_order_) place(place, next);
  gate_order_ = std::move(in_order);
  // A view that is made last need not be made here.
  while (gate_order_.back().is_view) gate_order_.pop_back();
  return ok_status();
}

}  // namespace framejit::backend
