#include "backend/commit.h"

#include <c10/core/InferenceMode.h>

namespace framejit::backend {

void count_writes(const at::Tensor& tensor, uint32_t writes) {
  if (tensor.is_inference()) return;  // has no version
  for (uint32_t i = 0; i < writes; ++i)
    tensor.unsafeGetTensorImpl()->bump_version();
}

void write_back(const at::Tensor& input, const at::Tensor& value,
                uint32_t writes) {
  if (writes == 0 && !input.is_inference()) {
    // Written to behind autograd's back (running statistics): no version.
    input.variable_data().copy_(value);
    return;
  }
  if (input.is_inference()) {
    // Written to in a block that is over by now.
    c10::InferenceMode mode(true);
    input.copy_(value);
    return;
  }
  input.copy_(value);
  if (writes > 1) count_writes(input, writes - 1);
}

}  // namespace framejit::backend
