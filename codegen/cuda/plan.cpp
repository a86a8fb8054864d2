#include "codegen/cuda/plan.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "codegen/legalise/fold.h"
#include "codegen/scalar/evaluate.h"
#include "codegen/schedule/cost.h"

namespace framejit::codegen {

namespace {

constexpr int kMostShared = 32 << 10;  // bytes that are sure to be there
constexpr int kMostBytes = 16;         // that one instruction moves
constexpr int kMostWidth = 8;          // points side by side
constexpr int kMostKept = 64;          // registers of a thread that keep values
constexpr int kMostText = 6000;        // nodes of unrolled stages

bool has_side_effects(const Store& store) {
  return store.combiner || !store.place.data.empty() ||
         store.place.when != kNoScalar;
}

class Planner {
 public:
  Planner(const Kernel& kernel, const CudaOptions& options)
      : kernel_(kernel), options_(options) {}

  CudaPlan run() {
    choose_shape();
    for (const Stage& stage : kernel_.stages) {
      StagePlan& each = plan_.stages.emplace_back();
      each.loads.resize(stage.loads.size());
      each.stores.resize(stage.stores.size());
    }
    if (options_.vectors) choose_width();
    if (plan_.shape == CudaShape::kTiles) stage_tiles();
    if (plan_.shape == CudaShape::kRows) keep_rows();
    return std::move(plan_);
  }

 private:
  // ---- who does a point

  void choose_shape() {
    const bool has_inner = std::ranges::any_of(
        kernel_.stages, [](const Stage& s) { return !s.loops.empty(); });
    const bool is_one = kernel_.stages.size() == 1;
    plan_.is_flat_stage = is_one && has_inner &&
                          kernel_.stages[0].reductions.empty() &&
                          !is_sequential(kernel_.stages[0], options_);
    plan_.loops = kernel_.loops;
    if (plan_.is_flat_stage) {
      const auto& inner = kernel_.stages[0].loops;
      plan_.loops.insert(plan_.loops.end(), inner.begin(), inner.end());
    }
    plan_.order.resize(plan_.loops.size());
    std::iota(plan_.order.begin(), plan_.order.end(), size_t{0});
    if (has_inner && !plan_.is_flat_stage && options_.team > 1) {
      if (kernel_.vectorised == Vectorised::kInner) {
        plan_.shape = CudaShape::kRows;
        plan_.team = options_.team;
        if (plan_.team > kWarp) plan_.block = plan_.team;
        return;
      }
      if (can_be_columns()) {
        plan_.shape = CudaShape::kColumns;
        plan_.team = std::min(options_.team, kWarp);
        while (plan_.team > 1 && plan_.team * column_bytes() > kMostShared)
          plan_.team /= 2;
        if (plan_.team == 1) {
          plan_.shape = CudaShape::kFlat;
          return;
        }
        plan_.block = plan_.team * kWarp;
        return;
      }
    }
    if (!has_inner || plan_.is_flat_stage) order_points();
  }

  // Of accumulators in shared memory, for each warp of a block of columns.
  int column_bytes() const {
    std::set<std::pair<Combiner, DType>> folds;
    for (const Stage& stage : kernel_.stages)
      for (const Reduction& reduction : stage.reductions)
        folds.emplace(reduction.combiner, stage.body.type(reduction.value));
    int bytes = 0;
    for (auto [combiner, type] : folds)
      bytes +=
          kWarp * 8 * static_cast<int>(make_fold(combiner, type).states.size());
    return bytes;
  }

  bool can_be_columns() const {
    return !kernel_.loops.empty() &&
           std::ranges::none_of(kernel_.stages, [&](const Stage& stage) {
             return has_prefix(stage) || is_sequential(stage, options_);
           });
  }

  // What is the same along a loop is little, and stays in a cache.
  static bool is_large(const Place& place) {
    return std::ranges::none_of(place.strides,
                                [](const Expr& e) { return e.is_const(0); });
  }
  bool lies_along(const Place& place, size_t loop) const {
    return loop < place.strides.size() && place.strides[loop].is_const(1);
  }
  int size_of(const Place& place) const {
    return static_cast<int>(dtype_size(kernel_.arguments[place.argument].type));
  }

  // The fastest loop is the one along which most lies; what lies along another
  // makes tiles of both.
  void order_points() {
    if (plan_.loops.size() < 2 || kernel_.stages.size() != 1) return;
    const Stage& stage = kernel_.stages[0];
    if (is_sequential(stage, options_)) return;
    std::vector<int64_t> bytes(plan_.loops.size());
    auto count = [&](const Place& place, int64_t weight) {
      for (size_t loop = 0; loop < plan_.loops.size(); ++loop)
        if (lies_along(place, loop))
          bytes[loop] += weight * size_of(place) * (is_large(place) ? 1000 : 1);
    };
    for (const Place& place : stage.loads) count(place, 2);
    for (const Store& store : stage.stores) count(store.place, 3);
    const auto best = static_cast<size_t>(
        std::max_element(bytes.rbegin(), bytes.rend()).base() - bytes.begin() -
        1);
    if (bytes[best] == 0) return;
    size_t second = plan_.loops.size();
    auto look = [&](const Place& place) {
      if (!is_large(place) || lies_along(place, best)) return;
      for (size_t loop = 0; loop < plan_.loops.size(); ++loop) {
        if (loop == best || !lies_along(place, loop)) continue;
        if (second == plan_.loops.size() || bytes[loop] > bytes[second])
          second = loop;
      }
    };
    for (const Place& place : stage.loads) look(place);
    for (const Store& store : stage.stores) look(store.place);
    auto move_last = [&](size_t loop) {
      std::erase(plan_.order, loop);
      plan_.order.push_back(loop);
    };
    if (second < plan_.loops.size() && stage.reductions.empty() &&
        stage.rows.empty()) {
      plan_.shape = CudaShape::kTiles;
      move_last(second);
    }
    move_last(best);
  }

  void stage_tiles() {
    const Stage& stage = kernel_.stages[0];
    const size_t across = plan_.order[plan_.order.size() - 2];
    int left = kMostShared;
    for (size_t i = 0; i < stage.loads.size(); ++i) {
      const Place& place = stage.loads[i];
      const int bytes = kWarp * (kWarp + 1) * size_of(place);
      if (!is_plain(place) || !lies_along(place, across) ||
          lies_along(place, plan_.order.back()) || bytes > left)
        continue;
      left -= bytes;
      plan_.stages[0].loads[i].is_staged = true;
    }
  }

  // ---- points side by side

  size_t fastest(const Stage& stage) const {
    return plan_.fastest(kernel_, stage);
  }
  const Expr& extent(const Stage& stage) const {
    return plan_.shape == CudaShape::kRows ? stage.loops.back()
                                           : plan_.loops[plan_.order.back()];
  }

  // Known before the points: no node of the body has to be computed for it.
  bool is_fixed(const Stage& stage, ScalarId id, size_t loop) const {
    const ScalarNode& node = stage.body.node(id);
    switch (node.op) {
      case ScalarOp::kConst:
      case ScalarOp::kNumber:
      case ScalarOp::kRow:
        return true;
      case ScalarOp::kIndex:
        return static_cast<size_t>(node.payload) != loop;
      default:
        return false;
    }
  }

  bool could_be_wide(const Stage& stage, const Place& place) const {
    const size_t loop = fastest(stage);
    if (place.when != kNoScalar || !lies_along(place, loop)) return false;
    if (!place.data.empty() && has_check(stage.body)) return false;
    return std::ranges::all_of(place.data, [&](const auto& data) {
      return is_fixed(stage, data.first, loop);
    });
  }

  bool has_width(const Stage& stage) const {
    if (is_sequential(stage, options_)) return false;
    if (plan_.shape == CudaShape::kRows) return !stage.loops.empty();
    return plan_.shape == CudaShape::kFlat && kernel_.stages.size() == 1 &&
           !plan_.loops.empty() && stage.reductions.empty() &&
           (stage.loops.empty() || plan_.is_flat_stage);
  }

  // False: it is not, whatever the symbols are.
  bool can_divide(const Expr& e, int by) const {
    return !e.is_const() || e.constant() % by == 0;
  }
  void require_multiple(const Expr& e) {
    if (e.is_const()) return;
    if (std::ranges::find(plan_.multiples, e) == plan_.multiples.end())
      plan_.multiples.push_back(e);
  }
  bool can_be_wide(const Stage& stage, const Place& place, int width) const {
    const size_t loop = fastest(stage);
    if (!could_be_wide(stage, place) || !can_divide(place.offset, width))
      return false;
    for (size_t k = 0; k < place.strides.size(); ++k)
      if (k != loop && !can_divide(place.strides[k], width)) return false;
    return std::ranges::all_of(place.data, [&](const auto& data) {
      return can_divide(data.second, width);
    });
  }

  void make_wide(const Stage& stage, const Place& place, AccessPlan* access) {
    access->is_wide = true;
    require_multiple(place.offset);
    for (size_t k = 0; k < place.strides.size(); ++k)
      if (k != fastest(stage)) require_multiple(place.strides[k]);
    for (const auto& data : place.data) require_multiple(data.second);
    const std::pair<int, int> need(
        place.argument, std::min(kMostBytes, plan_.width * size_of(place)));
    if (std::ranges::find(plan_.alignments, need) == plan_.alignments.end())
      plan_.alignments.push_back(need);
  }

  // The largest elements, of what is large, are moved by 16 bytes: neighbours
  // then lie side by side for every instruction.
  void choose_width() {
    int largest = 0, any = 0;
    auto look = [&](const Stage& stage, const Place& place) {
      if (!could_be_wide(stage, place)) return;
      any = std::max(any, size_of(place));
      if (is_large(place)) largest = std::max(largest, size_of(place));
    };
    for (const Stage& stage : kernel_.stages) {
      if (!has_width(stage)) continue;
      for (const Place& place : stage.loads) look(stage, place);
      for (const Store& store : stage.stores)
        if (!has_side_effects(store)) look(stage, store.place);
    }
    if (any == 0) return;
    plan_.width = std::min(kMostBytes / (largest ? largest : any), kMostWidth);
    for (; plan_.width > 1; plan_.width /= 2)
      if (widen()) return;
  }

  // False: nothing is wide, or a stage is not divided.
  bool widen() {
    bool any = false;
    for (const Stage& stage : kernel_.stages) {
      if (!has_width(stage)) continue;
      if (!can_divide(extent(stage), plan_.width)) return false;
      for (const Place& place : stage.loads)
        any |= can_be_wide(stage, place, plan_.width);
      for (const Store& store : stage.stores)
        any |= !has_side_effects(store) &&
               can_be_wide(stage, store.place, plan_.width);
    }
    if (!any) return false;
    for (size_t i = 0; i < kernel_.stages.size(); ++i) {
      const Stage& stage = kernel_.stages[i];
      if (!has_width(stage)) continue;
      StagePlan& each = plan_.stages[i];
      each.width = plan_.width;
      require_multiple(extent(stage));
      for (size_t k = 0; k < stage.loads.size(); ++k)
        if (can_be_wide(stage, stage.loads[k], plan_.width))
          make_wide(stage, stage.loads[k], &each.loads[k]);
      for (size_t k = 0; k < stage.stores.size(); ++k)
        if (!has_side_effects(stage.stores[k]) &&
            can_be_wide(stage, stage.stores[k].place, plan_.width))
          make_wide(stage, stage.stores[k].place, &each.stores[k]);
    }
    return true;
  }

  // ---- registers that keep values

  bool is_plain(const Place& place) const {
    return place.data.empty() && place.when == kNoScalar;
  }

  // All accesses of the argument are plain, and by stages that share out their
  // points in the same way, each element by one thread.
  bool is_private(int argument, const std::vector<Expr>& loops,
                  const Place& as) const {
    for (size_t i = 0; i < kernel_.stages.size(); ++i) {
      const Stage& stage = kernel_.stages[i];
      auto fits = [&](const Place& place) {
        return place.argument != argument ||
               (stage.loops == loops && place == as &&
                is_kept_stage(stage, loops));
      };
      for (const Place& place : stage.loads)
        if (!fits(place)) return false;
      for (const Store& store : stage.stores)
        if (!fits(store.place) ||
            (store.place.argument == argument &&
             (has_side_effects(store) || store.prefix_of >= 0)))
          return false;
    }
    return true;
  }

  bool is_kept_stage(const Stage& stage, const std::vector<Expr>& loops) const {
    return stage.loops == loops && !is_sequential(stage, options_) &&
           !has_prefix(stage);
  }

  void keep_rows() {
    // The loops that most stages have.
    const std::vector<Expr>* loops = nullptr;
    for (const Stage& stage : kernel_.stages) {
      const auto same =
          std::ranges::count_if(kernel_.stages, [&](const Stage& other) {
            return !stage.loops.empty() && other.loops == stage.loops;
          });
      if (same >= 2 && !loops) loops = &stage.loops;
    }
    if (!loops) return;
    int64_t points = 1;
    for (const Expr& e : *loops) {
      if (!e.is_const() || e.constant() <= 0) return;
      points *= e.constant();
      if (points > (1 << 20)) return;
    }
    const int64_t stride = int64_t{plan_.team} * plan_.width;
    const int64_t turns = (points + stride - 1) / stride;
    if (turns * plan_.width > kMostKept) return;
    choose_kept(*loops, static_cast<int>(turns));
  }

  void choose_kept(const std::vector<Expr>& loops, int turns) {
    const int each = turns * plan_.width;
    // With 1024 threads each has 64 registers.
    int left = plan_.block >= 1024 ? 56 : kMostKept;
    std::vector<std::pair<const Place*, int>> known;
    size_t nodes = 0;
    for (const Stage& stage : kernel_.stages)
      if (is_kept_stage(stage, loops)) nodes += stage.body.nodes().size();
    if (nodes * static_cast<size_t>(each) > kMostText) return;
    for (size_t i = 0; i < kernel_.stages.size(); ++i) {
      const Stage& stage = kernel_.stages[i];
      if (!is_kept_stage(stage, loops)) continue;
      auto consider = [&](const Place& place, AccessPlan* access,
                          bool is_store) {
        auto found = std::ranges::find_if(
            known, [&](const auto& k) { return *k.first == place; });
        if (found != known.end()) {
          access->kept = found->second;
          access->is_dropped = !is_store;
          return;
        }
        if (!is_plain(place) || !is_read_later(i, loops, place)) return;
        const bool is_written = kernel_.arguments[place.argument].is_written;
        if (is_written && !is_private(place.argument, loops, place)) return;
        const int words = (size_of(place) + 3) / 4 * each;
        if (words > left) return;
        left -= words;
        access->kept = static_cast<int>(plan_.kept.size());
        plan_.kept.push_back(kernel_.arguments[place.argument].type);
        known.emplace_back(&place, access->kept);
      };
      StagePlan& plan = plan_.stages[i];
      for (size_t k = 0; k < stage.loads.size(); ++k)
        consider(stage.loads[k], &plan.loads[k], false);
      for (size_t k = 0; k < stage.stores.size(); ++k)
        consider(stage.stores[k].place, &plan.stores[k], true);
    }
    if (plan_.kept.empty()) return;
    plan_.turns = turns;
    for (size_t i = 0; i < kernel_.stages.size(); ++i) {
      if (!is_kept_stage(kernel_.stages[i], loops)) continue;
      plan_.stages[i].turns = turns;
      drop_stores(i);
    }
  }

  bool is_read_later(size_t number, const std::vector<Expr>& loops,
                     const Place& place) const {
    for (size_t i = number + 1; i < kernel_.stages.size(); ++i) {
      const Stage& stage = kernel_.stages[i];
      if (is_kept_stage(stage, loops) &&
          std::ranges::find(stage.loads, place) != stage.loads.end())
        return true;
    }
    return false;
  }

  // Of an argument whose values are all kept: the last store counts.
  void drop_stores(size_t number) {
    const Stage& stage = kernel_.stages[number];
    for (size_t k = 0; k < stage.stores.size(); ++k) {
      AccessPlan& access = plan_.stages[number].stores[k];
      if (access.kept < 0) continue;
      for (size_t i = number + 1; i < kernel_.stages.size(); ++i)
        for (const Store& later : kernel_.stages[i].stores)
          access.is_dropped |= later.place == stage.stores[k].place;
    }
  }

  const Kernel& kernel_;
  const CudaOptions& options_;
  CudaPlan plan_;
};

}  // namespace

bool is_sequential(const Stage& stage, const CudaOptions& options) {
  return options.deterministic &&
         std::ranges::any_of(stage.stores, [&](const Store& store) {
           const auto& strides = store.place.strides;
           return store.combiner || !store.place.data.empty() ||
                  std::any_of(strides.end() - static_cast<std::ptrdiff_t>(
                                                  stage.loops.size()),
                              strides.end(),
                              [](const Expr& e) { return e.is_const(0); });
         });
}

bool has_prefix(const Stage& stage) {
  return std::ranges::any_of(stage.stores,
                             [](const Store& s) { return s.prefix_of >= 0; });
}

CudaPlan plan_cuda(const Kernel& kernel, const CudaOptions& options) {
  return Planner(kernel, options).run();
}

}  // namespace framejit::codegen
