#include "backend/input_snapshot.h"

#include <ATen/ops/clone.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>

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

}  // namespace

void InputSnapshot::add_written(const at::Tensor& tensor) {
  if (tensor.is_inference()) return;  // has no version
  Item item;
  item.tensor = tensor;
  item.version = tensor._version();
  c10::AutoGradMode no_grad(false);
  item.original = tensor.variable_data();
  item.copy = item.original.clone();
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
    if (changed(item) && !can_restore(item)) return false;
  }
  for (const Item& item : items_) {
    if (!changed(item)) continue;
    bool bumped = static_cast<int64_t>(item.tensor._version()) != item.version;
    if (!same_metadata(item.tensor, item.original)) {
      item.tensor.set_data(item.original);
    }
    // A write through .data has no version, and its undoing has none.
    at::Tensor content =
        bumped ? item.tensor.detach() : item.tensor.variable_data();
    content.copy_(item.copy);
    if (item.tensor.requires_grad() != item.required_grad) {
      item.tensor.set_requires_grad(item.required_grad);
    }
  }
  return true;
}

bool InputSnapshot::changed(const Item& item) {
  return item.copy.defined() ||
         static_cast<int64_t>(item.tensor._version()) != item.version;
}

bool InputSnapshot::changed(const Watched& watched) const {
  const auto* impl =
      graph::unpack_tensor(objects_[watched.index]).unsafeGetTensorImpl();
  return impl != watched.impl ||
         impl->version_counter().current_version() != watched.version;
}

bool InputSnapshot::can_restore(const Item& item) {
  return item.copy.defined() && grad_fn(item.tensor) == item.grad_fn &&
         (item.tensor.requires_grad() == item.required_grad ||
          item.tensor.is_leaf()) &&
         !(item.required_grad && item.tensor.is_view());
}

}  // namespace framejit::backend
