#include "backend/isa.h"

#include "backend/emit_avx512.h"
#include "frame_hook/options.h"

namespace framejit::backend {

Isa kernel_isa() {
  const auto& wanted = options().isa;
  if (wanted == "reference") return Isa::kReference;
  if (wanted == "loops") return Isa::kLoops;
  if (wanted == "aten") return Isa::kAten;
  return cpu_has_avx512() ? Isa::kAvx512 : Isa::kAten;
}

}  // namespace framejit::backend
