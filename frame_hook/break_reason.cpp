#include "frame_hook/break_reason.h"

#include <cstddef>

namespace framejit {
namespace {

constexpr BreakReasonRow kBreakRows[] = {
#define FJ_BREAK(name, id, title, hint) {#name, id, title, hint},
#include "frame_hook/break_reasons.def"
#undef FJ_BREAK
};
static_assert(sizeof(kBreakRows) / sizeof(kBreakRows[0]) ==
              static_cast<size_t>(BreakReason::kCount));

}  // namespace

const BreakReasonRow& break_reason_row(BreakReason reason) {
  size_t index = static_cast<size_t>(reason);
  if (index >= static_cast<size_t>(BreakReason::kCount))
    index = static_cast<size_t>(BreakReason::kInternal);
  return kBreakRows[index];
}

}  // namespace framejit
