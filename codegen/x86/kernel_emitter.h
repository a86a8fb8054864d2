// The loops of a kernel as instructions.
//
// Outer points come in runs along the last outer loop. A kernel vectorised by
// columns takes a run in blocks of several vectors, then one vector at a time
// under a mask; one vectorised within takes each point, and the last inner loop
// of its stages in blocks. Values that do not depend on a loop are computed
// before it.
#pragma once

#include <functional>
#include <stdexcept>
#include <unordered_map>

#include "codegen/kernels/kernel.h"
#include "codegen/legalise/fold.h"
#include "codegen/x86/vector_isa.h"

namespace framejit::codegen {

struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// How the value of a node of f16 (or bf16, rounded by instructions) is kept: as
// its bits; where nothing but conversions to wider floats reads it, as an f32;
// and where only stores of vectors do, as the f32 that they round.
enum class HalfForm : uint8_t { kBits, kWidened, kUnrounded };

// A stage with what the emitter found out about it.
struct StagePlan {
  const Stage* stage;
  std::vector<int> level;     // of each node, see level_of()
  std::vector<char> uniform;  // all lanes have one value
  std::vector<char> hot;      // needed whatever conditions are
  std::vector<HalfForm> halves;
  std::vector<Fold> folds;  // of its reductions
  std::vector<char> scans;  // of its reductions: prefixes are stored
  bool counts_places = false;
};

class KernelEmitter {
 public:
  KernelEmitter(const Kernel& kernel, std::vector<StagePlan> plans,
                VectorIsa& isa);
  void emit();  // throws Refused
  std::vector<Expr> take_parameters() { return std::move(parameters_); }

 private:
  enum class Walk : uint8_t { kUniform, kContiguous, kReversed, kStrided };

  // One access of a stage.
  struct PlaceCode {
    const Place* place;
    DType type;
    Walk walk = Walk::kUniform;
    x86::Gp start;           // at the first outer point of the run
    x86::Gp pointer;         // where the loops are
    x86::Gp step;            // bytes of a vector of lanes (kStrided)
    int64_t known_step = 0;  // the same (kReversed)
    Lanes offsets;           // bytes of each lane (kStrided)
    // By copy, when transposed beforehand: the vectors of the inner loop's
    // turns, one behind the other.
    std::vector<x86::Mem> block;
  };
  struct Values {
    std::vector<Lanes> of;  // by node
  };

  // ---- numbers (kernel_emitter.cpp)
  x86::Mem parameter(const Expr& e);
  x86::Gp load(const Expr& e);
  void multiply(const x86::Gp& by, const Expr& e, int64_t scale);
  void compare(const x86::Gp& value, const Expr& e);

  // ---- loops (kernel_emitter.cpp)
  void emit_runs();
  void begin_run();
  void emit_columns();
  bool copies_memory() const;
  void emit_long_copy(const aj::Label& done);
  void emit_rows();
  void emit_point(int copies, const Lanes* mask);
  void emit_stage(size_t number, int copies, const Lanes* mask);
  void emit_nest(size_t loop);
  void emit_vector_loop();
  void advance_pointers(std::vector<PlaceCode>* places, int copies);
  void init_states(int copies);
  void finish_states(int copies);
  // states: registers that accumulators of one copy take.
  int copies_of(size_t nodes, size_t states) const;
  size_t vector_loop(const Stage& stage) const;  // SIZE_MAX: none

  // ---- bodies (kernel_body.cpp)
  Lanes constant(DType type, Element value);
  void hoist_constants();
  // Nodes of one level, all copies.
  void emit_level(int level);
  void emit_innermost(int copies, const Lanes* mask);
  void emit_node(ScalarId id, int copy);
  Lanes node_value(ScalarId id, int copy);
  LaneOperand operand_of(const Body& body, ScalarId id, bool in_memory,
                         const std::function<Lanes(ScalarId)>& value);
  Lanes operation(const Body& body, ScalarId id,
                  const std::function<Lanes(ScalarId)>& value);
  Lanes value(ScalarId id, int copy);
  Lanes rare(ScalarId id, int copy);
  // Where a conversion reads or gives an f16 that is kept as an f32.
  std::optional<Lanes> half_cast(ScalarId id, int copy);
  Lanes index_lanes(int loop, int copy);
  void emit_check(ScalarId id, int copy);
  void accumulate(size_t reduction, int copy, const Lanes& element);
  // Are elements of several copies put together before a step?
  bool is_paired(size_t reduction) const {
    return !columns_ && plan_->folds[reduction].paired != kNoScalar &&
           !plan_->scans[reduction];
  }
  Lanes paired_element(size_t reduction, int copies);
  // Puts the vector's elements behind what `carry` holds: prefixes, and the new
  // carry in all lanes.
  std::vector<Lanes> scan(size_t reduction, const std::vector<Lanes>& stepped);
  // A fold's program on these leaves.
  std::vector<Lanes> fold_values(const Body& body,
                                 const std::vector<ScalarId>& roots,
                                 const std::vector<Lanes>& leaves);
  bool is_shared(ScalarId id) const { return plan_->uniform[id]; }

  // ---- memory (kernel_memory.cpp)
  x86::Mem address(const PlaceCode& code, int copy);
  x86::Gp moved(const PlaceCode& code, int copy);
  bool has_uniform_data(const PlaceCode& code) const;
  static bool has_pointer(const PlaceCode& code) {
    return code.walk == Walk::kStrided || code.walk == Walk::kReversed;
  }
  Lanes lane_offsets(const PlaceCode& code, int copy);
  const Lanes* condition(const PlaceCode& code, int copy, Lanes* storage);
  Lanes load_lanes(ScalarId id, int copy);
  Lanes loaded(const PlaceCode& code, int copy, const Lanes* wanted);
  void transpose_blocks();
  bool is_transposed(const PlaceCode& code) const;
  void transpose_block(PlaceCode* code);
  void transpose(int words, std::vector<Lanes>* rows);
  Lanes load_transposed(const PlaceCode& code, int copy);
  void emit_store(size_t number, int copy);
  // Lanes side by side, from the first or from the last one on.
  Lanes load_vector(const PlaceCode& code, int copy, const Lanes* wanted);
  void store_vector(const PlaceCode& code, int copy, const Lanes& value,
                    const Lanes* wanted);

  const Kernel& kernel_;
  std::vector<StagePlan> plans_;
  VectorIsa& isa_;
  x86::Compiler& cc_;
  const bool columns_;

  std::vector<Expr> parameters_;
  x86::Gp call_, arguments_, values_, remaining_, run_;
  std::vector<x86::Gp> outer_;  // numbers of the outer loops
  x86::Gp position_;            // kOuter: within the run
  aj::Label failed_;
  std::unordered_map<uint64_t, Lanes> words_, doubles_;  // hoisted constants

  std::vector<std::vector<PlaceCode>> places_;  // of stages: loads, stores
  std::vector<std::array<Lanes, 4>> rows_;      // row values, by copy

  // ---- of the stage that is being emitted
  size_t stage_number_ = 0;
  const StagePlan* plan_ = nullptr;
  std::vector<PlaceCode>* code_ = nullptr;
  int copies_ = 1;                 // of the vector
  const Lanes* mask_ = nullptr;    // lanes that are there
  std::vector<x86::Gp> inner_;     // numbers of the inner loops
  x86::Gp linear_;                 // points before this one, in loop order
  std::vector<Values> values_of_;  // by copy
  std::vector<std::vector<std::vector<Lanes>>> states_;  // reduction, copy
  std::vector<std::vector<Lanes>> prefixes_;  // kInner: of scans, by lane
};

// What the emitter needs to know of a stage. Throws Refused.
StagePlan plan_stage(const Kernel& kernel, const Stage& stage,
                     std::vector<Fold> folds, Bf16Rounding bf16);

}  // namespace framejit::codegen
