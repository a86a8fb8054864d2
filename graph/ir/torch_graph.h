// TorchGraph: what one capture recorded, as the tracer hands it to a backend.
//
// The graph is at torch level (Python callables). Its tensor placeholders are
// the input tensors that an operation reads; `input_objects[i]` says where the
// i-th graph input sits in the predicate's `objects` array (-1: a symbol, whose
// value is inputs[i]->expr over the predicate's `symbols`).
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/ir/ir.h"
#include "guards/foreign.h"

namespace framejit::graph {

// An output as it is when the graph ends, which what comes after relies on.
struct PromisedOutput {
  bool is_tensor = false;  // the rest is of tensors
  TensorMeta meta;
  bool is_parameter = false;
  bool is_leaf = true;
  bool is_inference = false;
  int input = -1;      // it is this graph input itself
  int same_as = -1;    // it is this earlier output itself
  int memory_of = -1;  // the graph input whose memory it has
  int group = -1;      // the first output that has the same memory
};

// What the capture knows of a graph beyond its nodes.
struct TorchGraphFacts {
  std::vector<int> input_objects;
  // Graph inputs (tensors) that nodes of the graph write to.
  std::vector<int> mutated_inputs;
  // By graph input: the line that writes to it first.
  std::unordered_map<int, std::string> written_at;
  // Per output; none where the graph was not captured.
  std::vector<PromisedOutput> promised;
  // Hints of the symbols, by symbol index.
  std::vector<int64_t> symbol_hints;
  // Random operations inside: the executor restores the generator state when
  // the graph phase fails.
  bool uses_random = false;
  // Those they draw for, but for the CPU.
  std::vector<c10::Device> random_devices;
  // Writes more thread state than the grad mode: the executor puts it back.
  bool writes_state = false;
  // Ends inside an autocast region, which the residual code enters again.
  bool interrupts_autocast = false;
  // Where the program was when its first operation was recorded, outermost
  // first. What profilers and logs call the graph, once somebody has said it:
  // "model.py:31", and "Net.forward (model.py:30), entry 0".
  std::vector<Span> stack;
  std::string place, function;
  // Why only the torch level can run it; "": any backend can.
  std::string torch_level_only;
  // Grad mode etc. when the graph starts is the guarded thread state.
  bool grad_enabled_at_entry = true;
};

class TorchGraph final : public ForeignGraph, public TorchGraphFacts {
 public:
  std::unique_ptr<Graph> graph = std::make_unique<Graph>();
  // The graph as it was captured, whose outputs are the caller's. This one has
  // more behind them: values that some of those are views of. Null: itself.
  std::shared_ptr<const TorchGraph> captured;

  size_t num_operations() const override { return graph->num_calls(); }
  std::string str() const override { return graph->str(); }
};

// A captured graph with more outputs: values of its nodes.
std::shared_ptr<const TorchGraph> with_outputs(
    std::shared_ptr<const TorchGraph> captured,
    const std::vector<const Value*>& values);

}  // namespace framejit::graph
