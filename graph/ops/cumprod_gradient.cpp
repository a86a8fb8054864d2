#include "graph/ops/cumprod_gradient.h"

#if !FJ_TORCH_213

#include <ATen/ATen.h>
#include <ATen/WrapDimUtils.h>

namespace framejit::graph {
namespace {

bool is_one(const c10::SymInt& size) {
  return size.sym_eq(1).guard_bool(__FILE__, __LINE__);
}

at::Tensor sums_from_here_on(const at::Tensor& tensor, int64_t dim) {
  return tensor.flip(dim).cumsum(dim).flip(dim);
}

}  // namespace

at::Tensor cumprod_gradient(const at::Tensor& gradient, const at::Tensor& input,
                            int64_t dim, const at::Tensor& output) {
  if (input.sym_numel().sym_le(1).guard_bool(__FILE__, __LINE__))
    return gradient;
  dim = at::maybe_wrap_dim(dim, input.dim());
  if (is_one(input.sym_size(dim))) return gradient;
  at::Tensor x = at::conj_physical(input), y = at::conj_physical(output);

  at::Tensor zero = input == 0;
  at::Tensor zeros = zero.cumsum(dim);  // up to here
  // Before the first zero, each product that has the element, divided by it.
  at::Tensor none = zeros == 0;
  at::Tensor before =
      sums_from_here_on((y * gradient).masked_fill(none.logical_not(), 0), dim)
          .div(x);
  // At the first zero, the product before it times those of what follows, up to
  // the second zero. (Behind it every product has a zero besides the element.)
  at::Tensor one = zeros == 1;
  at::Tensor first = zero.logical_and(one);
  at::Tensor others = one.logical_and(zero.logical_not());
  at::Tensor behind = x.masked_fill(others.logical_not(), 1).cumprod(dim);
  at::Tensor sum = (behind * gradient.masked_fill(one.logical_not(), 0))
                       .sum(dim, /*keepdim=*/true);
  at::Tensor place = none.sum(dim, /*keepdim=*/true);
  at::Tensor ahead =
      y.gather(dim, (place - 1).clamp_min(0)).masked_fill(place == 0, 1);
  return at::where(first, sum * ahead,
                   before.masked_fill(none.logical_not(), 0));
}

}  // namespace framejit::graph

#endif
