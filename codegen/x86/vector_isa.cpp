#include "codegen/x86/vector_isa.h"

#include <cmath>

#include "codegen/scalar/lookup.h"
#include "codegen/x86/lane_calls.h"

namespace framejit::codegen {

namespace Inst = asmjit::x86::Inst;

namespace {

// The type of the lanes that the element lies in.
DType lane_type(DType type) {
  if (dtype_class(type) == DTypeClass::kFloat) return type;
  return dtype_size(type) == 8 ? DType::kI64 : DType::kI32;
}

bool is_division(ScalarOp op) {
  return op == ScalarOp::kTruncDiv || op == ScalarOp::kFloorDiv ||
         op == ScalarOp::kFmod || op == ScalarOp::kMod;
}

// Whether an integer result may not fit its type.
bool may_overflow(ScalarOp op) {
  switch (op) {
    case ScalarOp::kAdd:
    case ScalarOp::kSub:
    case ScalarOp::kMul:
    case ScalarOp::kNeg:
    case ScalarOp::kAbs:
    case ScalarOp::kNot:
    case ScalarOp::kShiftLeft:
    case ScalarOp::kTruncDiv:
    case ScalarOp::kFloorDiv:
      return true;
    default:
      return false;
  }
}

}  // namespace

x86::Vec VectorIsa::binary(aj::InstId id, const x86::Vec& a,
                           const aj::Operand& b) {
  x86::Vec result = vec();
  cc_.emit(id, result, a, b);
  return result;
}

x86::Vec VectorIsa::unary(aj::InstId id, const x86::Vec& a) {
  x86::Vec result = vec();
  cc_.emit(id, result, a);
  return result;
}

x86::Vec VectorIsa::shifted(aj::InstId id, const x86::Vec& a, int count) {
  x86::Vec result = vec();
  cc_.emit(id, result, a, count);
  return result;
}

x86::Vec VectorIsa::constant_part(DType type, Element value) {
  x86::Vec result = vec();
  if (value == 0) {
    // Wide registers are cleared by their lower part.
    cc_.emit(Inst::kIdVpxor, result.xmm(), result.xmm(), result.xmm());
    return result;
  }
  bool wide = dtype_size(type) == 8;
  uint32_t word = static_cast<uint32_t>(value);
  cc_.emit(wide ? Inst::kIdVpbroadcastq : Inst::kIdVpbroadcastd, result,
           wide ? memory_constant(&value, 8) : memory_constant(&word, 4));
  return result;
}

Lanes VectorIsa::constant(DType type, Element value) {
  if (lane_kind(type) == LaneKind::kMask) {
    Lanes word;
    word.part[0] = words(value ? ~0u : 0u);
    return words_to_mask(word);
  }
  Lanes result;
  result.part[0] = constant_part(type, value);
  result.part[1] = result.part[0];
  return result;
}

Lanes VectorIsa::numbers() {
  Lanes result;
  for (int p = 0; p < 2; ++p) {
    std::array<int64_t, 8> values;
    for (int i = 0; i < 8; ++i) values[i] = p * lanes_ / 2 + i;
    result.part[p] = vec();
    cc_.emit(Inst::kIdVmovups, result.part[p],
             memory_constant(values.data(), static_cast<size_t>(bytes())));
  }
  return result;
}

Lanes VectorIsa::lanes_with_bit(int bit, DType) {
  std::array<int32_t, 16> values;
  for (int i = 0; i < 16; ++i) values[i] = i & bit;
  Lanes numbers;
  numbers.part[0] = vec();
  cc_.emit(Inst::kIdVmovups, numbers.part[0],
           memory_constant(values.data(), static_cast<size_t>(bytes())));
  return words_to_mask(numbers);
}

void VectorIsa::extract_first(DType type, const x86::Gp& out,
                              const Lanes& value) {
  // Not vmovd and vmovq: the register allocator turns those whose source is
  // spilled into forms that do not exist.
  switch (lane_kind(type)) {
    case LaneKind::kDouble:
      cc_.vpextrq(out.r64(), value.part[0].xmm(), 0);
      break;
    case LaneKind::kWord:
      cc_.vpextrd(out.r32(), value.part[0].xmm(), 0);
      break;
    case LaneKind::kMask:
      cc_.vpextrd(out.r32(), mask_to_words(value).part[0].xmm(), 0);
  }
}

Lanes VectorIsa::splat_first(DType type, const Lanes& value) {
  Lanes result;
  switch (lane_kind(type)) {
    case LaneKind::kMask:
      return words_to_mask(splat_first(DType::kI32, mask_to_words(value)));
    case LaneKind::kWord:
      result.part[0] = vec();
      cc_.emit(Inst::kIdVpbroadcastd, result.part[0], value.part[0].xmm());
      return result;
    case LaneKind::kDouble:
      result.part[0] = vec();
      cc_.emit(Inst::kIdVpbroadcastq, result.part[0], value.part[0].xmm());
      result.part[1] = result.part[0];
      return result;
  }
  return result;
}

void VectorIsa::exchange(int bit, const Lanes& with_bit, Lanes* a, Lanes* b) {
  constexpr DType kWord = DType::kI32;
  Lanes a_moved = butterfly(kWord, *a, bit),
        b_moved = butterfly(kWord, *b, bit);
  *a = select(with_bit, kWord, b_moved, *a);
  *b = select(with_bit, kWord, *b, a_moved);
}

Lanes VectorIsa::copy(DType type, const Lanes& value) {
  Lanes result;
  assign(type, &result, value);
  return result;
}

// Integers cut to their width, as elements of narrow types lie in 32 bits.
void VectorIsa::normalise(DType type, Lanes* value) {
  if (type == DType::kU8) {
    value->part[0] =
        bit_operation(ScalarOp::kAnd, value->part[0], word_operand(0xff));
  } else if (type == DType::kI8 || type == DType::kI16) {
    int shift = type == DType::kI8 ? 24 : 16;
    x86::Vec high = shifted(Inst::kIdVpslld, value->part[0], shift);
    value->part[0] = shifted(Inst::kIdVpsrad, high, shift);
  }
}

Lanes VectorIsa::multiply_add(ScalarOp op, DType type,
                              const std::array<LaneOperand, 3>& in) {
  const bool wide = type == DType::kF64, negate = op == ScalarOp::kFnma;
  const aj::InstId id =
      wide ? (negate ? Inst::kIdVfnmadd231pd : Inst::kIdVfmadd231pd)
           : (negate ? Inst::kIdVfnmadd231ps : Inst::kIdVfmadd231ps);
  const aj::InstId add =
      wide ? (negate ? Inst::kIdVfnmadd213pd : Inst::kIdVfmadd213pd)
           : (negate ? Inst::kIdVfnmadd213ps : Inst::kIdVfmadd213ps);
  // A constant factor may lie in memory: it comes second.
  const bool swap = in[0].constant && !in[1].constant;
  const LaneOperand &a = in[swap ? 1 : 0], &b = in[swap ? 0 : 1], &c = in[2];
  Lanes result;
  for (int p = 0; p < parts(type); ++p) {
    result.part[p] = vec();
    if (c.constant && !a.constant) {
      // The accumulator begins as a factor, the constant is added.
      cc_.emit(Inst::kIdVmovaps, result.part[p], a.lanes.part[p]);
      cc_.emit(add, result.part[p], b.lanes.part[p], operand(c, p));
    } else {
      cc_.emit(Inst::kIdVmovaps, result.part[p], c.lanes.part[p]);
      cc_.emit(id, result.part[p], a.lanes.part[p], operand(b, p));
    }
  }
  return result;
}

// vmin gives its second operand when both are equal or either is NaN; so that
// has to be `a`, and a NaN in b is put right behind.
Lanes VectorIsa::min_max(ScalarOp op, DType type,
                         const std::array<LaneOperand, 3>& in) {
  const bool least = op == ScalarOp::kMin;
  const aj::InstId id = type == DType::kF32
                            ? (least ? Inst::kIdVminps : Inst::kIdVmaxps)
                            : (least ? Inst::kIdVminpd : Inst::kIdVmaxpd);
  const LaneOperand &a = in[0], &b = in[1];
  Lanes result;
  for (int p = 0; p < parts(type); ++p) {
    result.part[p] = binary(id, b.lanes.part[p], a.lanes.part[p]);
  }
  if (b.constant && !is_nan(type, *b.constant)) return result;
  return select(compare(ScalarOp::kNe, type, b, b), type, b.lanes, result);
}

Lanes VectorIsa::sign_operation(ScalarOp op, DType type, const LaneOperand& a) {
  const bool wide = type == DType::kF64;
  const bool flip = op == ScalarOp::kNeg;
  Element sign = wide ? 1ull << 63 : 1ull << 31;
  const aj::Operand bits = constant_operand(wide ? DType::kI64 : DType::kI32,
                                            flip ? sign : sign - 1);
  Lanes result;
  for (int p = 0; p < parts(type); ++p) {
    result.part[p] = bit_operation(flip ? ScalarOp::kXor : ScalarOp::kAnd,
                                   a.lanes.part[p], bits);
  }
  return result;
}

// 32-bit integers divided in f64: the quotient is rounded up to a whole number
// only if it is one, for a and b have 31 bits of 53.
Lanes VectorIsa::narrow_division(ScalarOp op, DType type, const LaneOperand& a,
                                 const LaneOperand& b) {
  auto wide = [&](const LaneOperand& x) {
    return LaneOperand{cast(DType::kI32, DType::kF64, x.lanes), DType::kF64,
                       std::nullopt};
  };
  Lanes ratio = operation(ScalarOp::kDiv, DType::kF64, {wide(a), wide(b), {}});
  Lanes quotient = cast(DType::kF64, DType::kI32, ratio);
  if (op == ScalarOp::kTruncDiv) {
    normalise(type, &quotient);
    return quotient;
  }
  auto word = [](const Lanes& lanes) {
    return LaneOperand{lanes, DType::kI32, std::nullopt};
  };
  LaneOperand a32 = word(a.lanes), b32 = word(b.lanes);
  Lanes back =
      operation(ScalarOp::kMul, DType::kI32, {word(quotient), b32, {}});
  Lanes rest = operation(ScalarOp::kSub, DType::kI32, {a32, word(back), {}});
  if (op == ScalarOp::kFmod) return rest;
  // Down, where a rest is there whose sign is not the divisor's.
  Lanes mixed = operation(ScalarOp::kXor, DType::kI32, {word(rest), b32, {}});
  LaneOperand zero{constant(DType::kI32, 0), DType::kI32, Element{0}};
  Lanes down = mask_and(compare(ScalarOp::kLt, DType::kI32, word(mixed), zero),
                        compare(ScalarOp::kNe, DType::kI32, word(rest), zero));
  if (op == ScalarOp::kMod) {
    Lanes up = operation(ScalarOp::kAdd, DType::kI32, {word(rest), b32, {}});
    return select(down, DType::kI32, up, rest);
  }
  LaneOperand one{constant(DType::kI32, 1), DType::kI32, Element{1}};
  Lanes less =
      operation(ScalarOp::kSub, DType::kI32, {word(quotient), one, {}});
  Lanes result = select(down, DType::kI32, less, quotient);
  normalise(type, &result);
  return result;
}

Lanes VectorIsa::operation(ScalarOp op, DType type,
                           const std::array<LaneOperand, 3>& in) {
  const LaneOperand &a = in[0], &b = in[1];
  switch (op) {
    case ScalarOp::kSelect:
    case ScalarOp::kSelectRare:
      return select(a.lanes, type, b.lanes, in[2].lanes);
    case ScalarOp::kCheck:
      return a.lanes;
    case ScalarOp::kCast:
      return cast(a.type, type, a.lanes);
    case ScalarOp::kLt:
    case ScalarOp::kLe:
    case ScalarOp::kEq:
    case ScalarOp::kNe:
      return compare(op, a.type, a, b);
    case ScalarOp::kBitcast: {
      // Narrow ones lie in more bits than they have.
      Lanes result = a.lanes;
      if (dtype_size(type) >= 4) return result;
      if (is_small_float(type) || type == DType::kU8) {
        uint32_t bits = dtype_size(type) == 1 ? 0xff : 0xffff;
        result.part[0] =
            bit_operation(ScalarOp::kAnd, result.part[0], word_operand(bits));
      } else {
        normalise(type, &result);
      }
      return result;
    }
    default:
      break;
  }
  if (type == DType::kBool) return mask_operation(op, a.lanes, b.lanes);
  if (std::optional<Lanes> known = sequence(op, type, in)) return *known;
  const bool floats = is_float(type);
  if (floats) {
    const bool wide = type == DType::kF64;
    switch (op) {
      case ScalarOp::kFma:
      case ScalarOp::kFnma:
        return multiply_add(op, type, in);
      case ScalarOp::kMin:
      case ScalarOp::kMax:
        return min_max(op, type, in);
      case ScalarOp::kNeg:
      case ScalarOp::kAbs:
        return sign_operation(op, type, a);
      case ScalarOp::kFloor:
      case ScalarOp::kCeil:
      case ScalarOp::kTrunc:
      case ScalarOp::kRint: {
        int mode = op == ScalarOp::kFloor   ? 9
                   : op == ScalarOp::kCeil  ? 10
                   : op == ScalarOp::kTrunc ? 11
                                            : 8;
        Lanes result;
        for (int p = 0; p < parts(type); ++p) {
          result.part[p] = vec();
          round(wide, result.part[p], a.lanes.part[p], mode);
        }
        return result;
      }
      default:
        break;
    }
  } else if (op == ScalarOp::kNeg) {
    LaneOperand zero{constant(type, 0), type, Element{0}};
    return operation(ScalarOp::kSub, type, {zero, a, {}});
  } else if (op == ScalarOp::kNot) {
    Lanes result;
    x86::Vec ones = words(~0u);
    for (int p = 0; p < parts(type); ++p) {
      result.part[p] = bit_operation(ScalarOp::kXor, a.lanes.part[p], ones);
    }
    normalise(type, &result);
    return result;
  } else if (is_division(op) && lane_kind(type) == LaneKind::kWord) {
    return narrow_division(op, type, a, b);
  }
  aj::InstId id = instruction(op, lane_type(type));
  if (id == Inst::kIdNone) {
    return call(op, type, a.type, {&a.lanes, &b.lanes, &in[2].lanes});
  }
  Lanes result;
  for (int p = 0; p < parts(type); ++p) {
    result.part[p] = scalar_op_row(op).operands == 1
                         ? unary(id, a.lanes.part[p])
                         : binary(id, a.lanes.part[p], operand(b, p));
  }
  if (!floats && may_overflow(op)) normalise(type, &result);
  return result;
}

Lanes VectorIsa::upper_half(const Lanes& value) {
  Lanes result;
  result.part[0] = shifted(Inst::kIdVpsrld, value.part[0], 16);
  return result;
}

// To nearest even by integer arithmetic; a NaN is made quiet.
Lanes VectorIsa::float_to_bf16(const Lanes& value) {
  const x86::Vec& bits = value.part[0];
  x86::Vec high = shifted(Inst::kIdVpsrld, bits, 16);
  x86::Vec odd = bit_operation(ScalarOp::kAnd, high, word_operand(1));
  x86::Vec sum = binary(Inst::kIdVpaddd, bits, odd);
  sum = binary(Inst::kIdVpaddd, sum, word_operand(0x7fff));
  Lanes rounded, quiet;
  rounded.part[0] = shifted(Inst::kIdVpsrld, sum, 16);
  quiet.part[0] = bit_operation(ScalarOp::kOr, high, word_operand(0x40));
  LaneOperand x{value, DType::kF32, std::nullopt};
  return select(compare(ScalarOp::kNe, DType::kF32, x, x), DType::kI32, quiet,
                rounded);
}

Lanes VectorIsa::convert_lanes(DType from, DType to, const Lanes& value) {
  if (from == DType::kI64 && to == DType::kI32) return narrow_integers(value);
  aj::InstId id = conversion(from, to);
  if (id == Inst::kIdNone) {
    return call(ScalarOp::kCast, to, from, {&value, nullptr, nullptr});
  }
  Lanes result;
  const int before = parts(from), after = parts(to);
  if (before == after) {
    for (int p = 0; p < after; ++p) {
      result.part[p] = unary(id, value.part[p]);
    }
  } else if (before < after) {
    result.part[0] = unary(id, low_half(value.part[0]));
    result.part[1] = unary(id, high_half(value.part[0]));
  } else {
    x86::Vec low = vec(), high = vec();
    cc_.emit(id, low_half(low), value.part[0]);
    cc_.emit(id, low_half(high), value.part[1]);
    result.part[0] = join_halves(low_half(low), low_half(high));
  }
  return result;
}

Lanes VectorIsa::cast(DType from, DType to, const Lanes& value) {
  if (from == to) return value;
  const LaneOperand whole{value, from, std::nullopt};
  if (is_small_float(from)) {
    Lanes wide;
    if (from == DType::kF16) {
      wide = f16_to_float(value);
    } else {
      wide.part[0] = shifted(Inst::kIdVpslld, value.part[0], 16);
    }
    return cast(DType::kF32, to, wide);
  }
  if (to == DType::kBool) {
    return compare(ScalarOp::kNe, from, whole,
                   {constant(from, 0), from, Element{0}});
  }
  if (from == DType::kBool) {
    return select(value, to, constant(to, element_of(to, 1)), constant(to, 0));
  }
  if (is_small_float(to)) {
    Lanes single = cast(from, DType::kF32, value);
    return to == DType::kF16 ? float_to_f16(single) : float_to_bf16(single);
  }
  const bool narrow = dtype_size(to) < 4;
  DType lane = lane_type(from);
  DType target = narrow ? DType::kI32 : to;
  Lanes result = value;
  if (to == DType::kU8 && from == DType::kF64) {
    result = convert_lanes(lane, DType::kI64, result);
    lane = DType::kI64;
  }
  if (lane != target) result = convert_lanes(lane, target, result);
  normalise(to, &result);
  return result;
}

// ---- lanes in memory

x86::Gp VectorIsa::address_of(const x86::Mem& memory) {
  x86::Gp address = cc_.newIntPtr();
  cc_.lea(address, memory);
  return address;
}

x86::Mem VectorIsa::spill(DType type, const Lanes& value) {
  if (lane_kind(type) == LaneKind::kMask) {
    return spill(DType::kI32, mask_to_words(value));
  }
  x86::Mem memory =
      cc_.newStack(static_cast<uint32_t>(bytes() * parts(type)), 64);
  for (int p = 0; p < parts(type); ++p) {
    cc_.emit(Inst::kIdVmovups, memory.cloneAdjusted(p * bytes()),
             value.part[p]);
  }
  return memory;
}

Lanes VectorIsa::unspill(DType type, const x86::Mem& memory) {
  Lanes result;
  for (int p = 0; p < parts(type); ++p) {
    result.part[p] = vec();
    cc_.emit(Inst::kIdVmovups, result.part[p],
             memory.cloneAdjusted(p * bytes()));
  }
  return lane_kind(type) == LaneKind::kMask ? words_to_mask(result) : result;
}

Lanes VectorIsa::call(ScalarOp op, DType type, DType operand_type,
                      std::array<const Lanes*, 3> in) {
  x86::Mem out = cc_.newStack(static_cast<uint32_t>(bytes() * 2), 64);
  std::array<x86::Gp, 4> address;
  address[0] = address_of(out);
  for (int i = 0; i < 3; ++i) {
    address[i + 1] = i < scalar_op_row(op).operands
                         ? address_of(spill(operand_type, *in[i]))
                         : address[0];
  }
  aj::InvokeNode* node;
  cc_.invoke(&node, aj::imm(reinterpret_cast<void*>(&call_operation)),
             aj::FuncSignatureT<void, uint64_t, void*, const void*, const void*,
                                const void*>(aj::CallConvId::kHost));
  node->setArg(
      0, aj::imm(pack({op, type, operand_type, static_cast<uint8_t>(lanes_)})));
  for (int i = 0; i < 4; ++i) node->setArg(i + 1, address[i]);
  return unspill(type, out);
}

Lanes VectorIsa::gather(DType type, const x86::Gp& base, const Lanes& offsets,
                        const Lanes* mask) {
  return dtype_size(type) < 4 ? gather_narrow(type, base, offsets, mask)
                              : gather_lanes(type, base, offsets, mask);
}

// The 32 aligned bits that an element of 8 or 16 lies in, moved down: they are
// in one page with it.
Lanes VectorIsa::gather_narrow(DType type, const x86::Gp& base,
                               const Lanes& offsets, const Lanes* mask) {
  Lanes words, bits;
  x86::Vec start = broadcast(DType::kI64, base).part[0];
  x86::Vec within = constant_part(DType::kI64, 3);
  for (int p = 0; p < 2; ++p) {
    x86::Vec address = binary(Inst::kIdVpaddq, offsets.part[p], start);
    x86::Vec rest = bit_operation(ScalarOp::kAnd, address, within);
    words.part[p] = binary(Inst::kIdVpsubq, address, rest);
    bits.part[p] = shifted(Inst::kIdVpsllq, rest, 3);
  }
  x86::Gp zero = cc_.newIntPtr();
  cc_.xor_(zero.r32(), zero.r32());
  Lanes result = gather_lanes(DType::kI32, zero, words, mask);
  result.part[0] =
      binary(Inst::kIdVpsrlvd, result.part[0], narrow_integers(bits).part[0]);
  if (type == DType::kI8 || type == DType::kI16) {
    normalise(type, &result);
    return result;
  }
  result.part[0] =
      bit_operation(ScalarOp::kAnd, result.part[0],
                    word_operand(dtype_size(type) == 1 ? 0xff : 0xffff));
  return type == DType::kBool ? words_to_mask(result) : result;
}

void VectorIsa::scatter(DType type, const x86::Gp& base, const Lanes& offsets,
                        const Lanes& value, const Lanes* mask) {
  update(type, ScalarOp::kSelect, base, offsets, value, mask);
}

void VectorIsa::store_first(DType type, const x86::Mem& memory,
                            const Lanes& value) {
  x86::Gp element = cc_.newInt64();
  extract_first(type, element, value);
  store_register(type, memory, element);
}

void VectorIsa::store_register(DType type, const x86::Mem& memory,
                               const x86::Gp& element) {
  if (type == DType::kBool) cc_.and_(element.r32(), 1);
  switch (dtype_size(type)) {
    case 1:
      cc_.mov(memory, element.r8());
      break;
    case 2:
      cc_.mov(memory, element.r16());
      break;
    case 4:
      cc_.mov(memory, element.r32());
      break;
    default:
      cc_.mov(memory, element.r64());
  }
}

// A loop over the lanes: several may name one element.
void VectorIsa::update(DType type, ScalarOp combine, const x86::Gp& base,
                       const Lanes& offsets, const Lanes& value,
                       const Lanes* mask) {
  const bool wide = lane_kind(type) == LaneKind::kDouble;
  x86::Gp values = address_of(spill(type, value));
  x86::Gp places = address_of(spill(DType::kI64, offsets));
  x86::Gp wanted, lane = cc_.newInt64(), place = cc_.newIntPtr();
  if (mask) wanted = address_of(spill(DType::kBool, *mask));
  aj::Label top = cc_.newLabel(), skip = cc_.newLabel();
  cc_.xor_(lane.r32(), lane.r32());
  cc_.bind(top);
  if (mask) {
    cc_.cmp(x86::dword_ptr(wanted, lane, 2), 0);
    cc_.je(skip);
  }
  cc_.mov(place, x86::qword_ptr(places, lane, 3));
  cc_.add(place, base);
  update_element(type, combine, x86::ptr(place),
                 x86::ptr(values, lane, wide ? 3 : 2));
  cc_.bind(skip);
  cc_.inc(lane);
  cc_.cmp(lane, lanes_);
  cc_.jl(top);
}

// `value` is a lane in memory.
void VectorIsa::update_element(DType type, ScalarOp combine,
                               const x86::Mem& place, const x86::Mem& value) {
  const bool wide = lane_kind(type) == LaneKind::kDouble;
  if (combine == ScalarOp::kSelect) {
    x86::Gp element = cc_.newInt64();
    if (wide) {
      cc_.mov(element, value);
    } else {
      cc_.mov(element.r32(), value);
    }
    store_register(type, place, element);
    return;
  }
  const aj::InstId id = dtype_size(type) < 4
                            ? Inst::kIdNone
                            : instruction(combine, lane_type(type));
  if (id != Inst::kIdNone) {
    const aj::InstId move = wide ? Inst::kIdVmovsd : Inst::kIdVmovss;
    x86::Vec old = cc_.newXmm(), added = cc_.newXmm();
    cc_.emit(move, old, place);
    cc_.emit(move, added, value);
    cc_.emit(id, old, old, added);
    cc_.emit(move, place, old);
    return;
  }
  Lanes lanes;
  lanes.part[0] = vec();
  cc_.emit(wide ? Inst::kIdVpbroadcastq : Inst::kIdVpbroadcastd, lanes.part[0],
           value);
  lanes.part[1] = lanes.part[0];
  if (type == DType::kBool) lanes = words_to_mask(lanes);
  LaneOperand a{broadcast_memory(type, place), type, std::nullopt};
  LaneOperand b{lanes, type, std::nullopt};
  store_first(type, place, operation(combine, type, {a, b, {}}));
}

Lanes VectorIsa::lookup(DType type, int64_t number, const Lanes& index) {
  if (type == DType::kF32) {
    const auto words = word_table(number);
    return find_words(memory_constant(words.data(), words.size_bytes()), index);
  }
  x86::Gp base = cc_.newIntPtr();
  cc_.mov(base, reinterpret_cast<uint64_t>(lookup_table(number).data()));
  Lanes offsets;
  x86::Vec last = constant_part(DType::kI64, 255);
  for (int p = 0; p < 2; ++p) {
    offsets.part[p] = shifted(
        Inst::kIdVpsllq, bit_operation(ScalarOp::kAnd, index.part[p], last), 3);
  }
  return gather(DType::kF64, base, offsets, nullptr);
}

}  // namespace framejit::codegen
