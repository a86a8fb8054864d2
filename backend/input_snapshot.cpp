#include "backend/input_snapshot.h"

#include <ATen/ops/clone.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/variable.h>

#include "graph/python_tensor.h"

namespace framejit::backend {

namespace {

const void* grad_fn(const at::Tensor& tensor) {
  auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  return meta ? meta->grad_fn_.get() : nullptr;
}

}  // namespace

void InputSnapshot::add_written(const at::Tensor& tensor) {
  if (tensor.is_inference()) return;  // has no version
  Item item;
  item.tensor = tensor;
  item.version = tensor._version();
  c10::AutoGradMode no_grad(false);
  item.copy = tensor.detach().clone();
  item.required_grad = tensor.requires_grad();
  item.grad_fn = grad_fn(tensor);
  items_.push_back(std::move(item));
}

bool InputSnapshot::restore() {
  c10::AutoGradMode no_grad(false);
  for (const Watched& watched : watched_) {
    if (changed(watched)) return false;
  }
  for (const Item& item : items_) {
    if (changed(item) && !can_restore(item)) return false;
  }
  for (const Item& item : items_) {
    if (changed(item)) item.tensor.detach().copy_(item.copy);
  }
  return true;
}

bool InputSnapshot::changed(const Item& item) {
  return static_cast<int64_t>(item.tensor._version()) != item.version;
}

bool InputSnapshot::changed(const Watched& watched) {
  const auto* impl = graph::unpack_tensor(watched.object).unsafeGetTensorImpl();
  return impl != watched.impl ||
         impl->version_counter().current_version() != watched.version;
}

bool InputSnapshot::can_restore(const Item& item) {
  return item.copy.defined() && item.tensor.sizes() == item.copy.sizes() &&
         item.tensor.requires_grad() == item.required_grad &&
         grad_fn(item.tensor) == item.grad_fn &&
         !(item.required_grad && item.tensor.is_view());
}

}  // namespace framejit::backend
