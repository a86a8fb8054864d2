// The state of the default random generators around one graph.
//
// A graph with random operations that fails before its commit must leave the
// generators as they were: the original code then draws the numbers eager
// would draw.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace framejit::backend {

class RngState {
 public:
  using States = std::vector<std::pair<c10::Device, at::Tensor>>;

  // Remembers the CPU generator, and that of each other device given.
  void save(const std::vector<c10::Device>& devices);
  // Puts the saved states back. Does nothing when nothing was saved.
  void restore();
  // Empty when nothing was saved.
  const States& states() const { return states_; }
  static void set(const States& states);

 private:
  States states_;
};

}  // namespace framejit::backend
