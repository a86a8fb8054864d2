#include "backend/tensor_places.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/ops/clone.h>

namespace framejit::backend {

namespace {

// One dimension from the first place to the last.
at::Tensor span_of(const at::Tensor& tensor) {
  int64_t extent = 1;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim)
    extent += (tensor.size(dim) - 1) * tensor.stride(dim);
  return tensor.as_strided({extent}, {1});
}

}  // namespace

at::Tensor places_of(const at::Tensor& tensor) {
  bool apart = tensor.numel() == 0 ||
               at::has_internal_overlap(tensor) == at::MemOverlap::No;
  return apart ? tensor : span_of(tensor);
}

at::Tensor copy_laid_out(const at::Tensor& tensor) {
  if (tensor.layout() != c10::kStrided || tensor.numel() == 0 ||
      tensor.is_non_overlapping_and_dense())
    return tensor.clone();
  return span_of(tensor).clone().as_strided(tensor.sizes(), tensor.strides(),
                                            0);
}

}  // namespace framejit::backend
