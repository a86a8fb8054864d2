#include "codegen/cuda/body_text.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "codegen/scalar/evaluate.h"
#include "guards/result.h"

namespace framejit::codegen {

namespace {

struct CudaType {
  const char *in_register, *in_memory, *in_words;
};
CudaType row_of(DType type) {
  switch (type) {
    case DType::kBool:
      return {"bool", "u8", "i32"};
    case DType::kU8:
      return {"u8", "u8", "i32"};
    case DType::kI8:
      return {"i8", "i8", "i32"};
    case DType::kI16:
      return {"i16", "i16", "i32"};
    case DType::kI32:
      return {"i32", "i32", "i32"};
    case DType::kI64:
      return {"i64", "i64", "i64"};
    case DType::kF16:
    case DType::kBF16:
      return {"u16", "u16", "i32"};
    case DType::kF32:
      return {"float", "float", "float"};
    case DType::kF64:
      return {"double", "double", "double"};
  }
  return {};
}

std::string call(const char* function, const std::string& a,
                 const std::string& b = "", const std::string& c = "") {
  std::string out = std::string(function) + "(" + a;
  if (!b.empty()) out += ", " + b;
  if (!c.empty()) out += ", " + c;
  return out + ")";
}

// Of an operator and its operands, names or constants.
std::string infix(const std::string& a, const char* op, const std::string& b) {
  return a + " " + op + " " + b;
}

// What CUDA calls it, for double; float has an f behind.
const char* library_name(ScalarOp op) {
  switch (op) {
    case ScalarOp::kFmod:
      return "fmod";
    case ScalarOp::kAbs:
      return "fabs";
    case ScalarOp::kFma:
      return "fma";
    case ScalarOp::kScaleByPower:
      return nullptr;
    case ScalarOp::kExponent:
      return "logb";
    default:
      return scalar_op_row(op).text;
  }
}

std::string shortest(double number, bool single) {
  char buffer[40];
  char* end = buffer + sizeof buffer;
  end = single ? std::to_chars(buffer, end, static_cast<float>(number)).ptr
               : std::to_chars(buffer, end, number).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return single ? text + "f" : text;
}

}  // namespace

const char* cuda_type(DType type) { return row_of(type).in_register; }
const char* cuda_memory_type(DType type) { return row_of(type).in_memory; }
const char* cuda_word_type(DType type) { return row_of(type).in_words; }

std::string cuda_constant(DType type, Element value) {
  auto hexadecimal = [](uint64_t bits) {
    char buffer[20];
    char* end = std::to_chars(buffer, buffer + sizeof buffer, bits, 16).ptr;
    return "0x" + std::string(buffer, end);
  };
  if (type == DType::kBool) return value ? "true" : "false";
  if (is_small_float(type)) return "(u16)" + hexadecimal(value);
  if (is_float(type)) {
    const double number = as_double(type, value);
    const bool single = type == DType::kF32;
    if (!std::isfinite(number)) {
      return single ? "__int_as_float(" + hexadecimal(value) + ")"
                    : "__longlong_as_double(" + hexadecimal(value) + "LL)";
    }
    std::string text = shortest(number, single);
    return text[0] == '-' ? "(" + text + ")" : text;
  }
  // Behind a minus stands a number of its own, which has to fit.
  const auto integer = static_cast<int64_t>(value);
  if (type == DType::kI64 && integer == std::numeric_limits<int64_t>::min())
    return "(-9223372036854775807LL - 1)";
  if (type == DType::kI32 && integer == std::numeric_limits<int32_t>::min())
    return "(-2147483647 - 1)";
  std::string text = std::to_string(integer);
  if (type == DType::kI64) text += "LL";
  if (text[0] == '-') text = "(" + text + ")";
  return dtype_size(type) < 4 ? std::string("(") + cuda_type(type) + ")" + text
                              : text;
}

std::string cuda_refuses(const Body& body) {
  for (const ScalarNode& node : body.nodes()) {
    // These come of expansions for a CPU.
    if (node.op == ScalarOp::kLookup) return "a table of numbers";
  }
  return "";
}

CudaBody::CudaBody(const Body& body, Leaf leaf,
                   const std::vector<ScalarId>& kept)
    : body_(body), leaf_(std::move(leaf)), is_rounded_(body.nodes().size()) {
  std::vector<char> is_exact(body.nodes().size());
  for (ScalarId id : kept)
    if (id != kNoScalar) is_exact[id] = 1;
  for (const ScalarNode& node : body.nodes()) {
    const bool rounds = node.op == ScalarOp::kCast && is_small_float(node.type);
    for (int i = 0; i < scalar_op_row(node.op).operands; ++i)
      (rounds ? is_rounded_ : is_exact)[node.in[i]] = 1;
  }
  for (size_t i = 0; i < is_exact.size(); ++i)
    if (is_exact[i]) is_rounded_[i] = 0;
}

std::string CudaBody::name(ScalarId id) const {
  const ScalarNode& node = body_.node(id);
  switch (node.op) {
    case ScalarOp::kConst:
      return cuda_constant(node.type, static_cast<Element>(node.payload));
    case ScalarOp::kIndex:
    case ScalarOp::kNumber:
    case ScalarOp::kRow:
      return leaf_(node);
    default:
      return "v" + std::to_string(id);
  }
}

std::string CudaBody::cast(DType from, DType to, const std::string& x) const {
  if (from == to) return x;
  if (is_small_float(from)) {
    std::string wide = call(from == DType::kF16 ? "from_f16" : "from_bf16", x);
    return to == DType::kF32 ? wide : cast(DType::kF32, to, wide);
  }
  if (is_small_float(to)) {
    std::string single = from == DType::kF32 ? x : "(float)" + x;
    return call(to == DType::kF16 ? "to_f16" : "to_bf16", single);
  }
  if (to == DType::kBool) return infix(x, "!=", is_float(from) ? "0.0f" : "0");
  std::string target = std::string("(") + cuda_type(to) + ")";
  if (!is_float(from) || is_float(to)) return target + x;
  // By way of the integer that eager goes by.
  if (to == DType::kU8 || to == DType::kI64)
    return (to == DType::kI64 ? "" : target) + call("to_i64", x);
  return (to == DType::kI32 ? "" : target) + call("to_i32", x);
}

std::string CudaBody::value(ScalarId id) const {
  const ScalarNode& node = body_.node(id);
  const ScalarOpRow& row = scalar_op_row(node.op);
  std::array<std::string, 3> in;
  for (int i = 0; i < row.operands; ++i) in[i] = name(node.in[i]);
  const auto& [a, b, c] = in;
  const DType operand =
      row.operands ? body_.type(node.in[row.operands - 1]) : node.type;
  const bool is_real = is_float(operand), is_bool = operand == DType::kBool;
  auto cut = [&](const std::string& text) {  // back from what C++ promotes to
    return dtype_size(node.type) < 4 && !is_bool
               ? std::string("(") + cuda_type(node.type) + ")(" + text + ")"
               : text;
  };
  switch (node.op) {
    case ScalarOp::kAdd:
      return is_real ? infix(a, "+", b) : call("wrap_add", a, b);
    case ScalarOp::kSub:
      return is_real ? infix(a, "-", b) : call("wrap_sub", a, b);
    case ScalarOp::kMul:
      return is_real ? infix(a, "*", b) : call("wrap_mul", a, b);
    case ScalarOp::kDiv:
      return node.type == DType::kF32 && is_rounded_[id]
                 ? call("div_nearly", a, b)
                 : infix(a, "/", b);
    case ScalarOp::kNeg:
      return is_real ? "-" + a : call("wrap_neg", a);
    case ScalarOp::kAbs:
      if (!is_real) return call("wrap_abs", a);
      break;
    case ScalarOp::kTruncDiv:
      return call("trunc_div", a, b);
    case ScalarOp::kFloorDiv:
      return call("floor_div", a, b);
    case ScalarOp::kMod:
      return call("floor_mod", a, b);
    case ScalarOp::kFmod:
      if (!is_real) return call("trunc_mod", a, b);
      break;
    case ScalarOp::kMin:
      return call("min_of", a, b);
    case ScalarOp::kMax:
      return call("max_of", a, b);
    case ScalarOp::kAnd:
      return is_bool ? infix(a, "&&", b) : cut(infix(a, "&", b));
    case ScalarOp::kOr:
      return is_bool ? infix(a, "||", b) : cut(infix(a, "|", b));
    case ScalarOp::kXor:
      return is_bool ? infix(a, "!=", b) : cut(infix(a, "^", b));
    case ScalarOp::kNot:
      return is_bool ? "!" + a : cut("~" + a);
    case ScalarOp::kShiftLeft:
      return call("shift_left", a, b);
    case ScalarOp::kShiftRight:
      return call("shift_right", a, b);
    case ScalarOp::kLt:
      return infix(a, "<", b);
    case ScalarOp::kLe:
      return infix(a, "<=", b);
    case ScalarOp::kEq:
      return infix(a, "==", b);
    case ScalarOp::kNe:
      return infix(a, "!=", b);
    case ScalarOp::kSelect:
    case ScalarOp::kSelectRare:
      return a + " ? " + b + " : " + c;
    case ScalarOp::kCast:
      return cast(operand, node.type, a);
    case ScalarOp::kBitcast:
      return node.type == DType::kBool
                 ? infix("(u8)" + a, "!=", "0")
                 : call((std::string("bitcast<") + cuda_type(node.type) + ">")
                            .c_str(),
                        is_bool ? "(u8)" + a : a);
    case ScalarOp::kCheck:
      return a;
    case ScalarOp::kFnma:
      return call(operand == DType::kF32 ? "fmaf" : "fma", "-" + a, b, c);
    case ScalarOp::kScaleByPower:
      return call("scale_by_power", a, b);
    default:
      break;
  }
  const char* function = library_name(node.op);
  FJ_CHECK(function && is_real, "not an operation of floats");
  std::string full = function;
  // Nothing that is called fabs, say, may be taken for another of its kind.
  if (operand == DType::kF32) full += "f";
  return call(full.c_str(), a, b, c);
}

std::string CudaBody::statements(const std::string& indent) const {
  std::string out;
  const auto& nodes = body_.nodes();
  for (size_t i = 0; i < nodes.size(); ++i) {
    const ScalarNode& node = nodes[i];
    const auto id = static_cast<ScalarId>(i);
    switch (node.op) {
      case ScalarOp::kConst:
      case ScalarOp::kIndex:
      case ScalarOp::kNumber:
      case ScalarOp::kRow:
        continue;
      default:
        break;
    }
    std::string text = node.op == ScalarOp::kLoad ? leaf_(node) : value(id);
    out += indent + "const " + cuda_type(node.type) + " " + name(id) + " = " +
           text + ";\n";
    if (node.op == ScalarOp::kCheck) {
      out += indent + "ok = ok && " + name(id) + ";\n";
    }
  }
  return out;
}

}  // namespace framejit::codegen
