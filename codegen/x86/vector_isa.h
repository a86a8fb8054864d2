// VectorIsa: scalar operations on a vector of lanes, in one instruction set.
//
// A kernel computes as many elements side by side as a register has lanes of 32
// bits (16 in AVX-512, 8 in AVX2), whatever their types, so types mix freely:
// a value of 64-bit elements is two registers (*parts*), one of 8 or 16 bits
// lies in lanes of 32, extended as an Element is, one of f16 or bf16 is its 16
// bits, zeros above. A b8 is a mask: a mask register of AVX-512, lanes of
// all ones or zeros in AVX2.
//
// What an instruction set has no short sequence for is done lane by lane, by a
// call (lane_calls.h) that gives what evaluate() says.
#pragma once

#include <asmjit/x86.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>

#include "codegen/legalise/expand.h"
#include "codegen/scalar/evaluate.h"

namespace framejit::codegen {

namespace aj = asmjit;
namespace x86 = asmjit::x86;

enum class LaneKind : uint8_t { kWord, kDouble, kMask };

inline LaneKind lane_kind(DType type) {
  if (type == DType::kBool) return LaneKind::kMask;
  return dtype_size(type) == 8 ? LaneKind::kDouble : LaneKind::kWord;
}

// The value of all lanes.
struct Lanes {
  std::array<x86::Vec, 2> part;
  x86::KReg mask;  // AVX-512's b8
  // AVX2's b8 that came of elements of 64 bits: lanes of as many, in place of
  // `part`. What needs them has them at once.
  std::array<x86::Vec, 2> wide;
};

// An operand: a value, and what it is if it is a constant.
struct LaneOperand {
  Lanes lanes;
  DType type = DType::kF32;
  std::optional<Element> constant;
};

class VectorIsa {
 public:
  VectorIsa(x86::Compiler& cc, int lanes) : cc_(cc), lanes_(lanes) {}
  virtual ~VectorIsa() = default;

  int lanes() const { return lanes_; }
  int bytes() const { return lanes_ * 4; }
  x86::Compiler& cc() { return cc_; }
  static int parts(DType type) {
    return lane_kind(type) == LaneKind::kDouble ? 2 : 1;
  }
  // kByInstruction: store_halves() and round_halves() know bf16.
  virtual Bf16Rounding bf16_rounding() const { return Bf16Rounding::kByBits; }
  // find_words() is one instruction.
  virtual bool has_word_tables() const { return false; }
  // Registers that constants may keep for the whole kernel.
  virtual int spare_registers() const = 0;

  // ---- values
  virtual x86::Vec vec() = 0;
  Lanes constant(DType type, Element value);
  // A register that holds the element as 64 or 32 bits (b8: 0 or 1).
  virtual Lanes broadcast(DType type, const x86::Gp& value) = 0;
  virtual Lanes broadcast_memory(DType type, const x86::Mem& memory) = 0;
  Lanes numbers();  // i64: 0, 1, 2 ...
  // Lane 0: f32 and narrow ones into 32 bits, others into 64.
  void extract_first(DType type, const x86::Gp& out, const Lanes& value);
  // The first element in all lanes.
  Lanes splat_first(DType type, const Lanes& value);
  // A new register with the value; into one that is there already.
  Lanes copy(DType type, const Lanes& value);
  virtual void assign(DType type, Lanes* to, const Lanes& value) = 0;
  virtual void assign_where(const Lanes& mask, DType type, Lanes* to,
                            const Lanes& value) = 0;
  // Lanes whose number is exchanged with that xor `step` (1, 2, 4, 8).
  virtual Lanes butterfly(DType type, const Lanes& value, int step) = 0;
  // The last lane first.
  virtual Lanes reverse(DType type, const Lanes& value) = 0;

  // Words of `a` with the bit in their number change places with those of `b`
  // without it, `bit` lanes further down.
  virtual void exchange(int bit, const Lanes& with_bit, Lanes* a, Lanes* b);

  // ---- masks
  virtual Lanes mask_and(const Lanes& a, const Lanes& b) = 0;
  virtual Lanes mask_and_not(const Lanes& a, const Lanes& b) = 0;  // a & ~b
  virtual Lanes first_lanes(const x86::Gp& count) = 0;  // number < count
  // Those with this bit in their number, to select elements of the type.
  virtual Lanes lanes_with_bit(int bit, DType type);
  virtual void jump_if_none(const Lanes& mask, const aj::Label& target) = 0;
  // Where the mask is set `yes`, else `no`.
  virtual Lanes select(const Lanes& mask, DType type, const Lanes& yes,
                       const Lanes& no) = 0;

  // ---- operations
  Lanes operation(ScalarOp op, DType type,
                  const std::array<LaneOperand, 3>& in);
  // The second operand may be a constant without lanes: it is in memory.
  virtual bool takes_memory(ScalarOp op, DType operand) const { return false; }
  virtual Lanes compare(ScalarOp op, DType type, const LaneOperand& a,
                        const LaneOperand& b) = 0;
  Lanes cast(DType from, DType to, const Lanes& value);
  Lanes upper_half(const Lanes& value);  // of words

  // ---- memory: lanes side by side; mask: those that are touched
  virtual Lanes load(DType type, x86::Mem memory, const Lanes* mask) = 0;
  virtual void store(DType type, x86::Mem memory, const Lanes& value,
                     const Lanes* mask) = 0;
  // Of f16, as f32.
  virtual Lanes load_halves(const x86::Mem& memory, const Lanes* mask) = 0;
  // An f32 rounded to f16 (or bf16, see bf16_rounding()), in memory or as it
  // is.
  virtual void store_halves(DType type, const x86::Mem& memory,
                            const Lanes& value, const Lanes* mask) = 0;
  virtual Lanes round_halves(DType type, const Lanes& value) = 0;
  // At base + offset (i64, bytes) of each lane.
  Lanes gather(DType type, const x86::Gp& base, const Lanes& offsets,
               const Lanes* mask);
  virtual void scatter(DType type, const x86::Gp& base, const Lanes& offsets,
                       const Lanes& value, const Lanes* mask);
  // The first lane alone.
  void store_first(DType type, const x86::Mem& memory, const Lanes& value);
  // What is there combined with the value (Select: replaced), lanes in order.
  void update(DType type, ScalarOp combine, const x86::Gp& base,
              const Lanes& offsets, const Lanes& value, const Lanes* mask);
  // Table `number` (codegen/scalar/lookup.h) of that type.
  Lanes lookup(DType type, int64_t number, const Lanes& index);

 protected:
  virtual aj::InstId instruction(ScalarOp op, DType lane) const = 0;
  virtual Lanes mask_operation(ScalarOp op, const Lanes& a, const Lanes& b) = 0;
  // Sequences that the instruction set has for what is no row; nothing: none.
  virtual std::optional<Lanes> sequence(ScalarOp op, DType type,
                                        const std::array<LaneOperand, 3>& in) {
    return std::nullopt;
  }
  virtual x86::Vec bit_operation(ScalarOp op, const x86::Vec& a,
                                 const aj::Operand& b) = 0;
  // Of 16 words in memory those at the index modulo 16.
  virtual Lanes find_words(const x86::Mem& table, const Lanes& index) = 0;
  // Of elements of 32 or 64 bits, as gather().
  virtual Lanes gather_lanes(DType type, const x86::Gp& base,
                             const Lanes& offsets, const Lanes* mask) = 0;
  Lanes gather_narrow(DType type, const x86::Gp& base, const Lanes& offsets,
                      const Lanes* mask);
  void store_register(DType type, const x86::Mem& memory,
                      const x86::Gp& element);
  void update_element(DType type, ScalarOp combine, const x86::Mem& place,
                      const x86::Mem& value);
  // The second operand of an instruction, maybe in memory.
  virtual aj::Operand operand(const LaneOperand& value, int part) {
    return value.lanes.part[part];
  }
  // A constant as second operand of integer and bit operations.
  aj::Operand constant_operand(DType type, Element value) {
    return operand({{}, type, value}, 0);
  }
  aj::Operand word_operand(uint32_t value) {
    return constant_operand(DType::kI32, value);
  }
  virtual void round(bool is_double, const x86::Vec& to, const x86::Vec& from,
                     int mode) = 0;
  // Lower and upper half of a register, and both put together.
  virtual x86::Vec low_half(const x86::Vec& whole) const = 0;
  virtual x86::Vec high_half(const x86::Vec& whole) = 0;
  virtual x86::Vec join_halves(const x86::Vec& low, const x86::Vec& high) = 0;
  // Of types that lie in whole lanes (i32, i64, f32, f64); kIdNone: a call.
  virtual aj::InstId conversion(DType from, DType to) const = 0;
  virtual Lanes f16_to_float(const Lanes& value) = 0;
  virtual Lanes float_to_f16(const Lanes& value) = 0;
  virtual Lanes narrow_integers(const Lanes& value) = 0;  // i64 -> i32
  Lanes convert_lanes(DType from, DType to, const Lanes& value);

  x86::Vec binary(aj::InstId id, const x86::Vec& a, const aj::Operand& b);
  x86::Vec unary(aj::InstId id, const x86::Vec& a);
  x86::Vec shifted(aj::InstId id, const x86::Vec& a, int count);
  x86::Mem memory_constant(const void* data, size_t bytes) {
    return cc_.newConst(aj::ConstPoolScope::kLocal, data, bytes);
  }
  x86::Vec constant_part(DType type, Element value);
  x86::Vec words(uint32_t value) { return constant_part(DType::kI32, value); }
  void normalise(DType type, Lanes* value);
  Lanes multiply_add(ScalarOp op, DType type,
                     const std::array<LaneOperand, 3>& in);
  Lanes min_max(ScalarOp op, DType type, const std::array<LaneOperand, 3>& in);
  Lanes sign_operation(ScalarOp op, DType type, const LaneOperand& a);
  Lanes narrow_division(ScalarOp op, DType type, const LaneOperand& a,
                        const LaneOperand& b);
  virtual Lanes float_to_bf16(const Lanes& value);

  // Values on the stack, as lane_calls.h reads them.
  x86::Mem spill(DType type, const Lanes& value);
  Lanes unspill(DType type, const x86::Mem& memory);
  Lanes call(ScalarOp op, DType type, DType operand_type,
             std::array<const Lanes*, 3> in);
  virtual Lanes mask_to_words(const Lanes& mask) = 0;
  virtual Lanes words_to_mask(const Lanes& words) = 0;
  x86::Gp address_of(const x86::Mem& memory);

  x86::Compiler& cc_;
  const int lanes_;
};

std::unique_ptr<VectorIsa> make_avx512(x86::Compiler& cc, bool has_bf16);
std::unique_ptr<VectorIsa> make_avx2(x86::Compiler& cc);

}  // namespace framejit::codegen
