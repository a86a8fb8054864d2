#include <algorithm>

#include "graph/ops/meta_families.h"
#include "graph/ops/meta_results.h"

namespace framejit::graph {
namespace {

bool reduced_sizes(const at::Tensor& x, const Sizes& dims, bool keep,
                   Sizes* sizes) {
  std::vector<bool> reduced(x.dim(), dims.empty());
  for (int64_t dim : dims) {
    if (dim < 0) dim += x.dim();
    if (dim < 0 || dim >= x.dim()) return false;
    reduced[dim] = true;
  }
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (!reduced[d]) {
      sizes->push_back(x.size(d));
    } else if (keep) {
      sizes->push_back(1);
    }
  }
  return true;
}

// (self, dim, correction, keepdim)
bool variance(Stack* stack, bool with_mean) {
  at::Tensor x = (*stack)[0].toTensor();
  Sizes sizes;
  if (!is_plain_float(x) || x.dim() == 0 ||
      !reduced_sizes(x, ints((*stack)[1]), (*stack)[3].toBool(), &sizes)) {
    return false;
  }
  at::Tensor result = make(sizes, x.scalar_type());
  if (!with_mean) return finish(stack, {result});
  return finish(stack, {result, make(sizes, x.scalar_type())});
}

}  // namespace

bool meta_dot(Stack* stack) {
  at::Tensor a = (*stack)[0].toTensor(), b = (*stack)[1].toTensor();
  if (a.dim() != 1 || b.dim() != 1 || a.size(0) != b.size(0) ||
      a.scalar_type() != b.scalar_type()) {
    return false;
  }
  return finish(stack, {make({}, a.scalar_type())});
}

bool meta_embedding_backward(Stack* stack) {
  at::Tensor gradient = (*stack)[0].toTensor();
  if (gradient.dim() < 1) return false;
  int64_t rows = (*stack)[2].toInt();
  return finish(stack,
                {make({rows, gradient.size(-1)}, gradient.scalar_type())});
}

bool meta_index_select(Stack* stack) {
  at::Tensor x = (*stack)[0].toTensor(), index = (*stack)[2].toTensor();
  if (x.dim() < 1 || index.dim() != 1 || !x.is_contiguous()) return false;
  Sizes sizes = x.sizes().vec();
  int64_t dim = (*stack)[1].toInt();
  if (dim < 0) dim += x.dim();
  if (dim < 0 || dim >= x.dim()) return false;
  sizes[dim] = index.size(0);
  return finish(stack, {make(sizes, x.scalar_type())});
}

bool meta_flip(Stack* stack) {
  at::Tensor x = (*stack)[0].toTensor();
  return finish(stack, {like(x)});
}

// The positions of the values of argument 0 (bucketize) or 1 (searchsorted):
// the one that is not the sorted sequence, before the flag for int32.
bool meta_positions(Stack* stack) {
  size_t flag = 2, values = stack->size() > 4 ? 1 : 0;
  at::Tensor x = (*stack)[values].toTensor();
  auto dtype = (*stack)[flag].toBool() ? at::kInt : at::kLong;
  return finish(stack, {make(x.sizes(), dtype)});
}

bool meta_variance(Stack* stack) { return variance(stack, false); }
bool meta_variance_and_mean(Stack* stack) { return variance(stack, true); }

bool meta_full_extremum(Stack* stack) {
  at::Tensor x = (*stack)[0].toTensor();
  if (x.numel() == 0) return false;
  return finish(stack, {make({}, x.scalar_type())});
}

// (self, dtype)
bool meta_full_product(Stack* stack) {
  at::Tensor x = (*stack)[0].toTensor();
  c10::ScalarType type = x.scalar_type();
  if (!(*stack)[1].isNone()) {
    type = (*stack)[1].toScalarType();
  } else if (c10::isIntegralType(type, /*includeBool=*/true)) {
    type = at::kLong;
  }
  return finish(stack, {make({}, type)});
}

}  // namespace framejit::graph
