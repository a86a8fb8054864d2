// From the torch-level graph to ATen forward and backward graphs.
//
// trace_joint replays a TorchGraph on functional wrappers over trace tensors,
// under real C++ autograd: the forward part is what reaches the Fake key during
// the replay, the backward part what the autograd engine dispatches for
// symbolic tangents. partition() then splits the joint graph by a minimum cut
// over the bytes that must be kept, recomputing cheap operations.
#pragma once

#include "graph/torch_graph.h"

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
  bool is_tensor = true;  // false: a symbolic int

  // kViewOfInput, kOutput: how the caller makes it of `base`, outside of the
  // graph (which has no value for it). `remade` false: that cannot be said.
  bool remade = false;
  std::vector<Expr> sizes, strides;
  Expr offset;  // from the first element of the base
  bool detached = false;
};

struct JointGraph {
  // Inputs: the primals (as in the TorchGraph), then the tangents.
  // Outputs: user outputs, then one gradient (or None) per primal.
  std::unique_ptr<Graph> graph;
  size_t num_primals = 0;
  size_t num_user_outputs = 0;
  std::vector<OutputInfo> outputs;
  std::vector<int> tangent_of;  // per tangent: the user output it belongs to
  bool has_backward = false;
  // Values of the symbols at capture: the partition weighs bytes with them.
  std::vector<int64_t> symbol_hints;
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
  size_t num_saved_tensors = 0;
};

// guards: receives the guards that shape rules need (the capture's own set).
// A Break (NoMetaKernel, AliasedMutation, ...) means: this graph can only be
// run at torch level.
Result<JointGraph> trace_joint(const TorchGraph& torch_graph, GuardSet* guards);

// Passes run from one ordered list (passes.h); then the cut.
Result<AotGraphs> partition(JointGraph joint);

}  // namespace framejit::graph
