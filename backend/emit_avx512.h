// Kernel IR -> machine code for x86 with AVX-512 (F, BW, DQ, VL), by asmjit.
//
// A loop over rows, in it a loop over columns, sixteen lanes at a time,
// unrolled while the body is small; the rest of a row runs once more under a
// lane mask. Constants are embedded broadcasts, or registers when used often.
// The code makes no call: what needs libm raises the retry flag (kernel_ir.h).
#pragma once

#include "backend/kernel_ir.h"

namespace framejit::backend {

bool cpu_has_avx512();

// Null when the CPU lacks AVX-512 or the kernel cannot be emitted. Compiled
// code is cached by the kernel's text and lives as long as the process.
KernelFn emit_avx512(const Kernel& kernel);

// The same without the cache, with the assembly text (tests, inspect).
KernelFn emit_avx512_listing(const Kernel& kernel, std::string* listing);

}  // namespace framejit::backend
