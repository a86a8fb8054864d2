#include "graph/ops/recurrent.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/enum_tag.h>
#include <ATen/ops/gru.h>
#include <ATen/ops/lstm.h>
#include <ATen/ops/rnn_relu.h>
#include <ATen/ops/rnn_tanh.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>

#include "graph/tensors/python_tensor.h"

namespace framejit::graph {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

enum Kind : int64_t { kLstm, kGru, kRnnTanh, kRnnRelu };

// The arguments of a call, in the order of the schema.
struct Layer {
  const at::Tensor& input;  // steps first
  at::TensorList states;
  at::TensorList weights;
  int64_t kind;
  bool has_biases;
  int64_t num_layers;
  double dropout;
  bool train;
  bool bidirectional;
  bool on_onednn;

  bool has_projections() const {
    return kind == kLstm && states[0].sym_size(2) != states[1].sym_size(2);
  }
  int64_t directions() const { return bidirectional ? 2 : 1; }
  variable_list tensors() const {
    variable_list all = {input};
    all.insert(all.end(), states.begin(), states.end());
    all.insert(all.end(), weights.begin(), weights.end());
    return all;
  }
};

// at::lstm asks so, too.
bool would_run_on_onednn(const Layer& layer) {
  return layer.kind == kLstm && layer.input.scalar_type() == at::kFloat &&
         !layer.has_projections() && at::hasMKLDNN() &&
         at::globalContext().userEnabledMkldnn();
}

using Forward = std::vector<at::Tensor>(const at::Tensor&, at::TensorList,
                                        at::TensorList, int64_t, bool, int64_t,
                                        double, bool, bool, bool,
                                        at::IntArrayRef);
using Gradients = c10::List<std::optional<at::Tensor>>;
using Backward = std::vector<at::Tensor>(const at::Tensor&, const Gradients&,
                                         at::TensorList, c10::SymIntArrayRef,
                                         at::IntArrayRef, at::ScalarType);

template <class Signature>
c10::TypedOperatorHandle<Signature> find_operator(const char* name) {
  return c10::Dispatcher::singleton()
      .findSchemaOrThrow(name, "")
      .typed<Signature>();
}

constexpr const char* kForward[] = {"framejit::recurrent",
                                    "framejit::recurrent_with_dropout"};
constexpr const char* kBackward = "framejit::recurrent_backward";

// ---- the kernels

// The nodes that autograd made in one call.
struct History {
  int64_t number = 0;  // what the tensor shows
  torch::autograd::edge_list results;
  variable_list leaves;
};

void release_history(void* history) { delete static_cast<History*>(history); }

at::Tensor tensor_of(std::unique_ptr<History> history) {
  static std::atomic<int64_t> next = 1;
  history->number = next++;
  History* owned = history.release();
  c10::Storage storage(
      c10::Storage::use_byte_size_t(), sizeof(owned->number),
      c10::DataPtr(&owned->number, owned, &release_history, c10::kCPU), nullptr,
      /*resizable=*/false);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
      caffe2::TypeMeta::Make<int64_t>());
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous({1});
  return tensor;
}

// A copy has lost the nodes, and so has memory into which another was copied.
const History& history_of(const at::Tensor& tensor) {
  const c10::DataPtr& memory = tensor.storage().data_ptr();
  TORCH_CHECK(memory.get_deleter() == &release_history,
              "framejit: the history of a recurrent layer was copied");
  const auto* history = static_cast<const History*>(memory.get_context());
  TORCH_CHECK(tensor.storage_offset() == 0 &&
                  tensor.scalar_type() == at::kLong &&
                  *tensor.const_data_ptr<int64_t>() == history->number &&
                  history->number > 0,
              "framejit: the history of a recurrent layer was overwritten");
  return *history;
}

// Graphs run below autograd; what is called here makes nodes.
class WithAutograd {
 public:
  WithAutograd()
      : keys_(c10::impl::tls_local_dispatch_key_set().included_.add(
                  c10::DispatchKey::ADInplaceOrView),
              c10::impl::tls_local_dispatch_key_set().excluded_ -
                  c10::autograd_dispatch_keyset_with_ADInplaceOrView) {}

 private:
  c10::InferenceMode normal_{false};
  c10::impl::ForceDispatchKeyGuard keys_;
};

variable_list call_torch(const Layer& layer) {
  const auto& [input, states, weights, kind, has_biases, num_layers, dropout,
               train, bidirectional, on_onednn] = layer;
  auto one_state = [&](auto function) -> variable_list {
    auto [output, last] =
        function(input, states[0], weights, has_biases, num_layers, dropout,
                 train, bidirectional, /*batch_first=*/false);
    return {output, last};
  };
  switch (kind) {
    case kGru:
      return one_state([](auto&&... args) { return at::gru(args...); });
    case kRnnTanh:
      return one_state([](auto&&... args) { return at::rnn_tanh(args...); });
    case kRnnRelu:
      return one_state([](auto&&... args) { return at::rnn_relu(args...); });
    default:
      break;
  }
  auto [output, last, cell] =
      at::lstm(input, states, weights, has_biases, num_layers, dropout, train,
               bidirectional, /*batch_first=*/false);
  return {output, last, cell};
}

variable_list run_recorded(const Layer& layer, at::IntArrayRef wanted,
                           History* history) {
  // What is saved was told by which of the two it is.
  TORCH_CHECK(would_run_on_onednn(layer) == layer.on_onednn,
              "framejit: whether oneDNN is enabled has changed");
  WithAutograd with_autograd;
  variable_list given = layer.tensors();
  for (at::Tensor& tensor : given) tensor = tensor.detach();
  for (int64_t i : wanted)
    history->leaves.push_back(given.at(i).requires_grad_());
  Layer recorded = {given[0],
                    at::TensorList(given).slice(1, layer.states.size()),
                    at::TensorList(given).slice(1 + layer.states.size()),
                    layer.kind,
                    layer.has_biases,
                    layer.num_layers,
                    layer.dropout,
                    layer.train,
                    layer.bidirectional,
                    layer.on_onednn};
  variable_list results = call_torch(recorded);
  for (at::Tensor& result : results) {
    history->results.push_back(torch::autograd::impl::gradient_edge(result));
    result = result.detach();
  }
  return results;
}

std::vector<at::Tensor> run(const at::Tensor& input, at::TensorList states,
                            at::TensorList weights, int64_t kind,
                            bool has_biases, int64_t num_layers, double dropout,
                            bool train, bool bidirectional, bool on_onednn,
                            at::IntArrayRef wanted) {
  const Layer layer = {input,      states,  weights, kind,          has_biases,
                       num_layers, dropout, train,   bidirectional, on_onednn};
  auto history = std::make_unique<History>();
  variable_list results = wanted.empty()
                              ? call_torch(layer)
                              : run_recorded(layer, wanted, history.get());
  results.push_back(tensor_of(std::move(history)));
  return results;
}

variable_list run_nodes(const History& history, const Gradients& gradients) {
  torch::autograd::edge_list roots, leaves;
  variable_list given;
  for (size_t i = 0; i < history.results.size(); ++i) {
    std::optional<at::Tensor> gradient = gradients.get(i);
    if (!gradient || !gradient->defined() || !history.results[i].is_valid())
      continue;
    roots.push_back(history.results[i]);
    given.push_back(*gradient);
  }
  for (const at::Tensor& leaf : history.leaves)
    leaves.push_back(torch::autograd::impl::gradient_edge(leaf));
  if (roots.empty()) return variable_list(leaves.size());
  WithAutograd with_autograd;
  std::optional<ReleaseGil> release;
  if (PyGILState_Check()) release.emplace();
  // Who may run it again holds the history, and who may not lets it go.
  return torch::autograd::Engine::get_default_engine().execute(
      roots, given, /*keep_graph=*/true, /*create_graph=*/false,
      /*accumulate_grad=*/false, leaves);
}

std::vector<at::Tensor> run_backward(const at::Tensor& history,
                                     const Gradients& gradients,
                                     at::TensorList /*read*/,
                                     c10::SymIntArrayRef sizes,
                                     at::IntArrayRef ranks,
                                     at::ScalarType type) {
  variable_list found = run_nodes(history_of(history), gradients);
  TORCH_CHECK(found.size() == ranks.size(),
              "framejit: the history of another recurrent layer");
  size_t next = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const size_t rank = static_cast<size_t>(ranks[i]);
    at::Tensor& gradient = found[i];
    if (gradient.defined()) {
      gradient = gradient.contiguous();
    } else {
      gradient = at::zeros(C10_AS_INTARRAYREF_SLOW(sizes.slice(next, rank)),
                           at::dtype(type));
    }
    next += rank;
    auto is_shared = [&](const at::Tensor& other) {
      return other.defined() && gradient.is_alias_of(other);
    };
    bool shared = std::any_of(found.begin(), found.begin() + i, is_shared);
    for (std::optional<at::Tensor> given : gradients)
      shared |= given && is_shared(*given);
    if (shared) gradient = gradient.clone();
  }
  return found;
}

// ---- what they return

std::vector<at::Tensor> infer(const at::Tensor& input, at::TensorList states,
                              at::TensorList, int64_t, bool, int64_t, double,
                              bool, bool bidirectional, bool, at::IntArrayRef) {
  const int64_t width = states[0].size(2) * (bidirectional ? 2 : 1);
  std::vector<at::Tensor> results;
  auto add = [&](at::IntArrayRef sizes, at::ScalarType type) {
    results.emplace_back(at::detail::empty_meta(sizes, type));
  };
  add({input.size(0), input.size(1), width}, input.scalar_type());
  for (const at::Tensor& state : states)
    add(state.sizes(), input.scalar_type());
  add({1}, at::kLong);
  return results;
}

std::vector<at::Tensor> infer_backward(const at::Tensor&, const Gradients&,
                                       at::TensorList,
                                       c10::SymIntArrayRef sizes,
                                       at::IntArrayRef ranks,
                                       at::ScalarType type) {
  std::vector<at::Tensor> results;
  size_t next = 0;
  for (int64_t rank : ranks) {
    results.emplace_back(at::detail::empty_meta(
        C10_AS_INTARRAYREF_SLOW(sizes.slice(next, static_cast<size_t>(rank))),
        type));
    next += static_cast<size_t>(rank);
  }
  return results;
}

// ---- autograd

class RecurrentBackward final : public torch::autograd::Node {
 public:
  explicit RecurrentBackward(torch::autograd::edge_list&& edges)
      : Node(std::move(edges)) {}

  variable_list apply(variable_list&& gradients) override {
    std::lock_guard<std::mutex> lock(mutex_);
    TORCH_CHECK(!released_, torch::autograd::ERR_BACKWARD_TWICE);
    if (std::ranges::none_of(gradients, &at::Tensor::defined))
      return variable_list(ranks_.size());
    Gradients given;
    for (at::Tensor& gradient : gradients) {
      std::optional<at::Tensor> item;
      if (gradient.defined()) item = std::move(gradient);
      given.push_back(std::move(item));
    }
    static const auto backward = find_operator<Backward>(kBackward);
    return backward.call(history_.unpack(getptr()), given, read(), sizes_,
                         ranks_, type_);
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    history_.reset_data();
    for (SavedVariable& saved : read_) saved.reset_data();
    released_ = true;
  }

  void save(const at::Tensor& history, const variable_list& read,
            const variable_list& wanted, const at::Tensor& output) {
    history_ = SavedVariable(history, /*is_output=*/false);
    for (const at::Tensor& tensor : read)
      read_.emplace_back(tensor, tensor.is_same(output));
    for (const at::Tensor& tensor : wanted) {
      ranks_.push_back(tensor.dim());
      for (const c10::SymInt& size : tensor.sym_sizes()) sizes_.push_back(size);
    }
    type_ = output.scalar_type();
  }
  variable_list saved() {
    std::lock_guard<std::mutex> lock(mutex_);
    variable_list all = read();
    all.push_back(history_.unpack(getptr()));
    return all;
  }
  std::string name() const override { return "FrameJitRecurrentBackward"; }

 private:
  variable_list read() {
    variable_list tensors;
    for (const SavedVariable& saved : read_)
      tensors.push_back(saved.unpack(getptr()));
    return tensors;
  }

  std::mutex mutex_;
  bool released_ = false;
  SavedVariable history_;
  std::vector<SavedVariable> read_;
  std::vector<c10::SymInt> sizes_;
  std::vector<int64_t> ranks_;
  at::ScalarType type_ = at::kFloat;
};

// What eager's nodes save of the arguments. Those of oneDNN's layers save all
// that they are given, and what they return; others the factors of products
// of which a gradient is wanted.
variable_list saved_arguments(const Layer& layer) {
  variable_list saved;
  const auto directions = static_cast<size_t>(layer.directions());
  const size_t each =
      layer.weights.size() / directions / static_cast<size_t>(layer.num_layers);
  bool input_weights = false, state_weights = false;
  for (size_t i = 0; i < layer.weights.size(); ++i) {
    const bool requires_grad = layer.weights[i].requires_grad();
    if (i % each == 0 && i < directions * each) input_weights |= requires_grad;
    if (i % each == 1) state_weights |= requires_grad;
  }
  // A copy is saved of an input that lies otherwise.
  if ((layer.on_onednn || input_weights) && layer.input.is_contiguous())
    saved.push_back(layer.input);
  for (size_t i = 0; i < layer.states.size(); ++i)
    if (layer.on_onednn || i > 0 || state_weights)
      saved.push_back(layer.states[i]);
  for (size_t i = 0; i < layer.weights.size(); ++i) {
    const bool is_first = i < directions * each;
    const bool is_bias = layer.has_biases && (i % each == 2 || i % each == 3);
    if (layer.on_onednn || (!is_bias && (i % each != 0 || !is_first ||
                                         layer.input.requires_grad())))
      saved.push_back(layer.weights[i]);
  }
  return saved;
}

// Nothing is said of second derivatives and of tangents.
void check_differentiable(const variable_list& tensors) {
  for (const at::Tensor& tensor : tensors)
    TORCH_CHECK_NOT_IMPLEMENTED(
        !tensor._fw_grad(/*level=*/0).defined(),
        "FrameJIT: a recurrent layer of any length in forward mode");
}

template <int which>
std::vector<at::Tensor> differentiable(
    const at::Tensor& input, at::TensorList states, at::TensorList weights,
    int64_t kind, bool has_biases, int64_t num_layers, double dropout,
    bool train, bool bidirectional, bool, at::IntArrayRef) {
  static const auto forward = find_operator<Forward>(kForward[which]);
  Layer layer = {input,      states,  weights, kind,          has_biases,
                 num_layers, dropout, train,   bidirectional, false};
  layer.on_onednn = would_run_on_onednn(layer);
  const variable_list tensors = layer.tensors();
  check_differentiable(tensors);
  std::vector<int64_t> wanted;
  variable_list leaves;
  for (size_t i = 0; c10::GradMode::is_enabled() && i < tensors.size(); ++i) {
    if (!tensors[i].requires_grad()) continue;
    wanted.push_back(static_cast<int64_t>(i));
    leaves.push_back(tensors[i]);
  }
  std::vector<at::Tensor> results;
  {
    at::AutoDispatchBelowADInplaceOrView below;
    results =
        forward.call(input, states, weights, kind, has_biases, num_layers,
                     dropout, train, bidirectional, layer.on_onednn, wanted);
  }
  if (wanted.empty()) return results;
  auto node =
      make_node<RecurrentBackward>(torch::autograd::collect_next_edges(leaves));
  for (size_t i = 0; i + 1 < results.size(); ++i)
    torch::autograd::set_history(results[i], node);
  variable_list read = saved_arguments(layer);
  if (layer.on_onednn && !bidirectional) read.push_back(results[0]);
  node->save(results.back(), read, leaves, results[0]);
  return results;
}

std::vector<at::Tensor> differentiable_backward(
    const at::Tensor& history, const Gradients& gradients, at::TensorList read,
    c10::SymIntArrayRef sizes, at::IntArrayRef ranks, at::ScalarType type) {
  bool differentiated = false;
  for (std::optional<at::Tensor> gradient : gradients)
    differentiated |= gradient && gradient->requires_grad();
  for (const at::Tensor& tensor : read)
    differentiated |= tensor.requires_grad();
  TORCH_CHECK_NOT_IMPLEMENTED(
      !differentiated || !c10::GradMode::is_enabled(),
      "FrameJIT: second derivatives of a recurrent layer of any length");
  static const auto backward = find_operator<Backward>(kBackward);
  at::AutoDispatchBelowADInplaceOrView below;
  return backward.call(history, gradients, read, sizes, ranks, type);
}

}  // namespace

void register_recurrent_operators() {
  static bool registered = false;
  if (registered) return;
  registered = true;
  // Kept for the life of the process, like the fallback on Fake.
  static auto* library = new torch::Library(torch::Library::DEF, "framejit",
                                            std::nullopt, __FILE__, __LINE__);
  const std::string arguments =
      "(Tensor input, Tensor[] states, Tensor[] weights, int kind, "
      "bool has_biases, int num_layers, float dropout, bool train, "
      "bool bidirectional, bool on_onednn, int[] wanted) -> Tensor[]";
  library->def(torch::schema(("recurrent" + arguments).c_str()));
  library->def(torch::schema(("recurrent_with_dropout" + arguments).c_str()),
               {at::Tag::nondeterministic_seeded});
  library->def(
      "recurrent_backward(Tensor history, Tensor?[] gradients, Tensor[] read, "
      "SymInt[] sizes, int[] ranks, ScalarType dtype) -> Tensor[]");
  for (const char* name : {"recurrent", "recurrent_with_dropout"}) {
    library->impl(name, torch::dispatch(c10::DispatchKey::CPU, &run));
    library->impl(name, torch::dispatch(c10::DispatchKey::Meta, &infer));
  }
  library->impl("recurrent", torch::dispatch(c10::DispatchKey::Autograd,
                                             &differentiable<0>));
  library->impl(
      "recurrent_with_dropout",
      torch::dispatch(c10::DispatchKey::Autograd, &differentiable<1>));
  library->impl("recurrent_backward",
                torch::dispatch(c10::DispatchKey::CPU, &run_backward));
  library->impl("recurrent_backward",
                torch::dispatch(c10::DispatchKey::Meta, &infer_backward));
  library->impl(
      "recurrent_backward",
      torch::dispatch(c10::DispatchKey::Autograd, &differentiable_backward));
}

std::vector<at::Tensor> saved_by_recurrent(
    const NodePtr<torch::autograd::Node>& node) {
  auto* ours = dynamic_cast<RecurrentBackward*>(node.get());
  return ours ? ours->saved() : std::vector<at::Tensor>();
}

}  // namespace framejit::graph
