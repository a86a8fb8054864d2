#include "backend/isa.h"

#include "backend/emit_avx512.h"
#include "codegen/x86/compile.h"
#include "frame_hook/options.h"

namespace framejit::backend {

Isa kernel_isa() {
  const auto& wanted = options().isa;
  if (wanted == "reference") return Isa::kReference;
  if (wanted == "loops") return Isa::kLoops;
  if (wanted == "aten") return Isa::kAten;
  if (wanted == "avx512" && codegen::cpu_has(codegen::X86Isa::kAvx512))
    return Isa::kAvx512;
  if (wanted == "avx2" && codegen::cpu_has(codegen::X86Isa::kAvx2))
    return Isa::kAvx2;
  return cpu_has_avx512() ? Isa::kFused : Isa::kAten;
}

LoopTarget loop_target(Isa isa) {
  switch (isa) {
    case Isa::kLoops:
      return LoopTarget::kInterpreter;
    case Isa::kAvx512:
      return LoopTarget::kAvx512;
    case Isa::kAvx2:
      return LoopTarget::kAvx2;
    default:
      return LoopTarget::kNone;
  }
}

}  // namespace framejit::backend
