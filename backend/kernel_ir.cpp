#include "backend/kernel_ir.h"

#include <cstdio>

namespace framejit::backend {

namespace {

struct OpRow {
  const char* name;
  LaneType type;
  int operands;
};
constexpr OpRow kOps[] = {
#define X(name, type, count) {#name, LaneType::k##type, count},
    FJ_KERNEL_OPS(X)
#undef X
};

const char* walk_name(Walk walk) {
  switch (walk) {
    case Walk::kElement:
      return "element";
    case Walk::kColumn:
      return "column";
    case Walk::kRow:
      return "row";
    case Walk::kScalar:
      return "scalar";
  }
  return "?";
}

}  // namespace

const char* kernel_op_name(KernelOp op) {
  return kOps[static_cast<int>(op)].name;
}
LaneType kernel_op_type(KernelOp op) { return kOps[static_cast<int>(op)].type; }
int kernel_op_operands(KernelOp op) {
  return kOps[static_cast<int>(op)].operands;
}

Lane KernelBody::emit(KernelOp op, std::array<int, 3> in, int32_t imm,
                      float (*function)(float)) {
  auto key = std::make_tuple(static_cast<int>(op), in[0], in[1], in[2], imm);
  // A retry is found again by its operands: one function per value.
  auto [found, fresh] = seen_.emplace(key, static_cast<Lane>(nodes_.size()));
  if (fresh) nodes_.push_back({op, in, imm, function});
  return found->second;
}

std::string Kernel::str() const {
  std::string text = "kernel(";
  for (size_t i = 0; i < operands.size(); ++i) {
    if (i) text += ", ";
    text += i < num_inputs ? "in" : "out";
    text += std::to_string(i);
    text += operands[i].type == OperandType::kF32 ? ": f32 " : ": bool ";
    text += walk_name(operands[i].walk);
  }
  text += ")\n";
  for (size_t i = 0; i < body.nodes().size(); ++i) {
    const KernelNode& node = body.nodes()[i];
    text += "  v" + std::to_string(i) + " = " + kernel_op_name(node.op);
    for (int operand : node.in) {
      if (operand >= 0) text += " v" + std::to_string(operand);
    }
    switch (node.op) {
      case KernelOp::kConstF: {
        float value;
        std::memcpy(&value, &node.imm, 4);
        char number[32];
        std::snprintf(number, sizeof number, " %.9g", value);
        text += number;
        break;
      }
      case KernelOp::kLoadF:
      case KernelOp::kLoadMask:
        text += " in" + std::to_string(node.imm);
        break;
      case KernelOp::kConstI:
      case KernelOp::kShiftLeft:
        text += " " + std::to_string(node.imm);
        break;
      default:
        break;
    }
    text += "\n";
  }
  for (const KernelStore& store : stores) {
    text += "  out" + std::to_string(store.operand) + " = v" +
            std::to_string(store.value) + "\n";
  }
  return text;
}

}  // namespace framejit::backend
