#include "backend/aot_function.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <unordered_map>

#include "backend/alias_analysis.h"
#include "backend/aot_node.h"
#include "backend/rng_state.h"
#include "backend/torch_executor.h"
#include "graph/python_tensor.h"
#include "guards/number_expr.h"

namespace framejit::backend {

using graph::AotGraphs;
using graph::Arg;
using graph::Graph;
using graph::OutputInfo;
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

const Value* tensor_of(const Arg& arg) {
  if (!arg.is<Value*>()) return nullptr;
  const Value* value = arg.get<Value*>();
  return value->kind == Value::Kind::kInt ? nullptr : value;
}

bool has_contiguous_strides(const graph::TensorMeta& meta) {
  Expr stride = 1;
  for (size_t i = meta.sizes.size(); i-- > 0;) {
    if (!meta.sizes[i].is_const(1) && meta.strides[i] != stride) return false;
    stride = stride * meta.sizes[i];
  }
  return true;
}

size_t count_symbols(const Graph& graph) {
  std::vector<int> symbols;
  auto add = [&](const Expr& expr) { expr.collect_symbols(&symbols); };
  std::function<void(const Arg&)> walk = [&](const Arg& arg) {
    if (arg.is<Expr>()) add(arg.get<Expr>());
    if (arg.is<Arg::List>()) {
      for (const Arg& item : arg.get<Arg::List>().items) walk(item);
    } else if (arg.is<Arg::Tuple>()) {
      for (const Arg& item : arg.get<Arg::Tuple>().items) walk(item);
    }
  };
  for (const auto& node : graph.block().nodes) {
    for (const Arg& arg : node->args) walk(arg);
    for (const auto& output : node->outputs) {
      add(output->expr);
      for (const Expr& size : output->meta.sizes) add(size);
      for (const Expr& stride : output->meta.strides) add(stride);
    }
  }
  size_t count = 0;
  for (int symbol : symbols) count = std::max<size_t>(count, symbol + 1);
  return count;
}

// Which tangents each value of a backward graph is computed from.
std::unordered_map<const Value*, std::vector<int>> find_tangents(
    const Graph& backward, const std::vector<int>& tensor_inputs,
    size_t num_saved) {
  std::unordered_map<const Value*, std::vector<int>> found;
  for (size_t i = num_saved; i < tensor_inputs.size(); ++i) {
    found[backward.inputs[tensor_inputs[i]]] = {
        static_cast<int>(i - num_saved)};
  }
  for (const auto& node : backward.block().nodes) {
    if (node->op != graph::Opcode::kCallFunction) continue;
    std::vector<int> tangents;
    for (const Arg& arg : node->args) {
      graph::for_each_value(arg, [&](Value* value) {
        const std::vector<int>& more = found[value];
        tangents.insert(tangents.end(), more.begin(), more.end());
      });
    }
    std::sort(tangents.begin(), tangents.end());
    tangents.erase(std::unique(tangents.begin(), tangents.end()),
                   tangents.end());
    for (const auto& output : node->outputs) found[output.get()] = tangents;
  }
  return found;
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
  Expr expr;        // kInt
  int object = 0;   // kInputObject: gathered object
  int base = 0;     // views: graph input or user output
  OutputInfo view;  // views: how
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
               std::vector<std::string>* kernel_texts);
  RunStatus run(PyObject* const* inputs, const int64_t* symbols,
                PyObject** outputs) override;

 private:
  struct Watch {
    bool is_output;
    int index;
  };
  using Tensors = c10::SmallVector<at::Tensor, 8>;
  using Inputs = c10::SmallVector<const at::Tensor*, 16>;

  Result<UserOutput> user_output(const Arg& arg, const AotGraphs& graphs,
                                 size_t index) const;
  Status check_outputs(const Graph& forward, const AliasAnalysis& aliases,
                       const AotGraphs& graphs) const;
  Status check_mutations(const Graph& forward, bool has_backward) const;
  Status build_saved(const Graph& forward, const AliasAnalysis& aliases);
  Status build_backward(const AotGraphs& graphs, const ProgramOptions& options);
  void forward(const Inputs& tensors, const int64_t* symbols, Tensors* outputs,
               Tensors* mutations) const;
  void attach_node(const Inputs& tensors, const int64_t* symbols,
                   Tensors& outputs) const;
  bool wrap_outputs(const Inputs& tensors, const Tensors& results,
                    PyObject* const* inputs, const int64_t* symbols,
                    PyObject** outputs) const;

  std::shared_ptr<const Program> program_;
  std::shared_ptr<const BackwardCode> backward_;  // null: no gradient
  std::vector<int> input_objects_;
  size_t num_user_outputs_ = 0;
  std::vector<UserOutput> user_outputs_;
  std::vector<int> mutated_inputs_;
  // Training only.
  size_t num_symbols_ = 0;
  std::vector<int> edge_inputs_;  // graph input of each next edge
  std::vector<int> tangent_of_;
  std::vector<SavedSlot> saved_;
  std::vector<Watch> watches_;
  bool uses_random_ = false;
  std::shared_ptr<const TorchGraph> torch_graph_;
  // Runs instead, once an operator did not do what the trace predicted.
  std::unique_ptr<Executor> torch_level_;
};

Status AotExecutor::build(std::shared_ptr<const TorchGraph> torch_graph,
                          const AotGraphs& graphs,
                          const ProgramOptions& options,
                          std::vector<std::string>* kernel_texts) {
  const Graph& forward = *graphs.forward;
  torch_graph_ = torch_graph;
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
    mutated_inputs_.push_back(mutation.input);
  }
  FJ_TRY(program_, Program::build(forward, options));
  *kernel_texts = program_->kernel_texts();
  if (!graphs.backward) return ok_status();
  FJ_CHECK_OK(build_saved(forward, aliases));
  FJ_CHECK_OK(build_backward(graphs, options));
  for (std::string& text : backward_->program->kernel_texts()) {
    kernel_texts->push_back(std::move(text));
  }
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
    output.view = info;
    return output;
  }
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

Status AotExecutor::build_saved(const Graph& forward,
                                const AliasAnalysis& aliases) {
  auto add_watch = [&](bool is_output, int index) {
    for (const Watch& watch : watches_) {
      if (watch.is_output == is_output && watch.index == index) return;
    }
    watches_.push_back({is_output, index});
  };
  for (size_t i = num_user_outputs_; i < forward.outputs.size(); ++i) {
    const Value* value = tensor_of(forward.outputs[i]);
    if (!value) continue;  // a symbol
    SavedSlot slot;
    slot.index = static_cast<int>(i);
    for (size_t j = 0; j < num_user_outputs_; ++j) {
      const Value* output = tensor_of(forward.outputs[j]);
      if (user_outputs_[j].kind != UserOutput::Kind::kTensor) continue;
      if (output == value) {
        slot = {SavedSlot::Kind::kUserOutput, static_cast<int>(j)};
      } else if (aliases.may_alias(output, value)) {
        add_watch(true, static_cast<int>(j));
      }
    }
    for (size_t j = 0; j < forward.inputs.size(); ++j) {
      const Value* input = forward.inputs[j];
      if (input->kind == Value::Kind::kInt) continue;
      bool is_input = input == value;
      if (!is_input && !aliases.may_alias(input, value)) continue;
      if (std::count(mutated_inputs_.begin(), mutated_inputs_.end(),
                     static_cast<int>(j))) {
        slot.clone = true;  // the old content is what the backward needs
      } else if (is_input) {
        slot = {SavedSlot::Kind::kInput, static_cast<int>(j)};
      } else {
        add_watch(false, static_cast<int>(j));
      }
    }
    saved_.push_back(slot);
  }
  return ok_status();
}

Status AotExecutor::build_backward(const AotGraphs& graphs,
                                   const ProgramOptions& options) {
  const Graph& backward = *graphs.backward;
  auto code = std::make_shared<BackwardCode>();
  code->num_saved = saved_.size();
  for (size_t i = 0; i < backward.inputs.size(); ++i) {
    if (backward.inputs[i]->kind == Value::Kind::kInt) continue;
    code->tensor_inputs.push_back(static_cast<int>(i));
  }
  size_t num_tangents = graphs.tangent_of.size();
  FJ_CHECK(code->tensor_inputs.size() == saved_.size() + num_tangents);
  for (size_t i = 0; i < num_tangents; ++i) {
    const auto& meta =
        backward.inputs[code->tensor_inputs[saved_.size() + i]]->meta;
    code->tangents.push_back({meta.strides, has_contiguous_strides(meta)});
  }
  tangent_of_ = graphs.tangent_of;
  for (size_t i = 0; i < num_user_outputs_; ++i) {
    if (graphs.outputs[i].requires_grad && !graphs.outputs[i].remade &&
        !std::count(tangent_of_.begin(), tangent_of_.end(),
                    static_cast<int>(i))) {
      return fall_back("an output that requires grad has no tangent");
    }
  }
  AliasAnalysis aliases(backward);
  auto tangents_of =
      find_tangents(backward, code->tensor_inputs, saved_.size());
  for (size_t i = 0; i < backward.outputs.size(); ++i) {
    const Value* gradient = tensor_of(backward.outputs[i]);
    if (!gradient) continue;
    bool copy = false;
    for (size_t j = 0; j < saved_.size(); ++j) {
      copy |=
          aliases.may_alias(gradient, backward.inputs[code->tensor_inputs[j]]);
    }
    for (const Value* root : aliases.roots(gradient)) {
      copy |= root->node->op == graph::Opcode::kGetAttr;
    }
    for (size_t j = 0; j < i; ++j) {
      const Value* other = tensor_of(backward.outputs[j]);
      copy |= other && other != gradient && aliases.may_alias(gradient, other);
    }
    code->gradients.push_back(
        {static_cast<int>(i), copy, tangents_of[gradient]});
    edge_inputs_.push_back(static_cast<int>(i));
  }
  num_symbols_ = count_symbols(backward);
  ProgramOptions backward_options = options;
  // A backward cannot fall back.
  backward_options.repair_strides = true;
  FJ_TRY(code->program, Program::build(backward, backward_options));
  backward_ = std::move(code);
  return ok_status();
}

void AotExecutor::forward(const Inputs& tensors, const int64_t* symbols,
                          Tensors* outputs, Tensors* mutations) const {
  // In the caller's grad mode: some kernels ask for it, whether they keep what
  // their backward needs. Nothing gets a history below autograd.
  outputs->resize(program_->num_outputs());
  mutations->resize(program_->num_mutations());
  program_->run(tensors.data(), symbols, outputs->data(), mutations->data());
}

void AotExecutor::attach_node(const Inputs& tensors, const int64_t* symbols,
                              Tensors& outputs) const {
  torch::autograd::edge_list edges;
  edges.reserve(edge_inputs_.size());
  for (int input : edge_inputs_) {
    edges.push_back(torch::autograd::impl::gradient_edge(*tensors[input]));
  }
  auto node = c10::make_intrusive<AotNode>(
      backward_, std::move(edges),
      std::vector<int64_t>(symbols, symbols + num_symbols_));
  for (int output : tangent_of_) {
    torch::autograd::set_history(outputs[output], node);
  }
  for (const SavedSlot& slot : saved_) {
    if (slot.kind == SavedSlot::Kind::kInput) {
      node->save(*tensors[slot.index], false);
    } else if (slot.clone) {
      c10::AutoGradMode no_grad(false);
      node->save(outputs[slot.index].detach().clone(), false);
    } else {
      node->save(outputs[slot.index],
                 slot.kind == SavedSlot::Kind::kUserOutput);
    }
  }
  for (const Watch& watch : watches_) {
    node->watch(watch.is_output ? outputs[watch.index] : *tensors[watch.index],
                watch.is_output);
  }
}

// Outside of the graph, so that it is a view to autograd, too.
at::Tensor make_view(const at::Tensor& base, const OutputInfo& view,
                     const int64_t* symbols) {
  std::vector<int64_t> sizes, strides;
  for (const Expr& size : view.sizes) sizes.push_back(size.evaluate(symbols));
  for (const Expr& stride : view.strides)
    strides.push_back(stride.evaluate(symbols));
  c10::AutoGradMode grad(!view.detached);
  at::Tensor source = view.detached ? base.detach() : base;
  return source.as_strided(
      sizes, strides, base.storage_offset() + view.offset.evaluate(symbols));
}

bool AotExecutor::wrap_outputs(const Inputs& tensors, const Tensors& results,
                               PyObject* const* inputs, const int64_t* symbols,
                               PyObject** outputs) const {
  for (size_t i = 0; i < num_user_outputs_; ++i) {
    const UserOutput& output = user_outputs_[i];
    switch (output.kind) {
      case UserOutput::Kind::kTensor:
        outputs[i] = THPVariable_Wrap(results[i]);
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
        outputs[i] = THPVariable_Wrap(
            make_view(of_input ? *tensors[output.base] : results[output.base],
                      output.view, symbols));
        break;
      }
    }
    if (outputs[i]) continue;
    while (i > 0) Py_CLEAR(outputs[--i]);
    return false;
  }
  return true;
}

RunStatus AotExecutor::run(PyObject* const* inputs, const int64_t* symbols,
                           PyObject** outputs) {
  if (torch_level_) return torch_level_->run(inputs, symbols, outputs);
  RngState rng;
  bool committing = false;
  bool mispredicted = false;
  size_t wrapped = 0;
  try {
    Inputs tensors(input_objects_.size(), nullptr);
    for (size_t i = 0; i < tensors.size(); ++i) {
      int object = input_objects_[i];
      if (object >= 0) tensors[i] = &graph::unpack_tensor(inputs[object]);
    }
    if (uses_random_) rng.save({});
    Tensors results, mutations;
    forward(tensors, symbols, &results, &mutations);
    if (backward_) attach_node(tensors, symbols, results);
    if (wrap_outputs(tensors, results, inputs, symbols, outputs)) {
      wrapped = num_user_outputs_;
      c10::AutoGradMode no_grad(false);
      for (size_t i = 0; i < mutated_inputs_.size(); ++i) {
        committing = true;
        tensors[mutated_inputs_[i]]->copy_(mutations[i]);
      }
      return RunStatus::kOk;
    }
  } catch (const UnexpectedResult& error) {
    mispredicted = true;
    PyErr_SetString(PyExc_RuntimeError, error.what());
  } catch (...) {
    if (!PyErr_Occurred()) {
      torch::translate_exception_to_python(std::current_exception());
    }
  }
  {
    ErrorGuard error;
    for (size_t i = 0; i < wrapped; ++i) Py_CLEAR(outputs[i]);
    if (committing) return RunStatus::kFailedInCommit;
    try {
      rng.restore();
    } catch (...) {
      return RunStatus::kFailedInCommit;
    }
    if (mispredicted) {
      auto executor = make_torch_executor(torch_graph_);
      if (executor.ok()) torch_level_ = executor.take();
    }
  }
  if (!torch_level_) return RunStatus::kFailedBeforeCommit;
  PyErr_Clear();
  return torch_level_->run(inputs, symbols, outputs);
}

}  // namespace

Result<std::unique_ptr<Executor>> make_aot_executor(
    std::shared_ptr<const TorchGraph> torch_graph, const AotGraphs& graphs,
    const ProgramOptions& options, std::vector<std::string>* kernel_texts) {
  auto executor = std::make_unique<AotExecutor>();
  FJ_CHECK_OK(
      executor->build(std::move(torch_graph), graphs, options, kernel_texts));
  return std::unique_ptr<Executor>(std::move(executor));
}

}  // namespace framejit::backend
