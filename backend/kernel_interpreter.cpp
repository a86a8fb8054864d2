// interpret(): what the kernel IR means, one block of elements at a time.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "backend/kernel_ir.h"

namespace framejit::backend {

namespace {

constexpr int kBlock = 64;

// One value of a block. Masks are kept as 0 or 1 in `bits`.
union Block {
  float f[kBlock];
  uint32_t bits[kBlock];
};

float scale_by_power(float a, float b) {
  const bool zero_times_inf = std::isinf(b) && (b > 0 ? a == 0 : std::isinf(a));
  if (std::isnan(a) || std::isnan(b) || zero_times_inf) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  // Beyond these powers every finite number under- or overflows.
  float power = std::clamp(std::floor(b), -400.f, 400.f);
  return std::ldexp(a, static_cast<int>(power));
}

float exponent(float a) {
  if (std::isnan(a)) return a;
  return std::logb(a);  // 0: -inf, inf: +inf, denormals normalised
}

class BlockInterpreter {
 public:
  explicit BlockInterpreter(const Kernel& kernel)
      : kernel_(kernel), values_(kernel.body.nodes().size()) {}

  void run(const char* const* pointers, char* const* results, int64_t column,
           int count) {
    const auto& nodes = kernel_.body.nodes();
    for (size_t i = 0; i < nodes.size(); ++i) {
      step(nodes[i], values_[i], pointers, column, count);
    }
    for (const KernelStore& store : kernel_.stores) {
      const Block& value = values_[store.value];
      char* target = results[store.operand];
      if (kernel_.operands[store.operand].type == OperandType::kF32) {
        std::memcpy(target + column * 4, value.f, 4 * count);
      } else {
        for (int l = 0; l < count; ++l) target[column + l] = value.bits[l] & 1;
      }
    }
  }

 private:
  void load(const KernelNode& node, Block& out, const char* const* pointers,
            int64_t column, int count) {
    const KernelOperand& operand = kernel_.operands[node.imm];
    bool fixed = operand.walk == Walk::kRow || operand.walk == Walk::kScalar;
    const char* source = pointers[node.imm];
    for (int l = 0; l < count; ++l) {
      int64_t index = fixed ? 0 : column + l;
      if (operand.type == OperandType::kF32) {
        std::memcpy(&out.f[l], source + 4 * index, 4);
      } else {
        out.bits[l] = source[index] != 0;
      }
    }
  }

  void step(const KernelNode& node, Block& out, const char* const* pointers,
            int64_t column, int count);

  const Kernel& kernel_;
  std::vector<Block> values_;
};

void BlockInterpreter::step(const KernelNode& node, Block& out,
                            const char* const* pointers, int64_t column,
                            int count) {
  static const Block kNone{};
  auto in = [&](int i) -> const Block& {
    return node.in[i] >= 0 ? values_[node.in[i]] : kNone;
  };
  const Block &a = in(0), &b = in(1), &c = in(2);
#define FJ_F(name, expression)                               \
  case KernelOp::k##name:                                    \
    for (int l = 0; l < count; ++l) out.f[l] = (expression); \
    break;
#define FJ_B(name, expression)                                  \
  case KernelOp::k##name:                                       \
    for (int l = 0; l < count; ++l) out.bits[l] = (expression); \
    break;
  switch (node.op) {
    case KernelOp::kLoadF:
    case KernelOp::kLoadMask:
      load(node, out, pointers, column, count);
      break;
      FJ_B(ConstF, static_cast<uint32_t>(node.imm))
      FJ_B(ConstI, static_cast<uint32_t>(node.imm))
      FJ_F(Add, a.f[l] + b.f[l])
      FJ_F(Sub, a.f[l] - b.f[l])
      FJ_F(Mul, a.f[l] * b.f[l])
      FJ_F(Div, a.f[l] / b.f[l])
      FJ_F(Fma, std::fma(a.f[l], b.f[l], c.f[l]))
      FJ_F(Fnma, std::fma(-a.f[l], b.f[l], c.f[l]))
      FJ_F(Min, a.f[l] < b.f[l] ? a.f[l] : b.f[l])
      FJ_F(Max, a.f[l] > b.f[l] ? a.f[l] : b.f[l])
      FJ_F(Sqrt, std::sqrt(a.f[l]))
      FJ_F(Rint, std::nearbyint(a.f[l]))
      FJ_B(And, a.bits[l] & b.bits[l])
      FJ_B(Or, a.bits[l] | b.bits[l])
      FJ_B(Xor, a.bits[l] ^ b.bits[l])
      FJ_B(AndNot, ~a.bits[l] & b.bits[l])
      FJ_F(ScaleByPower, scale_by_power(a.f[l], b.f[l]))
      FJ_F(Exponent, exponent(a.f[l]))
      FJ_B(ShiftLeft, a.bits[l] << node.imm)
      FJ_B(Less, a.f[l] < b.f[l])
      FJ_B(LessEqual, a.f[l] <= b.f[l])
      FJ_B(Equal, a.f[l] == b.f[l])
      FJ_B(NotEqual, a.f[l] != b.f[l])
      FJ_B(Unordered, std::isnan(a.f[l]) || std::isnan(b.f[l]))
      FJ_B(MaskAnd, a.bits[l] & b.bits[l])
      FJ_B(MaskOr, a.bits[l] | b.bits[l])
      FJ_B(MaskXor, a.bits[l] ^ b.bits[l])
      FJ_B(MaskNot, !a.bits[l])
      FJ_B(Select, a.bits[l] ? b.bits[l] : c.bits[l])
      FJ_F(Retry, a.bits[l] ? node.function(b.f[l]) : c.f[l])
  }
#undef FJ_F
#undef FJ_B
}

}  // namespace

void interpret(const Kernel& kernel, const KernelArgs& args) {
  BlockInterpreter interpreter(kernel);
  size_t count = kernel.operands.size();
  std::array<char*, kMaxKernelOperands> pointers{};
  for (size_t i = 0; i < count; ++i) pointers[i] = args.pointers[i];
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t column = 0; column < args.columns; column += kBlock) {
      int64_t left = args.columns - column;
      interpreter.run(pointers.data(), pointers.data(), column,
                      static_cast<int>(std::min<int64_t>(left, kBlock)));
    }
    for (size_t i = 0; i < count; ++i) pointers[i] += args.row_strides[i];
  }
}

}  // namespace framejit::backend
