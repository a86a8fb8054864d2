// What a run at torch level may change of its inputs, to undo a failed run.
//
// Content comes back; a size or an autograd history that changed does not. A
// write nobody announced is noticed by the tensor's version.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace framejit::backend {

class InputSnapshot {
 public:
  // with_content: the graph writes this input, so its content is copied.
  void add(const at::Tensor& tensor, bool with_content);
  // False: some change cannot be undone, and nothing was.
  bool restore();

 private:
  struct Item {
    at::Tensor tensor;
    at::Tensor copy;
    int64_t version = 0;
    bool required_grad = false;
    const void* grad_fn = nullptr;
  };
  static bool changed(const Item& item);
  static bool can_restore(const Item& item);

  std::vector<Item> items_;
};

}  // namespace framejit::backend
