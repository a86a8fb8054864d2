#include "backend/aot_function.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <optional>

#include "backend/aot_node.h"
#include "backend/commit.h"
#include "backend/history_place.h"
#include "backend/output_views.h"
#include "backend/rng_state.h"
#include "backend/run_errors.h"
#include "backend/torch_executor.h"
#include "backend/warnings.h"
#include "graph/ops/alias_analysis.h"
#include "graph/tensors/libtorch_private.h"
#include "graph/tensors/python_tensor.h"
#include "guards/set/number_expr.h"

namespace framejit::backend {

using graph::AliasAnalysis;
using graph::AotGraphs;
using graph::Arg;
using graph::Graph;
using graph::OutputInfo;
using graph::ReleaseGil;
using graph::TorchGraph;
using graph::Value;

namespace {

Break fall_back(std::string why) {
  return Break{BreakReason::kBackendFailed, std::move(why), {}};
}

// The output is the input object itself.
bool is_input(const AotGraphs& graphs, size_t output) {
  return graphs.outputs[output].alias == OutputInfo::Alias::kInput;
}

// What the caller gets.
struct UserOutput {
  enum class Kind : uint8_t {
    kTensor,
    kInt,
    kInputObject,
    kViewOfInput,
    kViewOfOutput
  };
  Kind kind = Kind::kTensor;
  Expr expr;                          // kInt
  int object = 0;                     // kInputObject: gathered object
  int base = 0;                       // views: graph input or user output
  OutputView view;                    // views: how
  std::vector<Expr> idle_strides;     // kTensor
  bool is_view_without_grad = false;  // kTensor: OutputInfo's
};

// One value the forward keeps for the backward.
struct SavedSlot {
  enum class Kind : uint8_t { kInput, kUserOutput, kIntermediate };
  Kind kind = Kind::kIntermediate;
  int index = 0;       // graph input, or forward output
  bool clone = false;  // it is about to be overwritten by the commit
};

class AotExecutor final : public Executor {
 public:
  Status build(std::shared_ptr<const TorchGraph> torch_graph,
               const AotGraphs& graphs, const ProgramOptions& options,
               ProgramReport* report);
  RunStatus run(PyObject* const* inputs, const int64_t* symbols,
                PyObject** outputs) override;

 private:
  // The memory of this tensor is that of a saved value.
  struct Watch {
    int saved;
    bool is_output;
    int index;
  };
  // A graph input that a replay of the backward needs.
  struct Kept {
    int input;
    int saved;     // it is this saved value; -1: held for that alone
    bool written;  // the old content
  };
  using Tensors = c10::SmallVector<at::Tensor, 8>;
  using Inputs = c10::SmallVector<const at::Tensor*, 16>;

  Result<UserOutput> user_output(const Arg& arg, const AotGraphs& graphs,
                                 size_t index) const;
  Status check_outputs(const Graph& forward, const AliasAnalysis& aliases,
                       const AotGraphs& graphs) const;
  Status check_mutations(const Graph& forward, bool has_backward) const;
  Status build_saved(const Graph& forward, const AliasAnalysis& aliases);
  void build_kept(const AotGraphs& graphs);
  Status build_backward(const AotGraphs& graphs, const ProgramOptions& options);
  bool is_written(size_t input) const;
  struct Call;
  void ask_histories(const Call& call) const;
  void hold_inputs(Call& call) const;
  void forward(const int64_t* symbols, Call& call, bool* committing) const;
  // committing: the first write has begun.
  void commit(Call& call, bool* committing) const;
  bool make_node(const int64_t* symbols, Call& call) const;
  std::vector<int> saved_as() const;  // by graph input; -1: not at all
  void find_held();
  Status build_gates(const AotGraphs& graphs);
  void attach_gates(Call& call) const;
  void attach_node(Call& call) const;
  void attach_spent(Call& call) const;
  bool is_node_seen(PyObject* const* inputs);
  void unmake_leaves(const Call& call) const;
  RunStatus run_at_torch_level(PyObject* const* inputs, const int64_t* symbols,
                               PyObject** outputs);
  bool wrap_outputs(const Call& call, PyObject* const* inputs,
                    const int64_t* symbols, PyObject** outputs) const;

  std::shared_ptr<const Program> program_;
  std::shared_ptr<BackwardCode> backward_;  // null: no gradient
  std::vector<int> input_objects_;
  size_t num_user_outputs_ = 0;
  std::vector<UserOutput> user_outputs_;
  std::vector<InputWrite> writes_;      // in order
  std::vector<int> inputs_used_later_;  // behind the graph
  std::vector<std::pair<int, uint32_t>> touched_;
  std::vector<int> made_leaves_;
  // Outputs the program wrote to, and how often.
  std::vector<std::pair<int, uint32_t>> output_versions_;
  // Outputs whose backward ran in the graph, and the inputs it went to.
  std::vector<int> spent_outputs_, gradient_inputs_;
  std::vector<int> read_histories_;  // of inputs that operations read
  // Inputs that gradients computed in the graph may go to.
  std::vector<int> differentiated_;
  // Training only.
  std::vector<SavedSlot> saved_;
  std::vector<Watch> watches_;
  std::vector<Kept> kept_;
  // Inputs that eager's history holds and the backward does not read: as they
  // come, and as the graph has written to them.
  std::vector<int> held_inputs_, held_when_written_;
  std::vector<int> held_outputs_;  // likewise
  // What eager's nodes save themselves: inputs as they come, inputs as the
  // graph has written to them, outputs.
  std::vector<AotNode::OfCall> originals_, originals_when_written_,
      original_outputs_;
  bool uses_random_ = false;
  // Of outputs by tangent: the order to make their gates in, and which lie next
  // behind each. Empty: no gates.
  std::vector<size_t> gate_order_;
  std::vector<std::vector<int>> gates_behind_;
  std::shared_ptr<const TorchGraph> torch_graph_;
  // Runs instead, once most gradients are differentiated themselves, and where
  // hooks see the difference.
  std::optional<TorchLevel> torch_level_;
  bool told_seen_ = false;
};

// One run.
struct AotExecutor::Call {
  Inputs tensors;
  // What is written, or viewed, when other threads have run.
  Tensors held;
  Program::Registers registers;
  Tensors results, mutations;
  graph::NodePtr<AotNode> node;
  RngState random;
};

Status AotExecutor::build(std::shared_ptr<const TorchGraph> torch_graph,
                          const AotGraphs& graphs,
                          const ProgramOptions& options,
                          ProgramReport* report) {
  const Graph& forward = *graphs.forward;
  torch_graph_ = torch_graph;
  torch_level_.emplace(torch_graph);
  input_objects_ = torch_graph->input_objects;
  uses_random_ = torch_graph->uses_random;
  num_user_outputs_ = graphs.num_user_outputs;
  FJ_CHECK(forward.inputs.size() == input_objects_.size());
  FJ_CHECK(forward.outputs.size() >= num_user_outputs_);
  AliasAnalysis aliases(forward);
  FJ_CHECK_OK(check_outputs(forward, aliases, graphs));
  FJ_CHECK_OK(check_mutations(forward, graphs.backward != nullptr));
  for (size_t i = 0; i < num_user_outputs_; ++i) {
    FJ_TRY(UserOutput output, user_output(forward.outputs[i], graphs, i));
    user_outputs_.push_back(output);
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
  if (graphs.differentiates) {
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

Result<UserOutput> AotExecutor::user_output(const Arg& arg,
                                            const AotGraphs& graphs,
                                            size_t index) const {
  UserOutput output;
  if (is_input(graphs, index)) {
    output.kind = UserOutput::Kind::kInputObject;
    output.object = input_objects_.at(graphs.outputs[index].base);
    FJ_CHECK(output.object >= 0);
    return output;
  }
  const OutputInfo& info = graphs.outputs[index];
  if (info.remade) {
    output.kind = info.alias == OutputInfo::Alias::kOutput
                      ? UserOutput::Kind::kViewOfOutput
                      : UserOutput::Kind::kViewOfInput;
    output.base = info.base;
    FJ_TRY(output.view, OutputView::build(info));
    return output;
  }
  output.idle_strides = info.idle_strides;
  output.is_view_without_grad = info.is_view_without_grad;
  if (tensor_of(arg)) return output;
  output.kind = UserOutput::Kind::kInt;
  if (arg.is<Expr>()) {
    output.expr = arg.get<Expr>();
  } else if (arg.is<int64_t>()) {
    output.expr = arg.get<int64_t>();
  } else if (arg.is<Value*>()) {
    output.expr = arg.get<Value*>()->expr;
  } else {
    return fall_back("constant graph output");
  }
  return output;
}

// Aliasing between outputs and anything else is the torch level's business,
// but for views that can be made of an input or of another output.
Status AotExecutor::check_outputs(const Graph& forward,
                                  const AliasAnalysis& aliases,
                                  const AotGraphs& graphs) const {
  for (const OutputInfo& info : graphs.outputs) {
    if (!info.remade && (info.alias == OutputInfo::Alias::kViewOfInput ||
                         info.alias == OutputInfo::Alias::kOutput)) {
      return fall_back("an output shares memory with an input or an output");
    }
  }
  for (size_t i = 0; i < num_user_outputs_; ++i) {
    const Value* output = tensor_of(forward.outputs[i]);
    if (!output || is_input(graphs, i)) continue;
    for (const Value* root : aliases.roots(output)) {
      if (root->node->op == graph::Opcode::kPlaceholder ||
          root->node->op == graph::Opcode::kGetAttr) {
        return fall_back("an output may share memory with an input");
      }
    }
    for (size_t j = 0; j < i; ++j) {
      const Value* other = tensor_of(forward.outputs[j]);
      if (other && !is_input(graphs, j) && aliases.may_alias(output, other)) {
        return fall_back("two outputs may share memory");
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
      return fall_back("an input that carries history is written in place");
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
      return fall_back("an output that requires grad has no tangent");
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
  gates_behind_.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    gate_order_.push_back(i);
    for (int other : graphs.outputs[outputs[i]].behind) {
      auto found = std::find(outputs.begin(), outputs.end(), other);
      if (found == outputs.end()) continue;  // spent
      if (own_functions)
        return fall_back(
            "a gradient function, and an output in the history of another");
      gates_behind_[i].push_back(static_cast<int>(found - outputs.begin()));
    }
  }
  auto made_at = [&](size_t i) { return graphs.outputs[outputs[i]].made_at; };
  std::stable_sort(gate_order_.begin(), gate_order_.end(),
                   [&](size_t a, size_t b) { return made_at(a) < made_at(b); });
  // A view gets its history anew when its base is written to: what it passes
  // through may be younger than its own node.
  std::vector<size_t> in_order;
  std::vector<bool> placed(outputs.size());
  auto place = [&](auto&& self, size_t i) -> void {
    if (placed[i]) return;
    placed[i] = true;
    for (int behind : gates_behind_[i]) self(self, behind);
    in_order.push_back(i);
  };
  for (size_t i : gate_order_) place(place, i);
  gate_order_ = std::move(in_order);
  return ok_status();
}

// As eager's operators do of all that they read, whether or not anything comes
// of the result: a view whose base was written to where that is refused (it is
// one of several, or was made without gradients) cannot say its history.
void AotExecutor::ask_histories(const Call& call) const {
  if (!c10::GradMode::is_enabled()) return;
  for (int input : read_histories_)
    if (call.tensors[input]->is_view()) call.tensors[input]->grad_fn();
}

// An input may get another tensor's content while other threads run.
void AotExecutor::hold_inputs(Call& call) const {
  call.held.reserve(inputs_used_later_.size());
  for (int input : inputs_used_later_) {
    call.held.push_back(*call.tensors[input]);
    call.tensors[input] = &call.held.back();
  }
}

// Without the GIL, as eager's operators run. In the caller's grad mode: some
// kernels ask for it, whether they keep what their backward needs. Nothing gets
// a history below autograd.
void AotExecutor::forward(const int64_t* symbols, Call& call,
                          bool* committing) const {
  call.results.resize(program_->num_outputs());
  call.mutations.resize(program_->num_mutations());
  program_->load(call.tensors.data(), &call.registers);
  if (program_->is_brief()) {
    program_->execute(symbols, &call.registers, committing);
  } else {
    WarningBuffer warnings;
    {
      std::optional<ReleaseGil> released;
      if (!keeps_gil) released.emplace();
      program_->execute(symbols, &call.registers, committing);
    }
    warnings.give_out();
  }
  program_->store(&call.registers, call.results.data(), call.mutations.data());
  call.registers.clear();
}

// What is saved of the inputs is saved before the graph runs: meanwhile other
// threads may do with them what they like. False: an input has a place in a
// history that is another's (history_place.h).
bool AotExecutor::make_node(const int64_t* symbols, Call& call) const {
  torch::autograd::edge_list edges;
  edges.reserve(backward_->edge_inputs().size());
  for (int input : backward_->edge_inputs()) {
    const at::Tensor& tensor = *call.tensors[input];
    edges.push_back(torch::autograd::impl::gradient_edge(tensor));
    if (is_place_of_another(edges.back(), tensor)) return false;
  }
  call.node = graph::make_node<AotNode>(backward_, std::move(edges), symbols);
  AotNode& node = *call.node;
  for (size_t i = 0; i < saved_.size(); ++i) {
    if (saved_[i].kind == SavedSlot::Kind::kInput)
      node.save_input(static_cast<int>(i), saved_[i].index,
                      *call.tensors[saved_[i].index]);
  }
  for (const Watch& watch : watches_) {
    if (!watch.is_output)
      node.watch_input(watch.saved, watch.index, *call.tensors[watch.index]);
  }
  for (int input : held_inputs_)
    node.watch_input(-1, input, *call.tensors[input]);
  for (const AotNode::OfCall& of : originals_)
    node.note_memory(of, *call.tensors[of.index]);
  for (const Kept& kept : kept_) {
    if (kept.saved >= 0) {
      node.keep_saved(kept.input, kept.saved);
    } else if (kept.written) {
      c10::AutoGradMode no_grad(false);
      node.keep(kept.input, call.tensors[kept.input]->detach().clone());
    } else {
      node.keep(kept.input, *call.tensors[kept.input]);
    }
  }
  if (uses_random_) node.keep_random_states(call.random.states());
  return true;
}

// In the order of eager's nodes.
void AotExecutor::attach_gates(Call& call) const {
  const std::vector<int>& outputs = backward_->tangent_of();
  for (int output : outputs)
    call.node->add_input_metadata(call.results[output]);
  std::vector<graph::NodePtr<OutputGate>> gates(outputs.size());
  for (size_t tangent : gate_order_) {
    std::vector<graph::NodePtr<OutputGate>> behind;
    for (int other : gates_behind_[tangent]) behind.push_back(gates[other]);
    gates[tangent] = graph::make_node<OutputGate>(
        call.node, static_cast<uint32_t>(tangent), behind);
    torch::autograd::set_history(call.results[outputs[tangent]],
                                 gates[tangent]);
  }
  call.node->set_gates(gates);
}

void AotExecutor::attach_node(Call& call) const {
  if (!gate_order_.empty()) {
    attach_gates(call);
  } else {
    for (int output : backward_->tangent_of())
      torch::autograd::set_history(call.results[output], call.node);
  }
  for (size_t i = 0; i < saved_.size(); ++i) {
    const SavedSlot& slot = saved_[i];
    if (slot.kind == SavedSlot::Kind::kInput) continue;
    const at::Tensor& value = call.results[slot.index];
    if (slot.clone) {
      c10::AutoGradMode no_grad(false);
      call.node->save(static_cast<int>(i), value.detach().clone(), false);
    } else {
      call.node->save(static_cast<int>(i), value,
                      slot.kind == SavedSlot::Kind::kUserOutput);
    }
  }
  for (const Watch& watch : watches_) {
    if (watch.is_output)
      call.node->watch_output(watch.saved, watch.index,
                              call.results[watch.index]);
  }
  for (int output : held_outputs_)
    call.node->watch_output(-1, output, call.results[output]);
  for (const AotNode::OfCall& of : original_outputs_)
    call.node->note_memory(of, call.results[of.index]);
}

void AotExecutor::attach_spent(Call& call) const {
  std::vector<at::Tensor> inputs;
  for (int input : gradient_inputs_) inputs.push_back(*call.tensors[input]);
  auto node =
      graph::make_node<SpentNode>(torch::autograd::collect_next_edges(inputs));
  for (int output : spent_outputs_)
    torch::autograd::set_history(call.results[output], node);
}

at::Tensor view_without_grad(const at::Tensor& base) {
  if (base.is_inference()) return base;
  c10::AutoGradMode off(false);
  return base.alias();
}

bool AotExecutor::wrap_outputs(const Call& call, PyObject* const* inputs,
                               const int64_t* symbols,
                               PyObject** outputs) const {
  ViewLists lists;
  for (size_t i = 0; i < num_user_outputs_; ++i) {
    const UserOutput& output = user_outputs_[i];
    switch (output.kind) {
      case UserOutput::Kind::kTensor:
        if (!output.idle_strides.empty())
          set_idle_strides(call.results[i], output.idle_strides, symbols);
        outputs[i] = THPVariable_Wrap(output.is_view_without_grad
                                          ? view_without_grad(call.results[i])
                                          : call.results[i]);
        break;
      case UserOutput::Kind::kInt:
        outputs[i] = number_object(output.expr, symbols);
        break;
      case UserOutput::Kind::kInputObject:
        outputs[i] = Py_NewRef(inputs[output.object]);
        break;
      case UserOutput::Kind::kViewOfInput:
      case UserOutput::Kind::kViewOfOutput: {
        bool of_input = output.kind == UserOutput::Kind::kViewOfInput;
        const at::Tensor& base =
            of_input ? *call.tensors[output.base] : call.results[output.base];
        outputs[i] = THPVariable_Wrap(
            output.view.make(base, /*counted=*/!of_input, symbols, &lists));
        break;
      }
    }
    if (outputs[i]) continue;
    while (i > 0) Py_CLEAR(outputs[--i]);
    return false;
  }
  return true;
}

void AotExecutor::commit(Call& call, bool* committing) const {
  c10::AutoGradMode no_grad(false);
  for (size_t i = 0; i < writes_.size(); ++i) {
    if (writes_[i].shared &&
        !call.mutations[i].is_same(*call.tensors[writes_[i].input]))
      call.mutations[i] = call.mutations[i].clone();
  }
  for (size_t i = 0; i < writes_.size(); ++i) {
    *committing = true;
    const at::Tensor& input = *call.tensors[writes_[i].input];
    if (call.mutations[i].is_same(input)) {
      count_writes(input, writes_[i].writes);  // made there
    } else {
      write_back(input, call.mutations[i], writes_[i].writes);
    }
  }
  for (auto [input, writes] : touched_)
    count_writes(*call.tensors[input], writes);
  // Only now has their version the number that it has in eager when it is
  // saved.
  for (int input : held_when_written_)
    call.node->watch_input(-1, input, *call.tensors[input]);
  for (const AotNode::OfCall& of : originals_when_written_)
    call.node->note_memory(of, *call.tensors[of.index]);
}

// What is behind the inputs sees what the one node of the call does otherwise
// than eager's many. The gradients of all leaves are ready at once, so hooks of
// two of them run in another order, and one that raises or looks at another
// leaf finds other gradients accumulated. And it leads to all inputs, whichever
// output was used: a hook would be called without a gradient, and so would the
// nodes that an input came from, which may have been freed, or be the program's
// own functions, which get zeros then.
bool AotExecutor::is_node_seen(PyObject* const* inputs) {
  namespace impl = torch::autograd::impl;
  bool hooked = false, hooked_leaf = false;
  int leaves = 0;
  for (int input : backward_->edge_inputs()) {
    const at::Tensor& tensor =
        graph::unpack_tensor(inputs[input_objects_[input]]);
    if (tensor.is_leaf()) ++leaves;
    if (!tensor.unsafeGetTensorImpl()->autograd_meta()) continue;  // no past
    if (impl::hooks(tensor).empty() && !impl::post_acc_grad_hooks(tensor))
      continue;
    hooked = true;
    hooked_leaf |= tensor.is_leaf();
  }
  const char* why = nullptr;
  if ((hooked_leaf && leaves > 1) ||
      (hooked && backward_->tangent_of().size() > 1)) {
    why = "inputs have hooks; such calls run at torch level";
  } else {
    for (int input : backward_->partial_inputs()) {
      if (graph::unpack_tensor(inputs[input_objects_[input]]).is_leaf())
        continue;
      why =
          "an input that was computed with gradients is in the history of some "
          "outputs and not of others; such calls run at torch level";
      break;
    }
  }
  if (why && !std::exchange(told_seen_, true)) backward_->tell(why);
  return why != nullptr;
}

// The original runs, and makes them leaves where it does.
void AotExecutor::unmake_leaves(const Call& call) const {
  for (int input : made_leaves_) {
    const at::Tensor* tensor = call.tensors[input];
    if (tensor && tensor->defined() && tensor->is_leaf())
      tensor->unsafeGetTensorImpl()->set_requires_grad(false);
  }
}

RunStatus AotExecutor::run_at_torch_level(PyObject* const* inputs,
                                          const int64_t* symbols,
                                          PyObject** outputs) {
  Executor* executor = torch_level_->get();
  if (!executor) {
    PyErr_SetString(PyExc_RuntimeError,
                    "framejit: a captured graph cannot be replayed");
    return RunStatus::kFailedBeforeCommit;
  }
  return executor->run(inputs, symbols, outputs);
}

RunStatus AotExecutor::run(PyObject* const* inputs, const int64_t* symbols,
                           PyObject** outputs) {
  if (backward_ && (backward_->prefers_torch_level() || is_node_seen(inputs)))
    return run_at_torch_level(inputs, symbols, outputs);
  Call call;
  bool committing = false;
  bool mispredicted = false;
  size_t wrapped = 0;
  try {
    call.tensors.resize(input_objects_.size(), nullptr);
    for (size_t i = 0; i < call.tensors.size(); ++i) {
      int object = input_objects_[i];
      if (object >= 0) call.tensors[i] = &graph::unpack_tensor(inputs[object]);
    }
    EvaluationMemo memo(symbols);
    TORCH_CHECK(program_->takes(symbols),
                "framejit: a number of the call that its kernels do not take");
    ask_histories(call);
    hold_inputs(call);
    for (int input : made_leaves_) call.tensors[input]->requires_grad_(true);
    if (uses_random_) call.random.save(torch_graph_->random_devices);
    auto has_old_place = [&](int input) {
      return has_place_of_another(*call.tensors[input]);
    };
    if (std::ranges::any_of(differentiated_, has_old_place) ||
        (backward_ && !make_node(symbols, call))) {
      unmake_leaves(call);
      return run_at_torch_level(inputs, symbols, outputs);
    }
    forward(symbols, call, &committing);
    for (auto [output, writes] : output_versions_)
      count_writes(call.results[output], writes);
    if (backward_) attach_node(call);
    if (!spent_outputs_.empty()) attach_spent(call);
    if (wrap_outputs(call, inputs, symbols, outputs)) {
      wrapped = num_user_outputs_;
      commit(call, &committing);
      return RunStatus::kOk;
    }
  } catch (const UnexpectedResult& error) {
    mispredicted = true;
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    set_run_error();
  }
  {
    ErrorGuard error;
    for (size_t i = 0; i < wrapped; ++i) Py_CLEAR(outputs[i]);
    unmake_leaves(call);
    if (committing) return RunStatus::kFailedInCommit;
    try {
      call.random.restore();
    } catch (...) {
      return RunStatus::kFailedInCommit;
    }
  }
  return mispredicted ? RunStatus::kMistaken : RunStatus::kFailedBeforeCommit;
}

}  // namespace

Result<std::unique_ptr<Executor>> make_aot_executor(
    std::shared_ptr<const TorchGraph> torch_graph, const AotGraphs& graphs,
    const ProgramOptions& options, ProgramReport* report) {
  auto executor = std::make_unique<AotExecutor>();
  FJ_CHECK_OK(executor->build(std::move(torch_graph), graphs, options, report));
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace framejit::backend
