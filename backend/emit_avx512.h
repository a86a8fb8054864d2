// Kernel IR -> machine code for x86 with AVX-512 (F, BW, DQ, VL), by asmjit.
//
// A loop over rows, in it a loop over columns, sixteen lanes at a time,
// unrolled while the body is small; the rest of a row runs once more under a
// lane mask. Constants are embedded broadcasts, or registers when used often.
// The code makes no call: what needs libm raises the retry flag (kernel_ir.h).
#pragma once

#include <memory>
#include <string>

#include "backend/kernel_ir.h"
#include "guards/emit/machine_code.h"

namespace framejit::backend {

bool cpu_has_avx512();

// A KernelFn at the beginning. Equal kernels share one while any is in use.
using KernelCode = std::shared_ptr<const MachineCode>;

// Null when the CPU lacks AVX-512 or the kernel cannot be emitted.
KernelCode emit_avx512(const Kernel& kernel);

// Emitted anew, with the assembly text (tests, inspect).
KernelCode emit_avx512_listing(const Kernel& kernel, std::string* listing);

}  // namespace framejit::backend
