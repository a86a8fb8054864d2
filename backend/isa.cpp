#include "backend/isa.h"

#include "codegen/x86/compile.h"
#include "frame_hook/options.h"

namespace framejit::backend {

LoopTarget loop_target() {
  using codegen::X86Isa;
  const auto& wanted = options().isa;
  if (wanted == "loops") return LoopTarget::kInterpreter;
  if (wanted == "aten") return LoopTarget::kNone;
  // The widest that the CPU has; what was asked for is the most.
  if (wanted != "avx2" && codegen::cpu_has(X86Isa::kAvx512)) {
    return LoopTarget::kAvx512;
  }
  return codegen::cpu_has(X86Isa::kAvx2) ? LoopTarget::kAvx2
                                         : LoopTarget::kNone;
}

}  // namespace framejit::backend
