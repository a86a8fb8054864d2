#include "codegen/x86/lane_calls.h"

#include <cmath>
#include <cstring>

#include "codegen/scalar/evaluate.h"

namespace framejit::codegen {

namespace {

LaneRequest unpack(uint64_t request) {
  return {static_cast<ScalarOp>(request & 255),
          static_cast<DType>(request >> 8 & 255),
          static_cast<DType>(request >> 16 & 255),
          static_cast<uint8_t>(request >> 24)};
}

Element read(DType type, const void* lanes, int lane) {
  if (dtype_size(type) == 8) {
    return static_cast<const uint64_t*>(lanes)[lane];
  }
  uint32_t word = static_cast<const uint32_t*>(lanes)[lane];
  if (type == DType::kBool) return word != 0;
  return is_integer(type)
             ? static_cast<Element>(int64_t{static_cast<int32_t>(word)})
             : word;
}

void write(DType type, void* lanes, int lane, Element value) {
  if (dtype_size(type) == 8) {
    static_cast<uint64_t*>(lanes)[lane] = value;
  } else {
    static_cast<uint32_t*>(lanes)[lane] = type == DType::kBool
                                              ? (value ? ~0u : 0u)
                                              : static_cast<uint32_t>(value);
  }
}

// The common ones without a decision an element.
template <class Function>
void each(int lanes, void* out, const void* a, Function function) {
  auto* to = static_cast<double*>(out);
  auto* from = static_cast<const double*>(a);
  for (int i = 0; i < lanes; ++i) to[i] = function(from[i]);
}

bool call_function(const LaneRequest& r, void* out, const void* a) {
  if (r.type != DType::kF64) return false;
  switch (r.op) {
#define FJ_CALL(op, function)                                         \
  case ScalarOp::op:                                                  \
    each(r.lanes, out, a, [](double x) { return std::function(x); }); \
    return true;
    FJ_CALL(kSin, sin)
    FJ_CALL(kCos, cos)
    FJ_CALL(kTan, tan)
#undef FJ_CALL
    default:
      return false;
  }
}

}  // namespace

void call_operation(uint64_t request, void* out, const void* a, const void* b,
                    const void* c) {
  const LaneRequest r = unpack(request);
  if (call_function(r, out, a)) return;
  const int operands = scalar_op_row(r.op).operands;
  const void* in[] = {a, b, c};
  for (int lane = 0; lane < r.lanes; ++lane) {
    std::array<Element, 3> values{};
    for (int i = 0; i < operands; ++i) {
      values[i] = read(r.operand, in[i], lane);
    }
    write(r.type, out, lane, evaluate(r.op, r.type, r.operand, values));
  }
}

}  // namespace framejit::codegen
