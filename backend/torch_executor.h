// The torch-level executor: replays a TorchGraph on the real tensors.
//
// Every node is one call of its Python callable, with arguments rebuilt from
// templates made once. It is the `eager` backend and what every other backend
// falls back to, so it must be right for any graph the tracer can record.
//
// Transactions. Operations that write graph inputs run on the real inputs, in
// the program's order, so that autograd sees what it would see in eager. Before
// such a graph starts the inputs it writes (`mutated_inputs`) are copied; when
// a node fails they get their old content back and the original code can run
// from the start. What cannot be put back (an in-place operation rewrote the
// input's autograd history, or wrote an input that was not announced: versions
// tell) is reported as a failure in the commit: the error propagates, with the
// tensors as eager would leave them.
#pragma once

#include <memory>

#include "graph/ir/torch_graph.h"

namespace framejit::backend {

// A Break when the graph holds something that has no replay (a module call).
Result<std::unique_ptr<Executor>> make_torch_executor(
    std::shared_ptr<const graph::TorchGraph> graph);

// The executor of a graph that runs at torch level now and then only: made when
// first asked for. The first one stays, for it may be running: making one lets
// finalizers run, and so other threads, which may ask, too.
class TorchLevel {
 public:
  explicit TorchLevel(std::shared_ptr<const graph::TorchGraph> graph)
      : graph_(std::move(graph)) {}
  // Null: the graph has no replay; no error is set. With the GIL.
  Executor* get();

 private:
  std::shared_ptr<const graph::TorchGraph> graph_;
  std::unique_ptr<Executor> executor_;
};

}  // namespace framejit::backend
