// While it lives, torch asks no class of tensors (and, if told so, no mode)
// for a __torch_function__ on this thread.
#pragma once

#include <ATen/PythonTorchFunctionTLS.h>

namespace framejit::graph {

class WithoutTorchFunction {
 public:
  explicit WithoutTorchFunction(bool modes_too = false) {
    auto wanted =
        modes_too ? at::impl::ALL_DISABLED : at::impl::SUBCLASSES_DISABLED;
    if (before_ < wanted) Functions::set_disabled_state(wanted);
  }
  ~WithoutTorchFunction() { Functions::set_disabled_state(before_); }
  WithoutTorchFunction(const WithoutTorchFunction&) = delete;
  WithoutTorchFunction& operator=(const WithoutTorchFunction&) = delete;

 private:
  using Functions = at::impl::PythonTorchFunctionTLS;
  at::impl::TorchFunctionDisabledState before_ =
      Functions::get_disabled_state();
};

}  // namespace framejit::graph
