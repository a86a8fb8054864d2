#include "backend/torch_replay.h"

#include <ATen/FuncTorchTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <unordered_set>

#include "frame_hook/frame_eval.h"
#include "graph/tensors/libtorch_private.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/tensor_check.h"
#include "graph/tracing/gradient_link.h"

namespace framejit::backend {

using graph::Graph;
using graph::TorchGraph;
using graph::Value;
using torch::autograd::Edge;
using torch::autograd::edge_list;
using AutogradNode = torch::autograd::Node;
using torch::autograd::variable_list;

namespace {

// The gradient that passes a node on this thread, between its two hooks.
thread_local at::Tensor passing;

class TakeGradient final : public torch::autograd::FunctionPreHook {
 public:
  variable_list operator()(const variable_list& gradients) override {
    passing = gradients.at(0);
    return variable_list(gradients.size());
  }
};

class GiveGradient final : public torch::autograd::FunctionPostHook {
 public:
  variable_list operator()(const variable_list& outputs,
                           const variable_list& /*inputs*/) override {
    variable_list results(outputs.size());
    results.at(0) = std::exchange(passing, at::Tensor());
    return results;
  }
};

// Behind a node with several results, of which some are outputs: what came to
// those goes on to the call's own, what the node makes of the others to where
// it led.
class LeadOn final : public AutogradNode {
 public:
  LeadOn(Edge rest, const edge_list& own) {
    if (rest.is_valid())
      input_metadata_.push_back(rest.function->input_metadata(rest.input_nr));
    else
      add_input_metadata(undefined_input());
    add_next_edge(std::move(rest));
    for (const Edge& edge : own) add_next_edge(edge);
  }
  void take(variable_list gradients) {
    const int task = torch::autograd::get_current_graph_task_id();
    std::lock_guard<std::mutex> lock(taken_mutex_);
    taken_[task] = std::move(gradients);
  }
  variable_list apply(variable_list&& grads) override {
    const int task = torch::autograd::get_current_graph_task_id();
    variable_list results{std::move(grads.at(0))};
    std::lock_guard<std::mutex> lock(taken_mutex_);
    auto taken = taken_.extract(task);
    if (taken)
      for (at::Tensor& gradient : taken.mapped())
        results.push_back(std::move(gradient));
    results.resize(num_outputs());
    return results;
  }
  std::string name() const override { return "FrameJitLeadOn"; }

 private:
  std::mutex taken_mutex_;
  std::map<int, variable_list> taken_;  // by the engine's number
};

class TakeResults final : public torch::autograd::FunctionPreHook {
 public:
  TakeResults(const graph::NodePtr<LeadOn>& next, std::vector<uint32_t> results)
      : next_(next), results_(std::move(results)) {}
  variable_list operator()(const variable_list& gradients) override {
    variable_list rest = gradients, taken;
    for (uint32_t result : results_)
      taken.push_back(std::exchange(rest.at(result), at::Tensor()));
    if (auto next = next_.lock()) next->take(std::move(taken));
    return rest;
  }

 private:
  const graph::WeakNodePtr<LeadOn> next_;
  const std::vector<uint32_t> results_;
};

// From here on, what comes to an output that was computed again goes on to the
// call's own, whose history it is: the node of the replay, which operators that
// saved the output know as its history, does nothing else any more, but for
// results that are no outputs.
struct Lead {
  AutogradNode* node;
  std::vector<uint32_t> results;
  edge_list own;
  bool is_for_all() const { return results.size() == node->num_inputs(); }
};

void lead_on(const Lead& lead) {
  AutogradNode* node = lead.node;
  edge_list edges(node->num_outputs());
  if (node->num_inputs() == 1) {
    edges.at(0) = lead.own.at(0);
    node->add_pre_hook(std::make_unique<TakeGradient>());
    node->add_post_hook(std::make_unique<GiveGradient>());
  } else {
    auto next = graph::make_node<LeadOn>(
        lead.is_for_all() ? Edge() : node->next_edge(0), lead.own);
    node->add_pre_hook(std::make_unique<TakeResults>(next, lead.results));
    edges.at(0) = {std::move(next), 0};
  }
  node->next_edges() = std::move(edges);
}

// An input of the call, seen from the replayed graph.
class ReplayedInput final : public AutogradNode {
 public:
  // What is computed of it may lead to the call's own outputs, too. Autograd
  // prunes by the length of what is behind a node: it is none of the shorter.
  ReplayedInput(edge_list&& edges, uint64_t outputs_topological_nr)
      : AutogradNode(std::move(edges)) {
    topological_nr_ = std::max(topological_nr_, outputs_topological_nr);
  }
  variable_list apply(variable_list&& grads) override {
    return std::move(grads);
  }
  std::string name() const override { return "FrameJitInput"; }
};

// A tensor knows where its gradient accumulates weakly.
class HoldNode final : public torch::autograd::FunctionPreHook {
 public:
  explicit HoldNode(graph::NodePtr<AutogradNode> node)
      : node_(std::move(node)) {}
  variable_list operator()(const variable_list& gradients) override {
    return gradients;
  }

 private:
  graph::NodePtr<AutogradNode> node_;
};

// A leaf whose gradient goes to a node of ours while it requires grad.
void become_leaf_of(const at::Tensor& tensor,
                    const graph::NodePtr<AutogradNode>& node) {
  node->add_input_metadata(tensor);
  torch::autograd::impl::set_grad_accumulator(
      tensor, graph::WeakNodePtr<AutogradNode>(node));
  torch::autograd::impl::add_hook(tensor, std::make_unique<HoldNode>(node));
}

// Torch's own node of a leaf finds the hooks there.
void take_hooks(const at::Tensor& tensor,
                const graph::NodePtr<AutogradNode>& node) {
  for (auto& hook : torch::autograd::impl::hooks(tensor)) {
    if (!dynamic_cast<HoldNode*>(hook.get()))
      node->add_tensor_pre_hook(std::move(hook));
  }
  torch::autograd::impl::clear_hooks(tensor);
  torch::autograd::impl::add_hook(tensor, std::make_unique<HoldNode>(node));
}

[[noreturn]] void throw_python_error() {
  python_error error;
  error.persist();  // it may cross threads on its way out of the engine
  throw error;
}

c10::DispatchKeySet keys_of_modes() {
  using c10::DispatchKey;
  return c10::DispatchKeySet({DispatchKey::Python,
                              DispatchKey::PythonTLSSnapshot,
                              DispatchKey::FuncTorchDynamicLayerFrontMode,
                              DispatchKey::FuncTorchDynamicLayerBackMode,
                              DispatchKey::FuncTorchVmapMode,
                              DispatchKey::VmapMode, DispatchKey::Tracer});
}

// Some tensor of these sizes: nothing depends on what is in it.
at::Tensor zeros_for(const graph::TensorMeta& meta, const int64_t* symbols) {
  std::vector<int64_t> sizes, strides;
  for (const Expr& size : meta.sizes) sizes.push_back(size.evaluate(symbols));
  for (const Expr& stride : meta.strides)
    strides.push_back(stride.evaluate(symbols));
  return at::empty_strided(
             sizes, strides,
             at::TensorOptions().dtype(meta.dtype).device(meta.device))
      .zero_();
}

// One with several inputs computes for all of them at once; views of one tensor
// (unbind) are independent.
bool can_lead_on(const Edge& replayed, const Edge& own) {
  return own.is_valid() && replayed.is_valid() &&
         replayed.function->num_outputs() > 0 &&
         (replayed.function->num_inputs() == 1 ||
          replayed.function->num_outputs() == 1) &&
         !dynamic_cast<ReplayedInput*>(replayed.function.get()) &&
         replayed.function->post_hooks().empty();
}

// The replay has been differentiated. places: of its outputs.
void hand_on(const edge_list& places, const edge_list& own_outputs,
             const NodeCount& made, const EagerNodes& nodes) {
  std::map<AutogradNode*, Lead> leads;
  for (size_t i = 0; i < places.size(); ++i) {
    if (!can_lead_on(places[i], own_outputs.at(i))) continue;
    AutogradNode* node = places[i].function.get();
    Lead& lead = leads.try_emplace(node, Lead{node, {}, {}}).first->second;
    const uint32_t result = places[i].input_nr;
    if (std::count(lead.results.begin(), lead.results.end(), result)) continue;
    lead.results.push_back(result);
    lead.own.push_back(own_outputs[i]);
  }
  edge_list leave;  // the call's own outputs know of those
  for (const Edge& place : places) {
    auto lead = leads.find(place.function.get());
    if (lead != leads.end() && lead->second.is_for_all())
      leave.push_back(place);
  }
  free_together(places, leave, made, nodes);
  for (const auto& [node, lead] : leads) lead_on(lead);
}

// Null: it has a history.
const torch::autograd::AccumulateGrad* leaf_of(const Edge& edge) {
  return dynamic_cast<torch::autograd::AccumulateGrad*>(edge.function.get());
}

}  // namespace

struct WithoutModes::Saved {
  c10::impl::LocalDispatchKeySet keys = c10::impl::tls_local_dispatch_key_set();
  at::impl::SavedTensorDefaultHooksTLS hooks =
      at::SavedTensorDefaultHooks::get_tls_state();
  c10::impl::TorchDispatchModeTLS dispatch_modes =
      c10::impl::TorchDispatchModeTLS::get_state();
  std::unique_ptr<at::functorch::FuncTorchTLSBase> transforms =
      std::move(at::functorch::functorchTLSAccessor());
};

WithoutModes::WithoutModes() : saved_(std::make_unique<Saved>()) {
  at::SavedTensorDefaultHooks::set_tls_state({});
  c10::impl::TorchDispatchModeTLS::set_state({});
  auto keys = saved_->keys;
  keys.included_ = keys.included_ - keys_of_modes();
  c10::impl::_force_tls_local_dispatch_key_set(keys);
}

WithoutModes::~WithoutModes() {
  c10::impl::_force_tls_local_dispatch_key_set(saved_->keys);
  c10::impl::TorchDispatchModeTLS::set_state(std::move(saved_->dispatch_modes));
  at::SavedTensorDefaultHooks::set_tls_state(saved_->hooks);
  at::functorch::functorchTLSAccessor() = std::move(saved_->transforms);
}

bool WithoutModes::any() {
  static const c10::DispatchKeySet keys = keys_of_modes();
  return c10::impl::tls_local_dispatch_key_set().included_.has_any(keys);
}

ForwardState::ForwardState(const TorchReplay& replay,
                           const RngState::States& random_states)
    : default_dtype_(c10::get_default_dtype()) {
  if (!random_states.empty()) {
    random_.save(replay.graph().random_devices);
    RngState::set(random_states);
  }
  c10::set_default_dtype(c10::scalarTypeToTypeMeta(replay.default_dtype_));
  replay.state_.restore();
}

ForwardState::~ForwardState() {
  before_.restore();
  c10::set_default_dtype(default_dtype_);
  try {
    random_.restore();
  } catch (...) {  // a generator refuses no state of its own
  }
}

TorchReplay::TorchReplay(std::shared_ptr<const TorchGraph> graph)
    : graph_(graph), executor_(std::move(graph)) {
  for (const auto& node : graph_->graph->block().nodes)
    may_be_nonlinear_ |= graph::is_gradient_link(node->callable.get());
}

std::shared_ptr<const TorchReplay> TorchReplay::make(
    std::shared_ptr<const TorchGraph> graph) {
  return {new TorchReplay(std::move(graph)), [](const TorchReplay* dead) {
            if (!Py_IsInitialized()) return;
            graph::HoldGil gil;
            ErrorGuard error;
            delete dead;
          }};
}

struct TorchReplay::Inputs {
  std::vector<at::Tensor> tensors;
  // Null: that one is no leaf.
  std::vector<graph::NodePtr<AutogradNode>> leaves;

  // Of a leaf that does not require grad by now, too: hooks see its gradient.
  Edge place_of(size_t input) const {
    if (leaves.at(input)) return {leaves[input], 0};
    const at::Tensor& tensor = tensors.at(input);
    return tensor.defined() && tensor.requires_grad()
               ? torch::autograd::impl::gradient_edge(tensor)
               : Edge();
  }
};

TorchReplay::Inputs TorchReplay::make_inputs(const ReplayedCall& call) const {
  const Graph& source = *graph_->graph;
  const auto& written = graph_->mutated_inputs;
  Inputs made;
  std::vector<at::Tensor>& inputs = made.tensors;
  inputs.resize(source.inputs.size());
  made.leaves.resize(inputs.size());
  uint64_t outputs_topological_nr = 0;
  for (const Edge& own : call.own_outputs) {
    if (own.is_valid())
      outputs_topological_nr =
          std::max(outputs_topological_nr, own.function->topological_nr());
  }
  c10::AutoGradMode no_grad(false);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (graph_->input_objects[i] < 0) continue;  // a symbol
    at::Tensor& input = inputs[i];
    if (!call.inputs[i].defined())
      input = zeros_for(source.inputs[i]->meta, call.symbols);
    else if (std::count(written.begin(), written.end(), int(i)))
      input = call.inputs[i].clone();
    else
      input = call.inputs[i].detach();
    if (!call.edges[i].is_valid()) {
      // No gradient comes back to it, and yet the program may ask for one.
      if (source.inputs[i]->meta.requires_grad) input.set_requires_grad(true);
      continue;
    }
    auto node = graph::make_node<ReplayedInput>(edge_list{call.edges[i]},
                                                outputs_topological_nr);
    if (leaf_of(call.edges[i])) {
      input.set_requires_grad(source.inputs[i]->meta.requires_grad);
      become_leaf_of(input, node);
      made.leaves[i] = std::move(node);
    } else {
      torch::autograd::set_history(input, std::move(node));
    }
  }
  return made;
}

std::vector<Ref> TorchReplay::run(const ReplayedCall& call, const Inputs& made,
                                  NodeCount* count) const {
  const std::vector<at::Tensor>& inputs = made.tensors;
  Executor* executor = executor_.get();
  TORCH_CHECK(executor, "framejit: a captured graph cannot be replayed");
  int num_objects = 0;
  for (int object : graph_->input_objects)
    num_objects = std::max(num_objects, object + 1);
  std::vector<Ref> kept;
  std::vector<PyObject*> objects(num_objects, nullptr);
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (graph_->input_objects[i] < 0) continue;
    kept.push_back(graph::wrap_tensor(inputs[i]));
    if (!kept.back()) throw_python_error();
    objects[graph_->input_objects[i]] = kept.back().get();
  }
  std::vector<PyObject*> outputs(graph_->graph->outputs.size(), nullptr);
  PauseHook pause;
  *count = NodeCount();
  if (executor->run(objects.data(), call.symbols, outputs.data()) !=
      RunStatus::kOk)
    throw_python_error();
  count->stop();
  std::vector<Ref> results;
  for (PyObject* output : outputs) results.push_back(Ref::steal(output));
  // What the operators saved is the tensor itself: to those that are
  // differentiated it is what it has become.
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!made.leaves[i]) continue;
    take_hooks(inputs[i], made.leaves[i]);
    inputs[i].set_requires_grad(
        leaf_of(call.edges[i])->variable.requires_grad());
  }
  return results;
}

variable_list TorchReplay::differentiate(const ReplayedCall& call,
                                         const std::vector<int>& outputs,
                                         const variable_list& tangents,
                                         const std::vector<int>& wanted,
                                         edge_list* history) const {
  const bool create_graph = c10::GradMode::is_enabled();
  edge_list roots, ends;
  variable_list root_tangents;
  edge_list places;
  NodeCount made;
  {
    graph::HoldGil gil;
    ForwardState state(*this, call.random_states);
    const Inputs inputs = make_inputs(call);
    std::vector<Ref> results = run(call, inputs, &made);
    for (size_t i = 0; i < outputs.size(); ++i) {
      PyObject* object = results.at(outputs[i]).get();
      TORCH_CHECK(graph::is_tensor_object(object),
                  "framejit: a replayed graph gave something else");
      const at::Tensor& output = graph::unpack_tensor(object);
      const Edge place = torch::autograd::impl::gradient_edge(output);
      if (history) history->push_back(place);
      places.push_back(place);
      if (i >= tangents.size() || !output.requires_grad() ||
          !tangents[i].defined())
        continue;
      roots.push_back(place);
      root_tangents.push_back(tangents[i]);
    }
    for (int input : wanted) ends.push_back(inputs.place_of(input));
  }
  if (roots.empty() || ends.empty()) return variable_list(wanted.size());
  variable_list gradients =
      torch::autograd::Engine::get_default_engine().execute(
          roots, root_tangents, /*keep_graph=*/create_graph, create_graph,
          /*accumulate_grad=*/false, ends);
  if (!create_graph) return gradients;
  // Where the program's own functions take part, the outputs get the replay's
  // history instead.
  if (may_be_nonlinear_)
    free_together(places, {}, made, call.eager_nodes);
  else
    hand_on(places, call.own_outputs, made, call.eager_nodes);
  return gradients;
}

namespace {

// Where a gradient that comes to an output stops while the replay that it
// belongs to is differentiated in parts. Behind that it leads on: gradients
// that are differentiated again have this history.
class CutNode final : public torch::autograd::Node {
 public:
  CutNode(torch::autograd::Edge behind, std::function<bool()> is_closed)
      : AutogradNode(edge_list{std::move(behind)}),
        is_closed_(std::move(is_closed)) {}
  variable_list apply(variable_list&& grads) override {
    if (is_closed_()) return variable_list(num_outputs());
    return std::move(grads);
  }
  std::string name() const override { return "FrameJitCut"; }

 private:
  const std::function<bool()> is_closed_;
};

// At the outputs of a replay that does not lead to the call's own yet.
class RefuseEarly final : public torch::autograd::FunctionPreHook {
 public:
  RefuseEarly(std::function<bool()> is_early, std::function<void()> refuse)
      : is_early_(std::move(is_early)), refuse_(std::move(refuse)) {}
  variable_list operator()(const variable_list& gradients) override {
    if (is_early_()) refuse_();
    return gradients;
  }

 private:
  const std::function<bool()> is_early_;
  const std::function<void()> refuse_;
};

// The edges that lead to these places lead to the cuts instead.
void cut_history(const edge_list& outputs, const edge_list& cuts) {
  std::map<std::pair<AutogradNode*, uint32_t>, torch::autograd::Edge> places;
  std::unordered_set<AutogradNode*> seen;
  std::vector<AutogradNode*> open;
  auto visit = [&](AutogradNode* node) {
    // Behind an input is the history of the program's own.
    if (node && !dynamic_cast<ReplayedInput*>(node) && seen.insert(node).second)
      open.push_back(node);
  };
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].is_valid()) continue;
    places[{outputs[i].function.get(), outputs[i].input_nr}] = cuts[i];
    visit(outputs[i].function.get());
  }
  while (!open.empty()) {
    AutogradNode* node = open.back();
    open.pop_back();
    for (auto& edge : node->next_edges()) {
      auto cut = places.find({edge.function.get(), edge.input_nr});
      if (cut != places.end())
        edge = cut->second;
      else
        visit(edge.function.get());
    }
  }
}

// Keeps the cuts closed.
class Closed {
 public:
  explicit Closed(std::atomic<int>& count) : count_(count) { ++count_; }
  ~Closed() { --count_; }
  Closed(const Closed&) = delete;
  Closed& operator=(const Closed&) = delete;

 private:
  std::atomic<int>& count_;
};

}  // namespace

std::shared_ptr<const CutReplay> TorchReplay::cut(
    const ReplayedCall& call, const std::vector<int>& outputs,
    std::function<void()> refuse) const {
  auto made = std::make_shared<CutReplay>();
  made->eager_nodes_ = call.eager_nodes;
  auto is_closed = [progress = made->progress_] {
    return progress->closed.load(std::memory_order_acquire) > 0;
  };
  auto is_early = [progress = made->progress_, is_closed] {
    return !progress->handed_on.load(std::memory_order_acquire) && !is_closed();
  };
  {
    graph::HoldGil gil;
    ForwardState state(*this, call.random_states);
    const Inputs inputs = make_inputs(call);
    std::vector<Ref> results = run(call, inputs, &made->made_);
    for (int output : outputs) {
      PyObject* object = results.at(output).get();
      TORCH_CHECK(graph::is_tensor_object(object),
                  "framejit: a replayed graph gave something else");
      const at::Tensor& tensor = graph::unpack_tensor(object);
      if (!tensor.grad_fn()) {
        made->outputs_.emplace_back();
        made->cuts_.emplace_back();
        continue;
      }
      made->outputs_.push_back(torch::autograd::impl::gradient_edge(tensor));
      tensor.grad_fn()->add_pre_hook(
          std::make_unique<RefuseEarly>(is_early, refuse));
      auto cut = graph::make_node<CutNode>(made->outputs_.back(), is_closed);
      made->cuts_.emplace_back(cut, cut->add_input_metadata(tensor));
    }
    for (size_t i = 0; i < inputs.tensors.size(); ++i)
      made->inputs_.push_back(inputs.place_of(i));
  }
  cut_history(made->outputs_, made->cuts_);
  return made;
}

variable_list CutReplay::to_outputs(size_t from, const at::Tensor& gradient,
                                    const std::vector<int>& behind) const {
  variable_list results(behind.size());
  if (!outputs_.at(from).is_valid()) return results;
  edge_list wanted;
  std::vector<size_t> places;
  for (size_t i = 0; i < behind.size(); ++i) {
    if (!cuts_.at(behind[i]).is_valid()) continue;
    wanted.push_back(cuts_[behind[i]]);
    places.push_back(i);
  }
  if (wanted.empty()) return results;
  const bool create_graph = c10::GradMode::is_enabled();
  const Closed closed(progress_->closed);
  variable_list found = torch::autograd::Engine::get_default_engine().execute(
      {outputs_[from]}, {gradient}, /*keep_graph=*/true, create_graph,
      /*accumulate_grad=*/false, wanted);
  for (size_t i = 0; i < places.size(); ++i)
    results[places[i]] = std::move(found[i]);
  return results;
}

variable_list CutReplay::to_inputs(const variable_list& tangents,
                                   const std::vector<int>& wanted) const {
  edge_list roots, leaves;
  variable_list gradients, results(wanted.size());
  std::vector<size_t> places;
  for (size_t i = 0; i < tangents.size(); ++i) {
    if (!tangents[i].defined() || !outputs_.at(i).is_valid()) continue;
    roots.push_back(outputs_[i]);
    gradients.push_back(tangents[i]);
  }
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!inputs_.at(wanted[i]).is_valid()) continue;
    leaves.push_back(inputs_[wanted[i]]);
    places.push_back(i);
  }
  if (roots.empty() || leaves.empty()) return results;
  const bool create_graph = c10::GradMode::is_enabled();
  const Closed closed(progress_->closed);
  variable_list found = torch::autograd::Engine::get_default_engine().execute(
      roots, gradients, /*keep_graph=*/true, create_graph,
      /*accumulate_grad=*/false, leaves);
  for (size_t i = 0; i < places.size(); ++i)
    results[places[i]] = std::move(found[i]);
  return results;
}

void CutReplay::hand_on(const edge_list& own_outputs) const {
  if (progress_->handed_on.exchange(true)) return;
  backend::hand_on(outputs_, own_outputs, made_, eager_nodes_);
}

}  // namespace framejit::backend
