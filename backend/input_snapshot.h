// What a run at torch level may change of its inputs, to undo a failed run.
//
// Content, sizes, version, requires_grad and the autograd history come back; a
// history with hooks does not. A write nobody announced is noticed by the
// tensor's version.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <vector>

#include "frame_hook/py_ref.h"
#include "graph/tensors/python_tensor.h"

namespace framejit::backend {

// Where gradients of a tensor go, and of the tensor that it is a view of.
class TensorHistory {
 public:
  explicit TensorHistory(const at::Tensor& tensor);
  bool can_restore() const;
  // can_restore() said so.
  void restore() const;

 private:
  bool is_as_before() const;

  at::Tensor tensor_;
  decltype(torch::autograd::AutogradMeta::grad_fn_) grad_fn_;
  uint32_t output_nr_ = 0;
  uint32_t view_version_ = 0;
  bool hooked_ = false;
  std::unique_ptr<TensorHistory> base_;  // of a view
};

class InputSnapshot {
 public:
  // objects: what is watched, by index; they and the array outlive the
  // snapshot.
  explicit InputSnapshot(PyObject* const* objects) : objects_(objects) {}
  // The graph writes this input: its content is copied.
  void add_written(const at::Tensor& tensor);
  // It should not write these tensors.
  void watch(c10::ArrayRef<int> indices) {
    watched_.resize_for_overwrite(indices.size());
    Watched* next = watched_.data();
    // Backwards: the guards have just read the last ones.
    for (size_t i = indices.size(); i > 0; --i) {
      const auto* impl =
          graph::unpack_tensor(objects_[indices[i - 1]]).unsafeGetTensorImpl();
      const c10::VariableVersion& counter = impl->version_counter();
      if (!counter.enabled()) continue;  // an inference tensor
      // Field by field: what is copied in wider words than it was just stored
      // in makes the processor wait.
      next->impl = impl;
      next->version = counter.current_version();
      next->index = indices[i - 1];
      ++next;
    }
    num_watched_ = static_cast<size_t>(next - watched_.data());
  }
  // False: some change cannot be undone, and nothing was.
  bool restore();

 private:
  struct Item {
    at::Tensor tensor;
    TensorHistory history;
    at::Tensor copy;
    at::Tensor original;  // another tensor of the same memory and sizes
    int64_t version = 0;
    bool required_grad = false;
  };
  // By address: a reference to a tensor costs more than all else here.
  struct Watched {
    const c10::TensorImpl* impl;
    uint32_t version;
    int index;
  };
  static int64_t version_of(const at::Tensor& tensor);
  bool changed(const Watched& watched) const;
  static bool can_restore(const Item& item);

  PyObject* const* objects_;
  std::vector<Item> items_;
  c10::SmallVector<Watched, 16> watched_;
  size_t num_watched_ = 0;
};

}  // namespace framejit::backend
