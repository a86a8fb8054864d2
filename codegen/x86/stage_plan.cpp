// Which loops each value of a stage depends on.
#include "codegen/x86/kernel_emitter.h"

namespace framejit::codegen {

namespace {

class Planner {
 public:
  Planner(const Kernel& kernel, const Stage& stage, Bf16Rounding bf16)
      : kernel_(kernel),
        stage_(stage),
        bf16_(bf16),
        outer_(static_cast<int>(kernel.loops.size())),
        inner_(static_cast<int>(stage.loops.size())) {
    if (kernel.vectorised == Vectorised::kOuter) {
      vector_ = outer_ - 1;
    } else {
      vector_ = inner_ > 0 ? outer_ + inner_ - 1 : -1;
    }
  }

  StagePlan run(std::vector<Fold> folds) {
    plan_.stage = &stage_;
    plan_.folds = std::move(folds);
    const auto& nodes = stage_.body.nodes();
    for (size_t i = 0; i < nodes.size(); ++i) node(nodes[i]);
    plan_.hot.assign(nodes.size(), false);
    for (size_t i = 0; i < nodes.size(); ++i) {
      if (nodes[i].op == ScalarOp::kCheck) need(static_cast<ScalarId>(i));
    }
    for (const Reduction& reduction : stage_.reductions) {
      need(reduction.value);
      plan_.counts_places |= reduction.combiner == Combiner::kArgMin ||
                             reduction.combiner == Combiner::kArgMax;
    }
    plan_.scans.assign(stage_.reductions.size(), false);
    for (const Store& store : stage_.stores) {
      if (store.value != kNoScalar) need(store.value);
      if (store.prefix_of >= 0) plan_.scans[store.prefix_of] = true;
      need(store.place);
      check(store);
    }
    for (auto [id, row] : stage_.rows) need(id);
    choose_halves();
    return std::move(plan_);
  }

 private:
  // 0: on no loop, 1: on outer ones, 2 + j: on inner loop j at most.
  int level_of_loop(int loop) const {
    return loop < outer_ ? 1 : 2 + loop - outer_;
  }

  void node(const ScalarNode& node) {
    int level = 0;
    bool uniform = true;
    auto add = [&](ScalarId id) {
      level = std::max(level, plan_.level[id]);
      uniform &= plan_.uniform[id] != 0;
    };
    for (ScalarId in : node.in) {
      if (in != kNoScalar) add(in);
    }
    switch (node.op) {
      case ScalarOp::kIndex:
        level = level_of_loop(static_cast<int>(node.payload));
        uniform = node.payload != vector_;
        break;
      case ScalarOp::kRow:
        level = 1;
        uniform = kernel_.vectorised == Vectorised::kInner;
        break;
      case ScalarOp::kCheck:
        level = std::max(level, 1);
        break;
      case ScalarOp::kLoad: {
        const Place& place = stage_.loads[node.payload];
        level = 1;
        for (size_t k = 0; k < place.strides.size(); ++k) {
          if (place.strides[k].is_const(0)) continue;
          level = std::max(level, level_of_loop(static_cast<int>(k)));
          uniform &= static_cast<int>(k) != vector_;
        }
        for (const auto& [id, stride] : place.data) add(id);
        if (place.when != kNoScalar) add(place.when);
        // What the stage stores may change from turn to turn.
        for (const Store& store : stage_.stores) {
          if (store.place.argument == place.argument) level = 1 + inner_;
        }
        break;
      }
      default:
        break;
    }
    plan_.level.push_back(level);
    plan_.uniform.push_back(uniform);
  }

  // A bf16 that is loaded, or was one before, is half a register of words.
  bool has_forms(const ScalarNode& node) const {
    if (node.type == DType::kF16) return true;
    return node.type == DType::kBF16 && node.op == ScalarOp::kCast &&
           bf16_ == Bf16Rounding::kByInstruction &&
           !is_bf16_value(stage_.body, node.in[0]);
  }

  // What reads each node says how one of f16, or bf16, is kept.
  void choose_halves() {
    const auto& nodes = stage_.body.nodes();
    constexpr char kWidens = 1, kStores = 2, kOther = 4;
    std::vector<char> uses(nodes.size(), 0);
    auto add = [&](ScalarId id, char use) {
      if (id != kNoScalar) uses[id] |= use;
    };
    for (const ScalarNode& node : nodes) {
      const bool widens = node.op == ScalarOp::kCast &&
                          dtype_class(node.type) == DTypeClass::kFloat;
      for (ScalarId in : node.in) add(in, widens ? kWidens : kOther);
    }
    auto add_place = [&](const Place& place) {
      for (const auto& [id, stride] : place.data) add(id, kOther);
      add(place.when, kOther);
    };
    for (const Place& place : stage_.loads) add_place(place);
    for (const Reduction& reduction : stage_.reductions) {
      add(reduction.value, kOther);
    }
    for (const Store& store : stage_.stores) {
      const bool is_vector = vector_ >= 0 && store.place.data.empty() &&
                             store.place.strides[vector_].is_const(1);
      add(store.value, is_vector && !store.combiner ? kStores : kOther);
      add_place(store.place);
    }
    for (auto [id, row] : stage_.rows) add(id, kOther);
    plan_.halves.assign(nodes.size(), HalfForm::kBits);
    for (size_t i = 0; i < nodes.size(); ++i) {
      const ScalarNode& node = nodes[i];
      if (!has_forms(node)) continue;
      if (uses[i] == kWidens &&
          (node.op == ScalarOp::kLoad || node.op == ScalarOp::kCast)) {
        plan_.halves[i] = HalfForm::kWidened;
      } else if (uses[i] == kStores && node.op == ScalarOp::kCast) {
        plan_.halves[i] = HalfForm::kUnrounded;
      }
    }
  }

  void need(ScalarId id) {
    if (id == kNoScalar || plan_.hot[id]) return;
    plan_.hot[id] = true;
    const ScalarNode& node = stage_.body.node(id);
    for (int i = 0; i < 3; ++i) {
      if (node.op == ScalarOp::kSelectRare && i == 1) continue;
      need(node.in[i]);
    }
    if (node.op == ScalarOp::kLoad) need(stage_.loads[node.payload]);
  }
  void need(const Place& place) {
    for (const auto& [id, stride] : place.data) need(id);
    need(place.when);
  }

  void check(const Store& store) {
    bool uniform_data = true;
    for (const auto& [id, stride] : store.place.data) {
      uniform_data &= plan_.uniform[id] != 0;
    }
    if (vector_ < 0 || !uniform_data) return;
    const Expr& extent = vector_ < outer_ ? kernel_.loops[vector_]
                                          : stage_.loops[vector_ - outer_];
    if (store.place.strides[vector_].is_const(0) && !extent.is_const(1)) {
      throw Refused("many points that store to one element");
    }
  }

  const Kernel& kernel_;
  const Stage& stage_;
  const Bf16Rounding bf16_;
  const int outer_, inner_;
  int vector_;  // the loop that is vectorised; -1: none
  StagePlan plan_;
};

}  // namespace

StagePlan plan_stage(const Kernel& kernel, const Stage& stage,
                     std::vector<Fold> folds, Bf16Rounding bf16) {
  return Planner(kernel, stage, bf16).run(std::move(folds));
}

}  // namespace framejit::codegen
