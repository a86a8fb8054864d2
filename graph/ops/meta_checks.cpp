// What eager's kernels refuse and torch's meta kernels, which go before them,
// do not look at. (The text is eager's own, once it runs.)
#include <ATen/core/Tensor.h>
#include <c10/core/SymInt.h>
#include <c10/util/Exception.h>

#include "graph/ops/meta_families.h"

namespace framejit::graph {
namespace {

// On the meta device a negative stride becomes a contiguous one; for memory
// eager refuses it. What is left is torch's.
bool refuse_negative(const c10::IValue& strides) {
  auto check = [](int64_t stride) {
    TORCH_CHECK(stride >= 0, "a negative stride: ", stride);
  };
  if (strides.isIntList()) {
    for (int64_t stride : strides.toIntVector()) check(stride);
  } else if (strides.isList()) {
    for (const c10::SymInt& stride : strides.toSymIntVector())
      if (auto number = stride.maybe_as_int()) check(*number);
  }
  return false;
}

}  // namespace

bool check_strides_first(Stack* stack) { return refuse_negative((*stack)[1]); }
bool check_strides_second(Stack* stack) { return refuse_negative((*stack)[2]); }

// (self, matrix, matrix): self is expanded to the product.
bool check_addmm(Stack* stack) {
  const at::Tensor self = (*stack)[0].toTensor();
  const at::Tensor a = (*stack)[1].toTensor(), b = (*stack)[2].toTensor();
  if (a.dim() != 2 || b.dim() != 2) return false;
  const int64_t wanted[] = {a.size(0), b.size(1)};
  bool fits = self.dim() <= 2;
  for (int64_t i = 1; fits && i <= self.dim(); ++i)
    fits = self.size(-i) == 1 || self.size(-i) == wanted[2 - i];
  TORCH_CHECK(fits, "addmm: self does not expand to the product");
  return false;
}

}  // namespace framejit::graph
