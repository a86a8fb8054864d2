#include "codegen/scalar/body.h"

#include <bit>

#include "codegen/scalar/evaluate.h"
#include "codegen/scalar/lookup.h"
#include "guards/result.h"

namespace framejit::codegen {

namespace {

constexpr ScalarOpRow kRows[] = {
#define FJ_SCALAR_OP(name, text, operands, types, result) \
  {text, operands, OperandTypes::types, ResultType::result},
#include "codegen/scalar/scalar_ops.def"
#undef FJ_SCALAR_OP
};

}  // namespace

bool accepts(OperandTypes types, DType type) {
  switch (types) {
    case OperandTypes::kNone:
      return false;
    case OperandTypes::kNumber:
      return is_integer(type) || dtype_class(type) == DTypeClass::kFloat;
    case OperandTypes::kFloat:
      return dtype_class(type) == DTypeClass::kFloat;
    case OperandTypes::kInteger:
      return is_integer(type);
    case OperandTypes::kIntegral:
      return is_integer(type) || type == DType::kBool;
    case OperandTypes::kAny:
      return !is_small_float(type);
    case OperandTypes::kBoolOnly:
      return type == DType::kBool;
    case OperandTypes::kSelect:
    case OperandTypes::kConvert:
      return true;
  }
  return false;
}

const ScalarOpRow& scalar_op_row(ScalarOp op) {
  return kRows[static_cast<size_t>(op)];
}

std::optional<ScalarOp> scalar_op_named(std::string_view text) {
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (text == kRows[i].text) return static_cast<ScalarOp>(i);
  }
  return std::nullopt;
}

std::string malformed(const Body& body, const ScalarNode& node) {
  const ScalarOpRow& row = scalar_op_row(node.op);
  auto complain = [&](const char* what) {
    return std::string(row.text) + ": " + what;
  };
  for (int i = 0; i < 3; ++i) {
    bool expected = i < row.operands;
    if (expected != (node.in[i] != kNoScalar)) {
      return complain("wrong number of operands");
    }
    if (expected && (node.in[i] < 0 ||
                     node.in[i] >= static_cast<int>(body.nodes().size()))) {
      return complain("an operand that is not there");
    }
  }
  if (row.operands > 0) {
    int first = 0;
    if (row.types == OperandTypes::kSelect) {
      if (body.type(node.in[0]) != DType::kBool) {
        return complain("the condition is not b8");
      }
      first = 1;
    }
    DType type = body.type(node.in[first]);
    for (int i = first; i < row.operands; ++i) {
      if (body.type(node.in[i]) != type) return complain("mixed types");
    }
    if (!accepts(row.types, type)) return complain("type not taken");
    if (row.result == ResultType::kSame && node.type != type) {
      return complain("result is not of the operands' type");
    }
    if (node.op == ScalarOp::kBitcast &&
        (dtype_size(type) != dtype_size(node.type) ||
         node.type == DType::kBool || type == DType::kBool)) {
      return complain("not of equal width");
    }
  }
  if (row.result == ResultType::kBool && node.type != DType::kBool) {
    return complain("result is not b8");
  }
  if (node.op == ScalarOp::kIndex && node.type != DType::kI64) {
    return complain("not i64");
  }
  if (node.op == ScalarOp::kLookup) {
    const DType index = body.type(node.in[0]);
    if (!(node.type == DType::kF64 && index == DType::kI64) &&
        !(node.type == DType::kF32 && index == DType::kI32)) {
      return complain("neither f64 of an i64 nor f32 of an i32");
    }
    const int tables = node.type == DType::kF64 ? kLookupTables : kErfTables;
    if (node.payload < 0 || node.payload >= tables) {
      return complain("a table that is not there");
    }
  }
  if (node.op == ScalarOp::kNumber && node.type != DType::kI64 &&
      node.type != DType::kF64) {
    return complain("neither i64 nor f64");
  }
  return "";
}

size_t Body::Hash::operator()(const ScalarNode& node) const {
  uint64_t hash =
      static_cast<uint64_t>(node.op) * 64 + static_cast<uint64_t>(node.type);
  auto mix = [&hash](uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  };
  for (ScalarId in : node.in) mix(static_cast<uint32_t>(in));
  mix(static_cast<uint64_t>(node.payload));
  return hash;
}

ScalarId Body::emit(ScalarOp op, DType type, std::array<ScalarId, 3> in,
                    int64_t payload) {
  ScalarNode node{op, type, in, payload};
  auto found = known_.find(node);
  if (found != known_.end()) return found->second;
  if (std::string wrong = malformed(*this, node); !wrong.empty()) {
    throw InternalError(__FILE__, __LINE__, wrong);
  }
  ScalarId id = static_cast<ScalarId>(nodes_.size());
  nodes_.push_back(node);
  known_.emplace(node, id);
  return id;
}

ScalarId Body::constant(DType type, double value) {
  return emit_element(type, element_of(type, value));
}

ScalarId Body::integer(DType type, int64_t value) {
  return emit_element(type, element_of_integer(type, value));
}

ScalarId Body::emit_element(DType type, Element value) {
  return emit(ScalarOp::kConst, type, {-1, -1, -1},
              static_cast<int64_t>(value));
}

ScalarId Body::unary(ScalarOp op, ScalarId a) {
  bool is_bool = scalar_op_row(op).result == ResultType::kBool;
  return emit(op, is_bool ? DType::kBool : type(a), {a, -1, -1});
}

ScalarId Body::binary(ScalarOp op, ScalarId a, ScalarId b) {
  bool is_bool = scalar_op_row(op).result == ResultType::kBool;
  return emit(op, is_bool ? DType::kBool : type(a), {a, b, -1});
}

ScalarId Body::ternary(ScalarOp op, ScalarId a, ScalarId b, ScalarId c) {
  bool selects = scalar_op_row(op).types == OperandTypes::kSelect;
  return emit(op, selects ? type(b) : type(a), {a, b, c});
}

ScalarId Body::cast(DType to, ScalarId a) {
  return type(a) == to ? a : emit(ScalarOp::kCast, to, {a, -1, -1});
}

}  // namespace framejit::codegen
