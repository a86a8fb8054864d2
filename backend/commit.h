// What a run leaves behind in tensors, so that they look as if the program had
// written to them itself: content and version. Eager counts every write, and
// autograd refuses a backward by that count.
#pragma once

#include <ATen/core/Tensor.h>

namespace framejit::backend {

struct InputWrite {
  int input;
  uint32_t writes;      // times the program wrote to it
  bool shared = false;  // the new content may be the memory of an input
};

// The tensor's version goes on by that many writes.
void count_writes(const at::Tensor& tensor, uint32_t writes);
// Copies the new content to an input. In no-grad mode.
void write_back(const at::Tensor& input, const at::Tensor& value,
                uint32_t writes);

}  // namespace framejit::backend
