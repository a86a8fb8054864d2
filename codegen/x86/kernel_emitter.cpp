#include "codegen/x86/kernel_emitter.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "codegen/x86/compile.h"

namespace framejit::codegen {

namespace {

constexpr size_t kNoLoop = SIZE_MAX;

size_t state_registers(const StagePlan& plan) {
  size_t count = 0;
  for (const Fold& fold : plan.folds)
    for (DType state : fold.states) count += VectorIsa::parts(state);
  return count;
}

}  // namespace

KernelEmitter::KernelEmitter(const Kernel& kernel, std::vector<StagePlan> plans,
                             VectorIsa& isa)
    : kernel_(kernel),
      plans_(std::move(plans)),
      isa_(isa),
      cc_(isa.cc()),
      columns_(kernel.vectorised == Vectorised::kOuter),
      rows_(kernel.row_types.size()) {}

// ---- numbers

x86::Mem KernelEmitter::parameter(const Expr& e) {
  auto found = std::find(parameters_.begin(), parameters_.end(), e);
  if (found == parameters_.end()) found = parameters_.insert(found, e);
  return x86::qword_ptr(values_,
                        static_cast<int32_t>(found - parameters_.begin()) * 8);
}

x86::Gp KernelEmitter::load(const Expr& e) {
  x86::Gp result = cc_.newInt64();
  if (e.is_const()) {
    cc_.mov(result, e.constant());
  } else if (e.is_float_const()) {
    cc_.mov(result, std::bit_cast<int64_t>(e.real()));
  } else {
    cc_.mov(result, parameter(e));
  }
  return result;
}

void KernelEmitter::multiply(const x86::Gp& by, const Expr& e, int64_t scale) {
  if (e.is_const()) {
    int64_t factor = e.constant() * scale;
    if (factor == 1) return;
    if (std::has_single_bit(static_cast<uint64_t>(factor))) {
      cc_.shl(by, std::countr_zero(static_cast<uint64_t>(factor)));
    } else {
      x86::Gp number = cc_.newInt64();
      cc_.mov(number, factor);
      cc_.imul(by, number);
    }
    return;
  }
  cc_.imul(by, parameter(e));
  if (scale > 1) cc_.shl(by, std::countr_zero(static_cast<uint64_t>(scale)));
}

void KernelEmitter::compare(const x86::Gp& value, const Expr& e) {
  if (!e.is_const()) {
    cc_.cmp(value, parameter(e));
  } else if (e.constant() == static_cast<int32_t>(e.constant())) {
    cc_.cmp(value, e.constant());
  } else {
    cc_.cmp(value, load(e));
  }
}

// ---- loops

void KernelEmitter::emit() {
  aj::FuncNode* function = cc_.addFunc(
      aj::FuncSignatureT<int64_t, const KernelCall*, int64_t, int64_t>(
          aj::CallConvId::kHost));
  if (isa_.lanes() == 16) function->frame().setAvx512Enabled();
  function->frame().setAvxEnabled();
  function->frame().setAvxCleanup();
  call_ = cc_.newIntPtr();
  x86::Gp begin = cc_.newInt64();
  remaining_ = cc_.newInt64();
  function->setArg(0, call_);
  function->setArg(1, begin);
  function->setArg(2, remaining_);
  arguments_ = cc_.newIntPtr();
  values_ = cc_.newIntPtr();
  cc_.mov(arguments_, x86::ptr(call_, offsetof(KernelCall, arguments)));
  cc_.mov(values_, x86::ptr(call_, offsetof(KernelCall, parameters)));
  failed_ = cc_.newLabel();
  aj::Label done = cc_.newLabel();
  cc_.sub(remaining_, begin);
  cc_.jle(done);
  hoist_constants();
  // Where in the outer loops the range begins.
  for (size_t i = 0; i < kernel_.loops.size(); ++i) {
    outer_.push_back(cc_.newInt64());
  }
  x86::Gp rest = begin;
  for (size_t i = kernel_.loops.size(); i-- > 1;) {
    x86::Gp high = cc_.newInt64(), quotient = cc_.newInt64();
    cc_.mov(quotient, rest);
    cc_.xor_(high, high);
    cc_.idiv(high, quotient, load(kernel_.loops[i]));
    cc_.mov(outer_[i], high);
    rest = quotient;
  }
  if (!outer_.empty()) cc_.mov(outer_[0], rest);
  emit_runs();
  cc_.bind(done);
  x86::Gp result = cc_.newInt64();
  cc_.xor_(result.r32(), result.r32());
  cc_.ret(result);
  cc_.bind(failed_);
  x86::Gp failure = cc_.newInt64();
  cc_.mov(failure, 1);
  cc_.ret(failure);
  cc_.endFunc();
}

size_t KernelEmitter::vector_loop(const Stage& stage) const {
  const size_t outer = kernel_.loops.size();
  if (columns_) return outer > 0 ? outer - 1 : kNoLoop;
  return stage.loops.empty() ? kNoLoop : outer + stage.loops.size() - 1;
}

// Addresses and the number of points along the last outer loop.
void KernelEmitter::begin_run() {
  run_ = cc_.newInt64();
  if (outer_.empty()) {
    cc_.mov(run_, remaining_);
  } else {
    cc_.mov(run_, load(kernel_.loops.back()));
    cc_.sub(run_, outer_.back());
    cc_.cmp(run_, remaining_);
    cc_.cmovg(run_, remaining_);
  }
  places_.clear();
  for (const StagePlan& plan : plans_) {
    auto& list = places_.emplace_back();
    const size_t vector = vector_loop(*plan.stage);
    auto add = [&](const Place& place) {
      PlaceCode& code = list.emplace_back();
      code.place = &place;
      code.type = kernel_.arguments[place.argument].type;
      const auto size = static_cast<int64_t>(dtype_size(code.type));
      code.start = cc_.newIntPtr();
      cc_.mov(code.start, x86::ptr(arguments_, place.argument * 8));
      if (!place.offset.is_const(0)) {
        x86::Gp offset = load(place.offset);
        multiply(offset, Expr(1), size);
        cc_.add(code.start, offset);
      }
      for (size_t i = 0; i < outer_.size(); ++i) {
        if (place.strides[i].is_const(0)) continue;
        x86::Gp term = cc_.newInt64();
        cc_.mov(term, outer_[i]);
        multiply(term, place.strides[i], size);
        cc_.add(code.start, term);
      }
      if (vector == kNoLoop || place.strides[vector].is_const(0)) return;
      const Expr& stride = place.strides[vector];
      if (stride.is_const(1)) {
        code.walk = Walk::kContiguous;
        return;
      }
      if (stride.is_const(-1) && place.data.empty()) {
        code.walk = Walk::kReversed;
        code.known_step = -isa_.lanes() * size;
        return;
      }
      code.walk = Walk::kStrided;
      x86::Gp bytes = load(stride);
      multiply(bytes, Expr(1), size);
      LaneOperand by{isa_.broadcast(DType::kI64, bytes), DType::kI64,
                     std::nullopt};
      LaneOperand numbers{isa_.numbers(), DType::kI64, std::nullopt};
      code.offsets =
          isa_.operation(ScalarOp::kMul, DType::kI64, {numbers, by, {}});
      code.step = cc_.newInt64();
      cc_.mov(code.step, bytes);
      multiply(code.step, Expr(isa_.lanes()), 1);
    };
    for (const Place& place : plan.stage->loads) add(place);
    for (const Store& store : plan.stage->stores) add(store.place);
  }
}

void KernelEmitter::emit_runs() {
  aj::Label top = cc_.newLabel(), done = cc_.newLabel();
  cc_.bind(top);
  begin_run();
  if (columns_) {
    emit_columns();
  } else {
    emit_rows();
  }
  cc_.sub(remaining_, run_);
  if (outer_.size() > 1) {
    cc_.jle(done);
    cc_.xor_(outer_.back().r32(), outer_.back().r32());
    for (size_t i = outer_.size() - 1; i-- > 0;) {
      cc_.inc(outer_[i]);
      if (i == 0) break;
      compare(outer_[i], kernel_.loops[i]);
      cc_.jl(top);
      cc_.xor_(outer_[i].r32(), outer_[i].r32());
    }
    cc_.jmp(top);
  }
  cc_.bind(done);
}

int KernelEmitter::copies_of(size_t nodes, size_t states) const {
  const size_t most = isa_.lanes() == 16 ? 60 : 24;
  int copies = states > 0 && nodes <= most / 4 ? 4 : nodes <= most ? 2 : 1;
  // Of the registers, half are for the rest.
  const size_t registers = isa_.lanes() == 16 ? 16 : 8;
  while (copies > 1 && copies * states > registers) copies /= 2;
  return copies;
}

// Does a run take elements from one place to another, as they are?
bool KernelEmitter::copies_memory() const {
  if (kernel_.stages.size() != 1 || kernel_.loops.empty()) return false;
  const Stage& stage = kernel_.stages[0];
  if (!stage.loops.empty() || !stage.reductions.empty() ||
      !stage.rows.empty() || stage.loads.size() != 1 ||
      stage.stores.size() != 1)
    return false;
  const Store& store = stage.stores[0];
  const Place& from = stage.loads[0];
  const size_t last = kernel_.loops.size() - 1;
  auto is_plain = [&](const Place& place) {
    return place.data.empty() && place.when == kNoScalar &&
           place.strides[last].is_const(1);
  };
  return is_plain(from) && is_plain(store.place) && !store.combiner &&
         store.prefix_of < 0 &&
         stage.body.node(store.value).op == ScalarOp::kLoad &&
         kernel_.arguments[from.argument].type ==
             kernel_.arguments[store.place.argument].type;
}

// memmove knows how memory is written without being read before.
void KernelEmitter::emit_long_copy(const aj::Label& done) {
  constexpr int64_t kLong = 4096;  // bytes: fewer are not worth a call
  const PlaceCode &from = places_[0][0], &to = places_[0][1];
  x86::Gp bytes = cc_.newInt64();
  cc_.mov(bytes, run_);
  multiply(bytes, Expr(1), static_cast<int64_t>(dtype_size(to.type)));
  aj::Label is_short = cc_.newLabel();
  cc_.cmp(bytes, kLong);
  cc_.jl(is_short);
  aj::InvokeNode* node = nullptr;
  cc_.invoke(&node,
             aj::imm(reinterpret_cast<void*>(
                 static_cast<void* (*)(void*, const void*, size_t)>(&memmove))),
             aj::FuncSignatureT<void*, void*, const void*, size_t>(
                 aj::CallConvId::kHost));
  node->setArg(0, to.start);
  node->setArg(1, from.start);
  node->setArg(2, bytes);
  cc_.jmp(done);
  cc_.bind(is_short);
}

// kOuter: a run is blocks of vectors.
void KernelEmitter::emit_columns() {
  aj::Label copied = cc_.newLabel();
  if (copies_memory()) emit_long_copy(copied);
  size_t nodes = 0, states = 0;
  bool narrow = false;
  for (const StagePlan& plan : plans_) {
    nodes += plan.stage->body.nodes().size();
    states = std::max(states, state_registers(plan));
    for (const Fold& fold : plan.folds) nodes += fold.step.nodes().size();
  }
  for (const KernelArgument& argument : kernel_.arguments) {
    narrow |= dtype_size(argument.type) < 4;
  }
  const int copies = copies_of(nodes, states);
  position_ = cc_.newInt64();
  cc_.xor_(position_.r32(), position_.r32());
  for (auto& stage : places_) {
    for (PlaceCode& code : stage) {
      code.pointer = cc_.newIntPtr();
      cc_.mov(code.pointer, code.start);
    }
  }
  auto block = [&](int count, const Lanes* mask) {
    emit_point(count, mask);
    for (auto& stage : places_) advance_pointers(&stage, count);
    cc_.add(position_, count * isa_.lanes());
  };
  // A loop over whole blocks.
  auto whole = [&](int count) {
    aj::Label top = cc_.newLabel(), rest = cc_.newLabel();
    x86::Gp last = cc_.newInt64();
    cc_.lea(last, x86::ptr(run_, -count * isa_.lanes()));
    cc_.cmp(position_, last);
    cc_.jg(rest);
    cc_.align(aj::AlignMode::kCode, 32);
    cc_.bind(top);
    block(count, nullptr);
    cc_.cmp(position_, last);
    cc_.jle(top);
    cc_.bind(rest);
  };
  const bool single = kernel_.loops.empty();
  if (!single) {
    if (copies > 1) whole(copies);
    // Masked accesses of narrow elements are slow where there are no masks.
    if (copies == 1 || (narrow && isa_.lanes() == 8)) whole(1);
  }
  aj::Label top = cc_.newLabel(), done = cc_.newLabel();
  cc_.bind(top);
  x86::Gp left = cc_.newInt64();
  cc_.mov(left, run_);
  cc_.sub(left, position_);
  cc_.jle(done);
  x86::Gp lanes = cc_.newInt64();
  cc_.mov(lanes, isa_.lanes());
  cc_.cmp(left, lanes);
  cc_.cmovg(left, lanes);
  Lanes mask = isa_.first_lanes(left);
  block(1, &mask);
  cc_.jmp(top);
  cc_.bind(done);
  cc_.bind(copied);
}

// kInner: a run is one point after the other.
void KernelEmitter::emit_rows() {
  x86::Gp left = cc_.newInt64();
  cc_.mov(left, run_);
  aj::Label top = cc_.newLabel();
  cc_.bind(top);
  for (auto& stage : places_) {
    for (PlaceCode& code : stage) code.pointer = code.start;
  }
  emit_point(1, nullptr);
  if (!outer_.empty()) {
    const size_t last = outer_.size() - 1;
    for (auto& stage : places_) {
      for (PlaceCode& code : stage) {
        const Expr& stride = code.place->strides[last];
        if (stride.is_const(0)) continue;
        const auto size = static_cast<int64_t>(dtype_size(code.type));
        if (stride.is_const() && std::abs(stride.constant()) < (1 << 26)) {
          cc_.add(code.start, stride.constant() * size);
        } else {
          x86::Gp bytes = load(stride);
          multiply(bytes, Expr(1), size);
          cc_.add(code.start, bytes);
        }
      }
    }
    cc_.inc(outer_.back());
  }
  cc_.dec(left);
  cc_.jnz(top);
}

void KernelEmitter::emit_point(int copies, const Lanes* mask) {
  for (size_t i = 0; i < plans_.size(); ++i) emit_stage(i, copies, mask);
}

void KernelEmitter::init_states(int copies) {
  states_.clear();
  prefixes_.assign(plan_->folds.size(), {});
  for (size_t r = 0; r < plan_->folds.size(); ++r) {
    const Fold& fold = plan_->folds[r];
    auto& by_copy = states_.emplace_back();
    for (int c = 0; c < (is_paired(r) ? 1 : copies); ++c) {
      auto& states = by_copy.emplace_back();
      for (size_t s = 0; s < fold.states.size(); ++s) {
        Lanes initial = isa_.constant(fold.states[s], fold.initial[s]);
        states.push_back(isa_.copy(fold.states[s], initial));
      }
    }
  }
}

void KernelEmitter::finish_states(int copies) {
  for (size_t r = 0; r < plan_->folds.size(); ++r) {
    const Fold& fold = plan_->folds[r];
    const Reduction& reduction = plan_->stage->reductions[r];
    auto join = [&](const std::vector<Lanes>& a, const std::vector<Lanes>& b) {
      std::vector<Lanes> leaves = a;
      leaves.insert(leaves.end(), b.begin(), b.end());
      return fold_values(fold.join, fold.joined, leaves);
    };
    int results = columns_ ? copies : 1;
    if (!columns_) {
      std::vector<Lanes> all = states_[r][0];
      if (plan_->scans[r]) {
        // All lanes have it already; one shall count.
        x86::Gp one = cc_.newInt64();
        cc_.mov(one, 1);
        Lanes first = isa_.first_lanes(one);
        for (size_t s = 0; s < all.size(); ++s) {
          Lanes none = isa_.constant(fold.states[s], fold.initial[s]);
          all[s] = isa_.select(first, fold.states[s], all[s], none);
        }
      }
      const auto count = states_[r].size();
      for (size_t c = 1; c < count; ++c) all = join(all, states_[r][c]);
      for (int step = isa_.lanes() / 2; step > 0; step /= 2) {
        std::vector<Lanes> other;
        for (size_t s = 0; s < all.size(); ++s) {
          other.push_back(isa_.butterfly(fold.states[s], all[s], step));
        }
        all = join(all, other);
      }
      // Rounding may differ from lane to lane.
      for (size_t s = 0; s < all.size(); ++s) {
        all[s] = isa_.splat_first(fold.states[s], all[s]);
      }
      states_[r][0] = all;
    }
    for (int c = 0; c < results; ++c) {
      auto values = fold_values(fold.finish, fold.results, states_[r][c]);
      for (size_t k = 0; k < values.size(); ++k) {
        rows_[reduction.row + static_cast<int>(k)][c] = values[k];
      }
    }
  }
}

void KernelEmitter::emit_stage(size_t number, int copies, const Lanes* mask) {
  stage_number_ = number;
  plan_ = &plans_[number];
  code_ = &places_[number];
  const Stage& stage = *plan_->stage;
  copies_ = copies;
  mask_ = mask;
  if (!columns_ && !stage.loops.empty()) {
    size_t nodes = 0;
    for (const Fold& fold : plan_->folds) nodes += fold.step.nodes().size();
    for (int level : plan_->level) {
      nodes += level == 1 + static_cast<int>(stage.loops.size());
    }
    copies_ = copies_of(nodes, state_registers(*plan_));
    const Expr& extent = stage.loops.back();
    while (copies_ > 1 && extent.is_const() &&
           extent.constant() < copies_ * isa_.lanes()) {
      copies_ /= 2;
    }
    // Prefixes come one vector after the other.
    for (char scans : plan_->scans) copies_ = scans ? 1 : copies_;
  }
  init_states(copies_);
  aj::Label empty = cc_.newLabel();
  for (const Expr& extent : stage.loops) {
    if (extent.is_const() && extent.constant() > 0) continue;
    x86::Gp count = load(extent);
    cc_.test(count, count);
    cc_.jle(empty);
  }
  const size_t nodes = stage.body.nodes().size();
  values_of_.assign(static_cast<size_t>(copies_), {std::vector<Lanes>(nodes)});
  inner_.clear();
  if (plan_->counts_places) {
    linear_ = cc_.newInt64();
    cc_.xor_(linear_.r32(), linear_.r32());
  }
  std::vector<x86::Gp> before;
  for (PlaceCode& code : *code_) before.push_back(code.pointer);
  const int active = copies_;
  if (!columns_) copies_ = 1;
  emit_level(0);
  emit_level(1);
  copies_ = active;
  if (stage.loops.empty()) {
    if (columns_ || stage.reductions.empty()) {
      emit_innermost(columns_ ? copies_ : 1, mask_);
    } else {
      // One point, which one lane takes in.
      x86::Gp one = cc_.newInt64();
      cc_.mov(one, 1);
      Lanes first = isa_.first_lanes(one);
      emit_innermost(1, &first);
    }
  } else {
    if (columns_) transpose_blocks();
    emit_nest(0);
    for (PlaceCode& code : *code_) code.block.clear();
  }
  for (size_t i = 0; i < code_->size(); ++i) (*code_)[i].pointer = before[i];
  cc_.bind(empty);
  finish_states(copies_);
  for (auto [id, row] : stage.rows) {
    for (int c = 0; c < (columns_ ? copies_ : 1); ++c) {
      rows_[row][c] = value(id, c);
    }
  }
}

void KernelEmitter::emit_nest(size_t loop) {
  const Stage& stage = *plan_->stage;
  if (!columns_ && loop + 1 == stage.loops.size()) {
    emit_vector_loop();
    return;
  }
  x86::Gp counter = cc_.newInt64();
  cc_.xor_(counter.r32(), counter.r32());
  inner_.push_back(counter);
  const size_t stride = kernel_.loops.size() + loop;
  std::vector<x86::Gp> before;
  for (PlaceCode& code : *code_) {
    before.push_back(code.pointer);
    if (code.place->strides[stride].is_const(0)) continue;
    x86::Gp moving = cc_.newIntPtr();
    cc_.mov(moving, code.pointer);
    code.pointer = moving;
  }
  aj::Label top = cc_.newLabel();
  cc_.align(aj::AlignMode::kCode, 32);
  cc_.bind(top);
  if (loop + 1 == stage.loops.size()) {
    emit_innermost(copies_, mask_);
    if (plan_->counts_places) cc_.inc(linear_);
  } else {
    const int active = copies_;
    if (!columns_) copies_ = 1;
    emit_level(static_cast<int>(loop) + 2);
    copies_ = active;
    emit_nest(loop + 1);
  }
  for (PlaceCode& code : *code_) {
    const Expr& by = code.place->strides[stride];
    if (by.is_const(0)) continue;
    const auto size = static_cast<int64_t>(dtype_size(code.type));
    if (by.is_const() && std::abs(by.constant()) < (1 << 26)) {
      cc_.add(code.pointer, by.constant() * size);
    } else {
      x86::Gp bytes = load(by);
      multiply(bytes, Expr(1), size);
      cc_.add(code.pointer, bytes);
    }
  }
  cc_.inc(counter);
  compare(counter, stage.loops[loop]);
  cc_.jl(top);
  for (size_t i = 0; i < code_->size(); ++i) (*code_)[i].pointer = before[i];
  inner_.pop_back();
}

void KernelEmitter::advance_pointers(std::vector<PlaceCode>* places,
                                     int copies) {
  for (PlaceCode& code : *places) {
    if (code.walk == Walk::kReversed) {
      cc_.add(code.pointer, copies * code.known_step);
    } else if (code.walk == Walk::kStrided) {
      for (int c = 0; c < copies; ++c) cc_.add(code.pointer, code.step);
    }
  }
}

// kInner: the last loop of a stage, in blocks of `copies_` vectors, then one at
// a time.
void KernelEmitter::emit_vector_loop() {
  const Expr& extent = plan_->stage->loops.back();
  const int lanes = isa_.lanes(), block = copies_ * lanes;
  x86::Gp counter = cc_.newInt64();
  cc_.xor_(counter.r32(), counter.r32());
  inner_.push_back(counter);
  std::vector<x86::Gp> before;
  for (PlaceCode& code : *code_) {
    before.push_back(code.pointer);
    if (!has_pointer(code)) continue;
    x86::Gp moving = cc_.newIntPtr();
    cc_.mov(moving, code.pointer);
    code.pointer = moving;
  }
  auto whole = [&](int copies) {
    aj::Label top = cc_.newLabel(), rest = cc_.newLabel();
    x86::Gp last = load(extent);
    cc_.sub(last, copies * lanes);
    cc_.cmp(counter, last);
    cc_.jg(rest);
    cc_.align(aj::AlignMode::kCode, 32);
    cc_.bind(top);
    emit_innermost(copies, nullptr);
    advance_pointers(code_, copies);
    cc_.add(counter, copies * lanes);
    cc_.cmp(counter, last);
    cc_.jle(top);
    cc_.bind(rest);
  };
  bool narrow = false;
  for (const PlaceCode& code : *code_) narrow |= dtype_size(code.type) < 4;
  const int64_t count = extent.is_const() ? extent.constant() : -1;
  if (count < 0 || count >= block) whole(copies_);
  const bool divides = count >= 0 && count % lanes == 0;
  if (copies_ > 1 && (divides ? count % block != 0 : narrow && lanes == 8)) {
    whole(1);
  }
  if (!divides) {
    aj::Label top = cc_.newLabel(), done = cc_.newLabel();
    cc_.bind(top);
    x86::Gp left = load(extent);
    cc_.sub(left, counter);
    cc_.jle(done);
    x86::Gp most = cc_.newInt64();
    cc_.mov(most, lanes);
    cc_.cmp(left, most);
    cc_.cmovg(left, most);
    Lanes mask = isa_.first_lanes(left);
    emit_innermost(1, &mask);
    advance_pointers(code_, 1);
    cc_.add(counter, lanes);
    cc_.jmp(top);
    cc_.bind(done);
  }
  if (plan_->counts_places) cc_.add(linear_, load(extent));
  for (size_t i = 0; i < code_->size(); ++i) (*code_)[i].pointer = before[i];
  inner_.pop_back();
}

}  // namespace framejit::codegen
