// The values of a stage, node by node.
#include <algorithm>
#include <functional>

#include "codegen/legalise/expand.h"
#include "codegen/x86/kernel_emitter.h"

namespace framejit::codegen {

namespace {

// Fold programs and stages name constants of one width.
bool is_wide(DType type) { return dtype_size(type) == 8; }

}  // namespace

// ---- constants

// Constants that are used often keep a register.
void KernelEmitter::hoist_constants() {
  std::unordered_map<uint64_t, int> uses[2];
  auto count = [&](const Body& body, int weight) {
    for (const ScalarNode& node : body.nodes()) {
      for (int k = 0; k < scalar_op_row(node.op).operands; ++k) {
        const ScalarNode& in = body.node(node.in[k]);
        if (in.op != ScalarOp::kConst || in.type == DType::kBool) continue;
        // The last operand may be read from memory as it is.
        bool last = k + 1 == scalar_op_row(node.op).operands;
        uses[is_wide(in.type)][static_cast<uint64_t>(in.payload)] +=
            weight * (last ? 1 : 3);
      }
    }
  };
  for (const StagePlan& plan : plans_) {
    count(plan.stage->body, 1);
    for (const Fold& fold : plan.folds) count(fold.step, 1);
  }
  std::vector<std::tuple<int, int, uint64_t>> ranked;
  for (int wide = 0; wide < 2; ++wide) {
    for (auto [bits, number] : uses[wide]) {
      if (number >= 2) ranked.emplace_back(-number, wide, bits);
    }
  }
  std::sort(ranked.begin(), ranked.end());
  const auto most = static_cast<size_t>(isa_.spare_registers());
  if (ranked.size() > most) ranked.resize(most);
  for (auto [number, wide, bits] : ranked) {
    DType type = wide ? DType::kI64 : DType::kI32;
    (wide ? doubles_ : words_)[bits] = isa_.constant(type, bits);
  }
}

Lanes KernelEmitter::constant(DType type, Element value) {
  if (type != DType::kBool) {
    auto& known = is_wide(type) ? doubles_ : words_;
    auto found = known.find(value);
    if (found != known.end()) return found->second;
  }
  return isa_.constant(type, value);
}

// ---- operations

LaneOperand KernelEmitter::operand_of(
    const Body& body, ScalarId id, bool in_memory,
    const std::function<Lanes(ScalarId)>& value) {
  const ScalarNode& node = body.node(id);
  LaneOperand result;
  result.type = node.type;
  if (node.op != ScalarOp::kConst) {
    result.lanes = value(id);
    return result;
  }
  const auto element = static_cast<Element>(node.payload);
  result.constant = element;
  auto& known = is_wide(node.type) ? doubles_ : words_;
  if (in_memory && node.type != DType::kBool && !known.count(element)) {
    return result;
  }
  result.lanes = constant(node.type, element);
  return result;
}

Lanes KernelEmitter::operation(const Body& body, ScalarId id,
                               const std::function<Lanes(ScalarId)>& value) {
  const ScalarNode& node = body.node(id);
  const int operands = scalar_op_row(node.op).operands;
  if (node.op == ScalarOp::kLookup) {
    return isa_.lookup(node.type, node.payload, value(node.in[0]));
  }
  if (node.op == ScalarOp::kCast && node.type == DType::kBF16 &&
      is_bf16_value(body, node.in[0])) {
    return isa_.upper_half(value(node.in[0]));
  }
  std::array<LaneOperand, 3> in;
  auto is_const = [&](int k) {
    return body.node(node.in[k]).op == ScalarOp::kConst;
  };
  for (int k = 0; k < operands; ++k) {
    bool in_memory = false;
    if (node.op == ScalarOp::kFma || node.op == ScalarOp::kFnma) {
      // One operand may lie in memory.
      in_memory = isa_.takes_memory(ScalarOp::kAdd, node.type) &&
                  (is_const(2) ? k == 2 && !is_const(0) && !is_const(1)
                               : k < 2 && !is_const(1 - k));
    } else {
      in_memory = k == 1 && isa_.takes_memory(node.op, body.type(node.in[0]));
    }
    in[k] = operand_of(body, node.in[k], in_memory, value);
  }
  return isa_.operation(node.op, node.type, in);
}

std::vector<Lanes> KernelEmitter::fold_values(
    const Body& body, const std::vector<ScalarId>& roots,
    const std::vector<Lanes>& leaves) {
  std::vector<Lanes> values(body.nodes().size());
  std::function<Lanes(ScalarId)> value = [&](ScalarId id) {
    const ScalarNode& node = body.node(id);
    return node.op == ScalarOp::kConst
               ? constant(node.type, static_cast<Element>(node.payload))
               : values[id];
  };
  for (size_t i = 0; i < values.size(); ++i) {
    const ScalarNode& node = body.nodes()[i];
    if (node.op == ScalarOp::kConst) continue;
    values[i] = node.op == ScalarOp::kLoad
                    ? leaves[node.payload]
                    : operation(body, static_cast<ScalarId>(i), value);
  }
  std::vector<Lanes> results;
  for (ScalarId root : roots) results.push_back(value(root));
  return results;
}

// ---- nodes of the stage

Lanes KernelEmitter::value(ScalarId id, int copy) {
  const ScalarNode& node = plan_->stage->body.node(id);
  if (node.op == ScalarOp::kConst) {
    return constant(node.type, static_cast<Element>(node.payload));
  }
  return values_of_[is_shared(id) ? 0 : copy].of[id];
}

void KernelEmitter::emit_level(int level) {
  const size_t count = plan_->stage->body.nodes().size();
  for (int c = 0; c < copies_; ++c) {
    for (size_t i = 0; i < count; ++i) {
      auto id = static_cast<ScalarId>(i);
      if (plan_->level[i] != level || !plan_->hot[i]) continue;
      if (c > 0 && is_shared(id)) continue;
      emit_node(id, c);
    }
  }
}

void KernelEmitter::emit_node(ScalarId id, int copy) {
  if (plan_->stage->body.node(id).op == ScalarOp::kConst) return;
  values_of_[copy].of[id] = node_value(id, copy);
}

Lanes KernelEmitter::node_value(ScalarId id, int copy) {
  const ScalarNode& node = plan_->stage->body.node(id);
  switch (node.op) {
    case ScalarOp::kIndex:
      return index_lanes(static_cast<int>(node.payload), copy);
    case ScalarOp::kNumber:
      return isa_.broadcast(node.type, load(kernel_.numbers[node.payload]));
    case ScalarOp::kRow:
      return rows_[node.payload][columns_ ? copy : 0];
    case ScalarOp::kLoad:
      return load_lanes(id, copy);
    case ScalarOp::kCheck:
      emit_check(id, copy);
      return value(node.in[0], copy);
    case ScalarOp::kSelectRare:
      return rare(id, copy);
    case ScalarOp::kCast:
      if (std::optional<Lanes> known = half_cast(id, copy)) return *known;
      [[fallthrough]];
    default:
      return operation(plan_->stage->body, id,
                       [&](ScalarId in) { return value(in, copy); });
  }
}

std::optional<Lanes> KernelEmitter::half_cast(ScalarId id, int copy) {
  const Body& body = plan_->stage->body;
  const ScalarNode& node = body.node(id);
  const ScalarId in = node.in[0];
  const bool is_single = plan_->halves[in] != HalfForm::kBits;
  if (plan_->halves[id] == HalfForm::kBits) {
    if (!is_single) return std::nullopt;
    return isa_.cast(DType::kF32, node.type, value(in, copy));
  }
  Lanes single = value(in, copy);
  if (!is_single) single = isa_.cast(body.type(in), DType::kF32, single);
  return plan_->halves[id] == HalfForm::kWidened
             ? isa_.round_halves(node.type, single)
             : single;
}

Lanes KernelEmitter::index_lanes(int loop, int copy) {
  const size_t outer = kernel_.loops.size();
  const bool is_vector =
      vector_loop(*plan_->stage) == static_cast<size_t>(loop);
  x86::Gp number = cc_.newInt64();
  cc_.mov(number, static_cast<size_t>(loop) < outer ? outer_[loop]
                                                    : inner_[loop - outer]);
  if (!is_vector) return isa_.broadcast(DType::kI64, number);
  if (columns_) cc_.add(number, position_);
  if (copy > 0) cc_.add(number, copy * isa_.lanes());
  LaneOperand base{isa_.broadcast(DType::kI64, number), DType::kI64,
                   std::nullopt};
  LaneOperand numbers{isa_.numbers(), DType::kI64, std::nullopt};
  return isa_.operation(ScalarOp::kAdd, DType::kI64, {base, numbers, {}});
}

void KernelEmitter::emit_check(ScalarId id, int copy) {
  const ScalarNode& node = plan_->stage->body.node(id);
  Lanes holds = value(node.in[0], copy);
  Lanes there = mask_ ? *mask_ : isa_.constant(DType::kBool, 1);
  Lanes wrong = isa_.mask_and_not(there, holds);
  aj::Label fine = cc_.newLabel();
  isa_.jump_if_none(wrong, fine);
  cc_.jmp(failed_);
  cc_.bind(fine);
}

// What only the rare value needs is computed where some lane wants it.
Lanes KernelEmitter::rare(ScalarId id, int copy) {
  const Body& body = plan_->stage->body;
  const ScalarNode& node = body.node(id);
  Lanes condition = value(node.in[0], copy);
  if (mask_ && !is_shared(id)) condition = isa_.mask_and(condition, *mask_);
  Lanes result = isa_.copy(node.type, value(node.in[2], copy));
  aj::Label skip = cc_.newLabel();
  isa_.jump_if_none(condition, skip);
  // Values that exist on this path only.
  std::vector<Values> saved = values_of_;
  std::vector<char> wanted(body.nodes().size());
  std::function<void(ScalarId)> want = [&](ScalarId at) {
    if (at == kNoScalar || plan_->hot[at] || wanted[at]) return;
    wanted[at] = true;
    const ScalarNode& inner = body.node(at);
    if (inner.op == ScalarOp::kLoad) {
      const Place& place = plan_->stage->loads[inner.payload];
      want(place.when);
      for (const auto& [data, stride] : place.data) want(data);
    }
    for (int k = 0; k < 3; ++k) {
      if (inner.op == ScalarOp::kSelectRare && k == 1) continue;
      want(inner.in[k]);
    }
  };
  want(node.in[1]);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i]) continue;
    auto at = static_cast<ScalarId>(i);
    if (body.node(at).op == ScalarOp::kConst) continue;
    values_of_[is_shared(at) ? 0 : copy].of[at] = node_value(at, copy);
  }
  Lanes chosen = isa_.select(condition, node.type, value(node.in[1], copy),
                             value(node.in[2], copy));
  isa_.assign(node.type, &result, chosen);
  values_of_ = std::move(saved);
  cc_.bind(skip);
  return result;
}

Lanes KernelEmitter::paired_element(size_t reduction, int copies) {
  const Fold& fold = plan_->folds[reduction];
  std::vector<Lanes> elements;
  for (int c = 0; c < copies; ++c) {
    elements.push_back(value(plan_->stage->reductions[reduction].value, c));
  }
  for (int step = copies / 2; step > 0; step /= 2) {
    for (int c = 0; c < step; ++c) {
      elements[c] = fold_values(fold.pair, {fold.paired},
                                {elements[c], elements[c + step]})[0];
    }
  }
  return elements[0];
}

void KernelEmitter::accumulate(size_t reduction, int copy,
                               const Lanes& element) {
  const Fold& fold = plan_->folds[reduction];
  std::vector<Lanes>& states = states_[reduction][copy];
  std::vector<Lanes> leaves = states;
  leaves.push_back(element);
  const Combiner combiner = plan_->stage->reductions[reduction].combiner;
  if (combiner == Combiner::kArgMin || combiner == Combiner::kArgMax) {
    x86::Gp place = cc_.newInt64();
    cc_.mov(place, linear_);
    if (!columns_ && !inner_.empty()) {
      cc_.add(place, inner_.back());
      if (copy > 0) cc_.add(place, copy * isa_.lanes());
    }
    Lanes lanes = isa_.broadcast(DType::kI64, place);
    if (!columns_) {
      LaneOperand base{lanes, DType::kI64, std::nullopt};
      LaneOperand numbers{isa_.numbers(), DType::kI64, std::nullopt};
      lanes = isa_.operation(ScalarOp::kAdd, DType::kI64, {base, numbers, {}});
    }
    leaves.push_back(lanes);
  }
  if (plan_->scans[reduction] && !columns_) {
    for (size_t s = 0; s < states.size(); ++s) {
      leaves[s] = isa_.constant(fold.states[s], fold.initial[s]);
    }
    std::vector<Lanes> alone = fold_values(fold.step, fold.stepped, leaves);
    for (size_t s = 0; mask_ && s < states.size(); ++s) {
      alone[s] = isa_.select(*mask_, fold.states[s], alone[s], leaves[s]);
    }
    prefixes_[reduction] = scan(reduction, alone);
    return;
  }
  std::vector<Lanes> next = fold_values(fold.step, fold.stepped, leaves);
  for (size_t s = 0; s < states.size(); ++s) {
    if (mask_ && !columns_) {
      isa_.assign_where(*mask_, fold.states[s], &states[s], next[s]);
    } else {
      isa_.assign(fold.states[s], &states[s], next[s]);
    }
  }
}

// Of lanes 0 .. 2^k - 1 each knows its prefix and the sum of all; with the sum
// of the 2^k beside them they know that of twice as many.
std::vector<Lanes> KernelEmitter::scan(size_t reduction,
                                       const std::vector<Lanes>& stepped) {
  const Fold& fold = plan_->folds[reduction];
  std::vector<Lanes>& carry = states_[reduction][0];
  auto join = [&](const std::vector<Lanes>& a, const std::vector<Lanes>& b) {
    std::vector<Lanes> leaves = a;
    leaves.insert(leaves.end(), b.begin(), b.end());
    return fold_values(fold.join, fold.joined, leaves);
  };
  std::vector<Lanes> prefix = stepped, sum = stepped;
  for (int step = 1; step < isa_.lanes(); step *= 2) {
    std::vector<Lanes> other;
    for (size_t s = 0; s < sum.size(); ++s) {
      other.push_back(isa_.butterfly(fold.states[s], sum[s], step));
    }
    std::vector<Lanes> longer = join(other, prefix);
    for (size_t s = 0; s < sum.size(); ++s) {
      Lanes upper = isa_.lanes_with_bit(step, fold.states[s]);
      prefix[s] = isa_.select(upper, fold.states[s], longer[s], prefix[s]);
    }
    sum = join(sum, other);
  }
  std::vector<Lanes> result = join(carry, prefix), next = join(carry, sum);
  for (size_t s = 0; s < sum.size(); ++s) {
    // Rounding may differ from lane to lane.
    isa_.assign(fold.states[s], &carry[s],
                isa_.splat_first(fold.states[s], next[s]));
  }
  return result;
}

void KernelEmitter::emit_innermost(int copies, const Lanes* mask) {
  const Stage& stage = *plan_->stage;
  const Lanes* outer_mask = mask_;
  const int outer_copies = copies_;
  mask_ = mask;
  copies_ = copies;
  const int level = 1 + static_cast<int>(stage.loops.size());
  const size_t count = stage.body.nodes().size();
  for (int c = 0; c < copies; ++c) {
    // Without inner loops level 1 is done already.
    for (size_t i = 0; i < count && level > 1; ++i) {
      auto id = static_cast<ScalarId>(i);
      if (plan_->level[i] != level || !plan_->hot[i]) continue;
      if (c > 0 && is_shared(id)) continue;
      emit_node(id, c);
    }
    for (size_t r = 0; r < stage.reductions.size(); ++r) {
      if (is_paired(r)) continue;
      accumulate(r, c, value(stage.reductions[r].value, c));
    }
    for (size_t s = 0; s < stage.stores.size(); ++s) emit_store(s, c);
  }
  for (size_t r = 0; r < stage.reductions.size(); ++r) {
    if (is_paired(r)) accumulate(r, 0, paired_element(r, copies));
  }
  mask_ = outer_mask;
  copies_ = outer_copies;
}

}  // namespace framejit::codegen
