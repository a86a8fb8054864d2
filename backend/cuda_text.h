// How the kernels of a schedule are printed for a CUDA device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "codegen/cuda/print_cuda.h"

namespace framejit::backend {

// "fj::kernel mul_add_3" -> "fj_mul_add_3", of what an identifier may have.
std::string cuda_entry(const std::string& name);

// The name is an identifier already. Indices of 32 bits do where
// codegen::fits_32_bits() says so of the symbols, and are faster.
codegen::CudaKernel print_for_cuda(const codegen::Kernel& kernel,
                                   const codegen::TargetInfo& target,
                                   bool deterministic, bool wide_indices,
                                   bool vectors = true);
// Whether they do for the symbols that were seen; text: with wide indices.
bool seems_narrow(const codegen::Kernel& kernel,
                  const codegen::CudaKernel& text, std::vector<int64_t> hints);

}  // namespace framejit::backend
