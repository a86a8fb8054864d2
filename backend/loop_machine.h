// LoopMachine: what the kernels of a schedule run on. It says what schedules
// are to be made for, compiles their kernels, and has the memory that these
// read and write: the CPU (x86_machine.h), or a CUDA device (cuda_machine.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <memory>
#include <string>
#include <vector>

#include "codegen/kernels/kernel.h"
#include "codegen/schedule/target.h"

namespace framejit::backend {

// One kernel of a schedule, compiled. Any thread may run it.
class LoopKernel {
 public:
  virtual ~LoopKernel() = default;
  // arguments: element 0 of each argument's places. All outer points run, or
  // are put on the current stream of the device. False: a Check failed.
  virtual bool run(void* const* arguments, const int64_t* symbols) const = 0;
  // Its instructions, if they were asked for.
  virtual std::string listing() const { return ""; }
  // For profilers that know machine code by its place.
  virtual void give_name(const std::string& /*name*/) const {}
};

class LoopMachine {
 public:
  struct Compiled {
    std::shared_ptr<const LoopKernel> kernel;
    std::string refused;  // why there is none
  };

  virtual ~LoopMachine() = default;
  virtual c10::Device device() const = 0;
  // But for hints.
  virtual codegen::TargetInfo target() const = 0;
  // kernels: verified, each with the name that profilers are to show ("" where
  // there is none). hints: values of the symbols that were seen.
  virtual std::vector<Compiled> compile(
      const std::vector<codegen::Kernel>& kernels,
      const std::vector<int64_t>& hints) const = 0;
  // Memory of so many bytes, to be a tensor's.
  virtual at::Storage new_storage(int64_t bytes) const = 0;
};

}  // namespace framejit::backend
