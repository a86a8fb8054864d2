// What fused kernels run on: the option FRAMEJIT_ISA, or the best this CPU has.
#pragma once

namespace framejit::backend {

enum class Isa {
  kAvx512,
  kReference,  // the IR interpreter: for tests
  kLoops,      // the whole graph by the loop interpreter: for tests
  kAten,       // no fused kernels
};

// Asked whenever a kernel is made.
Isa kernel_isa();

}  // namespace framejit::backend
