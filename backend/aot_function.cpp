#include "backend/aot_function.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/python_variable.h>

#include <algorithm>
#include <optional>

#include "backend/aot_executor.h"
#include "backend/aot_part.h"
#include "backend/history_place.h"
#include "backend/rng_state.h"
#include "backend/run_errors.h"
#include "backend/warnings.h"
#include "graph/tensors/libtorch_private.h"
#include "graph/tensors/python_tensor.h"

namespace framejit::backend {

using graph::AotGraphs;
using graph::ReleaseGil;
using graph::TorchGraph;

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
void AotExecutor::attach_gates(Call& call, CallOutputs& made) const {
  const std::vector<int>& outputs = backward_->tangent_of();
  for (int output : outputs)
    call.node->add_input_metadata(call.results[output]);
  const std::vector<BackwardPart>& plans = backward_->parts();
  std::vector<graph::NodePtr<AotPart>> parts;
  for (size_t i = 0; i < plans.size(); ++i) {
    parts.push_back(graph::make_node<AotPart>(call.node, i));
    for (int tangent : plans[i].direct)
      parts[i]->add_input_metadata(call.results[outputs[tangent]]);
  }
  std::vector<graph::NodePtr<OutputGate>> gates(outputs.size());
  auto passed = [&](int number) {
    const size_t place = static_cast<size_t>(number);
    if (place < gates.size())
      return OutputGate::Passed{number, {gates[place], 0}};
    const int view = backward_->passed().at(place);
    return OutputGate::Passed{
        number, torch::autograd::impl::gradient_edge(made.view(view))};
  };
  for (const Place& place : gate_order_) {
    if (place.is_view) {
      made.view(place.index);
      continue;
    }
    const size_t tangent = place.index;
    std::vector<OutputGate::Passed> behind;
    for (int other : gates_behind_[tangent]) behind.push_back(passed(other));
    const auto number = static_cast<uint32_t>(tangent);
    std::vector<graph::NodePtr<AotPart>> next;
    for (size_t i = 0; i < parts.size(); ++i)
      if (std::ranges::count(plans[i].direct, static_cast<int>(tangent)))
        next.push_back(parts[i]);
    gates[tangent] =
        parts.empty() ? graph::make_node<OutputGate>(call.node, number, behind)
                      : graph::make_node<OutputGate>(next, number, behind);
    torch::autograd::set_history(call.results[outputs[tangent]],
                                 gates[tangent]);
  }
  torch::autograd::edge_list views;
  for (size_t i = outputs.size(); i < backward_->passed().size(); ++i) {
    const int view = backward_->passed()[i];
    views.push_back(torch::autograd::impl::gradient_edge(made.view(view)));
    const auto& of = backward_->tangent_of();
    const auto base = std::ranges::find(of, user_outputs_[view].base);
    gates.at(base - of.begin())->note_behind_another();
  }
  call.node->set_gates(gates, views);
}

void AotExecutor::attach_node(Call& call, CallOutputs& made) const {
  if (!gate_order_.empty()) {
    attach_gates(call, made);
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
      // A kernel may give what is no output to the graph (y.detach()) as the
      // tensor that is one: with a history it is, and would keep the node.
      const bool is_output =
          slot.kind == SavedSlot::Kind::kUserOutput || value.requires_grad();
      call.node->save(static_cast<int>(i), value, is_output);
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

// Hooks that were removed, and pickling, leave a dict without any.
bool has_hooks(PyObject* object) {
  namespace impl = torch::autograd::impl;
  const at::Tensor& tensor = graph::unpack_tensor(object);
  const auto* python = reinterpret_cast<const THPVariable*>(object);
  auto is_empty = [](PyObject* hooks) {
    return hooks && PyDict_Check(hooks) && PyDict_GET_SIZE(hooks) == 0;
  };
  // The dict is one hook to torch.
  const size_t none = is_empty(python->backward_hooks) ? 1 : 0;
  return impl::hooks(tensor).size() > none ||
         (impl::post_acc_grad_hooks(tensor) &&
          !is_empty(python->post_accumulate_grad_hooks));
}

// Is its .grad nothing that another gradient can be added to in place?
bool refuses_gradients(const at::Tensor& leaf) {
  const at::Tensor& grad = leaf.grad();
  if (!grad.defined() || grad.layout() != at::kStrided) return false;
  return grad.is_inference() ||
         (!grad.is_non_overlapping_and_dense() &&
          at::has_internal_overlap(grad) != at::MemOverlap::No);
}

// What is behind the inputs sees what the one node of the call does otherwise
// than eager's many. The gradients of all leaves are ready at once, so hooks of
// two of them run in another order, and one that raises or looks at another
// leaf finds other gradients accumulated. And it leads to all inputs, whichever
// output was used: a hook would be called without a gradient, and so would the
// nodes that an input came from, which may have been freed, or be the program's
// own functions, which get zeros then. A leaf that refuses its gradient raises,
// too.
bool AotExecutor::is_node_seen(PyObject* const* inputs) {
  bool hooked = false, hooked_leaf = false, refusing_leaf = false,
       has_grad_dtype = false;
  int leaves = 0;
  for (int input : backward_->edge_inputs()) {
    PyObject* object = inputs[input_objects_[input]];
    const at::Tensor& tensor = graph::unpack_tensor(object);
    if (tensor.is_leaf()) ++leaves;
    if (!tensor.unsafeGetTensorImpl()->autograd_meta()) continue;  // no past
    refusing_leaf |= tensor.is_leaf() && refuses_gradients(tensor);
    has_grad_dtype |= graph::has_own_grad_dtype(tensor);
    if (!has_hooks(object)) continue;
    hooked = true;
    hooked_leaf |= tensor.is_leaf();
  }
  const char* why = nullptr;
  if ((hooked_leaf && leaves > 1) ||
      (hooked && backward_->tangent_of().size() > 1)) {
    why =
        "FJ601 inputs have hooks; such calls run at torch level; what a hook "
        "does, do to .grad behind the backward, or to what is computed";
  } else if (refusing_leaf && leaves > 1) {
    why =
        "FJ601 an input has a .grad that cannot be added to in place; such "
        "calls run at torch level; zero_grad() before them";
  } else if (has_grad_dtype) {
    why = "FJ601 an input has a grad_dtype; such calls run at torch level";
  } else {
    for (int input : backward_->partial_inputs()) {
      if (graph::unpack_tensor(inputs[input_objects_[input]]).is_leaf())
        continue;
      why =
          "FJ601 an input that was computed with gradients gets none from an "
          "output in whose history it is; such calls run at torch level";
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
  // The mode is to look at each gradient, also at those within the graph.
  if (differentiates_ && torch::autograd::AnomalyMode::is_enabled())
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
    const RanCall ran{call.tensors, call.results, inputs, symbols};
    CallOutputs made(user_outputs_, ran);
    if (backward_) attach_node(call, made);
    if (!spent_outputs_.empty()) attach_spent(call);
    if (made.wrap(num_given_outputs_, outputs)) {
      wrapped = num_given_outputs_;
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

Result<std::unique_ptr<Executor>> make_aot_executor(
    std::shared_ptr<const TorchGraph> torch_graph, const AotGraphs& graphs,
    const ProgramOptions& options, ProgramReport* report) {
  auto executor = std::make_unique<AotExecutor>();
  FJ_CHECK_OK(executor->build(std::move(torch_graph), graphs, options, report));
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace framejit::backend
