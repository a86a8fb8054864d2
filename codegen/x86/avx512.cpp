// AVX-512 (F, DQ, BW, VL; BF16 if asked for): sixteen lanes, masks in registers
// of their own.
//
// No kmov anywhere: asmjit's register allocator turns one whose mask is spilled
// into a form that does not exist.
#include "codegen/x86/vector_isa.h"

namespace framejit::codegen {

namespace Inst = asmjit::x86::Inst;

namespace {

class Avx512 final : public VectorIsa {
 public:
  Avx512(x86::Compiler& cc, bool has_bf16)
      : VectorIsa(cc, 16), has_bf16_(has_bf16) {}

  Bf16Rounding bf16_rounding() const override {
    return has_bf16_ ? Bf16Rounding::kByInstruction : Bf16Rounding::kByBits;
  }

  bool has_word_tables() const override { return true; }
  int spare_registers() const override { return 10; }
  x86::Vec vec() override { return cc_.newZmm(); }

  Lanes broadcast(DType type, const x86::Gp& value) override {
    Lanes result;
    result.part[0] = cc_.newZmm();
    if (lane_kind(type) == LaneKind::kDouble) {
      cc_.emit(Inst::kIdVpbroadcastq, result.part[0], value.r64());
      result.part[1] = result.part[0];
      return result;
    }
    cc_.emit(Inst::kIdVpbroadcastd, result.part[0], value.r32());
    return type == DType::kBool ? words_to_mask(result) : result;
  }

  Lanes broadcast_memory(DType type, const x86::Mem& memory) override {
    Lanes result;
    if (dtype_size(type) < 4) {
      x86::Gp value = cc_.newInt32();
      x86::Mem sized = memory;
      sized.setSize(static_cast<uint32_t>(dtype_size(type)));
      bool is_signed = dtype_class(type) == DTypeClass::kSigned;
      cc_.emit(is_signed ? Inst::kIdMovsx : Inst::kIdMovzx, value, sized);
      return broadcast(type, value);
    }
    result.part[0] = cc_.newZmm();
    cc_.emit(
        dtype_size(type) == 8 ? Inst::kIdVpbroadcastq : Inst::kIdVpbroadcastd,
        result.part[0], memory);
    result.part[1] = result.part[0];
    return result;
  }

  void assign(DType type, Lanes* to, const Lanes& value) override {
    if (type == DType::kBool) {
      if (!to->mask.isValid()) to->mask = cc_.newKw();
      // korw, for kmov is not to be used.
      cc_.korw(to->mask, value.mask, value.mask);
      return;
    }
    for (int p = 0; p < parts(type); ++p) {
      if (!to->part[p].isValid()) to->part[p] = vec();
      cc_.emit(Inst::kIdVmovaps, to->part[p], value.part[p]);
    }
  }

  void assign_where(const Lanes& mask, DType type, Lanes* to,
                    const Lanes& value) override {
    if (type == DType::kBool) {
      assign(type, to, select(mask, type, value, *to));
      return;
    }
    const bool wide = lane_kind(type) == LaneKind::kDouble;
    for (int p = 0; p < parts(type); ++p) {
      cc_.k(part_of(mask, p));
      cc_.emit(wide ? Inst::kIdVmovapd : Inst::kIdVmovaps, to->part[p],
               value.part[p]);
    }
  }

  Lanes butterfly(DType type, const Lanes& value, int step) override {
    if (type == DType::kBool) {
      return words_to_mask(butterfly(DType::kI32, mask_to_words(value), step));
    }
    Lanes result;
    const bool wide = lane_kind(type) == LaneKind::kDouble;
    if (wide && step == 8) {
      result.part[0] = value.part[1];
      result.part[1] = value.part[0];
      return result;
    }
    const int width = wide ? step * 2 : step;  // in lanes of 32 bits
    for (int p = 0; p < parts(type); ++p) {
      result.part[p] = vec();
      if (width >= 4) {
        cc_.emit(Inst::kIdVshuff64x2, result.part[p], value.part[p],
                 value.part[p], width == 8 ? 0x4e : 0xb1);
      } else {
        cc_.emit(Inst::kIdVpshufd, result.part[p], value.part[p],
                 width == 2 ? 0x4e : 0xb1);
      }
    }
    return result;
  }

  Lanes reverse(DType type, const Lanes& value) override {
    static const int32_t kWords[] = {15, 14, 13, 12, 11, 10, 9, 8,
                                     7,  6,  5,  4,  3,  2,  1, 0};
    static const int64_t kDoubles[] = {7, 6, 5, 4, 3, 2, 1, 0};
    if (type == DType::kBool) {
      return words_to_mask(reverse(DType::kI32, mask_to_words(value)));
    }
    const bool wide = lane_kind(type) == LaneKind::kDouble;
    x86::Vec order = vec();
    cc_.emit(Inst::kIdVmovups, order,
             memory_constant(wide ? static_cast<const void*>(kDoubles) : kWords,
                             sizeof kWords));
    Lanes result;
    for (int p = 0; p < parts(type); ++p) {
      result.part[p] = binary(wide ? Inst::kIdVpermq : Inst::kIdVpermd, order,
                              value.part[wide ? 1 - p : 0]);
    }
    return result;
  }

  // Moved and put where the mask says at once.
  void exchange(int bit, const Lanes& with_bit, Lanes* a, Lanes* b) override {
    Lanes without = mask_operation(ScalarOp::kNot, with_bit, with_bit);
    Lanes first = copy(DType::kI32, *a), second = copy(DType::kI32, *b);
    auto move = [&](const Lanes& mask, const x86::Vec& to, const x86::Vec& of) {
      cc_.k(mask.mask);
      if (bit >= 4) {
        cc_.emit(Inst::kIdVshuff32x4, to, of, of, bit == 8 ? 0x4e : 0xb1);
      } else {
        cc_.emit(Inst::kIdVpshufd, to, of, bit == 2 ? 0x4e : 0xb1);
      }
    };
    move(with_bit, first.part[0], b->part[0]);
    move(without, second.part[0], a->part[0]);
    *a = first;
    *b = second;
  }

  Lanes mask_and(const Lanes& a, const Lanes& b) override {
    return mask_binary(Inst::kIdKandw, a, b);
  }
  Lanes mask_and_not(const Lanes& a, const Lanes& b) override {
    return mask_binary(Inst::kIdKandnw, b, a);
  }

  Lanes first_lanes(const x86::Gp& count) override {
    Lanes result;
    result.mask = cc_.newKw();
    x86::Vec limit = vec();
    cc_.emit(Inst::kIdVpbroadcastd, limit, count.r32());
    cc_.emit(Inst::kIdVpcmpud, result.mask, word_numbers(), limit, 1);
    return result;
  }

  void jump_if_none(const Lanes& mask, const aj::Label& target) override {
    cc_.kortestw(mask.mask, mask.mask);
    cc_.jz(target);
  }

  Lanes select(const Lanes& mask, DType type, const Lanes& yes,
               const Lanes& no) override {
    if (type == DType::kBool) {
      return mask_binary(Inst::kIdKorw, mask_binary(Inst::kIdKandw, mask, yes),
                         mask_binary(Inst::kIdKandnw, mask, no));
    }
    // Not vblendm: the register allocator takes what it overwrites for read.
    Lanes result = copy(type, no);
    assign_where(mask, type, &result, yes);
    return result;
  }

  Lanes compare(ScalarOp op, DType type, const LaneOperand& a,
                const LaneOperand& b) override {
    if (type == DType::kBool) return mask_operation(op, a.lanes, b.lanes);
    const bool wide = lane_kind(type) == LaneKind::kDouble;
    const bool floats = is_float(type);
    int predicate;
    switch (op) {
      case ScalarOp::kLt:
        predicate = floats ? 17 : 1;
        break;
      case ScalarOp::kLe:
        predicate = floats ? 18 : 2;
        break;
      case ScalarOp::kEq:
        predicate = 0;
        break;
      default:
        predicate = 4;
    }
    const aj::InstId id = floats ? (wide ? Inst::kIdVcmppd : Inst::kIdVcmpps)
                                 : (wide ? Inst::kIdVpcmpq : Inst::kIdVpcmpd);
    std::array<x86::KReg, 2> half;
    for (int p = 0; p < parts(type); ++p) {
      half[p] = cc_.newKw();
      cc_.emit(id, half[p], a.lanes.part[p], operand(b, p), predicate);
    }
    Lanes result;
    if (!wide) {
      result.mask = half[0];
    } else {
      result.mask = cc_.newKw();
      cc_.kunpckbw(result.mask, half[1], half[0]);
    }
    return result;
  }

  Lanes load(DType type, x86::Mem memory, const Lanes* mask) override {
    Lanes result;
    if (lane_kind(type) == LaneKind::kDouble) {
      for (int p = 0; p < 2; ++p) {
        result.part[p] = vec();
        if (mask) cc_.k(part_of(*mask, p)).z();
        cc_.emit(Inst::kIdVmovupd, result.part[p],
                 memory.cloneAdjusted(p * 64));
      }
      return result;
    }
    if (type == DType::kBool) {
      x86::Vec bytes = cc_.newXmm();
      if (mask) cc_.k(mask->mask).z();
      cc_.emit(Inst::kIdVmovdqu8, bytes, memory);
      result.mask = cc_.newKw();
      cc_.emit(Inst::kIdVptestmb, result.mask, bytes, bytes);
      return result;
    }
    result.part[0] = vec();
    aj::InstId id = Inst::kIdVmovups;
    if (dtype_size(type) == 1) {
      id = type == DType::kI8 ? Inst::kIdVpmovsxbd : Inst::kIdVpmovzxbd;
    } else if (dtype_size(type) == 2) {
      id = type == DType::kI16 ? Inst::kIdVpmovsxwd : Inst::kIdVpmovzxwd;
    }
    if (mask) cc_.k(mask->mask).z();
    cc_.emit(id, result.part[0], memory);
    return result;
  }

  void store(DType type, x86::Mem memory, const Lanes& value,
             const Lanes* mask) override {
    if (lane_kind(type) == LaneKind::kDouble) {
      for (int p = 0; p < 2; ++p) {
        if (mask) cc_.k(part_of(*mask, p));
        cc_.emit(Inst::kIdVmovupd, memory.cloneAdjusted(p * 64), value.part[p]);
      }
      return;
    }
    if (type == DType::kBool) {
      x86::Vec bytes = cc_.newXmm();
      static const std::array<uint8_t, 16> kOnes = {1, 1, 1, 1, 1, 1, 1, 1,
                                                    1, 1, 1, 1, 1, 1, 1, 1};
      cc_.k(value.mask)
          .z()
          .emit(Inst::kIdVmovdqu8, bytes,
                memory_constant(kOnes.data(), kOnes.size()));
      if (mask) cc_.k(mask->mask);
      cc_.emit(Inst::kIdVmovdqu8, memory, bytes);
      return;
    }
    const x86::Vec& source = value.part[0];
    aj::InstId id = dtype_size(type) == 4   ? Inst::kIdVmovups
                    : dtype_size(type) == 2 ? Inst::kIdVpmovdw
                                            : Inst::kIdVpmovdb;
    if (mask) cc_.k(mask->mask);
    cc_.emit(id, memory, source);
  }

  void scatter(DType type, const x86::Gp& base, const Lanes& offsets,
               const Lanes& value, const Lanes* mask) override {
    if (dtype_size(type) < 4) {
      VectorIsa::scatter(type, base, offsets, value, mask);
      return;
    }
    const bool wide = dtype_size(type) == 8;
    for (int p = 0; p < 2; ++p) {
      x86::KReg wanted = cc_.newKw();
      if (mask) {
        cc_.korw(wanted, part_of(*mask, p), part_of(*mask, p));
      } else {
        cc_.kxnorw(wanted, wanted, wanted);
      }
      x86::Mem memory = x86::ptr(base, offsets.part[p]);
      if (wide) {
        cc_.k(wanted).emit(Inst::kIdVscatterqpd, memory, value.part[p]);
      } else {
        x86::Vec half = p == 0 ? low_half(value.part[0])
                               : low_half(high_whole(value.part[0]));
        cc_.k(wanted).emit(Inst::kIdVscatterqps, memory, half);
      }
    }
  }

  bool takes_memory(ScalarOp op, DType operand) const override {
    if (operand == DType::kBool || is_small_float(operand)) return false;
    switch (op) {
      case ScalarOp::kLt:
      case ScalarOp::kLe:
      case ScalarOp::kEq:
      case ScalarOp::kNe:
        return true;
      case ScalarOp::kMin:
      case ScalarOp::kMax:
        return !is_float(operand);
      default: {
        DType lane = is_float(operand)          ? operand
                     : dtype_size(operand) == 8 ? DType::kI64
                                                : DType::kI32;
        return scalar_op_row(op).operands == 2 &&
               instruction(op, lane) != Inst::kIdNone;
      }
    }
  }

  Lanes load_halves(const x86::Mem& memory, const Lanes* mask) override {
    Lanes result;
    result.part[0] = vec();
    if (mask) cc_.k(mask->mask).z();
    cc_.emit(Inst::kIdVcvtph2ps, result.part[0], memory);
    return result;
  }
  void store_halves(DType type, const x86::Mem& memory, const Lanes& value,
                    const Lanes* mask) override {
    if (type == DType::kBF16) {
      x86::Vec rounded = bf16_halves(value);
      if (mask) {
        // Masked words would want BW.
        Lanes wide = widened_halves(rounded);
        store(type, memory, wide, mask);
      } else {
        cc_.emit(Inst::kIdVmovups, memory, rounded.ymm());
      }
      return;
    }
    if (mask) cc_.k(mask->mask);
    cc_.emit(Inst::kIdVcvtps2ph, memory, value.part[0], 0);
  }
  Lanes round_halves(DType type, const Lanes& value) override {
    if (type == DType::kBF16) {
      Lanes wide = widened_halves(bf16_halves(value));
      return cast(DType::kBF16, DType::kF32, wide);
    }
    return through_halves(value, Inst::kIdVcvtph2ps);
  }

 protected:
  Lanes find_words(const x86::Mem& table, const Lanes& index) override {
    Lanes result;
    result.part[0] = vec();
    cc_.emit(Inst::kIdVpermps, result.part[0], index.part[0], table);
    return result;
  }

  Lanes gather_lanes(DType type, const x86::Gp& base, const Lanes& offsets,
                     const Lanes* mask) override {
    const bool wide = dtype_size(type) == 8;
    Lanes result;
    std::array<x86::Vec, 2> part;
    for (int p = 0; p < 2; ++p) {
      // The instruction clears its mask.
      x86::KReg wanted = cc_.newKw();
      if (mask) {
        cc_.korw(wanted, part_of(*mask, p), part_of(*mask, p));
      } else {
        cc_.kxnorw(wanted, wanted, wanted);
      }
      part[p] = constant_part(DType::kI64, 0);
      x86::Mem memory = x86::ptr(base, offsets.part[p]);
      if (wide) {
        cc_.k(wanted).emit(Inst::kIdVgatherqpd, part[p], memory);
      } else {
        cc_.k(wanted).emit(Inst::kIdVgatherqps, part[p].ymm(), memory);
      }
    }
    if (wide) {
      result.part = part;
    } else {
      result.part[0] = join_halves(part[0].ymm(), part[1].ymm());
    }
    return result;
  }

  aj::InstId instruction(ScalarOp op, DType lane) const override {
#define FJ_VECTOR_OP(operation, type, avx512, avx2)             \
  if (op == ScalarOp::k##operation && lane == DType::k##type) { \
    return Inst::kId##avx512;                                   \
  }
#include "codegen/x86/vector_ops.def"
#undef FJ_VECTOR_OP
    return Inst::kIdNone;
  }

  // Constants in memory are broadcast by the instruction itself.
  aj::Operand operand(const LaneOperand& value, int part) override {
    if (!value.constant || value.lanes.part[part].isValid()) {
      return value.lanes.part[part];
    }
    const bool wide = dtype_size(value.type) == 8;
    uint32_t word = static_cast<uint32_t>(*value.constant);
    x86::Mem memory =
        wide ? memory_constant(&*value.constant, 8) : memory_constant(&word, 4);
    memory.setBroadcast(wide ? x86::Mem::Broadcast::k1To8
                             : x86::Mem::Broadcast::k1To16);
    return memory;
  }

  Lanes mask_operation(ScalarOp op, const Lanes& a, const Lanes& b) override {
    Lanes result;
    switch (op) {
      case ScalarOp::kNot:
        result.mask = cc_.newKw();
        cc_.knotw(result.mask, a.mask);
        return result;
      case ScalarOp::kAnd:
      case ScalarOp::kMin:
        return mask_binary(Inst::kIdKandw, a, b);
      case ScalarOp::kOr:
      case ScalarOp::kMax:
        return mask_binary(Inst::kIdKorw, a, b);
      case ScalarOp::kLt:
        return mask_binary(Inst::kIdKandnw, a, b);
      case ScalarOp::kLe:
        return mask_binary(Inst::kIdKorw, mask_operation(ScalarOp::kNot, a, a),
                           b);
      case ScalarOp::kEq:
        return mask_binary(Inst::kIdKxnorw, a, b);
      default:
        return mask_binary(Inst::kIdKxorw, a, b);
    }
  }

  x86::Vec bit_operation(ScalarOp op, const x86::Vec& a,
                         const aj::Operand& b) override {
    // The width is that of an element that is broadcast from memory.
    const bool wide = b.isMem() && b.as<x86::Mem>().getBroadcast() ==
                                       x86::Mem::Broadcast::k1To8;
    aj::InstId id;
    if (op == ScalarOp::kAnd) {
      id = wide ? Inst::kIdVpandq : Inst::kIdVpandd;
    } else if (op == ScalarOp::kOr) {
      id = wide ? Inst::kIdVporq : Inst::kIdVpord;
    } else {
      id = wide ? Inst::kIdVpxorq : Inst::kIdVpxord;
    }
    return binary(id, a, b);
  }

  void round(bool is_double, const x86::Vec& to, const x86::Vec& from,
             int mode) override {
    cc_.emit(is_double ? Inst::kIdVrndscalepd : Inst::kIdVrndscaleps, to, from,
             mode);
  }

  x86::Vec low_half(const x86::Vec& whole) const override {
    return whole.ymm();
  }
  x86::Vec high_half(const x86::Vec& whole) override {
    return high_whole(whole).ymm();
  }
  x86::Vec join_halves(const x86::Vec& low, const x86::Vec& high) override {
    x86::Vec result = vec();
    cc_.emit(Inst::kIdVinsertf64x4, result, low.zmm(), high.ymm(), 1);
    return result;
  }

  aj::InstId conversion(DType from, DType to) const override {
    if (from == DType::kI32) {
      return to == DType::kI64   ? Inst::kIdVpmovsxdq
             : to == DType::kF32 ? Inst::kIdVcvtdq2ps
                                 : Inst::kIdVcvtdq2pd;
    }
    if (from == DType::kI64) {
      return to == DType::kF32 ? Inst::kIdVcvtqq2ps : Inst::kIdVcvtqq2pd;
    }
    if (from == DType::kF32) {
      return to == DType::kF64   ? Inst::kIdVcvtps2pd
             : to == DType::kI32 ? Inst::kIdVcvttps2dq
                                 : Inst::kIdVcvttps2qq;
    }
    return to == DType::kF32   ? Inst::kIdVcvtpd2ps
           : to == DType::kI32 ? Inst::kIdVcvttpd2dq
                               : Inst::kIdVcvttpd2qq;
  }

  Lanes f16_to_float(const Lanes& value) override {
    x86::Vec half = vec();
    cc_.emit(Inst::kIdVpmovdw, half.ymm(), value.part[0]);
    Lanes result;
    result.part[0] = vec();
    cc_.emit(Inst::kIdVcvtph2ps, result.part[0], half.ymm());
    return result;
  }

  Lanes float_to_f16(const Lanes& value) override {
    return through_halves(value, Inst::kIdVpmovzxwd);
  }
  Lanes float_to_bf16(const Lanes& value) override {
    if (!has_bf16_) return VectorIsa::float_to_bf16(value);
    return widened_halves(bf16_halves(value));
  }
  // f32 rounded to bf16, side by side in the lower half of a register.
  //
  // The instruction takes what is denormal for zero. Where there is such a
  // lane, which is seldom, bits are counted. (Whether there is one must not
  // depend on MXCSR, so these are bits, too.)
  x86::Vec bf16_halves(const Lanes& value) {
    x86::Vec result = vec();
    cc_.emit(Inst::kIdVcvtneps2bf16, result.ymm(), value.part[0]);
    x86::KReg tiny = cc_.newKw(), denormal = cc_.newKw();
    cc_.emit(Inst::kIdVptestnmd, tiny, value.part[0], word_operand(0x7f800000));
    cc_.k(tiny).emit(Inst::kIdVptestmd, denormal, value.part[0],
                     word_operand(0x7fffff));
    aj::Label none = cc_.newLabel();
    cc_.kortestw(denormal, denormal);
    cc_.jz(none);
    Lanes exact = VectorIsa::float_to_bf16(value);
    cc_.emit(Inst::kIdVpmovdw, result.ymm(), exact.part[0]);
    cc_.bind(none);
    return result;
  }
  Lanes widened_halves(const x86::Vec& halves) {
    Lanes result;
    result.part[0] = vec();
    cc_.emit(Inst::kIdVpmovzxwd, result.part[0], halves.ymm());
    return result;
  }

  // f32 rounded to f16, then made 32 bits wide again.
  Lanes through_halves(const Lanes& value, Inst::Id widen) {
    x86::Vec half = vec();
    cc_.emit(Inst::kIdVcvtps2ph, half.ymm(), value.part[0], 0);
    Lanes result;
    result.part[0] = vec();
    cc_.emit(widen, result.part[0], half.ymm());
    return result;
  }

  Lanes narrow_integers(const Lanes& value) override {
    x86::Vec low = vec(), high = vec();
    cc_.emit(Inst::kIdVpmovqd, low.ymm(), value.part[0]);
    cc_.emit(Inst::kIdVpmovqd, high.ymm(), value.part[1]);
    Lanes result;
    result.part[0] = join_halves(low, high);
    return result;
  }

  Lanes mask_to_words(const Lanes& mask) override {
    Lanes result;
    result.part[0] = vec();
    cc_.emit(Inst::kIdVpmovm2d, result.part[0], mask.mask);
    return result;
  }
  Lanes words_to_mask(const Lanes& words) override {
    Lanes result;
    result.mask = cc_.newKw();
    cc_.emit(Inst::kIdVptestmd, result.mask, words.part[0], words.part[0]);
    return result;
  }

 private:
  Lanes mask_binary(aj::InstId id, const Lanes& a, const Lanes& b) {
    Lanes result;
    result.mask = cc_.newKw();
    cc_.emit(id, result.mask, a.mask, b.mask);
    return result;
  }
  // The mask of lanes of 64 bits: the upper eight of the second part.
  x86::KReg part_of(const Lanes& mask, int part) {
    if (part == 0) return mask.mask;
    x86::KReg high = cc_.newKw();
    cc_.kshiftrw(high, mask.mask, 8);
    return high;
  }
  x86::Vec high_whole(const x86::Vec& whole) {
    x86::Vec result = vec();
    cc_.emit(Inst::kIdVextractf64x4, result.ymm(), whole, 1);
    return result;
  }
  x86::Vec word_numbers() {
    static const int32_t kNumbers[] = {0, 1, 2,  3,  4,  5,  6,  7,
                                       8, 9, 10, 11, 12, 13, 14, 15};
    x86::Vec result = vec();
    cc_.emit(Inst::kIdVmovups, result,
             memory_constant(kNumbers, sizeof kNumbers));
    return result;
  }

  const bool has_bf16_;
};

}  // namespace

std::unique_ptr<VectorIsa> make_avx512(x86::Compiler& cc, bool has_bf16) {
  return std::make_unique<Avx512>(cc, has_bf16);
}

}  // namespace framejit::codegen
