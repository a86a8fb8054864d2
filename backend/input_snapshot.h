// What a run at torch level may change of its inputs, to undo a failed run.
//
// Content, sizes and requires_grad come back; an autograd history that changed
// does not. A write nobody announced is noticed by the tensor's version.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <vector>

#include "frame_hook/py_ref.h"

namespace framejit::backend {

class InputSnapshot {
 public:
  // At most so many are watched.
  explicit InputSnapshot(size_t inputs) {
    watched_.resize_for_overwrite(inputs);
  }
  // The graph writes this input: its content is copied.
  void add_written(const at::Tensor& tensor);
  // It should not; `object` outlives the snapshot.
  void add_watched(PyObject* object, const at::Tensor& tensor) {
    c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
    // (Inference tensors have no version.)
    if (!impl->version_counter().enabled()) return;
    // Field by field: a push_back() copies what was just stored in wider words,
    // for which the processor waits, and that is most of what this costs.
    Watched& watched = watched_[num_watched_++];
    watched.object = object;
    watched.impl = impl;
    watched.version = impl->version_counter().current_version();
  }
  // False: some change cannot be undone, and nothing was.
  bool restore();

 private:
  struct Item {
    at::Tensor tensor;
    at::Tensor copy;
    at::Tensor original;  // another tensor of the same memory and sizes
    int64_t version = 0;
    bool required_grad = false;
    const void* grad_fn = nullptr;
  };
  // By address: a reference to a tensor costs more than all else here.
  struct Watched {
    PyObject* object;
    const c10::TensorImpl* impl;
    uint32_t version;
  };
  static bool changed(const Item& item);
  static bool changed(const Watched& watched);
  static bool can_restore(const Item& item);

  std::vector<Item> items_;
  c10::SmallVector<Watched, 16> watched_;
  size_t num_watched_ = 0;
};

}  // namespace framejit::backend
