// The executor of an AOT-compiled graph: what is worked out once, when it is
// built (aot_build.cpp), and what a call does with that (aot_function.cpp).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "backend/aot_node.h"
#include "backend/commit.h"
#include "backend/program.h"
#include "backend/torch_executor.h"
#include "backend/user_outputs.h"
#include "graph/ir/torch_graph.h"
#include "graph/joint/joint.h"
#include "graph/ops/alias_analysis.h"

namespace framejit::backend {

class AotExecutor final : public Executor {
 public:
  Status build(std::shared_ptr<const graph::TorchGraph> torch_graph,
               const graph::AotGraphs& graphs, const ProgramOptions& options,
               ProgramReport* report);
  RunStatus run(PyObject* const* inputs, const int64_t* symbols,
                PyObject** outputs) override;

 private:
  // One value the forward keeps for the backward.
  struct SavedSlot {
    enum class Kind : uint8_t { kInput, kUserOutput, kIntermediate };
    Kind kind = Kind::kIntermediate;
    int index = 0;       // graph input, or forward output
    bool clone = false;  // it is about to be overwritten by the commit
  };
  // The memory of this tensor is that of a saved value.
  struct Watch {
    int saved;
    bool is_output;
    int index;
  };
  // A graph input that a replay of the backward needs.
  struct Kept {
    int input;
    int saved;     // it is this saved value; -1: held for that alone
    bool written;  // the old content
  };
  using Tensors = c10::SmallVector<at::Tensor, 8>;
  using Inputs = c10::SmallVector<const at::Tensor*, 16>;

  Status check_outputs(const graph::Graph& forward,
                       const graph::AliasAnalysis& aliases,
                       const graph::AotGraphs& graphs) const;
  Status check_mutations(const graph::Graph& forward, bool has_backward) const;
  Status build_saved(const graph::Graph& forward,
                     const graph::AliasAnalysis& aliases);
  void build_kept(const graph::AotGraphs& graphs);
  Status build_backward(const graph::AotGraphs& graphs,
                        const ProgramOptions& options);
  bool is_written(size_t input) const;
  struct Call;
  void ask_histories(const Call& call) const;
  void hold_inputs(Call& call) const;
  void forward(const int64_t* symbols, Call& call, bool* committing) const;
  // committing: the first write has begun.
  void commit(Call& call, bool* committing) const;
  bool make_node(const int64_t* symbols, Call& call) const;
  std::vector<int> saved_as() const;  // by graph input; -1: not at all
  void find_held();
  Status build_gates(const graph::AotGraphs& graphs);
  void attach_gates(Call& call, CallOutputs& made) const;
  void attach_node(Call& call, CallOutputs& made) const;
  void attach_spent(Call& call) const;
  bool is_node_seen(PyObject* const* inputs);
  void unmake_leaves(const Call& call) const;
  RunStatus run_at_torch_level(PyObject* const* inputs, const int64_t* symbols,
                               PyObject** outputs);

  std::shared_ptr<const Program> program_;
  std::shared_ptr<BackwardCode> backward_;  // null: no gradient
  std::vector<int> input_objects_;
  // Of user outputs, the last may be what others are made of, and no output of
  // the call.
  size_t num_user_outputs_ = 0, num_given_outputs_ = 0;
  std::vector<UserOutput> user_outputs_;
  std::vector<InputWrite> writes_;      // in order
  std::vector<int> inputs_used_later_;  // behind the graph
  std::vector<std::pair<int, uint32_t>> touched_;
  std::vector<int> made_leaves_;
  // Outputs the program wrote to, and how often.
  std::vector<std::pair<int, uint32_t>> output_versions_;
  // Outputs whose backward ran in the graph, and the inputs it went to.
  std::vector<int> spent_outputs_, gradient_inputs_;
  std::vector<int> read_histories_;  // of inputs that operations read
  bool differentiates_ = false;      // by torch.autograd.grad in the graph
  // Inputs that gradients computed there may go to.
  std::vector<int> differentiated_;
  // Training only.
  std::vector<SavedSlot> saved_;
  std::vector<Watch> watches_;
  std::vector<Kept> kept_;
  // Inputs that eager's history holds and the backward does not read: as they
  // come, and as the graph has written to them.
  std::vector<int> held_inputs_, held_when_written_;
  std::vector<int> held_outputs_;  // likewise
  // What eager's nodes save themselves: inputs as they come, inputs as the
  // graph has written to them, outputs.
  std::vector<AotNode::OfCall> originals_, originals_when_written_,
      original_outputs_;
  bool uses_random_ = false;
  // The order of eager's nodes: of gates and of views of outputs, which may lie
  // behind gates. Empty: no gates.
  struct Place {
    bool is_view;
    size_t index;  // a tangent, or a user output
  };
  std::vector<Place> gate_order_;
  // By tangent, which outputs lie next behind it: BackwardCode::passed().
  std::vector<std::vector<int>> gates_behind_;
  std::shared_ptr<const graph::TorchGraph> torch_graph_;
  // Runs instead, once most gradients are differentiated themselves, and where
  // hooks see the difference.
  std::optional<TorchLevel> torch_level_;
  bool told_seen_ = false;
};

}  // namespace framejit::backend
