// What compiled graphs run on: the option FRAMEJIT_ISA, or the best this CPU
// has.
#pragma once

#include "backend/loop_runner.h"

namespace framejit::backend {

enum class Isa {
  kFused,      // chains of float32 operations as AVX-512 code
  kReference,  // the same by the interpreter of their IR: for tests
  kLoops,      // the whole graph by the loop interpreter: for tests
  kAvx512,     // the whole graph as loops in machine code
  kAvx2,
  kAten,  // no kernels
};

// Asked whenever a kernel is made.
Isa kernel_isa();
// How whole graphs run as loops; kNone: they do not.
LoopTarget loop_target(Isa isa);

}  // namespace framejit::backend
