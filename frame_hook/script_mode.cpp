#include "frame_hook/script_mode.h"

#include <atomic>

#include "frame_hook/frame_eval.h"
#include "frame_hook/function_watcher.h"

namespace framejit {
namespace {

// Calls of one code without a tensor before it is skipped for good.
constexpr uint8_t kCallsWithoutTensor = 16;
constexpr uint64_t kFirstPatience = 20'000;
constexpr uint64_t kMostPatience = uint64_t{1} << 40;

struct Mode {
  const void* options = nullptr;
  ScriptPolicy policy;
  bool by_hook = false;
  bool sleeps = false;
  uint64_t patience = kFirstPatience;
  uint64_t passed = 0;  // frames since the last one worth compiling
};
constinit Mode mode;
std::atomic<bool> wake_pending = false;

// More than one thread: the main one may be blocked, and then never gets to
// the pending call that wakes us.
bool other_threads_exist() {
  PyThreadState* head = PyInterpreterState_ThreadHead(PyInterpreterState_Get());
  return head && PyThreadState_Next(head) != nullptr;
}

void fall_asleep() {
  mode.passed = 0;
  if (!mode.policy.watch || other_threads_exist()) return;
  mode.sleeps = true;
  wake_pending = false;
  hold_hook(false);
  mode.policy.watch();
}

int wake(void*) {
  if (!mode.sleeps) return 0;
  mode.sleeps = false;
  mode.passed = 0;
  if (mode.policy.unwatch) mode.policy.unwatch();
  if (mode.patience < kMostPatience) mode.patience *= 2;
  if (mode.options) hold_hook(true);
  return 0;
}

ScriptChoice pass() {
  if (++mode.passed >= mode.patience && mode.by_hook) [[unlikely]]
    fall_asleep();
  return ScriptChoice::kPass;
}

ScriptChoice dispatch_it() {
  mode.passed = 0;
  return ScriptChoice::kDispatch;
}

}  // namespace

void start_script_mode(const void* options, const ScriptPolicy& policy,
                       ScriptView view) {
  stop_script_mode();
  mode = Mode{options, policy};
  if (view == ScriptView::kBest && watch_functions()) return;
  mode.by_hook = true;
  set_script_options(options);
  hold_hook(true);
}

void stop_script_mode() {
  if (!mode.options) return;
  if (mode.sleeps && mode.policy.unwatch) mode.policy.unwatch();
  if (mode.by_hook) {
    set_script_options(nullptr);
    hold_hook(false);
  } else {
    unwatch_functions();
  }
  mode = Mode{};
}

bool in_script_mode() { return mode.options != nullptr; }
const void* script_mode_options() { return mode.options; }
bool script_mode_sleeps() { return mode.sleeps; }

ScriptChoice script_choice(PyObject* function, PyObject* code,
                           PyObject* const* slots, size_t count) {
  CodeMemory* memory = code_memory(code);
  if (!memory || memory->gave_up) return pass();
  CodeVerdict verdict = memory->verdict;
  if (verdict == CodeVerdict::kUnknown) [[unlikely]] {
    verdict = code_verdict(function, code);
    if (!(memory = code_memory(code))) return pass();
  }
  if (verdict == CodeVerdict::kSuspend) return ScriptChoice::kSuspend;
  if (verdict != CodeVerdict::kTensors && verdict != CodeVerdict::kLibrary) {
    return pass();
  }
  if (mode.policy.holds_tensor(slots, count)) {
    memory->calls_without_tensor = 0;
    return dispatch_it();
  }
  if (verdict == CodeVerdict::kLibrary) {
    // Once may be all there is: main(), the building of a model.
    if (memory->calls_without_tensor > 0) return dispatch_it();
    memory->calls_without_tensor = 1;
  } else if (++memory->calls_without_tensor >= kCallsWithoutTensor) {
    memory->gave_up = true;
  }
  return pass();
}

bool script_skips_frame(PyObject* code) {
  const CodeMemory* memory = code_memory(code);
  if (!memory || !script_skips(*memory)) return false;
  pass();
  return true;
}

void wake_script_soon() {
  if (wake_pending.exchange(true)) return;
  // A full queue: the next operation asks again.
  if (Py_AddPendingCall(wake, nullptr) != 0) wake_pending = false;
}

void set_script_patience(uint64_t frames) { mode.patience = frames; }

}  // namespace framejit
