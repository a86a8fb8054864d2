// What emitted code calls for operations that it has no instructions for: they
// are done lane by lane.
//
// A value lies in memory as its lanes do in registers: 32 bits an element, 64
// for 64-bit types, a mask as zero or not in 32 bits.
#pragma once

#include <cstdint>

#include "codegen/scalar/body.h"

namespace framejit::codegen {

// What a call is about, in one word.
struct LaneRequest {
  ScalarOp op;
  DType type;     // of the result or the memory
  DType operand;  // of the operands
  uint8_t lanes;
};
inline uint64_t pack(const LaneRequest& request) {
  return static_cast<uint64_t>(request.op) |
         static_cast<uint64_t>(request.type) << 8 |
         static_cast<uint64_t>(request.operand) << 16 |
         static_cast<uint64_t>(request.lanes) << 24;
}

// out = op(a, b, c)
void call_operation(uint64_t request, void* out, const void* a, const void* b,
                    const void* c);
}  // namespace framejit::codegen
