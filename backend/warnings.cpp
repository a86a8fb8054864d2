#include "backend/warnings.h"

#include <torch/csrc/Exceptions.h>

namespace framejit::backend {

void WarningBuffer::give_out() {
  if (warnings_.empty()) [[likely]]
    return;
  std::vector<c10::Warning> warnings = std::move(warnings_);
  warnings_.clear();
  torch::PyWarningHandler python;
  for (const c10::Warning& warning : warnings) c10::warn(warning);
}

}  // namespace framejit::backend
