// The memory that the elements of a tensor lie in, gaps between them included:
// what there is to copy where elements share places, or where a copy must have
// the strides of its original.
#pragma once

#include <ATen/core/Tensor.h>

namespace framejit::backend {

// Nothing can be copied to a tensor whose elements share places: then one
// dimension that holds every place once. Otherwise the tensor itself.
at::Tensor places_of(const at::Tensor& tensor);

// The same elements at the same strides in memory of their own.
at::Tensor copy_laid_out(const at::Tensor& tensor);

}  // namespace framejit::backend
