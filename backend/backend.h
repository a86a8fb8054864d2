// Backends turn a TorchGraph into an Executor.
//
//   eager      replays the torch-level graph on the real tensors
//   aot_eager  joint graph and partition, run op by op
//   native     joint graph, fused kernels, planned buffers (the default)
//   a callable (gm: torch.fx.GraphModule, example_inputs) -> callable
//
// An executor that differentiates is a torch::autograd::Node made per call. A
// graph that the AOT stage cannot take (its Break says why) runs at torch
// level, which is always correct.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/program.h"
#include "frame_hook/dispatch.h"
#include "graph/ir/torch_graph.h"
#include "graph/joint/joint.h"

namespace framejit::backend {

struct BackendRequest {
  std::shared_ptr<const graph::TorchGraph> graph;
  GuardSet* guards = nullptr;  // may receive more guards while compiling
  std::string backend = "native";
  Ref callable;  // custom backend, or empty
  // ProgramOptions, of `native`
  bool precise_math = false;
  bool emulate_precision_casts = true;
  bool channels_last = true;
  // The real input tensors of this call, in graph-input order (borrowed), for
  // example_inputs of custom backends; null for symbols (their hints are
  // used).
  std::vector<PyObject*> example_inputs;
};

// What was built, for inspect(), explain() and logs.
struct CompiledInfo {
  std::string torch_graph, joint_graph, forward_graph, backward_graph;
  ProgramReport program;      // forward and backward
  size_t num_operations = 0;  // torch-level calls
  size_t num_saved_tensors = 0;
  bool fell_back_to_torch_level = false;
  std::string fallback_reason;
};

struct CompiledGraph {
  std::unique_ptr<Executor> executor;
  CompiledInfo info;
};

// Ours: takes symbolic floats. Others get a graph with their values.
bool is_own_backend(const std::string& name);
Result<CompiledGraph> compile(const BackendRequest& request);

}  // namespace framejit::backend
