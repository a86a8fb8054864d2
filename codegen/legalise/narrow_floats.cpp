// Rounding to bf16 by arithmetic on the bits of an f32.
//
// A rounded value stays an f32 whose lower half is zero, so that what it goes
// into need not widen it again, and what gives such values anyway (a maximum, a
// sign) need not be rounded. To nearest even: the lower half is added to 0x7fff
// and to the last bit that stays, and cut off.
//
// A NaN with a full lower half would run over into the sign. Arithmetic gives
// NaNs of its operands, or one whose lower half is zero; so if the operands are
// bf16 themselves, there is none.
//
// Targets that have an instruction for it keep the casts of what is stored.
#include "codegen/legalise/expand.h"
#include "codegen/scalar/evaluate.h"
#include "codegen/scalar/simplify.h"

namespace framejit::codegen {

namespace {

constexpr DType kSingle = DType::kF32, kBits = DType::kI32;
constexpr Element kLowerHalf = 0xffff;
// How far is looked for where a value comes from.
constexpr int kDepth = 4;

bool has_no_lower_half(const Body& b, ScalarId id, int depth) {
  const ScalarNode& node = b.node(id);
  auto operand = [&](int k) {
    return has_no_lower_half(b, node.in[k], depth - 1);
  };
  if (node.type != kSingle || depth == 0) return false;
  switch (node.op) {
    case ScalarOp::kConst:
      return (static_cast<Element>(node.payload) & kLowerHalf) == 0;
    case ScalarOp::kCast:
      return b.type(node.in[0]) == DType::kBF16;
    case ScalarOp::kBitcast: {
      const ScalarNode& bits = b.node(node.in[0]);
      if (bits.op != ScalarOp::kAnd) return false;
      const ScalarNode& kept = b.node(bits.in[1]);
      return kept.op == ScalarOp::kConst &&
             (static_cast<Element>(kept.payload) & kLowerHalf) == 0;
    }
    case ScalarOp::kNeg:
    case ScalarOp::kAbs:
      return operand(0);
    case ScalarOp::kMin:
    case ScalarOp::kMax:
      return operand(0) && operand(1);
    case ScalarOp::kSelect:
    case ScalarOp::kSelectRare:
      return operand(1) && operand(2);
    default:
      return false;
  }
}

// Whether it is one if it is a NaN.
bool has_plain_nans(const Body& b, ScalarId id, int depth) {
  if (has_no_lower_half(b, id, depth)) return true;
  if (depth == 0) return false;
  const ScalarNode& node = b.node(id);
  switch (node.op) {
    case ScalarOp::kAdd:
    case ScalarOp::kSub:
    case ScalarOp::kMul:
    case ScalarOp::kDiv:
    case ScalarOp::kFma:
    case ScalarOp::kFnma:
    case ScalarOp::kSqrt:
    case ScalarOp::kNeg:
    case ScalarOp::kAbs:
    case ScalarOp::kMin:
    case ScalarOp::kMax:
      for (ScalarId in : node.in) {
        if (in != kNoScalar && !has_plain_nans(b, in, depth - 1)) return false;
      }
      return true;
    case ScalarOp::kConst:
      return !is_nan(kSingle, static_cast<Element>(node.payload));
    default:
      return false;
  }
}

ScalarId rounded(Body& b, ScalarId a) {
  if (is_bf16_value(b, a)) return a;
  auto emit = [&](ScalarOp op, DType type, std::array<ScalarId, 3> in) {
    return emit_simplified(b, op, type, in);
  };
  auto number = [&](int64_t value) { return b.integer(kBits, value); };
  ScalarId bits = emit(ScalarOp::kBitcast, kBits, {a, -1, -1});
  ScalarId high = emit(ScalarOp::kShiftRight, kBits, {bits, number(16), -1});
  ScalarId odd = emit(ScalarOp::kAnd, kBits, {high, number(1), -1});
  ScalarId sum = emit(ScalarOp::kAdd, kBits, {bits, number(0x7fff), -1});
  sum = emit(ScalarOp::kAdd, kBits, {sum, odd, -1});
  ScalarId kept =
      emit(ScalarOp::kAnd, kBits, {sum, number(-(int64_t{1} << 16)), -1});
  ScalarId result = emit(ScalarOp::kBitcast, kSingle, {kept, -1, -1});
  if (has_plain_nans(b, a, kDepth)) return result;
  ScalarId is_nan = emit(ScalarOp::kNe, DType::kBool, {a, a, -1});
  return emit(ScalarOp::kSelect, kSingle,
              {is_nan, b.emit_element(kSingle, 0x7fc00000), result});
}

}  // namespace

bool is_bf16_value(const Body& b, ScalarId id) {
  return has_no_lower_half(b, id, kDepth);
}

ScalarId expand_cast(Body& b, DType type, ScalarId a) {
  if (type == DType::kBF16 && b.type(a) == kSingle) {
    return b.emit(ScalarOp::kCast, type, {rounded(b, a), -1, -1});
  }
  // What was a bf16 value before it was made one still is.
  const ScalarNode& node = b.node(a);
  if (node.type != DType::kBF16 || node.op != ScalarOp::kCast ||
      !is_bf16_value(b, node.in[0])) {
    return kNoScalar;
  }
  return emit_simplified(b, ScalarOp::kCast, type, {node.in[0], -1, -1});
}

}  // namespace framejit::codegen
