// Kernels as CUDA C++, compiled by the host's compiler with emulation.h.
//
// They are collected first and compiled together: the compiler takes a second
// to start.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "codegen/cuda/print_cuda.h"

namespace framejit::codegen {

class EmulatedKernels {
 public:
  EmulatedKernels() = default;
  ~EmulatedKernels();
  EmulatedKernels(const EmulatedKernels&) = delete;
  EmulatedKernels& operator=(const EmulatedKernels&) = delete;

  // Its number; -1: the printer refuses it. Equal ones are one.
  int add(Kernel kernel, const CudaOptions& options);
  // "": all compiled; otherwise what the compiler said.
  std::string build();
  // After build(). False: a Check failed. order: as emulation.h has it.
  bool run(int number, const int64_t* symbols, std::span<void* const> arguments,
           unsigned blocks = 2, unsigned order = 0) const;

  size_t size() const { return kernels_.size(); }
  // Makes a mistake in each kernel that is added.
  std::function<void(std::string* source)> spoil;
  const CudaKernel& kernel(int number) const { return kernels_[number].text; }
  // Runs that moved elements side by side as one.
  mutable size_t wide_runs = 0;

 private:
  using Function = void (*)(void** parameters, unsigned blocks, unsigned order);
  struct Entry {
    std::vector<KernelArgument> arguments;
    CudaKernel text;
    int scalar = -1;  // the kernel where `text` is not right
    Function function = nullptr;
  };
  std::string text_of(const Entry& entry) const;

  std::vector<Entry> kernels_;
  std::vector<std::string> keys_;
  std::vector<void*> libraries_;
  size_t built_ = 0;
};

}  // namespace framejit::codegen
