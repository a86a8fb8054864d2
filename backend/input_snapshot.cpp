#include "backend/input_snapshot.h"

#include <ATen/ops/clone.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/variable.h>

#include "backend/tensor_places.h"

namespace framejit::backend {

namespace {

const void* grad_fn(const at::Tensor& tensor) {
  auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  return meta ? meta->grad_fn_.get() : nullptr;
}

bool same_metadata(const at::Tensor& a, const at::Tensor& b) {
  return a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.storage_offset() == b.storage_offset() &&
         a.storage().unsafeGetStorageImpl() ==
             b.storage().unsafeGetStorageImpl();
}

void set_version(const at::Tensor& tensor, int64_t version) {
  c10::VariableVersion counter =
      tensor.unsafeGetTensorImpl()->version_counter();
  counter.set_version(version);
}

// Inference tensors are written to in inference mode only.
void copy_content(const at::Tensor& tensor, const at::Tensor& content) {
  c10::InferenceMode mode(tensor.is_inference());
  places_of(tensor).copy_(content);
}

}  // namespace

int64_t InputSnapshot::version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor._version();
}

void InputSnapshot::add_written(const at::Tensor& tensor) {
  Item item;
  item.tensor = tensor;
  item.version = version_of(tensor);
  c10::AutoGradMode no_grad(false);
  item.original = tensor.variable_data();
  item.copy = places_of(item.original).clone();
  item.required_grad = tensor.requires_grad();
  item.grad_fn = grad_fn(tensor);
  items_.push_back(std::move(item));
}

bool InputSnapshot::restore() {
  c10::AutoGradMode no_grad(false);
  for (size_t i = 0; i < num_watched_; ++i) {
    if (changed(watched_[i])) return false;
  }
  for (const Item& item : items_) {
    if (!can_restore(item)) return false;
  }
  for (const Item& item : items_) {
    if (!same_metadata(item.tensor, item.original)) {
      item.tensor.set_data(item.original);
    }
    copy_content(item.original, item.copy);
    // As if nobody had written: who saved the tensor before may use it.
    if (version_of(item.tensor) != item.version)
      set_version(item.tensor, item.version);
    if (item.tensor.requires_grad() != item.required_grad) {
      item.tensor.set_requires_grad(item.required_grad);
    }
  }
  return true;
}

bool InputSnapshot::changed(const Watched& watched) const {
  const auto* impl =
      graph::unpack_tensor(objects_[watched.index]).unsafeGetTensorImpl();
  return impl != watched.impl ||
         impl->version_counter().current_version() != watched.version;
}

bool InputSnapshot::can_restore(const Item& item) {
  return grad_fn(item.tensor) == item.grad_fn &&
         (item.tensor.requires_grad() == item.required_grad ||
          item.tensor.is_leaf()) &&
         !(item.required_grad && item.tensor.is_view());
}

}  // namespace framejit::backend
