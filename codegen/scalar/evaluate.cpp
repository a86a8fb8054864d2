#include "codegen/scalar/evaluate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "codegen/scalar/lookup.h"
#include "guards/result.h"

namespace framejit::codegen {

float f16_to_float(uint16_t bits) {
  uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  uint32_t exponent = (bits >> 10) & 31, fraction = bits & 0x3ff;
  if (exponent == 31) {
    return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13);
  }
  float size = exponent == 0 ? std::ldexp(static_cast<float>(fraction), -24)
                             : std::ldexp(static_cast<float>(fraction | 0x400),
                                          static_cast<int>(exponent) - 25);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(size) | sign);
}

uint16_t float_to_f16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) {  // NaN: quiet, with what fits of its payload
    return static_cast<uint16_t>(sign | 0x7e00 | (bits >> 13 & 0x3ff));
  }
  if (bits >= 0x477ff000) return sign | 0x7c00;  // rounds to 2^16 or above
  if (bits < 0x38800000) {                       // below 2^-14
    float size = std::bit_cast<float>(bits);
    // Units of 2^-24; nearbyint rounds ties to even.
    return static_cast<uint16_t>(
        sign | static_cast<uint16_t>(std::nearbyint(std::ldexp(size, 24))));
  }
  uint32_t odd = bits >> 13 & 1;
  bits += 0xfff + odd;
  return static_cast<uint16_t>(sign | ((bits - 0x38000000) >> 13));
}

uint16_t float_to_bf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  bits += 0x7fff + (bits >> 16 & 1);
  return static_cast<uint16_t>(bits >> 16);
}

namespace {

float f32_of(Element value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value));
}
double f64_of(Element value) { return std::bit_cast<double>(value); }
Element from(float value) { return std::bit_cast<uint32_t>(value); }
Element from(double value) { return std::bit_cast<uint64_t>(value); }

constexpr int64_t kMinI64 = std::numeric_limits<int64_t>::min();

int64_t truncate_to_i64(double value) {
  return value >= -0x1p63 && value < 0x1p63 ? static_cast<int64_t>(value)
                                            : kMinI64;
}
int64_t truncate_to_i32(double value) {
  return value > -0x1p31 - 1 && value < 0x1p31
             ? static_cast<int64_t>(value)
             : std::numeric_limits<int32_t>::min();
}

template <class T>
T truncated_remainder(T a, T b) {
  return b == 0 || b == -1 ? 0 : a % b;
}

// On operands extended to 64 bits; the result's low bits are what counts.
int64_t integer_operation(ScalarOp op, int64_t a, int64_t b, int bits) {
  auto wrap = [](auto f, int64_t x, int64_t y) {
    return static_cast<int64_t>(
        f(static_cast<uint64_t>(x), static_cast<uint64_t>(y)));
  };
  switch (op) {
    case ScalarOp::kAdd:
      return wrap(std::plus<uint64_t>(), a, b);
    case ScalarOp::kSub:
      return wrap(std::minus<uint64_t>(), a, b);
    case ScalarOp::kMul:
      return wrap(std::multiplies<uint64_t>(), a, b);
    case ScalarOp::kNeg:
      return wrap(std::minus<uint64_t>(), 0, a);
    case ScalarOp::kAbs:
      return a < 0 ? wrap(std::minus<uint64_t>(), 0, a) : a;
    case ScalarOp::kTruncDiv:
    case ScalarOp::kFloorDiv: {
      if (b == 0) return 0;
      if (b == -1) return wrap(std::minus<uint64_t>(), 0, a);
      bool down = op == ScalarOp::kFloorDiv && a % b != 0 && (a < 0) != (b < 0);
      return a / b - down;
    }
    case ScalarOp::kFmod:
      return truncated_remainder(a, b);
    case ScalarOp::kMod: {
      int64_t rest = truncated_remainder(a, b);
      return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    }
    case ScalarOp::kMin:
      return std::min(a, b);
    case ScalarOp::kMax:
      return std::max(a, b);
    case ScalarOp::kAnd:
      return a & b;
    case ScalarOp::kOr:
      return a | b;
    case ScalarOp::kXor:
      return a ^ b;
    case ScalarOp::kNot:
      return ~a;
    case ScalarOp::kShiftLeft:
      return b < 0 || b >= bits
                 ? 0
                 : static_cast<int64_t>(static_cast<uint64_t>(a) << b);
    case ScalarOp::kShiftRight:
      return a >> (b < 0 || b >= bits ? 63 : b);
    default:
      throw InternalError(__FILE__, __LINE__, scalar_op_row(op).text);
  }
}

template <class T>
T scale_by_power(T a, T b) {
  bool zero_times_inf = std::isinf(b) && (b > 0 ? a == 0 : std::isinf(a));
  if (std::isnan(a) || std::isnan(b) || zero_times_inf) {
    return std::numeric_limits<T>::quiet_NaN();
  }
  // Beyond these powers every finite number under- or overflows.
  T power = std::clamp(std::floor(b), T(-5000), T(5000));
  return std::ldexp(a, static_cast<int>(power));
}

// Named functions, in double.
bool named_function(ScalarOp op, double a, double b, double* out) {
  switch (op) {
#define FJ_NAMED(op, function) \
  case ScalarOp::op:           \
    *out = std::function(a);   \
    return true;
    FJ_NAMED(kExp, exp)
    FJ_NAMED(kExp2, exp2)
    FJ_NAMED(kExpm1, expm1)
    FJ_NAMED(kLog, log)
    FJ_NAMED(kLog2, log2)
    FJ_NAMED(kLog10, log10)
    FJ_NAMED(kLog1p, log1p)
    FJ_NAMED(kSin, sin)
    FJ_NAMED(kCos, cos)
    FJ_NAMED(kTan, tan)
    FJ_NAMED(kAsin, asin)
    FJ_NAMED(kAcos, acos)
    FJ_NAMED(kAtan, atan)
    FJ_NAMED(kSinh, sinh)
    FJ_NAMED(kCosh, cosh)
    FJ_NAMED(kTanh, tanh)
    FJ_NAMED(kAsinh, asinh)
    FJ_NAMED(kAcosh, acosh)
    FJ_NAMED(kAtanh, atanh)
    FJ_NAMED(kErf, erf)
    FJ_NAMED(kErfc, erfc)
#undef FJ_NAMED
    case ScalarOp::kLgamma: {
      int sign;  // std::lgamma writes to a global
      *out = ::lgamma_r(a, &sign);
      return true;
    }
    case ScalarOp::kAtan2:
      *out = std::atan2(a, b);
      return true;
    case ScalarOp::kPow:
      *out = std::pow(a, b);
      return true;
    case ScalarOp::kHypot:
      *out = std::hypot(a, b);
      return true;
    default:
      return false;
  }
}

template <class T>
T float_operation(ScalarOp op, T a, T b, T c) {
  switch (op) {
    case ScalarOp::kAdd:
      return a + b;
    case ScalarOp::kSub:
      return a - b;
    case ScalarOp::kMul:
      return a * b;
    case ScalarOp::kDiv:
      return a / b;
    case ScalarOp::kFmod:
      return std::fmod(a, b);
    case ScalarOp::kNeg:
      return -a;
    case ScalarOp::kAbs:
      return std::fabs(a);
    case ScalarOp::kMin:
      return std::isnan(a) ? a : std::isnan(b) || b < a ? b : a;
    case ScalarOp::kMax:
      return std::isnan(a) ? a : std::isnan(b) || b > a ? b : a;
    case ScalarOp::kFma:
      return std::fma(a, b, c);
    case ScalarOp::kFnma:
      return std::fma(-a, b, c);
    case ScalarOp::kSqrt:
      return std::sqrt(a);
    case ScalarOp::kFloor:
      return std::floor(a);
    case ScalarOp::kCeil:
      return std::ceil(a);
    case ScalarOp::kTrunc:
      return std::trunc(a);
    case ScalarOp::kRint:
      return std::nearbyint(a);
    case ScalarOp::kScaleByPower:
      return scale_by_power(a, b);
    case ScalarOp::kExponent:
      return std::isnan(a) ? a : std::logb(a);
    default: {
      double result;
      FJ_CHECK(named_function(op, a, b, &result), "not an operation of floats");
      return static_cast<T>(result);
    }
  }
}

template <class T>
bool comparison(ScalarOp op, T a, T b) {
  switch (op) {
    case ScalarOp::kLt:
      return a < b;
    case ScalarOp::kLe:
      return a <= b;
    case ScalarOp::kEq:
      return a == b;
    default:
      return a != b;
  }
}

bool is_comparison(ScalarOp op) {
  return scalar_op_row(op).result == ResultType::kBool;
}

}  // namespace

Element element_of_integer(DType type, int64_t value) {
  return convert(DType::kI64, type, static_cast<Element>(value));
}

Element element_of(DType type, double value) {
  return convert(DType::kF64, type, from(value));
}

double as_double(DType type, Element value) {
  switch (type) {
    case DType::kF16:
      return f16_to_float(static_cast<uint16_t>(value));
    case DType::kBF16:
      return bf16_to_float(static_cast<uint16_t>(value));
    case DType::kF32:
      return f32_of(value);
    case DType::kF64:
      return f64_of(value);
    default:
      return static_cast<double>(static_cast<int64_t>(value));
  }
}

int64_t as_integer(DType type, Element value) {
  return is_float(type) ? truncate_to_i64(as_double(type, value))
                        : static_cast<int64_t>(value);
}

Element convert(DType from_type, DType to, Element value) {
  if (from_type == to) return value;
  const bool of_float = is_float(from_type);
  const double number = of_float ? as_double(from_type, value) : 0;
  const int64_t integer = of_float ? 0 : static_cast<int64_t>(value);
  switch (to) {
    case DType::kBool:
      return of_float ? number != 0 : integer != 0;
    case DType::kU8:
      return static_cast<uint8_t>(of_float ? truncate_to_i64(number) : integer);
    case DType::kI8:
      return static_cast<Element>(
          static_cast<int8_t>(of_float ? truncate_to_i32(number) : integer));
    case DType::kI16:
      return static_cast<Element>(
          static_cast<int16_t>(of_float ? truncate_to_i32(number) : integer));
    case DType::kI32:
      return static_cast<Element>(
          static_cast<int32_t>(of_float ? truncate_to_i32(number) : integer));
    case DType::kI64:
      return static_cast<Element>(of_float ? truncate_to_i64(number) : integer);
    case DType::kF64:
      return from(of_float ? number : static_cast<double>(integer));
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16: {
      float single =
          of_float ? static_cast<float>(number) : static_cast<float>(integer);
      if (to == DType::kF16) return float_to_f16(single);
      if (to == DType::kBF16) return float_to_bf16(single);
      return from(single);
    }
  }
  return 0;
}

Element load_element(DType type, const void* memory) {
  uint64_t bits = 0;
  std::memcpy(&bits, memory, dtype_size(type));
  switch (type) {
    case DType::kBool:
      return bits != 0;
    case DType::kI8:
      return static_cast<Element>(static_cast<int8_t>(bits));
    case DType::kI16:
      return static_cast<Element>(static_cast<int16_t>(bits));
    case DType::kI32:
      return static_cast<Element>(static_cast<int32_t>(bits));
    default:
      return bits;
  }
}

void store_element(DType type, Element value, void* memory) {
  std::memcpy(memory, &value, dtype_size(type));
}

bool is_nan(DType type, Element value) {
  return is_float(type) && std::isnan(as_double(type, value));
}

bool same_element(DType type, Element a, Element b) {
  return a == b || (is_nan(type, a) && is_nan(type, b));
}

Element evaluate(ScalarOp op, DType type, DType operand,
                 const std::array<Element, 3>& in) {
  switch (op) {
    case ScalarOp::kSelect:
    case ScalarOp::kSelectRare:
      return in[0] ? in[1] : in[2];
    case ScalarOp::kCast:
      return convert(operand, type, in[0]);
    case ScalarOp::kBitcast: {
      uint64_t bits = 0;
      store_element(operand, in[0], &bits);
      return load_element(type, &bits);
    }
    case ScalarOp::kCheck:
      return in[0];
    default:
      break;
  }
  if (is_comparison(op)) {
    if (is_float(operand)) {
      return comparison(op, as_double(operand, in[0]),
                        as_double(operand, in[1]));
    }
    return comparison(op, static_cast<int64_t>(in[0]),
                      static_cast<int64_t>(in[1]));
  }
  if (type == DType::kF32) {
    return from(
        float_operation(op, f32_of(in[0]), f32_of(in[1]), f32_of(in[2])));
  }
  if (type == DType::kF64) {
    return from(
        float_operation(op, f64_of(in[0]), f64_of(in[1]), f64_of(in[2])));
  }
  if (type == DType::kBool && op == ScalarOp::kNot) return !in[0];
  const int bits = static_cast<int>(dtype_size(type)) * 8;
  int64_t result = integer_operation(op, static_cast<int64_t>(in[0]),
                                     static_cast<int64_t>(in[1]), bits);
  return convert(DType::kI64, type, static_cast<Element>(result));
}

bool evaluate(const Body& body,
              const std::function<Element(const ScalarNode&)>& leaf,
              std::vector<Element>* values) {
  bool holds = true;
  values->clear();
  for (const ScalarNode& node : body.nodes()) {
    const int operands = scalar_op_row(node.op).operands;
    if (node.op == ScalarOp::kConst) {
      values->push_back(static_cast<Element>(node.payload));
      continue;
    }
    if (operands == 0) {
      values->push_back(leaf(node));
      continue;
    }
    std::array<Element, 3> in{};
    for (int i = 0; i < operands; ++i) in[i] = (*values)[node.in[i]];
    DType operand = body.type(node.in[operands - 1]);
    if (node.op == ScalarOp::kLookup) {
      values->push_back(node.type == DType::kF32
                            ? from(word_table(node.payload)[in[0] & 15])
                            : from(lookup_table(node.payload)[in[0] & 255]));
      continue;
    }
    values->push_back(evaluate(node.op, node.type, operand, in));
    if (node.op == ScalarOp::kCheck && !in[0]) holds = false;
  }
  return holds;
}

}  // namespace framejit::codegen
