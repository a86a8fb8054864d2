// BackwardCode: what all calls of one compiled graph share of its backward.
//
// There is one backward program for each pattern of tangents that are defined,
// gradients that are asked for and casts that an autocast region around the
// backward makes: the one for all, without casts, is made with the forward,
// another when it is first met, by a trace of that pattern (joint.h). The
// forward saves the same for all of them. At most kMaxPrograms are kept.
//
// Where there is no program (the pattern cannot be traced here and now), and
// where one is of no use (double backward, batched gradients), the captured
// torch calls are differentiated by torch itself (torch_replay.h).
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/program.h"
#include "backend/torch_replay.h"
#include "graph/joint/joint.h"

namespace framejit::backend {

// What some autograd nodes saved in eager, and look at when they run.
struct LooksAt {
  std::vector<bool> inputs, outputs;  // by graph input, user output
  std::vector<int> saved;             // saved values that are one of those
};

// What lies between an output and those next behind it.
struct Passage {
  std::vector<LooksAt> ways;                // on the way to each of them
  std::vector<std::vector<int64_t>> nodes;  // of those, what eager frees
  LooksAt beside;  // in the rest of its history, and before one of them
};

// Inputs that the same outputs lead to (aot_part.h).
struct BackwardPart {
  std::vector<int> edges;  // of the node
  // All tangents whose outputs lead there; those that do not so through
  // another output.
  std::vector<int> tangents, direct;
};

// One pattern's program and how a node feeds it.
struct BackwardProgram {
  std::shared_ptr<const Program> program;  // null: there are no gradients
  // By position among the program's inputs: the saved value (number) or the
  // tangent (output of the node) that goes there. Only those it reads.
  std::vector<std::pair<int, int>> saved, tangents;
  // Per next edge: which result of the program (-1: no gradient), and whether
  // it has to be copied because it may share memory with something saved or
  // with another result.
  struct Gradient {
    int output = -1;
    bool copy = false;
  };
  std::vector<Gradient> gradients;
  std::vector<Expr> conditions;  // what the trace needs of the sizes
  // The autograd nodes that read something of the forward: what eager frees
  // when the backward is over, and cannot run again.
  std::vector<int64_t> readers;
  LooksAt looks_at;
  bool uses_random = false;

  bool holds(const int64_t* symbols) const;
  bool reads(int saved_value) const;
};

class BackwardCode {
 public:
  static constexpr size_t kMaxPrograms = 32;

  // The layout a tangent was traced with.
  struct Tangent {
    std::vector<Expr> strides;
    bool contiguous = true;
  };
  // saved_last: of the values that the forward saves, which have channels last
  // in place of eager's layout. saved_as: for each graph input the saved value
  // that it is, or -1.
  // A Break when the backward cannot run.
  static Result<std::shared_ptr<BackwardCode>> build(
      std::shared_ptr<const graph::TorchGraph> torch_graph,
      const graph::AotGraphs& graphs, const ProgramOptions& options,
      std::vector<bool> saved_last, std::vector<int> saved_as);

  // For all tangents and all gradients.
  const std::shared_ptr<const BackwardProgram>& complete() const {
    return complete_;
  }
  // pattern.inputs: by edge. Null: replay. Without the GIL, or with it.
  std::shared_ptr<const BackwardProgram> find(graph::BackwardPattern pattern,
                                              const int64_t* symbols);

  const std::vector<Tangent>& tangents() const { return tangents_; }
  const std::vector<int>& tangent_of() const { return tangent_of_; }
  // The outputs that gradients of others may pass through: those of tangents,
  // then views of them, which are made outside of the graph.
  const std::vector<int>& passed() const { return passed_; }
  // The graph input of each next edge.
  const std::vector<int>& edge_inputs() const { return edge_inputs_; }
  // Those of them that an output leads to on whose tangent the gradient does
  // not depend.
  const std::vector<int>& partial_inputs() const { return partial_inputs_; }
  size_t num_symbols() const { return num_symbols_; }
  size_t num_saved() const { return num_saved_; }
  // The autograd nodes that read each saved value.
  const std::vector<std::vector<int64_t>>& saved_readers() const {
    return saved_readers_;
  }
  // What eager's history holds of each graph input and user output.
  const std::vector<graph::HeldTensor>& held_inputs() const {
    return held_inputs_;
  }
  const std::vector<graph::HeldTensor>& held_outputs() const {
    return held_outputs_;
  }
  // Graph inputs that a replay needs the content of.
  const std::vector<bool>& read_inputs() const { return read_inputs_; }
  // By tangent.
  const std::vector<Passage>& passages() const { return passages_; }
  // Empty: all outputs lead to all inputs.
  const std::vector<BackwardPart>& parts() const { return parts_; }
  // How many autograd nodes the captured calls make.
  int64_t num_autograd_nodes() const { return num_autograd_nodes_; }
  bool uses_random() const { return uses_random_; }
  const TorchReplay& replay() const { return *replay_; }

  // What a backward was for: it is to be differentiated itself, or somebody
  // looks at gradients that pass through an output.
  enum class Use : uint8_t { kPlain, kDifferentiated, kWatched };
  void count(Use use);
  // An operator did not do what the trace predicted.
  void give_up(const std::string& why);
  // On the fallbacks channel, with the place of the graph. Needs the GIL.
  void log(const std::string& text) const;
  // Calls run at torch level for this reason, of which the user is told.
  void tell(const std::string& why) const;
  const std::shared_ptr<std::string>& reason_of_calls() const {
    return reason_of_calls_;
  }
  // Most backwards are differentiated themselves, or no program can be used:
  // calls should run as torch calls from the start.
  bool prefers_torch_level() const {
    return prefers_torch_level_.load(std::memory_order_relaxed);
  }

 private:
  BackwardCode() = default;
  std::string line(const std::string& text) const;
  Result<std::shared_ptr<BackwardProgram>> make_program(
      const graph::Graph& backward, const std::vector<int>& tangents) const;
  void find_parts(const graph::AotGraphs& graphs);
  void find_partial_inputs(const graph::Graph& backward,
                           const std::vector<int>& tensor_inputs);
  void find_passed(const graph::AotGraphs& graphs);
  Passage passage_of(const graph::AotGraphs& graphs, int output) const;
  LooksAt looks_of(const std::vector<int64_t>& readers) const;
  void note_readers(std::vector<int64_t> readers,
                    BackwardProgram* program) const;
  Result<std::shared_ptr<const BackwardProgram>> trace(
      const graph::BackwardPattern& pattern) const;

  std::shared_ptr<const TorchReplay> replay_;
  const std::shared_ptr<std::string> reason_of_calls_ =
      std::make_shared<std::string>();
  ProgramOptions options_;
  std::vector<Tangent> tangents_;
  std::vector<int> tangent_of_, passed_;
  std::vector<int> edge_inputs_, partial_inputs_;
  std::vector<bool> read_inputs_;
  std::vector<graph::HeldTensor> held_inputs_, held_outputs_;
  graph::ForwardCut cut_;
  std::vector<std::vector<int64_t>> saved_readers_;
  std::vector<bool> saved_last_;
  // By graph input and by user output: the saved value that it is, or -1.
  std::vector<int> saved_as_, output_saved_as_;
  std::vector<Passage> passages_;
  std::vector<BackwardPart> parts_;
  size_t num_inputs_ = 0, num_saved_ = 0, num_symbols_ = 0;
  int64_t num_autograd_nodes_ = 0;
  bool uses_random_ = false;
  // What the guards of the entry say of the sizes.
  std::vector<int64_t> symbol_hints_;
  std::vector<Expr> facts_;

  std::shared_ptr<const BackwardProgram> complete_;
  struct Made {
    graph::BackwardPattern pattern;
    std::shared_ptr<const BackwardProgram> program;  // null: cannot be traced
    uint64_t last_use = 0;
  };
  std::mutex mutex_;  // nothing under it needs the GIL
  std::vector<Made> made_;
  uint64_t uses_ = 0;

  std::atomic<int> plain_{0}, replayed_{0};
  std::atomic<bool> logged_{false}, prefers_torch_level_{false};
};

}  // namespace framejit::backend
