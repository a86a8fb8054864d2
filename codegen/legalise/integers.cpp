// Division of i64, which no vector instruction does, in f64.
//
// Where |a| and |b| are below 2^51 both are exact, and a / b is rounded by less
// than a quarter of 1 / |b|, which is as near as it can be to a whole number
// without being one. So it is truncated, or rounded down, to the right one.
// Numbers beyond take the operation as it is, which a target does lane by lane.
#include "codegen/legalise/expand.h"
#include "codegen/scalar/evaluate.h"
#include "codegen/scalar/simplify.h"

namespace framejit::codegen {

namespace {

constexpr DType kWhole = DType::kI64, kWide = DType::kF64;
constexpr int64_t kMost = int64_t{1} << 51;
// 1.5 * 2^52: added to its bits, a small integer is the fraction.
constexpr double kMagic = 0x1.8p52;

class Division {
 public:
  explicit Division(Body& body) : b_(body) {}

  ScalarId expand(ScalarOp op, ScalarId a, ScalarId b) {
    const bool down = op == ScalarOp::kFloorDiv || op == ScalarOp::kMod;
    ScalarId x = wide(a), y = wide(b);
    ScalarId ratio = emit(ScalarOp::kDiv, kWide, {x, y, -1});
    ScalarId result = emit(down ? ScalarOp::kFloor : ScalarOp::kTrunc, kWide,
                           {ratio, -1, -1});
    if (op == ScalarOp::kMod || op == ScalarOp::kFmod) {
      result = emit(ScalarOp::kFnma, kWide, {result, y, x});
    }
    ScalarId usual = whole(result);
    if (is_large_ == kNoScalar) return usual;
    return emit(ScalarOp::kSelectRare, kWhole,
                {is_large_, b_.emit(op, kWhole, {a, b, -1}), usual});
  }

 private:
  ScalarId emit(ScalarOp op, DType type, std::array<ScalarId, 3> in) {
    return emit_simplified(b_, op, type, in);
  }
  ScalarId bits(double value) {
    return b_.emit_element(kWhole, element_of(kWide, value));
  }
  ScalarId magic() { return b_.constant(kWide, kMagic); }

  ScalarId wide(ScalarId a) {
    const ScalarNode node = b_.node(a);
    if (node.op == ScalarOp::kConst && -kMost < node.payload &&
        node.payload < kMost) {
      return b_.constant(kWide, static_cast<double>(node.payload));
    }
    ScalarId sum = emit(ScalarOp::kAdd, kWhole, {a, bits(kMagic), -1});
    // Sign and exponent are still those of 2^52.
    ScalarId field = emit(ScalarOp::kAnd, kWhole,
                          {sum, b_.integer(kWhole, -(int64_t{1} << 52)), -1});
    ScalarId large =
        emit(ScalarOp::kNe, DType::kBool, {field, bits(0x1p52), -1});
    is_large_ = is_large_ == kNoScalar
                    ? large
                    : emit(ScalarOp::kOr, DType::kBool, {is_large_, large, -1});
    ScalarId number = emit(ScalarOp::kBitcast, kWide, {sum, -1, -1});
    return emit(ScalarOp::kSub, kWide, {number, magic(), -1});
  }
  ScalarId whole(ScalarId x) {
    ScalarId sum = emit(ScalarOp::kAdd, kWide, {x, magic(), -1});
    ScalarId number = emit(ScalarOp::kBitcast, kWhole, {sum, -1, -1});
    return emit(ScalarOp::kSub, kWhole, {number, bits(kMagic), -1});
  }

  Body& b_;
  ScalarId is_large_ = kNoScalar;
};

}  // namespace

ScalarId expand_integers(Body& b, ScalarOp op,
                         const std::array<ScalarId, 3>& in) {
  switch (op) {
    case ScalarOp::kTruncDiv:
    case ScalarOp::kFloorDiv:
    case ScalarOp::kFmod:
    case ScalarOp::kMod:
      return Division(b).expand(op, in[0], in[1]);
    default:
      return kNoScalar;
  }
}

}  // namespace framejit::codegen
