#include "codegen/schedule/keep_values.h"

#include <algorithm>

#include "codegen/schedule/cost.h"
#include "codegen/schedule/stages.h"

namespace framejit::codegen {

namespace {

// A store and a load cost less than this.
constexpr int kDear = 10;

class Keeper {
 public:
  Keeper(Kernel* kernel, const TargetInfo& target)
      : kernel_(*kernel), target_(target) {}

  void run() {
    for (size_t later = 1; later < kernel_.stages.size(); ++later) {
      const Stage& stage = kernel_.stages[later];
      if (stage.loops.empty()) continue;
      for (size_t store = 0; store < stage.stores.size(); ++store) {
        if (!is_free_before(later, stage.stores[store])) continue;
        for (size_t early = 0; early < later; ++early)
          if (kernel_.stages[early].loops == stage.loops &&
              keep(early, later, stage.stores[store].place))
            break;
      }
    }
  }

 private:
  // Nothing else touches the argument, every point has an element of its own,
  // and those of one outer point stay in the cache.
  bool is_free_before(size_t number, const Store& store) const {
    const Place& place = store.place;
    if (store.combiner || store.prefix_of >= 0 || !place.data.empty() ||
        place.when != kNoScalar)
      return false;
    const Stage& own = kernel_.stages[number];
    for (const Expr& stride : place.strides)
      if (stride.is_const(0)) return false;
    for (const Stage& stage : kernel_.stages) {
      for (const Place& load : stage.loads)
        if (load.argument == place.argument) return false;
      for (const Store& other : stage.stores)
        if (other.place.argument == place.argument && &other != &store)
          return false;
    }
    int64_t bytes = target_.hint(own.loops) *
                    static_cast<int64_t>(
                        dtype_size(kernel_.arguments[place.argument].type));
    if (kernel_.vectorised == Vectorised::kOuter)
      bytes *= target_.vector_bytes / 4;
    return bytes <= target_.l2_bytes / 4;
  }

  bool is_fixed(const Place& place) const {
    return place.data.empty() && place.when == kNoScalar &&
           !kernel_.arguments[place.argument].is_written;
  }

  // Of each node of the later stage: the same one of the earlier.
  std::vector<ScalarId> common(const Stage& early, const Stage& later) const {
    std::vector<ScalarId> out;
    const auto& known = early.body.nodes();
    for (ScalarNode node : later.body.nodes()) {
      bool may_be = node.op != ScalarOp::kCheck;
      for (ScalarId& in : node.in) {
        if (in == kNoScalar) continue;
        in = out[in];
        may_be &= in != kNoScalar;
      }
      auto same = [&](const ScalarNode& candidate) {
        if (node.op != ScalarOp::kLoad || candidate.op != ScalarOp::kLoad)
          return candidate == node;
        const Place& place = later.loads[node.payload];
        return is_fixed(place) && early.loads[candidate.payload] == place;
      };
      auto found =
          may_be ? std::find_if(known.begin(), known.end(), same) : known.end();
      out.push_back(found == known.end()
                        ? kNoScalar
                        : static_cast<ScalarId>(found - known.begin()));
    }
    return out;
  }

  // Of the nodes that the stage needs, but for those that only `without` does.
  static int cost(const Stage& stage, ScalarId without) {
    const auto& nodes = stage.body.nodes();
    std::vector<char> needed(nodes.size());
    auto need = [&](ScalarId id) {
      if (id != kNoScalar) needed[id] = true;
    };
    for (const Reduction& reduction : stage.reductions) need(reduction.value);
    for (const Store& store : stage.stores) {
      need(store.value);
      need(store.place.when);
      for (const auto& [id, stride] : store.place.data) need(id);
    }
    int sum = 0;
    for (size_t id = nodes.size(); id-- > 0;) {
      const ScalarNode& node = nodes[id];
      if (node.op == ScalarOp::kCheck) needed[id] = true;
      if (!needed[id] || static_cast<ScalarId>(id) == without) continue;
      sum += op_cost(node.op, node.type);
      for (ScalarId in : node.in) need(in);
      if (node.op != ScalarOp::kLoad) continue;
      need(stage.loads[node.payload].when);
      for (const auto& [data, stride] : stage.loads[node.payload].data)
        need(data);
    }
    return sum;
  }

  bool keep(size_t early_number, size_t later_number, const Place& where) {
    Stage& early = kernel_.stages[early_number];
    Stage& later = kernel_.stages[later_number];
    const DType type = kernel_.arguments[where.argument].type;
    const std::vector<ScalarId> known = common(early, later);
    const int whole = cost(later, kNoScalar);
    ScalarId best = kNoScalar;
    int saved = kDear - 1;
    for (size_t id = 0; id < known.size(); ++id) {
      if (known[id] == kNoScalar ||
          later.body.type(static_cast<ScalarId>(id)) != type)
        continue;
      int saves = whole - cost(later, static_cast<ScalarId>(id));
      if (saves <= saved) continue;
      saved = saves;
      best = static_cast<ScalarId>(id);
    }
    if (best == kNoScalar) return false;
    Store store;
    store.place = where;
    store.value = known[best];
    later.loads.push_back(where);
    early.stores.push_back(std::move(store));
    const auto number = static_cast<int64_t>(later.loads.size()) - 1;
    ScalarId at = 0;
    rewrite_leaves(&later, [&](ScalarNode* node) {
      if (at++ == best) *node = {ScalarOp::kLoad, type, {-1, -1, -1}, number};
    });
    remove_dead_nodes(&later);
    return true;
  }

  Kernel& kernel_;
  const TargetInfo& target_;
};

}  // namespace

void keep_values(Kernel* kernel, const TargetInfo& target) {
  Keeper(kernel, target).run();
}

}  // namespace framejit::codegen
