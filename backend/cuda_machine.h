// A CUDA device as a LoopMachine: kernels are printed as CUDA C++, compiled by
// NVRTC and put on torch's current stream of the device; memory comes from
// torch's caching allocator. Driver and NVRTC are loaded when the first graph
// of CUDA tensors is compiled; nothing links them.
//
// A Check that fails in a kernel is a device-side assertion, as eager's kernels
// have it: the error comes with the next call that waits for the device.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/loop_machine.h"

namespace framejit::backend {

// Where the libraries may be, the best first.
struct CudaLibraries {
  std::vector<std::string> drivers = {"libcuda.so.1"};
  // Asked once, when it is needed.
  std::function<std::vector<std::string>()> nvrtc;
};
// Before the first graph of CUDA tensors is compiled.
void set_cuda_libraries(CudaLibraries libraries);

// Of this device, made once. Null: *reason says why there is none.
std::shared_ptr<const LoopMachine> cuda_machine(c10::Device device,
                                                std::string* reason);

}  // namespace framejit::backend
