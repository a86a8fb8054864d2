// Body: a scalar program, the arithmetic of one element.
//
// Typed SSA, hash-consed, without pointers: a value is the number of its node,
// and operands come before their users. What a leaf stands for depends on where
// the body is used: Load, Index, Number and Row name an entry of a list beside
// it. scalar_ops.def has the operations; evaluate.h says what they mean.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "codegen/scalar/dtype.h"

namespace framejit::codegen {

enum class ScalarOp : uint8_t {
#define FJ_SCALAR_OP(name, ...) k##name,
#include "codegen/scalar/scalar_ops.def"
#undef FJ_SCALAR_OP
};

enum class OperandTypes : uint8_t {
  kNone,      // no operands
  kNumber,    // integers, f32, f64
  kFloat,     // f32, f64
  kInteger,   // integers
  kIntegral,  // integers and b8
  kAny,       // all of these
  kBoolOnly,
  kSelect,   // b8, then two of any one type, f16 and bf16 too
  kConvert,  // anything
};

bool accepts(OperandTypes types, DType type);

enum class ResultType : uint8_t { kSame, kBool, kGiven };

struct ScalarOpRow {
  const char* text;
  int operands;
  OperandTypes types;
  ResultType result;
};
const ScalarOpRow& scalar_op_row(ScalarOp op);
std::optional<ScalarOp> scalar_op_named(std::string_view text);

// The value of one element, of any type (evaluate.h says how it lies in it).
using Element = uint64_t;

// A node's number within its body.
using ScalarId = int32_t;
inline constexpr ScalarId kNoScalar = -1;

struct ScalarNode {
  ScalarOp op;
  DType type;
  std::array<ScalarId, 3> in = {kNoScalar, kNoScalar, kNoScalar};
  // Const: the value, an Element. Other leaves: the entry they name.
  int64_t payload = 0;
  bool operator==(const ScalarNode&) const = default;
};

class Body {
 public:
  // The node with these parts, new or known. Types are checked (InternalError);
  // nothing is folded here (codegen/scalar/simplify.h).
  ScalarId emit(ScalarOp op, DType type,
                std::array<ScalarId, 3> in = {-1, -1, -1}, int64_t payload = 0);
  const std::vector<ScalarNode>& nodes() const { return nodes_; }
  const ScalarNode& node(ScalarId id) const { return nodes_[id]; }
  DType type(ScalarId id) const { return nodes_[id].type; }

  // Constants: a number converted as Cast does, or the element as it is.
  ScalarId constant(DType type, double value);
  ScalarId integer(DType type, int64_t value);
  ScalarId emit_element(DType type, Element value);
  // Operations whose type follows from the operands.
  ScalarId unary(ScalarOp op, ScalarId a);
  ScalarId binary(ScalarOp op, ScalarId a, ScalarId b);
  ScalarId ternary(ScalarOp op, ScalarId a, ScalarId b, ScalarId c);
  ScalarId cast(DType type, ScalarId a);  // a itself when it has the type

 private:
  struct Hash {
    size_t operator()(const ScalarNode& node) const;
  };
  std::vector<ScalarNode> nodes_;
  std::unordered_map<ScalarNode, ScalarId, Hash> known_;
};

// "": the node may be added to the body; otherwise what is wrong with it.
std::string malformed(const Body& body, const ScalarNode& node);

}  // namespace framejit::codegen
