// From the torch-level graph to ATen forward and backward graphs.
//
// trace_joint replays a TorchGraph on functional wrappers over trace tensors,
// under real C++ autograd: the forward part is what reaches the Fake key during
// the replay, the backward part what the autograd engine dispatches for
// symbolic tangents. partition() then splits the joint graph by a minimum cut
// over the bytes that must be kept, recomputing cheap operations.
//
// Gradients flow only through outputs that were used, and only to inputs that
// were asked for: what that means to a formula (zeros, nothing, another
// formula) is decided by the engine. So the backward of another *pattern* is
// traced from the torch level again, under the engine, and partition_backward()
// cuts it where the forward of the first trace was cut: the same values are
// saved for all.
#pragma once

#include <optional>

#include "graph/ir/torch_graph.h"
#include "graph/joint/value_numbers.h"
#include "graph/joint/view_chain.h"
#include "graph/tracing/ambient_state.h"

namespace framejit::graph {

// What one user output is, beyond its value.
struct OutputInfo {
  enum class Alias : uint8_t {
    kNone,
    kInput,        // is input `base` itself
    kViewOfInput,  // a view of input `base`
    kOutput,       // the same tensor as, or a view of, output `base`
  };
  Alias alias = Alias::kNone;
  int base = -1;
  bool requires_grad = false;
  // The graph ran its backward and freed it: another one raises.
  bool spent = false;
  bool is_tensor = true;  // false: a symbolic int
  uint32_t writes = 0;    // how often the program wrote to it: its version

  // kViewOfInput, kOutput: how the caller makes it of `base`, outside of the
  // graph (which has no value for it): by these operations, or where there are
  // none by its strides. `remade` false: that cannot be said.
  bool remade = false;
  std::vector<ViewStep> views;
  std::vector<Expr> sizes, strides;
  Expr offset;  // from the first element of the base
  bool detached = false;
  // Of all the writes to that memory, those before the view was made: a newer
  // one makes autograd ask the base for the view's history again.
  uint32_t writes_before = 0;
  // In this grad mode, which decides whether autograd refuses writes to it;
  // nothing: in the caller's.
  std::optional<bool> grad_mode;

  // kNone: eager's is a view of what the caller does not get. So is what the
  // caller gets of what the graph computes, where that can be told: it was made
  // without grad mode, and autograd refuses to write something with a history
  // to it, or other outputs are views of the same.
  bool is_view = false;
  // kNone: eager's is one of several views that one operation gave, of what the
  // caller does not get either: autograd refuses to write something with a
  // history to it.
  bool is_one_of_several = false;
  // kOutput: its gradient passes through output `base`. Where that one is a
  // view, others are made of what the graph computes.
  bool passes_base = false;

  // kNone: the strides eager gives it, where those of dimensions with one
  // element or none may be others in the graph.
  std::vector<Expr> idle_strides;

  // Its history: when its node was made, and the outputs next behind it. Their
  // gradients pass through them (output_histories.h).
  int64_t made_at = 0;
  std::vector<int> behind;
  // The nodes on the way to each of those, and the others of its history that
  // run before one of those does. By order of creation.
  std::vector<std::vector<int64_t>> ways;
  std::vector<int64_t> beside_ways;
  // The graph inputs that its history leads to. Of several outputs.
  std::vector<int> reached;
};

// Which part of the backward is wanted, and in which state of the thread.
struct BackwardPattern {
  std::vector<bool> tangents;  // per output that has one, in order: is defined
  std::vector<bool> inputs;    // per graph input: the gradient is asked for
  // A backward that is met in an autocast region casts as the region says.
  AmbientState::Autocast casts;
  // Some formulas make tensors of the default dtype. None: it is what it was.
  std::optional<c10::ScalarType> default_dtype;
  bool operator==(const BackwardPattern&) const = default;
};

// What eager's history holds of a graph input or an output.
struct HeldTensor {
  // The autograd nodes (by order of creation) that saved it, or a tensor that
  // shares its memory and with that its version.
  std::vector<int64_t> readers;
  bool itself = false;  // the tensor, and not only one of its memory
};

struct JointGraph {
  // Inputs: the primals (as in the TorchGraph), then the tangents.
  // Outputs: user outputs, then one gradient (or None) per primal.
  std::unique_ptr<Graph> graph;
  size_t num_primals = 0;
  size_t num_user_outputs = 0;
  std::vector<OutputInfo> outputs;
  std::vector<int> tangent_of;  // per tangent: the user output it belongs to
  // Inputs that keep their value but not their version, and how often the
  // program wrote to them (or to another shape of them, unsqueeze_).
  std::vector<std::pair<int, uint32_t>> touched;
  // Inputs that the program makes leaves which require grad.
  std::vector<int> made_leaves;
  bool has_backward = false;
  bool differentiates = false;  // by torch.autograd.grad in the graph
  // How many autograd nodes the captured calls make.
  int64_t num_autograd_nodes = 0;
  // The autograd nodes that saved a tensor, if only a constant, by order of
  // creation: they cannot run again when it is freed.
  std::vector<int64_t> saving_nodes;
  // Per primal and per user output; none without a backward.
  std::vector<HeldTensor> held_inputs, held_outputs;
  // As in the TorchGraph, for messages.
  std::unordered_map<int, std::string> written_at;
  // Values of the symbols at capture: the partition weighs bytes with them.
  std::vector<int64_t> symbol_hints;
  std::vector<Expr> facts;  // shape expressions that the guards hold
};

// Where the forward was cut: which values are saved, said so that another trace
// of the same graph finds them (value_numbers.h).
struct ForwardCut {
  struct Saved {
    int number;
    std::string name;
    TensorMeta meta;
  };
  std::vector<Saved> saved;
  size_t fingerprint = 0;
  std::shared_ptr<const NumberedTexts> texts;
};

struct AotGraphs {
  // Inputs: primals. Outputs: user outputs, then the saved values.
  // forward->mutations: input mutations to commit.
  std::unique_ptr<Graph> forward;
  // Inputs: saved values (saved tensors and symbols), then tangents.
  // Outputs: one gradient or None per primal. Null: nothing requires grad.
  std::unique_ptr<Graph> backward;
  size_t num_user_outputs = 0;
  std::vector<OutputInfo> outputs;
  std::vector<int> tangent_of;
  std::vector<std::pair<int, uint32_t>> touched;  // as in JointGraph
  std::vector<int> made_leaves;                   // likewise
  bool differentiates = false;                    // likewise
  int64_t num_autograd_nodes = 0;                 // likewise
  size_t num_saved_tensors = 0;
  ForwardCut cut;
  // What autograd frees with each node that has run: which nodes (by order of
  // creation) read each saved value, and all that saved anything.
  std::vector<std::vector<int64_t>> saved_readers;
  std::vector<int64_t> readers;
  // Graph inputs whose content the gradients, or an operation that may raise,
  // depend on.
  std::vector<bool> read_inputs;
  std::vector<HeldTensor> held_inputs, held_outputs;  // as in JointGraph
  // The symbols' values at capture, and what the guards say of them: for a
  // trace when the guards are gone.
  std::vector<int64_t> symbol_hints;
  std::vector<Expr> facts;
};

// guards: receives the guards that shape rules need (the capture's own set).
// A Break (NoMetaKernel, AliasedMutation, ...) means: this graph can only be
// run at torch level.
// pattern: null for all tangents and all inputs.
// bases: receives the values that outputs are views of, where the graph could
// be taken if those were outputs, too.
Result<JointGraph> trace_joint(const TorchGraph& torch_graph, GuardSet* guards,
                               const BackwardPattern* pattern = nullptr,
                               std::vector<const Value*>* bases = nullptr);

// The functional form of what the graph computes, and no backward: its inputs
// are the graph's, its outputs the values of the graph's outputs, whatever
// memory they share, and `mutations` what its inputs become. Parts of a no_grad
// region are detached, where grad mode is on elsewhere.
Result<std::unique_ptr<Graph>> trace_functional(const TorchGraph& torch_graph,
                                                GuardSet* guards);

// Passes run from one ordered list (passes.h); then the cut.
Result<AotGraphs> partition(JointGraph joint);

// The backward of a trace for a pattern, with the inputs of the first trace's
// but for the tangents: those that are defined.
struct PatternBackward {
  std::unique_ptr<Graph> graph;  // null: no gradient reaches an input
  std::vector<int64_t> readers;
};
// A Break: this is another trace. Throws where a value that was not saved is
// needed.
Result<PatternBackward> partition_backward(JointGraph joint,
                                           const ForwardCut& cut);

}  // namespace framejit::graph
