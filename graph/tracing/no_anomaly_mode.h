// NoAnomalyMode: a trace of ours, while the program detects anomalies.
//
// torch's anomaly mode looks at the values of gradients and warns on its own
// where a backward raises. A trace has no values, and what it raises is
// nobody's error. The mode belongs to the process, so another thread's backward
// is not looked at meanwhile.
#pragma once

#include <torch/csrc/autograd/anomaly_mode.h>

namespace framejit::graph {

class NoAnomalyMode {
 public:
  NoAnomalyMode() {
    if (enabled_) Mode::set_enabled(false, check_nan_);
  }
  NoAnomalyMode(const NoAnomalyMode&) = delete;
  NoAnomalyMode& operator=(const NoAnomalyMode&) = delete;
  ~NoAnomalyMode() {
    if (enabled_) Mode::set_enabled(true, check_nan_);
  }

 private:
  using Mode = torch::autograd::AnomalyMode;
  bool enabled_ = Mode::is_enabled();
  bool check_nan_ = Mode::should_check_nan();
};

}  // namespace framejit::graph
