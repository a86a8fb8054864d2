// Why capture stops: the rows of break_reasons.def. They lie down here because
// the dispatcher, too, has reasons of its own for leaving a program alone.
#pragma once

namespace framejit {

enum class BreakReason : int {
#define FJ_BREAK(name, id, title, hint) k##name,
#include "frame_hook/break_reasons.def"
#undef FJ_BREAK
  kCount,
};

struct BreakReasonRow {
  const char* name;
  const char* id;
  const char* title;
  const char* hint;
};
const BreakReasonRow& break_reason_row(BreakReason reason);
// What would be captured behind the break is as large again: the code is left
// to CPython, in later calls too.
inline bool leaves_code(BreakReason reason) {
  return reason == BreakReason::kInstructionBudget ||
         reason == BreakReason::kRepeatedCall;
}
// This call is CPython's from its beginning, with nothing captured before the
// break: a debugger is to find the program's own frames.
inline bool leaves_whole_frame(BreakReason reason) {
  return leaves_code(reason) || reason == BreakReason::kBreakpoint;
}

}  // namespace framejit
