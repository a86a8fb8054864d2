#include "codegen/schedule/stages.h"

#include <algorithm>

#include "codegen/scalar/simplify.h"
#include "codegen/schedule/cost.h"

namespace framejit::codegen {

namespace {

// Row values live in registers or on the stack.
constexpr int kMaxHoisted = 12;

template <class Visit>
void for_each_root(Stage& stage, Visit visit) {
  for (Reduction& reduction : stage.reductions) visit(&reduction.value);
  for (Store& store : stage.stores) {
    if (store.value != kNoScalar) visit(&store.value);
    for (auto& [id, stride] : store.place.data) visit(&id);
    if (store.place.when != kNoScalar) visit(&store.place.when);
  }
  for (auto& [id, row] : stage.rows) visit(&id);
}

// What a node needs: operands, and what decides where a load goes.
template <class Visit>
void for_each_operand(const Stage& stage, const ScalarNode& node, Visit visit) {
  for (ScalarId in : node.in)
    if (in != kNoScalar) visit(in);
  if (node.op != ScalarOp::kLoad) return;
  const Place& place = stage.loads[node.payload];
  for (const auto& [id, stride] : place.data) visit(id);
  if (place.when != kNoScalar) visit(place.when);
}

// Copies nodes of one stage into another, loads with them.
class Copier {
 public:
  Copier(const Stage& from, Stage* to)
      : from_(from), to_(*to), now_(from.body.nodes().size(), kNoScalar) {}

  ScalarId copy(ScalarId id) {
    ScalarNode node = from_.body.node(id);
    for (ScalarId& in : node.in)
      if (in != kNoScalar) in = now_[in];
    if (node.op == ScalarOp::kLoad) node.payload = load(node.payload);
    return now_[id] = to_.body.emit(node.op, node.type, node.in, node.payload);
  }
  ScalarId now(ScalarId id) const { return now_[id]; }
  void set(ScalarId id, ScalarId now) { now_[id] = now; }

 private:
  int64_t load(int64_t old) {
    Place place = from_.loads[old];
    for (auto& [id, stride] : place.data) id = now_[id];
    if (place.when != kNoScalar) place.when = now_[place.when];
    auto found = std::find(to_.loads.begin(), to_.loads.end(), place);
    if (found == to_.loads.end()) found = to_.loads.insert(found, place);
    return found - to_.loads.begin();
  }

  const Stage& from_;
  Stage& to_;
  std::vector<ScalarId> now_;
};

}  // namespace

void remove_dead_nodes(Stage* stage) {
  const auto& nodes = stage->body.nodes();
  std::vector<char> needed(nodes.size());
  for_each_root(*stage, [&](ScalarId* id) { needed[*id] = true; });
  for (size_t id = nodes.size(); id-- > 0;) {
    needed[id] |= nodes[id].op == ScalarOp::kCheck;
    if (needed[id])
      for_each_operand(*stage, nodes[id],
                       [&](ScalarId in) { needed[in] = true; });
  }
  Stage out;
  Copier copier(*stage, &out);
  for (size_t id = 0; id < nodes.size(); ++id)
    if (needed[id]) copier.copy(static_cast<ScalarId>(id));
  for_each_root(*stage, [&](ScalarId* id) { *id = copier.now(*id); });
  stage->body = std::move(out.body);
  stage->loads = std::move(out.loads);
}

void rewrite_leaves(Stage* stage,
                    const std::function<void(ScalarNode*)>& change) {
  Body body;
  std::vector<ScalarId> now;
  for (ScalarNode node : stage->body.nodes()) {
    for (ScalarId& in : node.in)
      if (in != kNoScalar) in = now[in];
    change(&node);
    now.push_back(body.emit(node.op, node.type, node.in, node.payload));
  }
  auto moved = [&](ScalarId* id) {
    if (*id != kNoScalar) *id = now[*id];
  };
  for_each_root(*stage, moved);
  for (Place& place : stage->loads) {
    for (auto& [id, stride] : place.data) moved(&id);
    moved(&place.when);
  }
  stage->body = std::move(body);
}

std::vector<char> depends_on(const Stage& stage, size_t loop) {
  std::vector<char> out;
  for (const ScalarNode& node : stage.body.nodes()) {
    bool varies = node.op == ScalarOp::kIndex &&
                  node.payload == static_cast<int64_t>(loop);
    for_each_operand(stage, node, [&](ScalarId in) { varies |= out[in]; });
    if (node.op == ScalarOp::kLoad)
      varies |= !stage.loads[node.payload].strides[loop].is_const(0);
    out.push_back(varies);
  }
  return out;
}

namespace {

// Of each node: does it depend on loops from `first` on?
std::vector<char> variants(const Stage& stage, size_t first) {
  std::vector<char> out;
  // Such a Check may guard data, wherever those come from.
  bool is_guarded = false;
  for (const ScalarNode& node : stage.body.nodes()) {
    bool varies = node.op == ScalarOp::kIndex &&
                  node.payload >= static_cast<int64_t>(first);
    for_each_operand(stage, node, [&](ScalarId in) { varies |= out[in]; });
    if (node.op == ScalarOp::kLoad) {
      const Place& place = stage.loads[node.payload];
      for (size_t loop = first; loop < place.strides.size(); ++loop)
        varies |= !place.strides[loop].is_const(0);
      varies |= is_guarded && !place.data.empty();
    }
    is_guarded |= varies && node.op == ScalarOp::kCheck;
    out.push_back(varies);
  }
  return out;
}

bool is_plain_leaf(ScalarOp op) {
  return op == ScalarOp::kConst || op == ScalarOp::kNumber ||
         op == ScalarOp::kRow || op == ScalarOp::kIndex;
}

// May the node be a row value?
bool may_be_row(const ScalarNode& node) {
  return !is_plain_leaf(node.op) && !is_small_float(node.type);
}

void hoist(Kernel* kernel, Stage stage, std::vector<Stage>* out) {
  const size_t outer = kernel->loops.size();
  std::vector<char> varies = variants(stage, outer);
  const auto& nodes = stage.body.nodes();
  // The last invariant values: what the loops themselves need.
  std::vector<char> wanted(nodes.size());
  auto want = [&](auto& self, ScalarId id) -> void {
    if (varies[id]) return;
    if (may_be_row(nodes[id])) {
      wanted[id] = true;
    } else if (!is_plain_leaf(nodes[id].op)) {
      // Small floats stay where they are used.
      for_each_operand(stage, nodes[id], [&](ScalarId in) { self(self, in); });
    }
  };
  for (size_t id = 0; id < nodes.size(); ++id)
    if (varies[id])
      for_each_operand(stage, nodes[id], [&](ScalarId in) { want(want, in); });
  for_each_root(stage, [&](ScalarId* id) { want(want, *id); });
  int count = static_cast<int>(std::count(wanted.begin(), wanted.end(), 1));
  bool has_checks = false;
  for (size_t id = 0; id < nodes.size(); ++id)
    has_checks |= !varies[id] && nodes[id].op == ScalarOp::kCheck;
  if ((count == 0 && !has_checks) || count > kMaxHoisted) {
    out->push_back(std::move(stage));
    return;
  }
  // Where an inner loop may have no turns, loads and Checks are not done then.
  Stage before;
  ScalarId turns = kNoScalar;
  for (const Expr& extent : stage.loops) {
    if (extent.is_const() && extent.constant() > 0) continue;
    Body& body = before.body;
    ScalarId size = extent.is_const()
                        ? body.integer(DType::kI64, extent.constant())
                        : body.emit(ScalarOp::kNumber, DType::kI64,
                                    {-1, -1, -1}, kernel->add_number(extent));
    ScalarId some = emit_simplified(body, ScalarOp::kLt, DType::kBool,
                                    {body.integer(DType::kI64, 0), size, -1});
    turns = turns == kNoScalar
                ? some
                : emit_simplified(body, ScalarOp::kAnd, DType::kBool,
                                  {turns, some, -1});
  }
  Stage invariant = stage;
  invariant.loops.clear();
  for (Place& place : invariant.loads) place.strides.resize(outer);
  Copier hoisted(invariant, &before);
  Stage rest;
  Copier kept(stage, &rest);
  std::vector<char> needed_before(nodes.size());
  for (size_t id = nodes.size(); id-- > 0;) {
    if (varies[id]) continue;
    needed_before[id] |= wanted[id] || nodes[id].op == ScalarOp::kCheck;
    if (needed_before[id])
      for_each_operand(stage, nodes[id],
                       [&](ScalarId in) { needed_before[in] = true; });
  }
  for (size_t id = 0; id < nodes.size(); ++id) {
    const ScalarId number = static_cast<ScalarId>(id);
    const ScalarNode& node = nodes[id];
    if (needed_before[id]) {
      if (turns != kNoScalar && node.op == ScalarOp::kLoad) {
        Place& place = invariant.loads[node.payload];
        // Conditions are mapped by the copy: put this one in afterwards.
        ScalarId when =
            place.when == kNoScalar ? kNoScalar : hoisted.now(place.when);
        Place moved = place;
        for (auto& [data, stride] : moved.data) data = hoisted.now(data);
        moved.when = when == kNoScalar
                         ? turns
                         : emit_simplified(before.body, ScalarOp::kAnd,
                                           DType::kBool, {when, turns, -1});
        before.loads.push_back(moved);
        hoisted.set(number, before.body.emit(
                                ScalarOp::kLoad, node.type, {-1, -1, -1},
                                static_cast<int64_t>(before.loads.size()) - 1));
      } else if (turns != kNoScalar && node.op == ScalarOp::kCheck) {
        ScalarId none = emit_simplified(before.body, ScalarOp::kNot,
                                        DType::kBool, {turns, -1, -1});
        ScalarId holds =
            emit_simplified(before.body, ScalarOp::kOr, DType::kBool,
                            {none, hoisted.now(node.in[0]), -1});
        before.body.emit(ScalarOp::kCheck, DType::kBool, {holds, -1, -1});
        hoisted.set(number, hoisted.now(node.in[0]));
      } else {
        hoisted.copy(number);
      }
    }
    if (wanted[id]) {
      int row = static_cast<int>(kernel->row_types.size());
      kernel->row_types.push_back(node.type);
      before.rows.emplace_back(hoisted.now(number), row);
      kept.set(number,
               rest.body.emit(ScalarOp::kRow, node.type, {-1, -1, -1}, row));
    } else if (varies[id] || is_plain_leaf(node.op) ||
               is_small_float(node.type)) {
      bool is_there = true;
      for_each_operand(stage, node, [&](ScalarId in) {
        is_there &= kept.now(in) != kNoScalar;
      });
      if (is_there) kept.copy(number);
    }
  }
  stage.body = std::move(rest.body);
  stage.loads = std::move(rest.loads);
  for_each_root(stage, [&](ScalarId* id) { *id = kept.now(*id); });
  remove_dead_nodes(&stage);
  out->push_back(std::move(before));
  out->push_back(std::move(stage));
}

}  // namespace

bool has_invariants(const Kernel& kernel, const Stage& stage, int loop) {
  std::vector<char> varies = variants(stage, loop);
  int cost = 0;
  const auto& nodes = stage.body.nodes();
  for (size_t id = 0; id < nodes.size(); ++id) {
    if (varies[id]) {
      if (nodes[id].op != ScalarOp::kLoad) continue;
      const Place& place = stage.loads[nodes[id].payload];
      // One address for the whole row.
      for (const auto& [data, stride] : place.data)
        cost += varies[data] ? 0 : 8;
    } else {
      cost += op_cost(nodes[id].op, nodes[id].type);
    }
  }
  for (const Store& store : stage.stores)
    for (const auto& [data, stride] : store.place.data)
      cost += varies[data] ? 0 : 8;
  return cost >= 4;
}

void hoist_invariants(Kernel* kernel) {
  std::vector<Stage> out;
  for (Stage& stage : kernel->stages) {
    if (stage.loops.empty()) {
      out.push_back(std::move(stage));
    } else {
      hoist(kernel, std::move(stage), &out);
    }
  }
  kernel->stages = std::move(out);
}

}  // namespace framejit::codegen
