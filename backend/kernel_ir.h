// Kernel IR: a typed, straight-line SSA program over vector lanes.
//
// A Kernel walks rows x columns; for every element it loads operands, computes,
// and stores. Lanes are f32, i32 or a mask. The IR knows only primitives that
// each target has (multiply-add, compare, blend, exponent tricks);
// transcendental functions are expanded into it (kernel_math.h). Nodes are
// hash-consed. interpret() is the meaning of the IR; emitters must agree.
//
// A function like sin is exact only up to some argument. Beyond it a kRetry
// node raises a flag, the kernel's return value, and the caller runs the
// interpreter over the same elements, where kRetry calls libm.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace framejit::backend {

enum class LaneType : uint8_t { kF32, kI32, kMask };

// X(name, result, number of operands)
// clang-format off
#define FJ_KERNEL_OPS(X)                                    \
  X(ConstF, F32, 0)                                         \
  X(ConstI, I32, 0)                                         \
  X(LoadF, F32, 0)                                          \
  X(LoadMask, Mask, 0)                                      \
  X(Add, F32, 2)                                            \
  X(Sub, F32, 2)                                            \
  X(Mul, F32, 2)                                            \
  X(Div, F32, 2)                                            \
  X(Fma, F32, 3) /* a * b + c, rounded once */              \
  X(Fnma, F32, 3) /* c - a * b */                           \
  X(Min, F32, 2) /* a < b ? a : b */                        \
  X(Max, F32, 2) /* a > b ? a : b */                        \
  X(Sqrt, F32, 1)                                           \
  X(Rint, F32, 1) /* to nearest, ties to even */            \
  X(And, F32, 2)                                            \
  X(Or, F32, 2)                                             \
  X(Xor, F32, 2)                                            \
  X(AndNot, F32, 2) /* ~a & b, on the bits */               \
  X(ScaleByPower, F32, 2) /* a * 2^floor(b) */              \
  X(Exponent, F32, 1) /* floor(log2 |a|) as a float */      \
  X(ShiftLeft, F32, 1) /* of the bits, by imm */            \
  X(Less, Mask, 2)                                          \
  X(LessEqual, Mask, 2)                                     \
  X(Equal, Mask, 2)                                         \
  X(NotEqual, Mask, 2) /* true on NaN; the others false */  \
  X(Unordered, Mask, 2) /* either is NaN */                 \
  X(MaskAnd, Mask, 2)                                       \
  X(MaskOr, Mask, 2)                                        \
  X(MaskXor, Mask, 2)                                       \
  X(MaskNot, Mask, 1)                                       \
  X(Select, F32, 3) /* mask ? b : c */                      \
  X(Retry, F32, 3) /* mask ? function(b) : c, see above */
// clang-format on

enum class KernelOp : uint8_t {
#define X(name, type, count) k##name,
  FJ_KERNEL_OPS(X)
#undef X
};

const char* kernel_op_name(KernelOp op);
LaneType kernel_op_type(KernelOp op);
int kernel_op_operands(KernelOp op);

struct KernelNode {
  KernelOp op;
  std::array<int, 3> in = {-1, -1, -1};
  int32_t imm = 0;  // constant's bits, operand number, shift count
  float (*function)(float) = nullptr;
};

// A value: the number of the node that defines it.
using Lane = int;

class KernelBody {
 public:
  Lane emit(KernelOp op, std::array<int, 3> in = {-1, -1, -1}, int32_t imm = 0,
            float (*function)(float) = nullptr);
  const std::vector<KernelNode>& nodes() const { return nodes_; }
  LaneType type(Lane lane) const { return kernel_op_type(nodes_[lane].op); }

  Lane constant(float value) {
    int32_t bits;
    std::memcpy(&bits, &value, 4);
    return emit(KernelOp::kConstF, {-1, -1, -1}, bits);
  }
#define FJ_UNARY(name, op) \
  Lane name(Lane a) { return emit(KernelOp::op, {a, -1, -1}); }
#define FJ_BINARY(name, op) \
  Lane name(Lane a, Lane b) { return emit(KernelOp::op, {a, b, -1}); }
#define FJ_TERNARY(name, op) \
  Lane name(Lane a, Lane b, Lane c) { return emit(KernelOp::op, {a, b, c}); }
  // clang-format off
  FJ_BINARY(add, kAdd)
  FJ_BINARY(sub, kSub)
  FJ_BINARY(mul, kMul)
  FJ_BINARY(div, kDiv)
  FJ_TERNARY(fma, kFma)
  FJ_TERNARY(fnma, kFnma)
  FJ_BINARY(min, kMin)
  FJ_BINARY(max, kMax)
  FJ_UNARY(sqrt, kSqrt)
  FJ_UNARY(rint, kRint)
  FJ_BINARY(bit_and, kAnd)
  FJ_BINARY(bit_or, kOr)
  FJ_BINARY(bit_xor, kXor)
  FJ_BINARY(bit_and_not, kAndNot)
  FJ_BINARY(scale_by_power, kScaleByPower)
  FJ_UNARY(exponent, kExponent)
  FJ_BINARY(less, kLess)
  FJ_BINARY(less_equal, kLessEqual)
  FJ_BINARY(equal, kEqual)
  FJ_BINARY(not_equal, kNotEqual)
  FJ_BINARY(unordered, kUnordered)
  FJ_BINARY(mask_and, kMaskAnd)
  FJ_BINARY(mask_or, kMaskOr)
  FJ_BINARY(mask_xor, kMaskXor)
  FJ_UNARY(mask_not, kMaskNot)
  FJ_TERNARY(select, kSelect)
  // clang-format on
#undef FJ_UNARY
#undef FJ_BINARY
#undef FJ_TERNARY
  Lane shift_left(Lane a, int count) {
    return emit(KernelOp::kShiftLeft, {a, -1, -1}, count);
  }

 private:
  std::vector<KernelNode> nodes_;
  std::map<std::tuple<int, int, int, int, int32_t>, Lane> seen_;
};

enum class OperandType : uint8_t { kF32, kBool };

// How an operand moves with the element.
enum class Walk : uint8_t {
  kElement,  // one item an element, contiguous
  kColumn,   // the same row for every row (a bias)
  kRow,      // one item a row
  kScalar,   // one item
};

struct KernelOperand {
  OperandType type = OperandType::kF32;
  Walk walk = Walk::kElement;
};

struct KernelStore {
  int operand;
  Lane value;
};

struct Kernel {
  // Inputs, then results (always kElement).
  std::vector<KernelOperand> operands;
  size_t num_inputs = 0;
  KernelBody body;
  std::vector<KernelStore> stores;  // one per result

  std::string str() const;
};

inline constexpr size_t kMaxKernelOperands = 24;
inline constexpr size_t kMaxKernelNodes = 500;

struct KernelArgs {
  char* pointers[kMaxKernelOperands];
  int64_t row_strides[kMaxKernelOperands];  // bytes
  int64_t rows;
  int64_t columns;
};

// Nonzero: some lane needs the interpreter (kRetry); the results are not
// usable.
using KernelFn = uint32_t (*)(const KernelArgs* args);

inline size_t item_size(OperandType type) {
  return type == OperandType::kF32 ? 4 : 1;
}

// The reference implementation.
void interpret(const Kernel& kernel, const KernelArgs& args);

}  // namespace framejit::backend
