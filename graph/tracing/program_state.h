// ProgramState: torch's thread state as the program had it when a compilation
// began, for code of the program that runs in the middle of it (signal
// handlers: frame_hook/interjections.h).
//
// A capture and a joint trace change nearly all of this state: dispatch keys,
// modes, grad mode, autocast. In a handler operations must reach the program's
// tensors, and nothing else; stand-ins are out of its reach.
#pragma once

#include <ATen/ThreadLocalState.h>

#include "graph/tracing/ambient_state.h"

namespace framejit::graph {

// Made where a compilation begins, on its thread. They nest.
class ProgramState {
 public:
  ProgramState();
  ~ProgramState();
  ProgramState(const ProgramState&) = delete;
  ProgramState& operator=(const ProgramState&) = delete;

 private:
  friend void* enter_program_state();
  friend void leave_program_state(void* state);
  at::ThreadLocalState threads_;
  AmbientState ambient_;
  bool was_entered_ = false;
  ProgramState* outer_;
};

// ProgramStateHooks of frame_hook/interjections.h. Without a compilation on
// this thread nothing is done.
void* enter_program_state();
void leave_program_state(void* state);

}  // namespace framejit::graph
