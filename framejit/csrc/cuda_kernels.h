// For Python: the CUDA kernels of what a callable compiles, and NVRTC.
#pragma once

#include <pybind11/pybind11.h>

namespace framejit {

void bind_cuda_kernels(pybind11::module_& m);

}  // namespace framejit
