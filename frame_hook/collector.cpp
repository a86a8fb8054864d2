#include "frame_hook/collector.h"

#include <Python.h>
#include <pthread.h>

#include "frame_hook/cpython_internals.h"

namespace framejit {
namespace {

int debts = 0;                    // scopes that turn it on again; under the GIL
thread_local int debts_here = 0;  // of this thread

// Nothing but the switch, and that by a thread that runs Python: a child that
// C code has made has no use for it.
void after_fork_in_child() {
  const bool lost = debts > debts_here;
  debts = debts_here;
  if (lost && internals::thread_or_null() && PyGILState_Check()) PyGC_Enable();
}

}  // namespace

void CollectorOff::take() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, after_fork_in_child);
  (void)registered;
  owes_ = PyGC_Disable() != 0;
  debts += owes_;
  debts_here += owes_;
}

void CollectorOff::give_back() {
  if (!owes_) return;
  owes_ = false;
  --debts;
  --debts_here;
  PyGC_Enable();
}

}  // namespace framejit
