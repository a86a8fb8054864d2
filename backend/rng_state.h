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
  // Remembers the CPU generator, and that of each other device given.
  void save(const std::vector<c10::Device>& devices);
  // Puts the saved states back. Does nothing when nothing was saved.
  void restore();
  // Of the CPU generator; undefined when nothing was saved.
  at::Tensor cpu_state() const {
    return states_.empty() ? at::Tensor() : states_[0].second;
  }
  static void set(const at::Tensor& cpu_state);

 private:
  std::vector<std::pair<c10::Device, at::Tensor>> states_;
};

}  // namespace framejit::backend
