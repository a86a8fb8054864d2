// Where the buffers of a schedule lie.
#pragma once

#include "codegen/schedule/schedule.h"

namespace framejit::codegen {

inline constexpr int64_t kAlignment = 64;

// Bytes from the first element to the end; strides are not negative.
Expr bytes_of(const Buffer& buffer);

// Gives every buffer that a step names an allocation, an argument and a result
// of a kernel the same one where that may be, and parts of the arena their
// offsets. Kernels change: arguments that are one memory become one. There is a
// kernel for each step yet.
void plan_memory(Schedule* schedule);

}  // namespace framejit::codegen
