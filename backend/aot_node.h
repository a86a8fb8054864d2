// AotNode: the backward of one call of an AOT-compiled graph.
//
// The outputs that have a gradient are its inputs, the graph inputs that
// require grad are where its edges lead; where outputs lead to different inputs
// it is in the graph in parts (aot_part.h). What the backward programs read is
// in SavedVariables, so that a write to an input or an output before the
// backward raises as in eager. A value that is saved but shares memory with an
// input or an output is watched through a SavedVariable of that tensor, too,
// and so is an input or an output that eager's history holds and no program
// reads.
//
// A SavedVariable holds the tensor itself. Where eager holds something else of
// its memory (a part of it, what was computed of it), the node has that memory
// and its count of versions alone: the tensor may be written to later, and be
// in the history of this node then, which would keep itself alive.
//
// The other inputs that gradients depend on are held as they are, for a replay
// (torch_replay.h): their versions are looked at only then.
#pragma once

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <memory>
#include <string>
#include <vector>

#include "backend/backward_code.h"
#include "backend/output_gate.h"
#include "graph/tensors/libtorch_private.h"

namespace framejit::backend {

// The history of an output whose backward ran in the graph and freed it.
class SpentNode final : public torch::autograd::Node {
 public:
  explicit SpentNode(torch::autograd::edge_list&& edges)
      : Node(std::move(edges)) {}
  torch::autograd::variable_list apply(
      torch::autograd::variable_list&&) override {
    TORCH_CHECK(false, torch::autograd::ERR_BACKWARD_TWICE);
  }
  std::string name() const override { return "FrameJitBackward"; }
};

class AotNode final : public torch::autograd::Node {
 public:
  // A graph input or output. saved: it is this saved value; -1: none is.
  struct OfCall {
    int index;
    bool is_output;
    int saved;
  };

  AotNode(std::shared_ptr<BackwardCode> code,
          torch::autograd::edge_list&& edges, const int64_t* symbols)
      : Node(std::move(edges)),
        code_(std::move(code)),
        symbols_(symbols, symbols + code_->num_symbols()) {
    saved_.resize(code_->num_saved());
  }

  torch::autograd::variable_list apply(
      torch::autograd::variable_list&& grads) override;
  // The engine says it before a backward that does not keep its graph comes
  // here, and torch releases what dies, too: nothing was freed by that.
  void will_release_variables() override;
  void release_variables() override;
  std::string name() const override { return "FrameJitBackward"; }

  void save(int saved, const at::Tensor& tensor, bool is_output) {
    saved_[saved] = SavedVariable(tensor, is_output);
  }
  void save_input(int saved, int input, const at::Tensor& tensor) {
    save(saved, held(input, tensor), false);
  }
  // The memory of a saved value is that of this output: the version matters.
  // saved -1: eager's history holds it, and no program reads it.
  void watch_output(int saved, int output, const at::Tensor& tensor) {
    watched_.push_back({saved, output, true, SavedVariable(tensor, true)});
  }
  void watch_input(int saved, int input, const at::Tensor& tensor) {
    watched_.push_back(
        {saved, input, false, SavedVariable(held(input, tensor), false)});
  }
  // Of a tensor that eager's nodes save themselves `x.data = y` makes another
  // one: what they read of it then is new, what was computed from it before is
  // not. A program of ours has one memory for both, so it has to stay.
  void note_memory(const OfCall& of, const at::Tensor& tensor);
  // A graph input, by its number. saved: it is this saved value.
  void keep(int input, const at::Tensor& tensor);
  void keep_saved(int input, int saved) {
    kept_.push_back({input, saved, at::Tensor(), 0});
  }
  // The histories of the outputs, by tangent; none: this node itself.
  // views: the histories of those that gradients of others pass through.
  void set_gates(const std::vector<graph::NodePtr<OutputGate>>& gates,
                 const torch::autograd::edge_list& views) {
    gates_.assign(gates.begin(), gates.end());
    for (const auto& view : views)
      views_.push_back(
          {graph::WeakNodePtr<Node>(view.function), view.input_nr});
  }
  // In a backward: what comes of an output's gradient to the outputs next
  // behind it (by their numbers in BackwardCode::passed()). Nothing where
  // nobody looks at what passes there. wanted: those that the engine goes on
  // to.
  torch::autograd::variable_list pass_behind(size_t from,
                                             const at::Tensor& gradient,
                                             const std::vector<int>& behind,
                                             const std::vector<bool>& wanted);
  // In parts (aot_part.h): this node is not in the graph itself.
  const std::vector<BackwardPart>& parts() const { return code_->parts(); }
  // In a backward: a gradient has come to the output of this tangent.
  void arrive(size_t tangent, const at::Tensor& gradient);
  // direct: what came along the edges of this part.
  torch::autograd::variable_list gradients_of_part(
      size_t number, const torch::autograd::variable_list& direct);
  void keep_random_states(RngState::States states) {
    random_states_ = std::move(states);
  }

 private:
  using SavedVariable = torch::autograd::SavedVariable;
  struct KeptInput {
    int input;
    int saved;  // -1: the tensor
    at::Tensor tensor;
    uint32_t version;
  };
  // Whose version a backward looks at.
  struct Watched {
    int saved;  // for those that read this saved value
    // saved -1: for those whose nodes saved this graph input or output.
    int index;
    bool is_output;
    SavedVariable variable;
  };
  using WeakTensor =
      c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  // The memory that a tensor had, and where in it it lay.
  struct Original {
    OfCall of;
    WeakTensor tensor;
    c10::weak_intrusive_ptr<c10::StorageImpl> memory;
    uint64_t place;
  };
  using variable_list = torch::autograd::variable_list;

  // What a backward is asked for.
  struct Task {
    const variable_list& grads;
    std::vector<bool> defined, wanted;  // tangents, edges
    bool complete = true;
    bool as_captured = true;  // no autocast region, and the default dtype
    const BackwardPart* alone = nullptr;
    bool wants(size_t edge) const { return complete || wanted[edge]; }
  };
  // A backward that is under way.
  struct UnderWay {
    int task = 0;               // the engine's number
    std::weak_ptr<void> alive;  // over when that is
    // Does somebody look at what passes through an output? Null: nobody does.
    bool asked = false;
    std::shared_ptr<const CutReplay> cut;
    // Of a node in parts: what has come to the outputs, by tangent; what was
    // computed of which of that for all parts, by edge; the parts that have
    // run, and the programs, until what those read is let go.
    std::vector<bool> arrived;
    variable_list tangents, used, results;
    std::vector<bool> done;
    std::vector<std::shared_ptr<const BackwardProgram>> ran;
  };
  // alone: for the gradients of this part only.
  // ran: what release() is to let go of then.
  variable_list gradients_of(
      const variable_list& grads, const BackwardPart* alone = nullptr,
      std::shared_ptr<const BackwardProgram>* ran = nullptr);
  Task task_of(const variable_list& grads, const BackwardPart* alone) const;
  UnderWay* under_way(int task);  // under mutex_
  // over: rows of backwards that are, to die behind the lock.
  UnderWay& note_under_way(int task, std::vector<UnderWay>* over);
  std::vector<bool> to_arrive(const std::vector<bool>& arrived) const;
  bool are_done(const UnderWay& row, const std::vector<bool>& to_arrive) const;
  variable_list take_part(const BackwardPart& part, variable_list& all) const;
  void finish_part(size_t number, int task, const std::vector<bool>& late);
  std::shared_ptr<const BackwardProgram> program_for(const Task& task,
                                                     bool* fits) const;
  variable_list run(const Task& task, const BackwardProgram& program,
                    std::vector<at::Tensor> values) const;
  std::vector<int> wanted_inputs(const Task& task) const;
  variable_list by_edge(const Task& task, variable_list&& found) const;
  variable_list replay(const Task& task);
  variable_list replay_failed(const Task& task, const std::string& why);
  bool is_passage_watched() const;
  std::shared_ptr<const CutReplay> take_cut();
  variable_list finish_cut(const Task& task, const CutReplay& cut);
  void begin(std::shared_ptr<const BackwardProgram> program, bool runs);
  // Under mutex_. null: the complete program.
  void release(std::shared_ptr<const BackwardProgram> program);
  void free_early(const BackwardProgram& program);
  void free_all(bool by_backward);
  bool is_kept(int saved) const;
  const std::shared_ptr<FreedNodes>& freed();  // made when it is asked for
  bool is_consumed(const std::vector<int64_t>& readers) const;
  at::Tensor held(int input, const at::Tensor& tensor) const;
  template <class IsRead>
  void check_memory(const IsRead& is_read) const;
  void check_versions(const LooksAt& looks_at);
  void check_passage(size_t from, const std::vector<bool>& wanted);
  void check_unknown();
  std::vector<at::Tensor> unpack(const BackwardProgram& program);
  ReplayedCall unpack_inputs();
  void find_late_leaves(ReplayedCall* call) const;
  ReplayedCall inputs_to_replay();
  torch::autograd::edge_list own_outputs();
  at::Tensor tangent(size_t index, at::Tensor grad) const;

  std::shared_ptr<BackwardCode> code_;
  std::vector<int64_t> symbols_;
  std::vector<graph::WeakNodePtr<OutputGate>> gates_;
  struct PassedView {
    graph::WeakNodePtr<Node> node;
    uint32_t result;
  };
  std::vector<PassedView> views_;
  // ---- under mutex_
  std::vector<SavedVariable> saved_;
  std::vector<Original> originals_;
  std::vector<Watched> watched_;
  std::vector<KeptInput> kept_;
  RngState::States random_states_;
  // Eager frees node by node: what one output's backward freed, another's may
  // not need. Null: nothing was freed, or all of it was here.
  std::shared_ptr<FreedNodes> freed_;
  // The last pattern that ran, null: everything.
  std::shared_ptr<const BackwardProgram> last_;
  bool released_ = false;
  std::vector<int> releasing_;  // backwards, by the engine's numbers
  std::vector<UnderWay> under_way_;
};

}  // namespace framejit::backend
