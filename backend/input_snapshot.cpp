#include "backend/input_snapshot.h"

#include <ATen/ops/clone.h>
#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

#include "backend/tensor_places.h"
#include "graph/tensors/libtorch_private.h"

namespace framejit::backend {

namespace {

torch::autograd::DifferentiableViewMeta* view_meta(const at::Tensor& tensor) {
  auto* meta = torch::autograd::impl::get_view_autograd_meta(tensor);
  return meta && meta->has_bw_view() ? meta : nullptr;
}

// Hooks move from one grad_fn to the next: those are not followed.
bool has_hooks(const torch::autograd::AutogradMeta& meta) {
  return !meta.hooks_.empty() || meta.retains_grad_;
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

TensorHistory::TensorHistory(const at::Tensor& tensor) : tensor_(tensor) {
  if (auto* view = view_meta(tensor)) {
    // The history of a view is its base's; its own is made again from that
    // when the versions differ.
    view_version_ = view->get_attr_version();
    base_ = std::make_unique<TensorHistory>(view->get_backward_view().base_);
  }
  if (auto* meta = torch::autograd::impl::get_autograd_meta(tensor)) {
    grad_fn_ = meta->grad_fn_;
    output_nr_ = meta->output_nr_;
    hooked_ = has_hooks(*meta);
  }
}

bool TensorHistory::is_as_before() const {
  auto* meta = torch::autograd::impl::get_autograd_meta(tensor_);
  return (meta ? meta->grad_fn_.get() : nullptr) == grad_fn_.get() &&
         (!base_ || base_->is_as_before());
}

bool TensorHistory::can_restore() const {
  if (is_as_before()) return true;
  auto* meta = torch::autograd::impl::get_autograd_meta(tensor_);
  if (hooked_ || (meta && has_hooks(*meta))) return false;
  // The same view as before: set_data and detach_ change that.
  auto* view = view_meta(tensor_);
  if (!base_) return !view;
  return view && view->get_backward_view().base_.is_same(base_->tensor_) &&
         base_->can_restore();
}

void TensorHistory::restore() const {
  if (is_as_before()) return;
  auto* meta = torch::autograd::impl::get_autograd_meta(tensor_);
  if (!meta) return;
  if (base_) base_->restore();
  meta->grad_fn_ = grad_fn_;
  meta->output_nr_ = output_nr_;
  if (base_) view_meta(tensor_)->set_attr_version(view_version_);
}

int64_t InputSnapshot::version_of(const at::Tensor& tensor) {
  return tensor.is_inference() ? 0 : tensor._version();
}

void InputSnapshot::add_written(const at::Tensor& tensor) {
  Item item{.tensor = tensor, .history = TensorHistory(tensor)};
  item.version = version_of(tensor);
  c10::AutoGradMode no_grad(false);
  item.original = tensor.variable_data();
  item.copy = places_of(item.original).clone();
  item.required_grad = tensor.requires_grad();
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
    item.history.restore();
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
  const at::Tensor& tensor = graph::unpack_tensor(objects_[watched.index]);
  const auto* impl = tensor.unsafeGetTensorImpl();
  if (impl != watched.impl) return true;
  if (impl->version_counter().current_version() == watched.version)
    return false;
  // A view counts with its base, also where `base.data = y` gave that other
  // memory since: the count is put back with the base's.
  return std::none_of(items_.begin(), items_.end(), [&](const Item& item) {
    return graph::share_versions(item.tensor, tensor);
  });
}

bool InputSnapshot::can_restore(const Item& item) {
  return item.history.can_restore();
}

}  // namespace framejit::backend
