// Scratch: a block of memory that a thread keeps from run to run, for what a
// compiled graph needs between its steps. Whoever comes while it is in use (a
// graph that another one calls) and who needs very much gets a block of its own
// (block_cache.h).
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>

namespace framejit::backend {

class Scratch {
 public:
  explicit Scratch(int64_t bytes);
  // This one: of a device, whose allocator keeps blocks itself.
  explicit Scratch(at::Storage storage) : storage_(std::move(storage)) {}
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  // At least so many bytes; nothing is known of what is in it.
  const at::Storage& storage() const { return storage_; }

 private:
  at::Storage storage_;
  bool is_kept_ = false;  // goes back to the thread
};

}  // namespace framejit::backend
