#include "codegen/scalar/simplify.h"

#include <utility>

#include "codegen/scalar/evaluate.h"

namespace framejit::codegen {

namespace {

class Simplifier {
 public:
  Simplifier(Body& body, ScalarOp op, DType type, std::array<ScalarId, 3> in)
      : body_(body), op_(op), type_(type), in_(in) {}

  // kNoScalar: nothing simpler is known.
  ScalarId run();

 private:
  bool is_const(int operand) const {
    return body_.node(in_[operand]).op == ScalarOp::kConst;
  }
  Element value(int operand) const {
    return static_cast<Element>(body_.node(in_[operand]).payload);
  }
  // The operand is this constant, to the bit.
  bool is(int operand, double number) const {
    DType type = body_.type(in_[operand]);
    return is_const(operand) && value(operand) == element_of(type, number);
  }
  bool is_all_ones(int operand) const {
    DType type = body_.type(in_[operand]);
    return is_const(operand) && value(operand) == element_of_integer(type, -1);
  }
  ScalarId zero() { return body_.integer(type_, 0); }

  ScalarId fold();
  ScalarId arithmetic();
  ScalarId bits();
  ScalarId select();
  ScalarId cast();

  Body& body_;
  ScalarOp op_;
  DType type_;
  std::array<ScalarId, 3> in_;
};

ScalarId Simplifier::fold() {
  const int operands = scalar_op_row(op_).operands;
  if (operands == 0 || op_ == ScalarOp::kCheck || op_ == ScalarOp::kLookup)
    return kNoScalar;
  std::array<Element, 3> values{};
  for (int i = 0; i < operands; ++i) {
    if (!is_const(i)) return kNoScalar;
    values[i] = value(i);
  }
  DType operand = body_.type(in_[operands - 1]);
  return body_.emit_element(type_, evaluate(op_, type_, operand, values));
}

ScalarId Simplifier::arithmetic() {
  const bool floats = is_float(type_);
  switch (op_) {
    case ScalarOp::kAdd:
      if (is(1, floats ? -0.0 : 0)) return in_[0];
      if (is(0, floats ? -0.0 : 0)) return in_[1];
      break;
    case ScalarOp::kSub:
      if (is(1, 0)) return in_[0];
      if (!floats && in_[0] == in_[1]) return zero();
      break;
    case ScalarOp::kMul:
      if (is(1, 1)) return in_[0];
      if (is(0, 1)) return in_[1];
      if (!floats && (is(0, 0) || is(1, 0))) return zero();
      break;
    case ScalarOp::kDiv:
    case ScalarOp::kTruncDiv:
    case ScalarOp::kFloorDiv:
      if (is(1, 1)) return in_[0];
      break;
    case ScalarOp::kMin:
    case ScalarOp::kMax:
      if (in_[0] == in_[1]) return in_[0];
      break;
    case ScalarOp::kNeg:
      if (body_.node(in_[0]).op == ScalarOp::kNeg) {
        return body_.node(in_[0]).in[0];
      }
      break;
    case ScalarOp::kAbs:
      if (type_ == DType::kU8 || body_.node(in_[0]).op == op_) return in_[0];
      break;
    default:
      break;
  }
  return kNoScalar;
}

ScalarId Simplifier::bits() {
  switch (op_) {
    case ScalarOp::kAnd:
      if (in_[0] == in_[1] || is_all_ones(1)) return in_[0];
      if (is_all_ones(0)) return in_[1];
      if (is(0, 0) || is(1, 0)) return zero();
      break;
    case ScalarOp::kOr:
      if (in_[0] == in_[1] || is(1, 0)) return in_[0];
      if (is(0, 0)) return in_[1];
      break;
    case ScalarOp::kXor:
      if (in_[0] == in_[1]) return zero();
      if (is(1, 0)) return in_[0];
      if (is(0, 0)) return in_[1];
      break;
    case ScalarOp::kShiftLeft:
    case ScalarOp::kShiftRight:
      if (is(1, 0)) return in_[0];
      break;
    case ScalarOp::kNot:
      if (body_.node(in_[0]).op == ScalarOp::kNot) {
        return body_.node(in_[0]).in[0];
      }
      break;
    default:
      break;
  }
  return kNoScalar;
}

ScalarId Simplifier::select() {
  if (in_[1] == in_[2]) return in_[1];
  if (is_const(0)) return value(0) ? in_[1] : in_[2];
  return kNoScalar;
}

ScalarId Simplifier::cast() {
  const ScalarNode& inner = body_.node(in_[0]);
  if (op_ == ScalarOp::kBitcast) {
    if (inner.type == type_) return in_[0];
    if (inner.op == ScalarOp::kBitcast) {
      return body_.type(inner.in[0]) == type_
                 ? inner.in[0]
                 : body_.emit(op_, type_, {inner.in[0], -1, -1});
    }
    return kNoScalar;
  }
  if (inner.type == type_) return in_[0];
  if (inner.op == ScalarOp::kCast) {
    DType source = body_.type(inner.in[0]);
    // A float that becomes an integer is truncated at the width of its own
    // rule whatever float it passed through, an exact one.
    if (cast_is_exact(source, inner.type)) {
      return body_.cast(type_, inner.in[0]);
    }
  }
  return kNoScalar;
}

ScalarId Simplifier::run() {
  if (ScalarId id = fold(); id != kNoScalar) return id;
  switch (op_) {
    case ScalarOp::kAnd:
    case ScalarOp::kOr:
    case ScalarOp::kXor:
    case ScalarOp::kNot:
    case ScalarOp::kShiftLeft:
    case ScalarOp::kShiftRight:
      return bits();
    case ScalarOp::kSelect:
    case ScalarOp::kSelectRare:
      return select();
    case ScalarOp::kCast:
    case ScalarOp::kBitcast:
      return cast();
    default:
      return scalar_op_row(op_).operands > 0 ? arithmetic() : kNoScalar;
  }
}

}  // namespace

bool cast_is_exact(DType from, DType to) {
  if (from == to || from == DType::kBool) return true;
  if (to == DType::kBool) return false;
  // Bits of an integer without its sign, and of a significand.
  auto digits = [](DType type) {
    switch (type) {
      case DType::kU8:
        return 8;
      case DType::kI8:
        return 7;
      case DType::kI16:
        return 15;
      case DType::kI32:
        return 31;
      case DType::kI64:
        return 63;
      case DType::kF16:
        return 11;
      case DType::kBF16:
        return 8;
      case DType::kF32:
        return 24;
      default:
        return 53;
    }
  };
  if (is_float(from) && !is_float(to)) return false;
  if (from == DType::kF16 && to == DType::kBF16) return false;
  if (from == DType::kBF16 && to == DType::kF16) return false;
  if (from != DType::kU8 && to == DType::kU8) return false;
  return digits(from) <= digits(to);
}

ScalarId emit_simplified(Body& body, ScalarOp op, DType type,
                         std::array<ScalarId, 3> in, int64_t payload) {
  ScalarId known = Simplifier(body, op, type, in).run();
  return known != kNoScalar ? known : body.emit(op, type, in, payload);
}

Body rewrite(const Body& body, const std::vector<ScalarId*>& roots,
             const EmitNode& emit) {
  const auto& nodes = body.nodes();
  std::vector<char> needed(nodes.size());
  for (const ScalarId* root : roots) {
    if (*root != kNoScalar) needed[*root] = true;
  }
  for (size_t i = nodes.size(); i-- > 0;) {
    needed[i] |= nodes[i].op == ScalarOp::kCheck;
    if (!needed[i]) continue;
    for (ScalarId in : nodes[i].in) {
      if (in != kNoScalar) needed[in] = true;
    }
  }
  Body result;
  std::vector<ScalarId> now(nodes.size(), kNoScalar);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!needed[i]) continue;
    std::array<ScalarId, 3> in = nodes[i].in;
    for (ScalarId& operand : in) {
      if (operand != kNoScalar) operand = now[operand];
    }
    now[i] = emit(result, nodes[i], in);
  }
  for (ScalarId* root : roots) {
    if (*root != kNoScalar) *root = now[*root];
  }
  return result;
}

Body simplify(const Body& body, const std::vector<ScalarId*>& roots) {
  return rewrite(
      body, roots, [](Body& to, const ScalarNode& node, const auto& in) {
        return emit_simplified(to, node.op, node.type, in, node.payload);
      });
}

}  // namespace framejit::codegen
