#include "graph/tracing/program_state.h"

#include <memory>

#include "graph/tensors/trace_tensor.h"

namespace framejit::graph {
namespace {

constinit thread_local ProgramState* current = nullptr;

// What the compilation had, put back when the program's code has run.
struct PutAway {
  explicit PutAway(const at::ThreadLocalState& program) : threads(program) {}
  AmbientState ambient = AmbientState::now();
  SuspendTracing suspend;
  at::ThreadLocalStateGuard threads;
};

}  // namespace

ProgramState::ProgramState() : ambient_(AmbientState::now()), outer_(current) {
  current = this;
}

ProgramState::~ProgramState() {
  current = outer_;
  // What such code left is the program's: the compilation has put back what it
  // found when it began.
  if (was_entered_) ambient_.restore(/*keep_casts=*/true);
}

void* enter_program_state() {
  if (!current) return nullptr;
  auto away = std::make_unique<PutAway>(current->threads_);
  current->ambient_.restore(/*keep_casts=*/true);
  current->was_entered_ = true;
  return away.release();
}

void leave_program_state(void* state) {
  std::unique_ptr<PutAway> away(static_cast<PutAway*>(state));
  if (!away) return;
  if (current) current->ambient_ = AmbientState::now();
  AmbientState ambient = away->ambient;
  away.reset();
  ambient.restore(/*keep_casts=*/true);
}

}  // namespace framejit::graph
