// Whole-script mode (FRAMEJIT=1): every frame that does tensor work is
// compiled.
//
// Somebody shows us the calls; this file decides, cheaply, which to dispatch.
// Each code object is judged once (code_verdict(): library code is not the
// user's, some code traces on its own); then the arguments decide, for a frame
// without a tensor does none of the work. A code that is called again and again
// without one is skipped for good.
//
// From CPython 3.12 on the calls are shown by a function watcher
// (function_watcher.h), which costs only the functions that do tensor work.
//
// On 3.11, or where no watcher is to be had, by the frame hook, which makes
// every Python call dearer. When many frames have passed in vain it is taken
// off, and the next tensor operation, wherever it happens, puts it back:
// programs that are done with tensors, or have not begun, run at CPython's
// speed. The patience doubles at each waking, so that a program that alternates
// soon keeps the hook.
#pragma once

#include <cstddef>
#include <cstdint>

#include "frame_hook/code_cache.h"

namespace framejit {

struct ScriptPolicy {
  // Does one of the parameter slots (null: unbound) hold a tensor? Runs no
  // Python code.
  bool (*holds_tensor)(PyObject* const* slots, size_t count) = nullptr;
  // Calls wake_script_soon() at the next tensor operation, on any thread, with
  // or without the GIL. Null: the hook never sleeps.
  void (*watch)() = nullptr;
  void (*unwatch)() = nullptr;
};

// How calls are seen.
enum class ScriptView {
  kBest,  // the watcher, or else the hook
  kHook,
};

// Starts the mode with the options (a code-cache key) to dispatch with; starts
// again with others. The caller keeps `options` alive until the mode is
// stopped or restarted. With the GIL.
void start_script_mode(const void* options, const ScriptPolicy& policy,
                       ScriptView view = ScriptView::kBest);
void stop_script_mode();
bool in_script_mode();
const void* script_mode_options();  // null: not in the mode
bool script_mode_sleeps();

enum class ScriptChoice { kPass, kDispatch, kSuspend };
// What to do with a call on the user's thread, outside any scope.
ScriptChoice script_choice(PyObject* function, PyObject* code,
                           PyObject* const* slots, size_t count);

// Is it known that calls of this code are passed on, all of them?
inline bool script_skips(const CodeMemory& memory) {
  return memory.gave_up || memory.verdict == CodeVerdict::kSkip ||
         memory.verdict == CodeVerdict::kCallee;
}
// The same for a frame that the hook sees; counts one if so.
bool script_skips_frame(PyObject* code);

// From what policy.watch() sets up; any thread, with or without the GIL.
void wake_script_soon();

// Frames that may pass in vain before the hook sleeps (tests, tuning).
void set_script_patience(uint64_t frames);

}  // namespace framejit
