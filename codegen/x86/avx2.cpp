// AVX2 with FMA and F16C: eight lanes, masks are lanes of all ones or zeros.
#include "codegen/x86/vector_isa.h"

namespace framejit::codegen {

namespace Inst = asmjit::x86::Inst;

namespace {

class Avx2 final : public VectorIsa {
 public:
  explicit Avx2(x86::Compiler& cc) : VectorIsa(cc, 8) {}

  int spare_registers() const override { return 3; }
  x86::Vec vec() override { return cc_.newYmm(); }

  Lanes broadcast(DType type, const x86::Gp& value) override {
    Lanes result;
    result.part[0] = vec();
    const bool wide = lane_kind(type) == LaneKind::kDouble;
    if (wide) {
      cc_.vmovq(result.part[0].xmm(), value.r64());
      cc_.emit(Inst::kIdVpbroadcastq, result.part[0], result.part[0].xmm());
    } else {
      cc_.vmovd(result.part[0].xmm(), value.r32());
      cc_.emit(Inst::kIdVpbroadcastd, result.part[0], result.part[0].xmm());
    }
    result.part[1] = result.part[0];
    return type == DType::kBool ? words_to_mask(result) : result;
  }

  Lanes broadcast_memory(DType type, const x86::Mem& memory) override {
    if (dtype_size(type) < 4) {
      x86::Gp value = cc_.newInt32();
      x86::Mem sized = memory;
      sized.setSize(static_cast<uint32_t>(dtype_size(type)));
      bool is_signed = dtype_class(type) == DTypeClass::kSigned;
      cc_.emit(is_signed ? Inst::kIdMovsx : Inst::kIdMovzx, value, sized);
      return broadcast(type, value);
    }
    Lanes result;
    result.part[0] = vec();
    cc_.emit(
        dtype_size(type) == 8 ? Inst::kIdVpbroadcastq : Inst::kIdVpbroadcastd,
        result.part[0], memory);
    result.part[1] = result.part[0];
    return result;
  }

  void assign(DType type, Lanes* to, const Lanes& given) override {
    const Lanes value = in_words(type, given);
    for (int p = 0; p < parts(type); ++p) {
      if (!to->part[p].isValid()) to->part[p] = vec();
      cc_.emit(Inst::kIdVmovaps, to->part[p], value.part[p]);
    }
    to->wide = {};
  }

  void assign_where(const Lanes& mask, DType type, Lanes* to,
                    const Lanes& value) override {
    assign(type, to, select(mask, type, value, *to));
  }

  Lanes butterfly(DType type, const Lanes& given, int step) override {
    const Lanes value = in_words(type, given);
    Lanes result;
    const bool wide = lane_kind(type) == LaneKind::kDouble;
    if (wide && step == 4) {
      result.part[0] = value.part[1];
      result.part[1] = value.part[0];
      return result;
    }
    const int width = wide ? step * 2 : step;
    for (int p = 0; p < parts(type); ++p) {
      result.part[p] = vec();
      if (width == 4) {
        cc_.emit(Inst::kIdVperm2i128, result.part[p], value.part[p],
                 value.part[p], 1);
      } else {
        cc_.emit(Inst::kIdVpshufd, result.part[p], value.part[p],
                 width == 2 ? 0x4e : 0xb1);
      }
    }
    return result;
  }

  Lanes reverse(DType type, const Lanes& given) override {
    static const int32_t kWords[] = {7, 6, 5, 4, 3, 2, 1, 0};
    const Lanes value = in_words(type, given);
    Lanes result;
    if (lane_kind(type) == LaneKind::kDouble) {
      for (int step : {4, 2, 1}) {
        result = butterfly(type, step == 4 ? value : result, step);
      }
      return result;
    }
    x86::Vec order = vec();
    cc_.emit(Inst::kIdVmovups, order, memory_constant(kWords, sizeof kWords));
    result.part[0] = binary(Inst::kIdVpermd, order, value.part[0]);
    return result;
  }

  Lanes mask_and(const Lanes& a, const Lanes& b) override {
    return mask_binary(Inst::kIdVpand, a, b);
  }
  Lanes mask_and_not(const Lanes& a, const Lanes& b) override {
    return mask_binary(Inst::kIdVpandn, b, a);
  }

  Lanes first_lanes(const x86::Gp& count) override {
    static const int32_t kNumbers[] = {0, 1, 2, 3, 4, 5, 6, 7};
    Lanes result;
    x86::Vec limit = vec();
    cc_.vmovd(limit.xmm(), count.r32());
    cc_.emit(Inst::kIdVpbroadcastd, limit, limit.xmm());
    result.part[0] = binary(Inst::kIdVpcmpgtd, limit,
                            memory_constant(kNumbers, sizeof kNumbers));
    return result;
  }

  Lanes lanes_with_bit(int bit, DType type) override {
    const bool wide = lane_kind(type) == LaneKind::kDouble;
    Lanes result;
    for (int p = 0; p < parts(type); ++p) {
      std::array<int32_t, 8> lanes;
      for (int i = 0; i < 8; ++i) {
        lanes[i] = (wide ? p * 4 + i / 2 : i) & bit ? -1 : 0;
      }
      x86::Vec& loaded = wide ? result.wide[p] : result.part[p];
      loaded = vec();
      cc_.emit(Inst::kIdVmovups, loaded,
               memory_constant(lanes.data(), sizeof lanes));
    }
    return result;
  }

  void jump_if_none(const Lanes& mask, const aj::Label& target) override {
    const x86::Vec words = words_of(mask);
    cc_.emit(Inst::kIdVptest, words, words);
    cc_.jz(target);
  }

  Lanes select(const Lanes& mask, DType type, const Lanes& first,
               const Lanes& second) override {
    const Lanes yes = in_words(type, first), no = in_words(type, second);
    Lanes result;
    const bool wide = lane_kind(type) == LaneKind::kDouble;
    for (int p = 0; p < parts(type); ++p) {
      result.part[p] = vec();
      cc_.emit(wide ? Inst::kIdVblendvpd : Inst::kIdVblendvps, result.part[p],
               no.part[p], yes.part[p],
               wide ? part_of(mask, p) : words_of(mask));
    }
    return result;
  }

  bool takes_memory(ScalarOp op, DType type) const override {
    if (type == DType::kBool || is_small_float(type)) return false;
    switch (op) {
      case ScalarOp::kLt:
      case ScalarOp::kLe:
      case ScalarOp::kEq:
      case ScalarOp::kNe:
        return is_float(type);
      case ScalarOp::kMin:
      case ScalarOp::kMax:
        return !is_float(type) && type != DType::kI64;
      default: {
        DType lane = is_float(type)          ? type
                     : dtype_size(type) == 8 ? DType::kI64
                                             : DType::kI32;
        return scalar_op_row(op).operands == 2 &&
               instruction(op, lane) != Inst::kIdNone;
      }
    }
  }

  Lanes compare(ScalarOp op, DType type, const LaneOperand& a,
                const LaneOperand& b) override {
    if (type == DType::kBool) return mask_operation(op, a.lanes, b.lanes);
    const bool wide = lane_kind(type) == LaneKind::kDouble;
    std::array<x86::Vec, 2> half;
    bool negate = false;
    for (int p = 0; p < parts(type); ++p) {
      const x86::Vec& x = a.lanes.part[p];
      if (is_float(type)) {
        int predicate = op == ScalarOp::kLt   ? 17
                        : op == ScalarOp::kLe ? 18
                        : op == ScalarOp::kEq ? 0
                                              : 4;
        half[p] = vec();
        cc_.emit(wide ? Inst::kIdVcmppd : Inst::kIdVcmpps, half[p], x,
                 operand(b, p), predicate);
        continue;
      }
      const x86::Vec& y = b.lanes.part[p];
      // Integers have "equal" and "greater" only.
      aj::InstId greater = wide ? Inst::kIdVpcmpgtq : Inst::kIdVpcmpgtd;
      aj::InstId equal = wide ? Inst::kIdVpcmpeqq : Inst::kIdVpcmpeqd;
      switch (op) {
        case ScalarOp::kLt:
          half[p] = binary(greater, y, x);
          break;
        case ScalarOp::kLe:
          half[p] = binary(greater, x, y);
          negate = true;
          break;
        default:
          half[p] = binary(equal, x, y);
          negate = op == ScalarOp::kNe;
      }
    }
    Lanes result;
    if (wide) {
      result.wide = half;
    } else {
      result.part[0] = half[0];
    }
    return negate ? mask_operation(ScalarOp::kNot, result, result) : result;
  }

  Lanes load(DType type, x86::Mem memory, const Lanes* mask) override {
    const bool wide = lane_kind(type) == LaneKind::kDouble;
    Lanes result;
    if (mask && dtype_size(type) < 4) {
      return gather(type, address_of(memory), side_by_side(type), mask);
    }
    for (int p = 0; p < parts(type); ++p) {
      result.part[p] = vec();
      x86::Mem place = memory.cloneAdjusted(p * 32);
      if (mask) {
        cc_.emit(wide ? Inst::kIdVpmaskmovq : Inst::kIdVpmaskmovd,
                 result.part[p], wide ? part_of(*mask, p) : words_of(*mask),
                 place);
        continue;
      }
      aj::InstId id = Inst::kIdVmovups;
      if (dtype_size(type) == 1) {
        id = type == DType::kI8 ? Inst::kIdVpmovsxbd : Inst::kIdVpmovzxbd;
      } else if (dtype_size(type) == 2) {
        id = type == DType::kI16 ? Inst::kIdVpmovsxwd : Inst::kIdVpmovzxwd;
      }
      cc_.emit(id, result.part[p], place);
    }
    return type == DType::kBool ? words_to_mask(result) : result;
  }

  void store(DType type, x86::Mem memory, const Lanes& value,
             const Lanes* mask) override {
    const bool wide = lane_kind(type) == LaneKind::kDouble;
    if (dtype_size(type) < 4) {
      if (mask) {
        scatter(type, address_of(memory), side_by_side(type), value, mask);
      } else {
        store_narrow(type, memory, value);
      }
      return;
    }
    for (int p = 0; p < parts(type); ++p) {
      x86::Mem place = memory.cloneAdjusted(p * 32);
      if (mask) {
        cc_.emit(wide ? Inst::kIdVpmaskmovq : Inst::kIdVpmaskmovd, place,
                 wide ? part_of(*mask, p) : words_of(*mask), value.part[p]);
      } else {
        cc_.emit(Inst::kIdVmovups, place, value.part[p]);
      }
    }
  }

  Lanes load_halves(const x86::Mem& memory, const Lanes* mask) override {
    if (mask) {
      return cast(DType::kF16, DType::kF32, load(DType::kF16, memory, mask));
    }
    Lanes result;
    result.part[0] = vec();
    cc_.emit(Inst::kIdVcvtph2ps, result.part[0], memory);
    return result;
  }
  void store_halves(DType, const x86::Mem& memory, const Lanes& value,
                    const Lanes* mask) override {
    if (mask) {
      store(DType::kF16, memory, cast(DType::kF32, DType::kF16, value), mask);
    } else {
      cc_.emit(Inst::kIdVcvtps2ph, memory, value.part[0], 0);
    }
  }
  Lanes round_halves(DType, const Lanes& value) override {
    return through_halves(value, Inst::kIdVcvtph2ps);
  }

 protected:
  Lanes find_words(const x86::Mem& table, const Lanes& index) override {
    x86::Vec low = vec(), high = vec();
    cc_.emit(Inst::kIdVpermps, low, index.part[0], table);
    cc_.emit(Inst::kIdVpermps, high, index.part[0], table.cloneAdjusted(32));
    // The bit of weight 8 as a sign.
    x86::Vec upper = shifted(Inst::kIdVpslld, index.part[0], 28);
    Lanes result;
    result.part[0] = vec();
    cc_.emit(Inst::kIdVblendvps, result.part[0], low, high, upper);
    return result;
  }

  Lanes gather_lanes(DType type, const x86::Gp& base, const Lanes& offsets,
                     const Lanes* mask) override {
    const bool wide = dtype_size(type) == 8;
    std::array<x86::Vec, 2> part;
    for (int p = 0; p < 2; ++p) {
      // The instruction clears its mask: lanes of the width of the element.
      x86::Vec wanted;
      if (!mask) {
        wanted = words(~0u);
      } else {
        wanted = vec();
        x86::Vec source =
            wide ? part_of(*mask, p)
                 : (p == 0 ? words_of(*mask) : high_whole(words_of(*mask)));
        cc_.emit(Inst::kIdVmovaps, wanted, source);
      }
      part[p] = constant_part(DType::kI64, 0);
      x86::Mem memory = x86::ptr(base, offsets.part[p]);
      if (wide) {
        cc_.emit(Inst::kIdVgatherqpd, part[p], memory, wanted);
      } else {
        cc_.emit(Inst::kIdVgatherqps, part[p].xmm(), memory, wanted.xmm());
      }
    }
    Lanes result;
    if (wide) {
      result.part = part;
    } else {
      result.part[0] = join_halves(part[0], part[1]);
    }
    return result;
  }

  aj::InstId instruction(ScalarOp op, DType lane) const override {
#define FJ_VECTOR_OP(operation, type, avx512, avx2)             \
  if (op == ScalarOp::k##operation && lane == DType::k##type) { \
    return Inst::kId##avx2;                                     \
  }
#include "codegen/x86/vector_ops.def"
#undef FJ_VECTOR_OP
    return Inst::kIdNone;
  }

  Lanes mask_operation(ScalarOp op, const Lanes& a, const Lanes& b) override {
    auto negated = [&](const Lanes& mask) {
      Lanes result;
      auto flip = [&](const x86::Vec& lanes) {
        return binary(Inst::kIdVpxor, lanes, word_operand(~0u));
      };
      if (mask.part[0].isValid()) {
        result.part[0] = flip(mask.part[0]);
      } else {
        result.wide = {flip(mask.wide[0]), flip(mask.wide[1])};
      }
      return result;
    };
    switch (op) {
      case ScalarOp::kNot:
        return negated(a);
      case ScalarOp::kAnd:
      case ScalarOp::kMin:
        return mask_binary(Inst::kIdVpand, a, b);
      case ScalarOp::kOr:
      case ScalarOp::kMax:
        return mask_binary(Inst::kIdVpor, a, b);
      case ScalarOp::kLt:
        return mask_binary(Inst::kIdVpandn, a, b);
      case ScalarOp::kLe:
        return mask_binary(Inst::kIdVpor, negated(a), b);
      case ScalarOp::kEq:
        return negated(mask_binary(Inst::kIdVpxor, a, b));
      default:
        return mask_binary(Inst::kIdVpxor, a, b);
    }
  }

  std::optional<Lanes> sequence(ScalarOp op, DType type,
                                const std::array<LaneOperand, 3>& in) override {
    if (type == DType::kI64) {
      switch (op) {
        case ScalarOp::kMul:
          return multiply(in[0].lanes, in[1].lanes);
        case ScalarOp::kMin:
          return select(compare(ScalarOp::kLt, type, in[1], in[0]), type,
                        in[1].lanes, in[0].lanes);
        case ScalarOp::kMax:
          return select(compare(ScalarOp::kLt, type, in[0], in[1]), type,
                        in[1].lanes, in[0].lanes);
        case ScalarOp::kAbs: {
          LaneOperand zero{constant(type, 0), type, Element{0}};
          Lanes negative = operation(ScalarOp::kSub, type, {zero, in[0], {}});
          return select(compare(ScalarOp::kLt, type, in[0], zero), type,
                        negative, in[0].lanes);
        }
        case ScalarOp::kShiftRight:
          return shift_right(in[0].lanes, in[1].lanes);
        default:
          return std::nullopt;
      }
    }
    if (op == ScalarOp::kScaleByPower) return scale_by_power(type, in);
    if (op == ScalarOp::kExponent) return exponent(type, in[0]);
    return std::nullopt;
  }

  // There is a shift that draws in zeros: of a negative number, its complement
  // is shifted. Too far is zero, and so the sign.
  Lanes shift_right(const Lanes& a, const Lanes& by) {
    Lanes result;
    x86::Vec zero = constant_part(DType::kI64, 0);
    for (int p = 0; p < 2; ++p) {
      x86::Vec sign = binary(Inst::kIdVpcmpgtq, zero, a.part[p]);
      x86::Vec positive = binary(Inst::kIdVpxor, a.part[p], sign);
      x86::Vec moved = binary(Inst::kIdVpsrlvq, positive, by.part[p]);
      result.part[p] = binary(Inst::kIdVpxor, moved, sign);
    }
    return result;
  }

  x86::Vec bit_operation(ScalarOp op, const x86::Vec& a,
                         const aj::Operand& b) override {
    aj::InstId id = op == ScalarOp::kAnd  ? Inst::kIdVpand
                    : op == ScalarOp::kOr ? Inst::kIdVpor
                                          : Inst::kIdVpxor;
    return binary(id, a, b);
  }

  // A constant in memory, as wide as a register.
  aj::Operand operand(const LaneOperand& value, int part) override {
    if (!value.constant || value.lanes.part[part].isValid()) {
      return value.lanes.part[part];
    }
    std::array<uint64_t, 4> copies;
    uint64_t bits = *value.constant;
    if (dtype_size(value.type) < 8) bits = (bits << 32) | (bits & 0xffffffff);
    copies.fill(bits);
    return memory_constant(copies.data(), sizeof copies);
  }

  void round(bool is_double, const x86::Vec& to, const x86::Vec& from,
             int mode) override {
    cc_.emit(is_double ? Inst::kIdVroundpd : Inst::kIdVroundps, to, from, mode);
  }

  x86::Vec low_half(const x86::Vec& whole) const override {
    return whole.xmm();
  }
  x86::Vec high_half(const x86::Vec& whole) override {
    return high_whole(whole).xmm();
  }
  x86::Vec join_halves(const x86::Vec& low, const x86::Vec& high) override {
    x86::Vec result = vec();
    cc_.emit(Inst::kIdVinserti128, result, low.ymm(), high.xmm(), 1);
    return result;
  }

  aj::InstId conversion(DType from, DType to) const override {
    if (from == DType::kI32) {
      return to == DType::kI64   ? Inst::kIdVpmovsxdq
             : to == DType::kF32 ? Inst::kIdVcvtdq2ps
                                 : Inst::kIdVcvtdq2pd;
    }
    if (from == DType::kF32) {
      return to == DType::kF64   ? Inst::kIdVcvtps2pd
             : to == DType::kI32 ? Inst::kIdVcvttps2dq
                                 : Inst::kIdNone;
    }
    if (from == DType::kF64) {
      return to == DType::kF32   ? Inst::kIdVcvtpd2ps
             : to == DType::kI32 ? Inst::kIdVcvttpd2dq
                                 : Inst::kIdNone;
    }
    return Inst::kIdNone;  // of i64 there are none
  }

  Lanes f16_to_float(const Lanes& value) override {
    x86::Vec packed = binary(Inst::kIdVpackusdw, value.part[0], value.part[0]);
    x86::Vec ordered = shuffled(packed, 0x08);
    Lanes result;
    result.part[0] = vec();
    cc_.emit(Inst::kIdVcvtph2ps, result.part[0], ordered.xmm());
    return result;
  }

  Lanes float_to_f16(const Lanes& value) override {
    return through_halves(value, Inst::kIdVpmovzxwd);
  }
  // f32 rounded to f16, then made 32 bits wide again.
  Lanes through_halves(const Lanes& value, Inst::Id widen) {
    x86::Vec half = vec();
    cc_.emit(Inst::kIdVcvtps2ph, half.xmm(), value.part[0], 0);
    Lanes result;
    result.part[0] = vec();
    cc_.emit(widen, result.part[0], half.xmm());
    return result;
  }

  Lanes narrow_integers(const Lanes& value) override {
    Lanes result;
    result.part[0] = narrowed(value.part[0], value.part[1]);
    return result;
  }

  Lanes mask_to_words(const Lanes& mask) override {
    return in_words(DType::kBool, mask);
  }
  Lanes words_to_mask(const Lanes& words) override {
    Lanes zero, result;
    x86::Vec none = constant_part(DType::kI32, 0);
    result.part[0] = binary(Inst::kIdVpcmpeqd, words.part[0], none);
    return mask_operation(ScalarOp::kNot, result, result);
  }

 private:
  Lanes mask_binary(aj::InstId id, const Lanes& a, const Lanes& b) {
    Lanes result;
    if (a.wide[0].isValid() && b.wide[0].isValid()) {
      for (int p = 0; p < 2; ++p) {
        result.wide[p] = binary(id, a.wide[p], b.wide[p]);
      }
    } else {
      result.part[0] = binary(id, words_of(a), words_of(b));
    }
    return result;
  }
  x86::Vec high_whole(const x86::Vec& whole) {
    x86::Vec result = vec();
    cc_.emit(Inst::kIdVextracti128, result.xmm(), whole, 1);
    return result;
  }
  x86::Vec shuffled(const x86::Vec& value, int order) {
    x86::Vec result = vec();
    cc_.emit(Inst::kIdVpermq, result, value, order);
    return result;
  }
  // A mask as lanes of 32 bits, and as those of 64 of one part.
  x86::Vec words_of(const Lanes& mask) {
    return mask.part[0].isValid() ? mask.part[0]
                                  : narrowed(mask.wide[0], mask.wide[1]);
  }
  x86::Vec part_of(const Lanes& mask, int part) {
    if (mask.wide[part].isValid()) return mask.wide[part];
    x86::Vec source = part == 0 ? mask.part[0] : high_whole(mask.part[0]);
    x86::Vec result = vec();
    cc_.emit(Inst::kIdVpmovsxdq, result, source.xmm());
    return result;
  }
  Lanes in_words(DType type, const Lanes& value) {
    if (type != DType::kBool || value.part[0].isValid()) return value;
    Lanes result;
    result.part[0] = words_of(value);
    return result;
  }
  // The lower 32 bits of all lanes of 64.
  x86::Vec narrowed(const x86::Vec& low, const x86::Vec& high) {
    x86::Vec mixed = vec();
    cc_.emit(Inst::kIdVshufps, mixed, low, high, 0x88);
    return shuffled(mixed, 0xd8);
  }
  // Offsets in bytes of elements side by side.
  Lanes side_by_side(DType type) {
    Lanes result = numbers();
    int shift = dtype_size(type) == 2 ? 1 : 0;
    for (int p = 0; shift && p < 2; ++p) {
      result.part[p] = shifted(Inst::kIdVpsllq, result.part[p], shift);
    }
    return result;
  }

  void store_narrow(DType type, const x86::Mem& memory, const Lanes& value) {
    x86::Vec source = in_words(type, value).part[0];
    if (type == DType::kBool)
      source = binary(Inst::kIdVpand, source, word_operand(1));
    const bool is_signed = dtype_class(type) == DTypeClass::kSigned;
    x86::Vec packed = binary(
        is_signed ? Inst::kIdVpackssdw : Inst::kIdVpackusdw, source, source);
    packed = shuffled(packed, 0x08);
    if (dtype_size(type) == 2) {
      cc_.emit(Inst::kIdVmovups, memory, packed.xmm());
      return;
    }
    x86::Vec narrow = vec();
    cc_.emit(is_signed ? Inst::kIdVpacksswb : Inst::kIdVpackuswb, narrow.xmm(),
             packed.xmm(), packed.xmm());
    cc_.emit(Inst::kIdVmovq, memory, narrow.xmm());
  }

  // Low 64 bits: products of halves.
  Lanes multiply(const Lanes& a, const Lanes& b) {
    Lanes result;
    for (int p = 0; p < 2; ++p) {
      x86::Vec a_high = shifted(Inst::kIdVpsrlq, a.part[p], 32);
      x86::Vec b_high = shifted(Inst::kIdVpsrlq, b.part[p], 32);
      x86::Vec cross =
          binary(Inst::kIdVpaddq, binary(Inst::kIdVpmuludq, a_high, b.part[p]),
                 binary(Inst::kIdVpmuludq, b_high, a.part[p]));
      result.part[p] =
          binary(Inst::kIdVpaddq, shifted(Inst::kIdVpsllq, cross, 32),
                 binary(Inst::kIdVpmuludq, a.part[p], b.part[p]));
    }
    return result;
  }

  // a * 2^h * 2^(b - h): no factor under- or overflows for itself. Added to a
  // large number, b with twice the bias is that number's lowest bits.
  Lanes scale_by_power(DType type, const std::array<LaneOperand, 3>& in) {
    const bool wide = type == DType::kF64;
    const double large = wide ? 0x1.8p52 + 2 * 1023 : 0x1.8p23 + 2 * 127;
    const LaneOperand magic{{}, type, element_of(type, large)};
    const int field = wide ? 52 : 23;
    const aj::InstId left = wide ? Inst::kIdVpsllq : Inst::kIdVpslld;
    const aj::InstId times = wide ? Inst::kIdVmulpd : Inst::kIdVmulps;
    Lanes result;
    for (int p = 0; p < parts(type); ++p) {
      x86::Vec power = binary(wide ? Inst::kIdVaddpd : Inst::kIdVaddps,
                              in[1].lanes.part[p], operand(magic, p));
      x86::Vec half =
          shifted(wide ? Inst::kIdVpsrlq : Inst::kIdVpsrld, power, 1);
      x86::Vec rest =
          binary(wide ? Inst::kIdVpsubq : Inst::kIdVpsubd, power, half);
      x86::Vec once =
          binary(times, in[0].lanes.part[p], shifted(left, half, field));
      result.part[p] = binary(times, once, shifted(left, rest, field));
    }
    return result;
  }

  // The exponent field; denormals are scaled up first.
  Lanes exponent(DType type, const LaneOperand& a) {
    const bool wide = type == DType::kF64;
    auto value = [&](double number) {
      Element element = element_of(type, number);
      return LaneOperand{constant(type, element), type, element};
    };
    auto plain = [&](const Lanes& lanes) {
      return LaneOperand{lanes, type, std::nullopt};
    };
    Lanes size = operation(ScalarOp::kAbs, type, {a, {}, {}});
    const int up = wide ? 54 : 24;
    Lanes small = compare(ScalarOp::kLt, type, plain(size),
                          value(wide ? 0x1p-1022 : 0x1p-126));
    Lanes scaled = operation(ScalarOp::kMul, type,
                             {plain(size), value(wide ? 0x1p54 : 0x1p24), {}});
    Lanes bits = select(small, type, scaled, size);
    Lanes shift = select(small, type, value((wide ? 1023 : 127) + up).lanes,
                         value(wide ? 1023 : 127).lanes);
    Lanes number;
    for (int p = 0; p < parts(type); ++p) {
      if (wide) {
        // As the lowest bits of 2^52.
        x86::Vec field = shifted(Inst::kIdVpsrlq, bits.part[p], 52);
        x86::Vec magic = value(0x1p52).lanes.part[0];
        x86::Vec sum = bit_operation(ScalarOp::kOr, field, magic);
        number.part[p] = binary(Inst::kIdVsubpd, sum, magic);
      } else {
        number.part[p] = unary(Inst::kIdVcvtdq2ps,
                               shifted(Inst::kIdVpsrld, bits.part[p], 23));
      }
    }
    return operation(ScalarOp::kSub, type, {plain(number), plain(shift), {}});
  }
};

}  // namespace

std::unique_ptr<VectorIsa> make_avx2(x86::Compiler& cc) {
  return std::make_unique<Avx2>(cc);
}

}  // namespace framejit::codegen
