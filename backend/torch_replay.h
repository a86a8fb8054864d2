// TorchReplay: the backward of one call, by torch's own autograd.
//
// The captured torch calls run again on the inputs of the call, in the state of
// the thread and of the random generator in which it ran, and are
// differentiated by the engine. Slower than a compiled backward and always
// right: for gradients that are to be differentiated themselves (create_graph),
// for batched ones (vmap over a backward) and under modes that want to see each
// operation, and where a compiled backward cannot be had.
//
// Each input is an alias whose history is a node of ours that leads to the
// input's own: gradients stop there first and go on to the input later, and no
// hook of an input is called twice. Inputs the graph writes to are copies. The
// alias of a leaf is one, so that the program may change whether it requires
// grad; when that is over, it does if the input itself does by now, whom the
// function or its caller may have made a leaf since.
//
// The other end is treated likewise. Where an operator saved what it gave
// (exp), a gradient that is to be differentiated itself depends on an output,
// and the program has that of the call: once the replay has been
// differentiated, what comes to an output that was computed again goes on to
// the call's own.
#pragma once

#include <c10/core/DefaultDtype.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "backend/freed_nodes.h"
#include "backend/rng_state.h"
#include "backend/torch_executor.h"
#include "frame_hook/dispatch.h"
#include "graph/ir/torch_graph.h"
#include "graph/tracing/ambient_state.h"

namespace framejit::backend {

// The modes, transforms and hooks of this thread see nothing for a scope.
class WithoutModes {
 public:
  WithoutModes();
  ~WithoutModes();
  WithoutModes(const WithoutModes&) = delete;
  WithoutModes& operator=(const WithoutModes&) = delete;

  // Would one of them see an operator?
  static bool any();

 private:
  struct Saved;
  std::unique_ptr<Saved> saved_;
};

// What a call was given, by graph input.
struct ReplayedCall {
  // Undefined: a symbol, or a tensor whose content nothing depends on.
  std::vector<at::Tensor> inputs;
  // Where the gradient goes; invalid: the input does not require grad, not even
  // by now.
  std::vector<torch::autograd::Edge> edges;
  // The histories of the call's own outputs, of those that gradients pass;
  // invalid: nobody holds the output.
  torch::autograd::edge_list own_outputs;
  const int64_t* symbols = nullptr;
  RngState::States random_states;  // none: the graph draws no numbers
  EagerNodes eager_nodes;
};

// A call that was run again, with a history that is cut at its outputs: the
// gradient of one stops at the outputs it passes through next. Without the GIL.
class CutReplay {
 public:
  using variable_list = torch::autograd::variable_list;
  // The gradients that come of one output's to the outputs next behind it.
  // Both by their place among the outputs that it was cut at.
  variable_list to_outputs(size_t from, const at::Tensor& gradient,
                           const std::vector<int>& behind) const;
  // tangents: all that came to each output; undefined: nothing. Parts of a
  // call ask one after the other.
  variable_list to_inputs(const variable_list& tangents,
                          const std::vector<int>& wanted) const;
  // No part will be differentiated any more, and its gradients may be: what
  // comes to an output from now on goes on to the call's own. Once.
  // own_outputs: as in ReplayedCall.
  void hand_on(const torch::autograd::edge_list& own_outputs) const;

 private:
  friend class TorchReplay;
  torch::autograd::edge_list outputs_, cuts_, inputs_;
  NodeCount made_;
  EagerNodes eager_nodes_;
  struct Progress {
    std::atomic<int> closed{0};  // above 0 while parts are differentiated
    std::atomic<bool> handed_on{false};
  };
  std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
};

class TorchReplay {
 public:
  // In the state of the thread that the graph was captured in, with the GIL.
  // The owner may die without it.
  static std::shared_ptr<const TorchReplay> make(
      std::shared_ptr<const graph::TorchGraph> graph);

  // The gradients of `wanted` graph inputs for the tangents of these outputs
  // (undefined, or none for the last: not used). The tangents may be batched,
  // or have a history; with grad mode on the gradients have one. Throws what
  // the program would. history: receives where each output's gradient begins in
  // what was run again.
  torch::autograd::variable_list differentiate(
      const ReplayedCall& call, const std::vector<int>& outputs,
      const torch::autograd::variable_list& tangents,
      const std::vector<int>& wanted,
      torch::autograd::edge_list* history = nullptr) const;
  // outputs: those that require grad. refuse: raises; a hook differentiates a
  // gradient before CutReplay::hand_on(), when it would not lead to outputs.
  std::shared_ptr<const CutReplay> cut(const ReplayedCall& call,
                                       const std::vector<int>& outputs,
                                       std::function<void()> refuse) const;
  // The program's own functions and hooks take part in the backward: what they
  // make of two gradients need not be what they make of the sum.
  bool may_be_nonlinear() const { return may_be_nonlinear_; }
  // Some formulas make tensors of the default dtype: is it the one that the
  // graph was captured with?
  bool has_default_dtype() const {
    return c10::get_default_dtype_as_scalartype() == default_dtype_;
  }

  const graph::TorchGraph& graph() const { return *graph_; }

 private:
  friend class ForwardState;
  explicit TorchReplay(std::shared_ptr<const graph::TorchGraph> graph);
  struct Inputs;
  Inputs make_inputs(const ReplayedCall& call) const;
  std::vector<Ref> run(const ReplayedCall& call, const Inputs& inputs,
                       NodeCount* made) const;

  std::shared_ptr<const graph::TorchGraph> graph_;
  graph::AmbientState state_ = graph::AmbientState::now();
  c10::ScalarType default_dtype_ = c10::get_default_dtype_as_scalartype();
  bool may_be_nonlinear_ = false;
  mutable TorchLevel executor_;
};

// The state of the thread in which a graph was captured, for a scope.
class ForwardState {
 public:
  // random_states: none to leave the generators alone.
  ForwardState(const TorchReplay& replay,
               const RngState::States& random_states);
  ~ForwardState();
  ForwardState(const ForwardState&) = delete;
  ForwardState& operator=(const ForwardState&) = delete;

 private:
  WithoutModes without_modes_;
  graph::AmbientState before_ = graph::AmbientState::now();
  caffe2::TypeMeta default_dtype_;
  RngState random_;
};

}  // namespace framejit::backend
