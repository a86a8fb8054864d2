#include "codegen/schedule/arrange_loops.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>

#include "codegen/schedule/stages.h"

namespace framejit::codegen {

namespace {

// What an access costs by its step in the vectorised loop: a whole vector, a
// few cache lines, one line an element.
constexpr double kContiguous = 1, kNear = 4, kFar = 12, kScattered = 16;
// The prefixes within a vector.
constexpr double kPrefixes = 8;
constexpr int64_t kMostPages = 256;
// Vectors of a short row.
constexpr int kShortRow = 4;

class Arranger {
 public:
  Arranger(Kernel* kernel, bool in_order, const TargetInfo& target)
      : kernel_(*kernel), in_order_(in_order), target_(target) {}

  void run() {
    sort_outer();
    for (Stage& stage : kernel_.stages) sort_inner(stage);
    collapse_outer();
    for (Stage& stage : kernel_.stages) collapse_inner(stage);
    choose_vectorised();
    tile_transposes();
    nest_short_rows();
    hoist_invariants(&kernel_);
  }

 private:
  size_t outer() const { return kernel_.loops.size(); }

  template <class Visit>
  static void for_each_place(Stage& stage, Visit visit) {
    for (Store& store : stage.stores) visit(store.place);
    for (Place& place : stage.loads) visit(place);
  }

  // Loops `first` + order[0], order[1] ... of these stages, instead of first,
  // first + 1 ...
  static void reorder(Stage& stage, size_t first,
                      const std::vector<int>& order) {
    std::vector<int> now(order.size());
    for (size_t i = 0; i < order.size(); ++i)
      now[order[i]] = static_cast<int>(i);
    for_each_place(stage, [&](Place& place) {
      std::vector<Expr> strides(place.strides.begin() + first,
                                place.strides.begin() + first + order.size());
      for (size_t i = 0; i < order.size(); ++i)
        place.strides[first + i] = strides[order[i]];
    });
    rewrite_leaves(&stage, [&](ScalarNode* node) {
      if (node->op != ScalarOp::kIndex) return;
      size_t loop = static_cast<size_t>(node->payload);
      if (loop >= first && loop < first + order.size())
        node->payload = static_cast<int64_t>(first) + now[loop - first];
    });
  }

  void reorder_outer(const std::vector<int>& order) {
    if (std::is_sorted(order.begin(), order.end())) return;
    std::vector<Expr> loops;
    for (int loop : order) loops.push_back(kernel_.loops[loop]);
    kernel_.loops = std::move(loops);
    for (Stage& stage : kernel_.stages) reorder(stage, 0, order);
  }

  // Steps of all accesses along loops from `first` on, those first that say
  // most: stores, and what moves most.
  std::vector<std::vector<int64_t>> steps(std::vector<Stage*> stages,
                                          size_t first, size_t count) {
    struct Row {
      int rank;
      std::vector<int64_t> steps;
    };
    std::vector<Row> rows;
    for (Stage* stage : stages) {
      auto add = [&](const Place& place, int rank) {
        Row row{rank, {}};
        int moving = 0;
        for (size_t i = 0; i < count; ++i) {
          row.steps.push_back(std::abs(target_.hint(place.strides[first + i])));
          moving += row.steps.back() != 0;
        }
        row.rank += 2 * (static_cast<int>(count) - moving);
        rows.push_back(std::move(row));
      };
      for (const Store& store : stage->stores) add(store.place, 0);
      for (const Place& place : stage->loads) add(place, 1);
    }
    std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
      return a.rank < b.rank;
    });
    std::vector<std::vector<int64_t>> out;
    for (Row& row : rows) out.push_back(std::move(row.steps));
    return out;
  }

  // Longer steps first.
  static std::vector<int> sorted(const std::vector<std::vector<int64_t>>& steps,
                                 size_t count) {
    std::vector<int> order(count);
    std::iota(order.begin(), order.end(), 0);
    auto comes_first = [&](int a, int b) {
      for (const auto& row : steps) {
        if (row[a] == 0 || row[b] == 0 || row[a] == row[b]) continue;
        return row[a] > row[b];
      }
      return false;
    };
    // By insertion: the comparison need not be transitive.
    for (size_t i = 1; i < count; ++i)
      for (size_t at = i; at > 0 && comes_first(order[at], order[at - 1]); --at)
        std::swap(order[at], order[at - 1]);
    return order;
  }

  void sort_outer() {
    if (outer() < 2) return;
    std::vector<Stage*> stages;
    for (Stage& stage : kernel_.stages) stages.push_back(&stage);
    reorder_outer(sorted(steps(stages, 0, outer()), outer()));
  }

  bool keeps_order(const Stage& stage) const {
    if (in_order_) return true;
    for (const Reduction& reduction : stage.reductions)
      if (combiner_row(reduction.combiner).place) return true;
    for (const Store& store : stage.stores)
      if (!store.place.data.empty() || store.combiner || store.prefix_of >= 0)
        return true;
    return false;
  }

  // May the stage's stores be vectors along this, its last loop? Each turn has
  // a place of its own, or one that data says: lanes store in order then.
  static bool stores_apart(const Stage& stage, size_t loop) {
    for (const Store& store : stage.stores) {
      if (!store.place.strides[loop].is_const(0)) continue;
      const std::vector<char> varies = depends_on(stage, loop);
      if (std::none_of(store.place.data.begin(), store.place.data.end(),
                       [&](const auto& data) { return varies[data.first]; }))
        return false;
    }
    return true;
  }

  void sort_inner(Stage& stage) {
    const size_t count = stage.loops.size();
    if (count < 2 || keeps_order(stage)) return;
    std::vector<int> order = sorted(steps({&stage}, outer(), count), count);
    if (std::is_sorted(order.begin(), order.end())) return;
    std::vector<Expr> loops;
    for (int loop : order) loops.push_back(stage.loops[loop]);
    stage.loops = std::move(loops);
    reorder(stage, outer(), order);
  }

  // Is loop `at` with the next one a single loop to this stage?
  static bool is_one(Stage& stage, size_t at, const Expr& next) {
    bool out = true;
    for_each_place(stage, [&](Place& place) {
      out = out && place.strides[at] == place.strides[at + 1] * next;
    });
    for (const ScalarNode& node : stage.body.nodes())
      if (node.op == ScalarOp::kIndex &&
          (node.payload == static_cast<int64_t>(at) ||
           node.payload == static_cast<int64_t>(at) + 1))
        return false;
    return out;
  }

  static void drop_loop(Stage& stage, size_t at) {
    for_each_place(stage, [&](Place& place) {
      place.strides.erase(place.strides.begin() + at);
    });
    rewrite_leaves(&stage, [&](ScalarNode* node) {
      if (node->op == ScalarOp::kIndex &&
          node->payload > static_cast<int64_t>(at))
        --node->payload;
    });
  }

  void collapse_outer() {
    for (size_t at = outer(); at-- > 1;) {
      const Expr next = kernel_.loops[at];
      bool all = true;
      for (Stage& stage : kernel_.stages)
        all = all && is_one(stage, at - 1, next);
      if (!all) continue;
      kernel_.loops[at - 1] = kernel_.loops[at - 1] * next;
      kernel_.loops.erase(kernel_.loops.begin() + at);
      for (Stage& stage : kernel_.stages) drop_loop(stage, at - 1);
    }
  }

  void collapse_inner(Stage& stage) {
    for (size_t at = stage.loops.size(); at-- > 1;) {
      const Expr next = stage.loops[at];
      if (!is_one(stage, outer() + at - 1, next)) continue;
      stage.loops[at - 1] = stage.loops[at - 1] * next;
      stage.loops.erase(stage.loops.begin() + at);
      drop_loop(stage, outer() + at - 1);
    }
  }

  // ---- the vectorised loop

  double lanes() const {
    size_t width = 1;
    for (const KernelArgument& argument : kernel_.arguments)
      width = std::max(width, dtype_size(argument.type));
    return static_cast<double>(target_.vector_bytes) / width;
  }

  double step_cost(const Expr& stride) const {
    int64_t step = std::abs(target_.hint(stride));
    return step <= 1 ? kContiguous : step <= 4 ? kNear : kFar;
  }

  // Of a vector of the loop of this extent, an element.
  double waste(const Expr& extent) const {
    double turns = std::max<double>(target_.hint(extent), 1);
    return std::max(1.0, lanes() / turns);
  }

  double stage_cost(Stage& stage, size_t loop, const Expr& extent) {
    double cost = 0;
    for_each_place(stage, [&](Place& place) {
      cost += place.data.empty() ? step_cost(place.strides[loop]) : kNear;
    });
    for (const ScalarNode& node : stage.body.nodes())
      cost += node.op == ScalarOp::kLoad ? 0 : 0.25;
    return cost * waste(extent) *
           std::max<double>(target_.hint(stage.loops), 1);
  }

  double inner_cost() {
    double cost = 0;
    for (Stage& stage : kernel_.stages) {
      if (stage.loops.empty()) {
        cost += lanes();
      } else if (!stores_apart(stage, outer() + stage.loops.size() - 1)) {
        cost += kScattered * lanes() * target_.hint(stage.loops);
      } else {
        cost += stage_cost(stage, outer() + stage.loops.size() - 1,
                           stage.loops.back());
        for (const Store& store : stage.stores)
          cost +=
              store.prefix_of < 0 ? 0 : kPrefixes * target_.hint(stage.loops);
      }
    }
    return cost;
  }

  bool has_inner_loops() const {
    return std::any_of(kernel_.stages.begin(), kernel_.stages.end(),
                       [](const Stage& stage) { return !stage.loops.empty(); });
  }

  void choose_vectorised() {
    int best = -1;
    double least = has_inner_loops() ? inner_cost() : -1;
    for (size_t loop = outer(); loop-- > 0;) {
      double cost = 0;
      for (Stage& stage : kernel_.stages)
        cost += stage_cost(stage, loop, kernel_.loops[loop]);
      if (least >= 0 && cost >= least) continue;
      least = cost;
      best = static_cast<int>(loop);
    }
    kernel_.vectorised = best >= 0 ? Vectorised::kOuter : Vectorised::kInner;
    if (best >= 0) {
      std::vector<int> order(outer());
      std::iota(order.begin(), order.end(), 0);
      order.erase(order.begin() + best);
      order.push_back(best);
      reorder_outer(order);
    } else {
      guard_conflicts();
    }
    make_rows();
  }

  // One stage, of two loops or more, the last one in vectors.
  bool is_plain_nest() const {
    return kernel_.vectorised == Vectorised::kOuter && !has_inner_loops() &&
           kernel_.stages.size() == 1 && outer() >= 2;
  }

  // What is read along another loop than the vectors go: so many turns of that
  // loop become an inner one that targets read square blocks for, and transpose
  // them (one line of memory is then read once, not once an element).
  void tile_transposes() {
    if (!is_plain_nest()) return;
    Stage& stage = kernel_.stages[0];
    const size_t last = outer() - 1;
    if (target_.hint(kernel_.loops[last]) < target_.vector_bytes / 4) return;
    for (size_t loop = 0; loop < last; ++loop) {
      // Elements of a register, of the widest type that is so read.
      int64_t most = 0;
      for (const Place& place : stage.loads) {
        const DType type = kernel_.arguments[place.argument].type;
        if (!place.data.empty() || place.when != kNoScalar ||
            !place.strides[loop].is_const(1) ||
            step_cost(place.strides[last]) != kFar || type == DType::kBool)
          continue;
        const int64_t elements =
            target_.vector_bytes / std::max<int64_t>(dtype_size(type), 4);
        most = most == 0 ? elements : std::min(most, elements);
      }
      if (most == 0 || is_named(stage, loop) || !split_loop(stage, loop, most))
        continue;
      block_columns(stage, loop);
      return;
    }
  }

  // Runs of a few vectors (the channels of a pixel): what a run costs beside
  // them is less where many of them are inner loops of one point.
  void nest_short_rows() {
    if (!is_plain_nest()) return;
    Stage& stage = kernel_.stages[0];
    const size_t last = outer() - 1;
    const Expr row = kernel_.loops[last];
    if (!row.is_const() || row.constant() > kShortRow * lanes() ||
        row.constant() < lanes() / 2 || !stores_apart(stage, last))
      return;
    for (const ScalarNode& node : stage.body.nodes())
      if (node.op == ScalarOp::kIndex) return;
    if (!split_loop(stage, last - 1, target_.vector_bytes / 4)) return;
    for_each_place(stage, [](Place& place) {
      std::swap(place.strides.back(), *(place.strides.end() - 2));
    });
    stage.loops.push_back(row);
    kernel_.loops.pop_back();
    kernel_.vectorised = Vectorised::kInner;
  }

  // So many columns of all rows (`loop`) before the next ones: each is a page
  // of memory of its own, and there are translations for a few hundred.
  void block_columns(Stage& stage, size_t loop) {
    const size_t last = outer() - 1;
    const Expr extent = kernel_.loops[last];
    if (!extent.is_const() || is_named(stage, last)) return;
    int64_t block = kMostPages;
    while (block >= kMostPages / 4 && extent.constant() % block != 0)
      block -= target_.vector_bytes / 4;
    if (block < kMostPages / 4 || block == extent.constant()) return;
    for (const ScalarNode& node : stage.body.nodes())
      if (node.op == ScalarOp::kIndex) return;
    kernel_.loops[last] = block;
    kernel_.loops.insert(kernel_.loops.begin() + loop,
                         extent.constant() / block);
    for_each_place(stage, [&](Place& place) {
      place.strides.insert(place.strides.begin() + loop,
                           place.strides[last] * Expr(block));
    });
  }

  static bool is_named(const Stage& stage, size_t loop) {
    return std::any_of(stage.body.nodes().begin(), stage.body.nodes().end(),
                       [&](const ScalarNode& node) {
                         return node.op == ScalarOp::kIndex &&
                                node.payload == static_cast<int64_t>(loop);
                       });
  }

  // Into blocks and a new inner loop of at most so many turns, where that goes
  // up.
  bool split_loop(Stage& stage, size_t loop, int64_t most) {
    const Expr& extent = kernel_.loops[loop];
    for (const Store& store : stage.stores)
      if (!store.place.data.empty()) return false;
    if (!extent.is_const()) return false;
    int64_t turns = most;
    while (turns > most / 2 && extent.constant() % turns != 0) --turns;
    if (extent.constant() % turns != 0) return false;
    stage.loops = {turns};
    for_each_place(stage, [&](Place& place) {
      Expr stride = place.strides[loop];
      place.strides.push_back(stride);
      place.strides[loop] = stride * Expr(turns);
    });
    kernel_.loops[loop] = extent.constant() / turns;
    return true;
  }

  // Vectors of the last loop must not store twice to one place.
  void guard_conflicts() {
    for (Stage& stage : kernel_.stages) {
      if (stage.loops.empty() ||
          stores_apart(stage, outer() + stage.loops.size() - 1))
        continue;
      stage.loops.push_back(1);
      for_each_place(stage, [](Place& place) { place.strides.push_back(0); });
    }
  }

  // A flat kernel whose last loop has much that does not depend on it: that is
  // a row, and the rest is done once for it.
  void make_rows() {
    if (has_inner_loops() || kernel_.stages.size() != 1 || outer() < 2) return;
    Stage& stage = kernel_.stages[0];
    const int last = static_cast<int>(outer()) - 1;
    if (target_.hint(kernel_.loops[last]) < lanes() ||
        !has_invariants(kernel_, stage, last))
      return;
    stage.loops = {kernel_.loops.back()};
    kernel_.loops.pop_back();
    kernel_.vectorised = Vectorised::kInner;
  }

  Kernel& kernel_;
  bool in_order_;
  const TargetInfo& target_;
};

}  // namespace

void arrange_loops(Kernel* kernel, bool in_order, const TargetInfo& target) {
  Arranger(kernel, in_order, target).run();
}

}  // namespace framejit::codegen
