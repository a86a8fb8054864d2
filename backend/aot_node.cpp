#include "backend/aot_node.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <cstring>

#include "backend/idle_leaves.h"
#include "backend/tensor_places.h"
#include "frame_hook/options.h"
#include "guards/result.h"

namespace framejit::backend {

using torch::autograd::variable_list;

namespace {

bool same_strides(const at::Tensor& tensor, at::IntArrayRef strides) {
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.size(dim) != 1 && tensor.stride(dim) != strides[dim]) {
      return false;
    }
  }
  return true;
}

// The gradient of sum() is one number, expanded: the usual first tangent.
bool is_expanded_float(const at::Tensor& tensor) {
  if (tensor.scalar_type() != at::kFloat || !tensor.device().is_cpu() ||
      tensor.numel() == 0 || tensor.is_neg()) {
    return false;
  }
  auto strides = tensor.strides();
  return std::all_of(strides.begin(), strides.end(),
                     [](int64_t stride) { return stride == 0; });
}

}  // namespace

// The tangent in the layout the backward was traced with.
at::Tensor AotNode::tangent(size_t index, at::Tensor grad) const {
  const BackwardCode::Tangent& expected = code_->tangents()[index];
  if (grad.layout() != at::kStrided) grad = grad.to_dense();
  // Formulas of autograd answer with zeros that have no memory (sgn's).
  if (grad._is_zerotensor()) grad = at::zeros(grad.sizes(), grad.options());
  if (grad.is_neg() || grad.is_conj()) grad = grad.resolve_neg().resolve_conj();
  if (expected.contiguous) {
    if (grad.is_contiguous()) return grad;
    if (is_expanded_float(grad)) {
      at::Tensor full(at::detail::empty_cpu(grad.sizes(), at::kFloat));
      float* data = full.mutable_data_ptr<float>();
      std::fill(data, data + full.numel(), *grad.const_data_ptr<float>());
      return full;
    }
    return grad.contiguous();
  }
  std::vector<int64_t> strides;
  for (const Expr& stride : expected.strides) {
    strides.push_back(stride.evaluate(symbols_.data()));
  }
  if (strides.size() != static_cast<size_t>(grad.dim()) ||
      same_strides(grad, strides)) {
    return grad;
  }
  at::Tensor result = at::empty_strided(grad.sizes(), strides, grad.options());
  return result.copy_(grad);
}

namespace {

// Ours to compute with: no wrapper of a transform, no class that wants to see
// each operation.
bool is_plain(const at::Tensor& tensor) {
  using c10::DispatchKey;
  constexpr c10::DispatchKeySet wrappers(
      {DispatchKey::Python, DispatchKey::FuncTorchBatched,
       DispatchKey::FuncTorchGradWrapper, DispatchKey::Batched,
       DispatchKey::Functionalize, DispatchKey::Fake});
  return !tensor.key_set().has_any(wrappers);
}

bool are_plain(const variable_list& grads) {
  return !WithoutModes::any() &&
         std::all_of(grads.begin(), grads.end(), [](const at::Tensor& grad) {
           return !grad.defined() || is_plain(grad);
         });
}

// Its gradients have no history, whoever may differentiate them.
bool is_constant(const BackwardProgram& program, const variable_list& grads) {
  return program.saved.empty() &&
         std::none_of(grads.begin(), grads.end(), [](const at::Tensor& grad) {
           return grad.defined() && grad.requires_grad();
         });
}

uint32_t version_of(const at::Tensor& tensor) {
  const auto& counter = tensor.unsafeGetTensorImpl()->version_counter();
  return counter.enabled() ? counter.current_version() : 0;
}

}  // namespace

AotNode::Task AotNode::task_of(const variable_list& grads,
                               const BackwardPart* alone) const {
  Task task{grads, {}, {}};
  task.alone = alone;
  task.complete = alone == nullptr;
  task.as_captured = !graph::AmbientState::casts_any_now() &&
                     code_->replay().has_default_dtype();
  for (const at::Tensor& grad : grads) task.complete &= grad.defined();
  for (size_t i = 0; i < num_outputs(); ++i)
    task.complete &= task_should_compute_output(i);
  if (task.complete && task.as_captured) return task;
  for (const at::Tensor& grad : grads) task.defined.push_back(grad.defined());
  for (size_t i = 0; i < num_outputs(); ++i)
    task.wanted.push_back(
        task_should_compute_output(i) &&
        (!alone || std::count(alone->edges.begin(), alone->edges.end(), i)));
  return task;
}

// Null: none could be made. fits: it computes what eager does in this state of
// the thread; else it says what is read, and no more.
std::shared_ptr<const BackwardProgram> AotNode::program_for(const Task& task,
                                                            bool* fits) const {
  if (task.complete && task.as_captured) return code_->complete();
  graph::BackwardPattern pattern{task.defined, task.wanted, {}, {}};
  if (!code_->replay().has_default_dtype())
    pattern.default_dtype = c10::get_default_dtype_as_scalartype();
  const auto casts = graph::AmbientState::casts_now();
  *fits = casts.has_value();
  if (casts) pattern.casts = *casts;
  return code_->find(std::move(pattern), symbols_.data());
}

variable_list AotNode::apply(variable_list&& grads) {
  variable_list results = gradients_of(grads);
  for (size_t i = 0; i < results.size(); ++i)
    if (!results[i].defined()) leave_idle(next_edge(i));
  return results;
}

variable_list AotNode::gradients_of(
    const variable_list& grads, const BackwardPart* alone,
    std::shared_ptr<const BackwardProgram>* ran) {
  auto any = [](const std::vector<bool>& bits) {
    return std::find(bits.begin(), bits.end(), true) != bits.end();
  };
  const Task task = task_of(grads, alone);
  if (!task.complete && (!any(task.defined) || !any(task.wanted))) {
    begin(nullptr, /*runs=*/false);
    return variable_list(num_outputs());
  }
  const bool create_graph = c10::GradMode::is_enabled();
  const std::shared_ptr<const CutReplay> cut = take_cut();
  code_->count(cut            ? BackwardCode::Use::kWatched
               : create_graph ? BackwardCode::Use::kDifferentiated
                              : BackwardCode::Use::kPlain);
  bool fits = true;
  auto program = program_for(task, &fits);
  if (ran && program != code_->complete()) *ran = program;
  begin(program, /*runs=*/true);
  // Also for a replay: what eager has saved may not have been written to.
  std::vector<at::Tensor> values;
  if (!program)
    check_unknown();
  else if (program->program)
    values = unpack(*program);
  if (cut) return finish_cut(task, *cut);
  if (!program || !fits || !are_plain(grads) ||
      (create_graph &&
       (code_->replay().may_be_nonlinear() || !is_constant(*program, grads))))
    return replay(task);
  if (!program->program) return variable_list(num_outputs());
  EvaluationMemo memo(symbols_.data());
  if (!program->program->takes(symbols_.data())) return replay(task);
  free_early(*program);
  RngState random;
  if (program->uses_random) random.save(code_->replay().graph().random_devices);
  try {
    return run(task, *program, std::move(values));
  } catch (const UnexpectedResult& error) {
    random.restore();
    code_->give_up(error.what());
    return replay(task);
  } catch (const c10::OutOfMemoryError&) {
    throw;
  } catch (const c10::Error& error) {
    random.restore();
    return replay_failed(task, error.what_without_backtrace());
  } catch (const InternalError& error) {  // the engine knows no such type
    random.restore();
    return replay_failed(task, error.message());
  }
}

// If torch's own backward raises, too, that is the program's error.
variable_list AotNode::replay_failed(const Task& task, const std::string& why) {
  variable_list results = replay(task);
  code_->give_up(why);
  TORCH_CHECK(!options().strict, "FrameJIT: running a backward: ", why);
  return results;
}

// values: by position among the program's inputs.
variable_list AotNode::run(const Task& task, const BackwardProgram& program,
                           std::vector<at::Tensor> values) const {
  c10::AutoGradMode no_grad(false);
  for (const auto& [position, output] : program.tangents)
    values[position] = tangent(output, task.grads[output]);
  std::vector<const at::Tensor*> inputs;
  inputs.reserve(values.size());
  for (const at::Tensor& value : values) inputs.push_back(&value);
  std::vector<at::Tensor> outputs(program.program->num_outputs());
  {
    Program::Registers registers;
    program.program->load(inputs.data(), &registers);
    values.clear();
    bool wrote = false;
    program.program->execute(symbols_.data(), &registers, &wrote);
    program.program->store(&registers, outputs.data(), nullptr);
  }
  variable_list results(num_outputs());
  for (size_t i = 0; i < results.size(); ++i) {
    const BackwardProgram::Gradient& gradient = program.gradients[i];
    if (gradient.output < 0) continue;
    const at::Tensor& result = outputs[gradient.output];
    if (result.defined())
      results[i] = gradient.copy ? copy_laid_out(result) : result;
  }
  return results;
}

// The graph inputs whose gradients the task asks for, in the order of edges.
std::vector<int> AotNode::wanted_inputs(const Task& task) const {
  std::vector<int> inputs;
  for (size_t i = 0; i < num_outputs(); ++i)
    if (task.wants(i)) inputs.push_back(code_->edge_inputs()[i]);
  return inputs;
}

// found: the gradients of wanted_inputs().
variable_list AotNode::by_edge(const Task& task, variable_list&& found) const {
  variable_list results(num_outputs());
  size_t next = 0;
  for (size_t i = 0; i < results.size(); ++i)
    if (task.wants(i)) results[i] = std::move(found[next++]);
  return results;
}

variable_list AotNode::replay(const Task& task) {
  const ReplayedCall call = inputs_to_replay();
  torch::autograd::edge_list history;
  variable_list found = code_->replay().differentiate(
      call, code_->passed(), task.grads, wanted_inputs(task), &history);
  // The gates have run: the engine will not look at their edges again in this
  // task.
  if (c10::GradMode::is_enabled() && code_->replay().may_be_nonlinear()) {
    for (size_t i = 0; i < gates_.size(); ++i) {
      if (task.alone && !task.grads[i].defined()) continue;
      if (auto gate = gates_[i].lock()) gate->lead_to(std::move(history.at(i)));
    }
  }
  return by_edge(task, std::move(found));
}

// ---- what passes through an output

bool AotNode::is_passage_watched() const {
  return std::any_of(gates_.begin(), gates_.end(),
                     [](const auto& weak) {
                       auto gate = weak.lock();
                       return gate && gate->is_behind_another() &&
                              is_watched(*gate);
                     }) ||
         std::any_of(views_.begin(), views_.end(), [](const PassedView& view) {
           auto node = view.node.lock();
           return node && is_watched(*node);
         });
}

namespace {

// When the backward is over, also one that raised.
class HandOn {
 public:
  HandOn(std::shared_ptr<const CutReplay> cut, torch::autograd::edge_list own)
      : cut_(std::move(cut)), own_(std::move(own)) {}
  ~HandOn() {
    try {
      run();
    } catch (...) {  // no memory: it is refused to differentiate them
    }
  }
  HandOn(const HandOn&) = delete;
  HandOn& operator=(const HandOn&) = delete;
  void run() const { cut_->hand_on(own_); }

 private:
  const std::shared_ptr<const CutReplay> cut_;
  const torch::autograd::edge_list own_;
};

}  // namespace

variable_list AotNode::pass_behind(size_t from, const at::Tensor& gradient,
                                   const std::vector<int>& behind,
                                   const std::vector<bool>& wanted) {
  const int task = torch::autograd::get_current_graph_task_id();
  std::shared_ptr<const CutReplay> cut;
  bool asked = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (const UnderWay* row = under_way(task)) {
      asked = row->asked;
      cut = row->cut;
    }
  }
  if (!asked) {
    // Asked once: all gates and the node must do the same.
    if (is_passage_watched()) {
      check_passage(from, wanted);
      cut = code_->replay().cut(
          inputs_to_replay(), code_->passed(), [code = code_] {
            code->give_up("a hook differentiated a gradient");
            TORCH_CHECK(false,
                        "framejit: a hook differentiated a gradient that "
                        "passed an output of a compiled call while the "
                        "backward was running; calls from now on have eager's "
                        "own history");
          });
      if (c10::GradMode::is_enabled())
        torch::autograd::Engine::get_default_engine().queue_callback(
            [last = std::make_shared<HandOn>(cut, own_outputs())] {
              last->run();
            });
    }
    std::vector<UnderWay> over;
    std::lock_guard<std::mutex> lock(mutex_);
    UnderWay& row = note_under_way(task, &over);
    row.asked = true;
    row.cut = cut;
  }
  if (!cut) return {};
  if (asked) check_passage(from, wanted);
  return cut->to_outputs(from, gradient, behind);
}

// Parts share it.
std::shared_ptr<const CutReplay> AotNode::take_cut() {
  const int task = torch::autograd::get_current_graph_task_id();
  UnderWay over;  // dies behind the lock
  std::lock_guard<std::mutex> lock(mutex_);
  UnderWay* row = under_way(task);
  if (!row) return nullptr;
  auto cut = row->cut;
  if (parts().empty()) {
    over = std::move(*row);
    under_way_.erase(under_way_.begin() + (row - under_way_.data()));
  }
  return cut;
}

// The tangents are all that came to each output, of which nothing goes on
// through another one.
variable_list AotNode::finish_cut(const Task& task, const CutReplay& cut) {
  variable_list found = cut.to_inputs(task.grads, wanted_inputs(task));
  // Hooks of inputs may differentiate what they get. (Of a node in parts, the
  // others still have to run.)
  if (c10::GradMode::is_enabled() && parts().empty())
    cut.hand_on(own_outputs());
  return by_edge(task, std::move(found));
}

// ---- what is saved

// Raises where eager would have freed something that is needed again.
void AotNode::begin(std::shared_ptr<const BackwardProgram> program, bool runs) {
  std::lock_guard<std::mutex> lock(mutex_);
  // What saved nothing can run again.
  const bool reads = runs && (!program || !program->readers.empty());
  const bool consumed =
      (released_ && (reads || !runs)) ||
      (reads &&
       is_consumed(program ? program->readers : code_->complete()->readers));
  TORCH_CHECK(!consumed, torch::autograd::ERR_BACKWARD_TWICE);
  last_ = program == code_->complete() ? nullptr : std::move(program);
}

const std::shared_ptr<FreedNodes>& AotNode::freed() {
  if (!freed_) freed_ = std::make_shared<FreedNodes>();
  return freed_;
}

bool AotNode::is_consumed(const std::vector<int64_t>& readers) const {
  return freed_ && freed_->any(readers);
}

// What becomes part of the history of one of several outputs need not have been
// saved for that one. (A leaf becomes part of none.)
at::Tensor AotNode::held(int input, const at::Tensor& tensor) const {
  const bool is_parameter = tensor.requires_grad() && tensor.is_leaf();
  const bool itself = code_->held_inputs().at(input).itself;
  const bool keeps = is_parameter || code_->tangent_of().size() == 1;
  return itself && keeps ? tensor : tensor.tensor_data();
}

namespace {

// What of a tensor says which elements of its storage it has, in one number.
uint64_t place_in_memory(const c10::TensorImpl& tensor) {
  uint64_t place = static_cast<uint64_t>(tensor.storage_offset());
  auto mix = [&](int64_t number) {
    place = (place ^ static_cast<uint64_t>(number)) * 0x9E3779B97F4A7C15u;
    place ^= place >> 29;
  };
  mix(static_cast<int64_t>(c10::typeMetaToScalarType(tensor.dtype())));
  for (int64_t size : tensor.sizes()) mix(size);
  for (int64_t stride : tensor.strides()) mix(stride);
  return place;
}

}  // namespace

void AotNode::note_memory(const OfCall& of, const at::Tensor& tensor) {
  if (!tensor.has_storage()) return;
  originals_.push_back({of, WeakTensor(tensor.getIntrusivePtr()),
                        tensor.storage().getWeakStorageImpl(),
                        place_in_memory(*tensor.unsafeGetTensorImpl())});
}

template <class IsRead>
void AotNode::check_memory(const IsRead& is_read) const {
  for (const Original& original : originals_) {
    if (!is_read(original.of)) continue;
    auto tensor = original.tensor.lock();
    if (!tensor || !tensor->has_storage() ||
        (tensor->unsafe_storage().unsafeGetStorageImpl() ==
             original.memory._unsafe_get_target() &&
         place_in_memory(*tensor) == original.place))
      continue;
    code_->give_up("a tensor got other memory (x.data = y) before a backward");
    TORCH_CHECK(
        false,
        "framejit: a tensor that the gradients of a compiled call depend "
        "on was given other memory (x.data = y, module.half()) between "
        "forward and backward; calls from now on have eager's own history");
  }
}

// Raises where a node of eager's had saved something that was written to since.
// Under mutex_.
void AotNode::check_versions(const LooksAt& looks_at) {
  for (const Watched& watched : watched_)
    if (watched.saved < 0 &&
        (watched.is_output ? looks_at.outputs : looks_at.inputs)
            .at(watched.index))
      watched.variable.unpack(getptr());
  for (int saved : looks_at.saved) saved_.at(saved).unpack(getptr());
}

// The nodes that eager's engine runs before it comes to an output behind this
// one.
void AotNode::check_passage(size_t from, const std::vector<bool>& wanted) {
  const Passage& passage = code_->passages().at(from);
  const auto* asked = torch::autograd::get_current_graph_task_exec_info();
  std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(!released_, torch::autograd::ERR_BACKWARD_TWICE);
  const bool keeps = torch::autograd::get_current_graph_task_keep_graph();
  for (size_t i = 0; i < passage.ways.size(); ++i) {
    if (!wanted.at(i)) continue;
    TORCH_CHECK(!is_consumed(passage.nodes[i]),
                torch::autograd::ERR_BACKWARD_TWICE);
    check_versions(passage.ways[i]);
    if (keeps || passage.nodes[i].empty()) continue;
    freed()->add(passage.nodes[i]);
  }
  if (!asked || asked->empty()) check_versions(passage.beside);
}

// Which of eager's nodes run is not known.
void AotNode::check_unknown() {
  try {
    std::lock_guard<std::mutex> lock(mutex_);
    check_versions(code_->complete()->looks_at);
  } catch (const c10::Error&) {
    code_->give_up("a tensor was written to before a backward");
    throw;
  }
}

std::vector<at::Tensor> AotNode::unpack(const BackwardProgram& program) {
  std::vector<at::Tensor> values(program.program->num_inputs());
  std::lock_guard<std::mutex> lock(mutex_);
  check_versions(program.looks_at);
  for (const Watched& watched : watched_)
    if (watched.saved >= 0 && program.reads(watched.saved))
      watched.variable.unpack(getptr());
  for (const auto& [position, saved] : program.saved)
    values[position] = saved_.at(saved).unpack(getptr());
  check_memory([&](const OfCall& of) {
    return (of.saved >= 0 && program.reads(of.saved)) ||
           (of.is_output ? program.looks_at.outputs : program.looks_at.inputs)
               .at(of.index);
  });
  return values;
}

// What is read for the last time need not wait for release_variables().
void AotNode::free_early(const BackwardProgram& program) {
  if (&program != code_->complete().get() ||
      torch::autograd::get_current_graph_task_keep_graph())
    return;
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto& [position, saved] : program.saved) {
    if (!is_kept(saved)) saved_.at(saved).reset_data();
  }
}

// A replay would ask for it.
bool AotNode::is_kept(int saved) const {
  return std::any_of(kept_.begin(), kept_.end(), [&](const KeptInput& kept) {
    return kept.saved == saved;
  });
}

// A replay has its edges from elsewhere.
void AotNode::keep(int input, const at::Tensor& tensor) {
  kept_.push_back({input, -1, held(input, tensor), version_of(tensor)});
}

// As in BackwardCode::passed().
torch::autograd::edge_list AotNode::own_outputs() {
  torch::autograd::edge_list edges(code_->tangent_of().size());
  for (size_t i = 0; i < edges.size(); ++i) {
    if (gates_.empty()) {
      edges[i] = {getptr(), static_cast<uint32_t>(i)};
    } else if (auto gate = gates_[i].lock()) {
      edges[i] = {gate, 0};
    }
  }
  for (const PassedView& view : views_) {
    auto node = view.node.lock();
    edges.push_back(node ? torch::autograd::Edge(node, view.result)
                         : torch::autograd::Edge());
  }
  return edges;
}

ReplayedCall AotNode::unpack_inputs() {
  ReplayedCall call;
  const size_t num_inputs = code_->replay().graph().graph->inputs.size();
  call.inputs.resize(num_inputs);
  call.edges.resize(num_inputs);
  call.own_outputs = own_outputs();
  call.symbols = symbols_.data();
  for (size_t i = 0; i < num_outputs(); ++i)
    call.edges[code_->edge_inputs()[i]] = next_edge(i);
  std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(!released_, torch::autograd::ERR_BACKWARD_TWICE);
  call.random_states = random_states_;
  if (c10::GradMode::is_enabled()) {
    call.eager_nodes = {freed(), &code_->complete()->readers,
                        code_->num_autograd_nodes()};
  }
  for (const KeptInput& kept : kept_) {
    at::Tensor& input = call.inputs[kept.input];
    if (kept.saved >= 0) {
      input = saved_.at(kept.saved).unpack(getptr());
      continue;
    }
    input = kept.tensor;
    TORCH_CHECK(version_of(input) == kept.version,
                "one of the variables needed for gradient computation has been "
                "modified by an inplace operation: [",
                input.toString(), " ", input.sizes(), "] is at version ",
                version_of(input), "; expected version ", kept.version,
                " instead.");
  }
  check_memory([](const OfCall&) { return true; });
  find_late_leaves(&call);
  return call;
}

// What eager's nodes saved themselves has, when they are differentiated, the
// history that it got since.
void AotNode::find_late_leaves(ReplayedCall* call) const {
  const auto& inputs = code_->replay().graph().graph->inputs;
  for (const Original& original : originals_) {
    const int input = original.of.index;
    if (original.of.is_output || inputs[input]->meta.requires_grad ||
        call->edges[input].is_valid())
      continue;
    auto impl = original.tensor.lock();
    if (!impl || !impl->requires_grad()) continue;
    const at::Tensor tensor(std::move(impl));
    if (tensor.is_leaf())
      call->edges[input] = torch::autograd::impl::gradient_edge(tensor);
  }
}

// A replay reads inputs that eager need not have saved (relu saves its result).
// One that was written to meanwhile cannot be had again: from the next call on
// eager's own history is made.
ReplayedCall AotNode::inputs_to_replay() {
  try {
    return unpack_inputs();
  } catch (const c10::Error& error) {
    if (std::strstr(error.what_without_backtrace(),
                    torch::autograd::ERR_BACKWARD_TWICE) == nullptr)
      code_->give_up("an input was written to before a backward needed it");
    throw;
  }
}

void AotNode::will_release_variables() {
  std::lock_guard<std::mutex> lock(mutex_);
  releasing_.push_back(torch::autograd::get_current_graph_task_id());
}

void AotNode::release_variables() {
  const int task = torch::autograd::get_current_graph_task_id();
  std::lock_guard<std::mutex> lock(mutex_);
  if (task >= 0 && std::erase(releasing_, task) > 0)
    release(std::exchange(last_, nullptr));
  else
    free_all(/*by_backward=*/false);
}

void AotNode::release(std::shared_ptr<const BackwardProgram> last) {
  if (!last) {
    free_all(/*by_backward=*/true);
    return;
  }
  freed()->add(last->readers);
  auto freed = [&](const std::vector<int64_t>& readers) {
    return freed_->all(readers);
  };
  if (freed(code_->complete()->readers)) {
    free_all(/*by_backward=*/true);
    return;
  }
  for (size_t i = 0; i < code_->saved_readers().size(); ++i) {
    const std::vector<int64_t>& readers = code_->saved_readers()[i];
    // None: the backward itself computes it, of what others read.
    if (!readers.empty() && freed(readers) && !is_kept(static_cast<int>(i)))
      saved_[i].reset_data();
  }
}

void AotNode::free_all(bool by_backward) {
  // A node that saved nothing can run again, as in eager.
  released_ = !saved_.empty() || !code_->complete()->readers.empty();
  if (by_backward && freed_) freed_->add(code_->complete()->readers);
  saved_.clear();
  watched_.clear();
  kept_.clear();
  originals_.clear();
  std::erase_if(under_way_,
                [](const UnderWay& row) { return row.results.empty(); });
  random_states_.clear();
}

}  // namespace framejit::backend
