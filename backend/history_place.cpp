#include "backend/history_place.h"

#include <torch/csrc/autograd/function.h>

namespace framejit::backend {

bool is_place_of_another(const torch::autograd::Edge& place,
                         const at::Tensor& tensor) {
  const torch::autograd::Node* node = place.function.get();
  if (!node || place.input_nr >= node->num_inputs() || tensor.is_nested())
    return false;
  const torch::autograd::InputMetadata& had =
      node->input_metadata(place.input_nr);
  if (had.was_default_constructed()) return false;
  if (had.is_cpp_nested_tensor() || had.dtype() != tensor.dtype()) return true;
  const c10::SymIntArrayRef sizes = had.shape_as_dim_vector();
  const c10::IntArrayRef now = tensor.sizes();
  if (sizes.size() != now.size()) return true;
  for (size_t dim = 0; dim < now.size(); ++dim)
    if (sizes[dim].is_heap_allocated() ||
        sizes[dim].as_int_unchecked() != now[dim])
      return true;
  return false;
}

bool has_place_of_another(const at::Tensor& tensor) {
  namespace impl = torch::autograd::impl;
  if (!tensor.unsafeGetTensorImpl()->autograd_meta()) return false;  // no past
  if (!tensor.is_leaf())
    return is_place_of_another(impl::gradient_edge(tensor), tensor);
  return is_place_of_another({impl::try_get_grad_accumulator(tensor), 0},
                             tensor);
}

}  // namespace framejit::backend
