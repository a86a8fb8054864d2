// Loads and stores of a stage.
#include "codegen/x86/kernel_emitter.h"

namespace framejit::codegen {

namespace Inst = asmjit::x86::Inst;

bool KernelEmitter::has_uniform_data(const PlaceCode& code) const {
  for (const auto& [id, stride] : code.place->data) {
    if (!plan_->uniform[id]) return false;
  }
  return true;
}

// The pointer with uniform data added, and moved to the copy's first lane.
x86::Gp KernelEmitter::moved(const PlaceCode& code, int copy) {
  const bool adds = !code.place->data.empty() && has_uniform_data(code);
  const bool steps = code.walk == Walk::kStrided && copy > 0;
  if (!adds && !steps) return code.pointer;
  x86::Gp result = cc_.newIntPtr();
  cc_.mov(result, code.pointer);
  for (int c = 0; steps && c < copy; ++c) cc_.add(result, code.step);
  for (const auto& [id, stride] : code.place->data) {
    if (!adds) break;
    x86::Gp term = cc_.newInt64();
    isa_.extract_first(DType::kI64, term, value(id, copy));
    multiply(term, stride, static_cast<int64_t>(dtype_size(code.type)));
    cc_.add(result, term);
  }
  return result;
}

x86::Mem KernelEmitter::address(const PlaceCode& code, int copy) {
  x86::Gp base = moved(code, copy);
  if (code.walk == Walk::kReversed) {
    // The last lane's element comes first.
    const auto last =
        static_cast<int64_t>(dtype_size(code.type)) -
        isa_.lanes() * static_cast<int64_t>(dtype_size(code.type));
    return x86::ptr(base, static_cast<int32_t>(copy * code.known_step + last));
  }
  if (code.walk != Walk::kContiguous) return x86::ptr(base);
  const auto size = static_cast<int32_t>(dtype_size(code.type));
  const uint32_t shift = size == 8 ? 3 : size == 4 ? 2 : size == 2 ? 1 : 0;
  const x86::Gp& index = columns_ ? position_ : inner_.back();
  return x86::ptr(base, index, shift, copy * isa_.lanes() * size);
}

// Bytes from address() to each lane's element.
Lanes KernelEmitter::lane_offsets(const PlaceCode& code, int copy) {
  const auto size = static_cast<int64_t>(dtype_size(code.type));
  auto plain = [](const Lanes& lanes) {
    return LaneOperand{lanes, DType::kI64, std::nullopt};
  };
  auto scaled = [&](const Lanes& lanes, const Expr& stride) {
    if (stride.is_const(1) && size == 1) return lanes;
    x86::Gp factor = load(stride);
    multiply(factor, Expr(1), size);
    return isa_.operation(
        ScalarOp::kMul, DType::kI64,
        {plain(lanes), plain(isa_.broadcast(DType::kI64, factor)), {}});
  };
  Lanes result;
  bool is_there = true;
  if (code.walk == Walk::kStrided) {
    result = code.offsets;
  } else if (code.walk == Walk::kContiguous) {
    result = scaled(isa_.numbers(), Expr(1));
  } else {
    is_there = false;
  }
  if (has_uniform_data(code)) return result;
  for (const auto& [id, stride] : code.place->data) {
    Lanes term = scaled(value(id, copy), stride);
    result = is_there ? isa_.operation(ScalarOp::kAdd, DType::kI64,
                                       {plain(result), plain(term), {}})
                      : term;
    is_there = true;
  }
  return result;
}

// Lanes for which the access is done; null: all.
const Lanes* KernelEmitter::condition(const PlaceCode& code, int copy,
                                      Lanes* storage) {
  if (code.place->when == kNoScalar) return mask_;
  *storage = value(code.place->when, copy);
  if (mask_) *storage = isa_.mask_and(*storage, *mask_);
  return storage;
}

// A load of columns whose inner loop, the only one, goes along the elements: as
// many turns as a register has elements, or less, are a block of rows that lie
// in one piece. Read as such and transposed, each line of memory is read once.
bool KernelEmitter::is_transposed(const PlaceCode& code) const {
  const Stage& stage = *plan_->stage;
  if (mask_ || stage.loops.size() != 1 || !stage.loops[0].is_const()) {
    return false;
  }
  const int64_t turns = stage.loops[0].constant();
  for (const Store& store : stage.stores) {
    if (store.place.argument == code.place->argument) return false;
  }
  return turns > 1 && turns <= isa_.lanes() / VectorIsa::parts(code.type) &&
         code.walk == Walk::kStrided && code.type != DType::kBool &&
         code.place->data.empty() && code.place->when == kNoScalar &&
         code.place->strides[kernel_.loops.size()].is_const(1);
}

void KernelEmitter::transpose_blocks() {
  for (size_t i = 0; i < plan_->stage->loads.size(); ++i) {
    PlaceCode& code = (*code_)[i];
    if (is_transposed(code)) transpose_block(&code);
  }
}

// Elements of 64 bits are pairs of words, and the lanes of a value two
// registers: two square blocks, one above the other. Narrow ones are words
// here.
void KernelEmitter::transpose_block(PlaceCode* code) {
  const DType type = code->type;
  const int lanes = isa_.lanes(), parts = VectorIsa::parts(type);
  const auto turns = static_cast<int>(plan_->stage->loops[0].constant());
  const DType row_type = parts == 2 ? DType::kI32 : type;
  const DType words = parts == 2 ? type : DType::kI32;
  x86::Gp count = cc_.newInt64();
  cc_.mov(count, turns * parts);
  Lanes mask = isa_.first_lanes(count);
  x86::Gp stride = load(code->place->strides[kernel_.loops.size() - 1]);
  multiply(stride, Expr(dtype_size(type)), 1);
  for (int c = 0; c < copies_; ++c) {
    x86::Gp row = cc_.newIntPtr();
    cc_.mov(row, moved(*code, c));
    std::vector<std::vector<Lanes>> squares(parts);
    for (int k = 0; k < lanes; ++k) {
      if (k > 0) cc_.add(row, stride);
      squares[k * parts / lanes].push_back(isa_.load(
          row_type, x86::ptr(row), turns * parts < lanes ? &mask : nullptr));
    }
    for (std::vector<Lanes>& square : squares) transpose(parts, &square);
    const int size = isa_.bytes() * parts;
    x86::Mem block = cc_.newStack(static_cast<uint32_t>(turns * size), 64);
    for (int k = 0; k < turns; ++k) {
      Lanes value = squares[0][k];
      if (parts == 2) value.part[1] = squares[1][k].part[0];
      isa_.store(words, block.cloneAdjusted(k * size), value, nullptr);
    }
    code->block.push_back(block);
  }
}

// Blocks of 1, 2, 4 ... rows and columns beside the diagonal change places.
void KernelEmitter::transpose(int words, std::vector<Lanes>* rows) {
  const auto count = static_cast<int>(rows->size());
  for (int step = 1; step < count; step *= 2) {
    Lanes odd = isa_.lanes_with_bit(step * words, DType::kI32);
    for (int i = 0; i < count; ++i) {
      if (i & step) continue;
      isa_.exchange(step * words, odd, &(*rows)[i], &(*rows)[i + step]);
    }
  }
}

// What was transposed, at this turn of the inner loop.
Lanes KernelEmitter::load_transposed(const PlaceCode& code, int copy) {
  x86::Gp vector = cc_.newIntPtr(), turn = cc_.newInt64();
  cc_.lea(vector, code.block[copy]);
  cc_.mov(turn, inner_.back());
  const int parts = VectorIsa::parts(code.type);
  multiply(turn, Expr(isa_.bytes() * parts), 1);
  return isa_.load(parts == 2 ? code.type : DType::kI32, x86::ptr(vector, turn),
                   nullptr);
}

Lanes KernelEmitter::load_lanes(ScalarId id, int copy) {
  const ScalarNode& node = plan_->stage->body.node(id);
  const PlaceCode& code = (*code_)[node.payload];
  Lanes storage;
  const Lanes* wanted = condition(code, copy, &storage);
  if (plan_->halves[id] == HalfForm::kBits) return loaded(code, copy, wanted);
  if (code.walk == Walk::kContiguous && has_uniform_data(code)) {
    return isa_.load_halves(address(code, copy), wanted);
  }
  return isa_.cast(code.type, DType::kF32, loaded(code, copy, wanted));
}

Lanes KernelEmitter::loaded(const PlaceCode& code, int copy,
                            const Lanes* wanted) {
  if (!code.block.empty()) return load_transposed(code, copy);
  if (!has_uniform_data(code) || code.walk == Walk::kStrided) {
    x86::Gp base = cc_.newIntPtr();
    cc_.lea(base, address(code, copy));
    return isa_.gather(code.type, base, lane_offsets(code, copy), wanted);
  }
  if (code.walk != Walk::kUniform) return load_vector(code, copy, wanted);
  if (code.place->when == kNoScalar) {
    return isa_.broadcast_memory(code.type, address(code, copy));
  }
  Lanes result = isa_.copy(code.type, isa_.constant(code.type, 0));
  aj::Label skip = cc_.newLabel();
  isa_.jump_if_none(*wanted, skip);
  Lanes element = isa_.broadcast_memory(code.type, address(code, copy));
  Lanes zero = isa_.constant(code.type, 0);
  isa_.assign(code.type, &result,
              isa_.select(*wanted, code.type, element, zero));
  cc_.bind(skip);
  return result;
}

Lanes KernelEmitter::load_vector(const PlaceCode& code, int copy,
                                 const Lanes* wanted) {
  if (code.walk == Walk::kContiguous) {
    return isa_.load(code.type, address(code, copy), wanted);
  }
  Lanes mask;
  if (wanted) mask = isa_.reverse(DType::kBool, *wanted);
  return isa_.reverse(code.type, isa_.load(code.type, address(code, copy),
                                           wanted ? &mask : nullptr));
}

void KernelEmitter::store_vector(const PlaceCode& code, int copy,
                                 const Lanes& value, const Lanes* wanted) {
  if (code.walk == Walk::kContiguous) {
    isa_.store(code.type, address(code, copy), value, wanted);
    return;
  }
  Lanes mask;
  if (wanted) mask = isa_.reverse(DType::kBool, *wanted);
  isa_.store(code.type, address(code, copy), isa_.reverse(code.type, value),
             wanted ? &mask : nullptr);
}

void KernelEmitter::emit_store(size_t number, int copy) {
  const Store& store = plan_->stage->stores[number];
  const PlaceCode& code = (*code_)[plan_->stage->loads.size() + number];
  Lanes stored;
  if (store.prefix_of >= 0) {
    const Fold& fold = plan_->folds[store.prefix_of];
    stored = fold_values(fold.finish, fold.results,
                         columns_ ? states_[store.prefix_of][copy]
                                  : prefixes_[store.prefix_of])[0];
  } else {
    stored = value(store.value, copy);
  }
  std::optional<ScalarOp> combine;
  if (store.combiner) combine = combiner_row(*store.combiner).operation;
  Lanes storage;
  const Lanes* wanted = condition(code, copy, &storage);
  auto combined = [&](const Lanes& old) {
    if (!combine) return stored;
    LaneOperand a{old, code.type, std::nullopt};
    LaneOperand b{stored, code.type, std::nullopt};
    return isa_.operation(*combine, code.type, {a, b, {}});
  };
  if (!has_uniform_data(code)) {
    x86::Gp base = cc_.newIntPtr();
    cc_.lea(base, address(code, copy));
    isa_.update(code.type, combine.value_or(ScalarOp::kSelect), base,
                lane_offsets(code, copy), stored, wanted);
    return;
  }
  switch (code.walk) {
    case Walk::kContiguous:
    case Walk::kReversed: {
      if (store.value != kNoScalar &&
          plan_->halves[store.value] == HalfForm::kUnrounded) {
        isa_.store_halves(code.type, address(code, copy), stored, wanted);
        break;
      }
      Lanes old;
      if (combine) old = load_vector(code, copy, wanted);
      store_vector(code, copy, combined(old), wanted);
      break;
    }
    case Walk::kStrided: {
      x86::Gp base = cc_.newIntPtr();
      cc_.lea(base, address(code, copy));
      Lanes offsets = lane_offsets(code, copy), old;
      if (combine) old = isa_.gather(code.type, base, offsets, wanted);
      isa_.scatter(code.type, base, offsets, combined(old), wanted);
      break;
    }
    case Walk::kUniform: {
      aj::Label skip = cc_.newLabel();
      if (code.place->when != kNoScalar) isa_.jump_if_none(*wanted, skip);
      x86::Mem memory = address(code, copy);
      Lanes old;
      if (combine) old = isa_.broadcast_memory(code.type, memory);
      isa_.store_first(code.type, memory, combined(old));
      cc_.bind(skip);
      break;
    }
  }
}

}  // namespace framejit::codegen
