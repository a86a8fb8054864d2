// Kernel -> machine code, by asmjit.
//
// The code runs a range of the kernel's outer points, flattened, so that a
// caller can share them out among threads. Memory and the values of symbolic
// expressions come in a KernelCall; constants are in the code. No memory is
// allocated. What cannot be done is refused with a reason, and the caller runs
// something else.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "codegen/kernels/kernel.h"
#include "codegen/legalise/expand.h"
#include "guards/emit/machine_code.h"

namespace framejit::codegen {

enum class X86Isa : uint8_t {
  kAvx512Bf16,  // kAvx512 and BF16
  kAvx512,      // F, DQ, BW, VL
  kAvx2,        // with FMA and F16C
};
const char* isa_name(X86Isa isa);
int vector_bytes(X86Isa isa);
// The CPU has the instructions, and the system keeps the registers.
bool cpu_has(X86Isa isa);
// Those that it has, the best first.
std::vector<X86Isa> cpu_isas();

struct KernelCall {
  void* const* arguments;     // element 0 of each argument's places
  const int64_t* parameters;  // values of KernelCode::parameters
};

// Runs outer points [begin, end). Nonzero: a Check failed, and the results are
// of no use.
using KernelFunction = int64_t (*)(const KernelCall* call, int64_t begin,
                                   int64_t end);

struct KernelCode {
  KernelFunction function = nullptr;
  // To be evaluated before a call; floats as their bits.
  std::vector<Expr> parameters;
  std::unique_ptr<const MachineCode> code;
  // If they were asked for: the instructions, and those of them that want more
  // of a CPU than cpu_has() looks for.
  std::string listing, beyond;
};

// Of a kernel when its operations are expanded: one with more is refused.
// (Register allocation takes more than linear time.)
constexpr int kMostNodes = 700;

struct Compiled {
  std::shared_ptr<const KernelCode> code;
  std::string refused;  // why there is no code
};

// The kernel is verified already.
Compiled compile(const Kernel& kernel, X86Isa isa, bool listing = false,
                 Arithmetic arithmetic = {});

// The whole of a kernel at once: parameters evaluated, all outer points run.
bool run(const KernelCode& code, const Kernel& kernel, const int64_t* symbols,
         void* const* arguments);

}  // namespace framejit::codegen
