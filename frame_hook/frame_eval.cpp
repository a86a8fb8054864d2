#include "frame_hook/frame_eval.h"

#include <pthread.h>

#include <optional>

#include "frame_hook/code_cache.h"
#include "frame_hook/cpython_internals.h"
#include "frame_hook/dispatcher.h"
#include "frame_hook/function_watcher.h"
#include "frame_hook/generator_calls.h"
#include "frame_hook/hook_off.h"
#include "frame_hook/interjections.h"
#include "frame_hook/native_stack.h"
#include "frame_hook/notices.h"
#include "frame_hook/observers.h"
#include "frame_hook/script_mode.h"

namespace framejit {

int threads_with_attention = 0;

namespace {

// A call whose arguments are to be given up when its frame starts.
struct OwnedCall {
  PyObject* function;
  PyObject** args;
  size_t num_args;
  OwnedCall* outer;
  bool started = false;
  bool put_on = false;  // the hook, for its sake
};

struct ThreadState {
  const void* options = nullptr;            // HookExtent
  CaptureCallbackScope* capture = nullptr;  // CaptureCallbackScope
  PyObject* skipped_function = nullptr;     // call_original
  OwnedCall* owned_call = nullptr;
  int compiling = 0;
  int suspended = 0;
  int paused = 0;                            // PauseHook
  int installs = 0;                          // this thread's share of installs
  int captures = 0;                          // likewise
  _PyInterpreterFrame* passed_on = nullptr;  // to the hook beneath ours
  int low_frames = 0;                        // likewise
};

constinit thread_local ThreadState thread_state;

int installs = 0;
const void* script_options = nullptr;
bool script_installed = false;
bool all_original = false;  // force_original()
int captures = 0;           // CaptureCallbackScopes of all threads
int low_frames = 0;         // frames that run without the hook: see run_low
internals::EvalFrame previous_eval = nullptr;
PyInterpreterState* hooked_interpreter = nullptr;
ShouldCompile should_compile = nullptr;
bool (*other_is_active)() = nullptr;

PyObject* eval_frame(PyThreadState* thread, _PyInterpreterFrame* frame,
                     int throwflag);

// True: it was on top already. While a thread has little stack left the hook
// stays off, but for a capture, which must see every frame.
bool set_hook() {
  if (low_frames != 0 && captures == 0) return false;
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  internals::EvalFrame current = internals::eval_frame_function(interpreter);
  if (current == eval_frame) return true;
  previous_eval = current;
  hooked_interpreter = interpreter;
  internals::set_eval_frame_function(interpreter, eval_frame);
  return false;
}

// Somebody who installed a hook on top of ours keeps it: ours then only passes
// through, and goes when theirs is taken off and ours is put back.
void remove_hook() {
  if (hooked_interpreter &&
      internals::eval_frame_function(hooked_interpreter) == eval_frame) {
    internals::set_eval_frame_function(hooked_interpreter, previous_eval);
  }
}

// In the child of a fork the other threads, and their scopes, are gone.
void after_fork_in_child() {
  const ThreadState& state = thread_state;
  threads_with_attention = state.compiling + state.suspended + all_original;
  captures = state.captures;
  low_frames = state.low_frames;
  int left = state.installs + script_installed;
  if (installs != 0 && left == 0) remove_hook();
  installs = left;
}

void register_fork_handler() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, after_fork_in_child);
  (void)registered;
}

void install() {
  register_fork_handler();
  ++thread_state.installs;
  ++installs;
  set_hook();
}

void uninstall() {
  --thread_state.installs;
  if (--installs == 0) remove_hook();
}

[[gnu::always_inline]] inline PyObject* run_frame(PyThreadState* thread,
                                                  _PyInterpreterFrame* frame,
                                                  int throwflag) {
  internals::EvalFrame eval = previous_eval;
  if (eval == internals::default_eval_frame()) {
    return internals::evaluate(eval, thread, frame, throwflag);
  }
  // Somebody else's hook, which may have kept ours as the one to call.
  _PyInterpreterFrame* outer = std::exchange(thread_state.passed_on, frame);
  PyObject* result = internals::evaluate(eval, thread, frame, throwflag);
  thread_state.passed_on = outer;
  return result;
}

// The other hook has taken itself off and put ours back, which nobody wants any
// more; or it still calls ours, which it will find gone when it goes.
[[gnu::noinline]] PyObject* run_unwanted(PyThreadState* thread,
                                         _PyInterpreterFrame* frame,
                                         int throwflag) {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  internals::EvalFrame plain = internals::default_eval_frame();
  if (internals::eval_frame_function(interpreter) == eval_frame) {
    internals::set_eval_frame_function(interpreter, plain);
  }
  return internals::evaluate(plain, thread, frame, throwflag);
}

// Where no hook is on because a thread, this one or another, has it off
// (HookOff, NoHooks): on for the start of one frame. No other thread runs
// before that.
bool put_on() {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  if (internals::eval_frame_function(interpreter) !=
      internals::default_eval_frame())
    return false;
  internals::set_eval_frame_function(interpreter, eval_frame);
  return true;
}

void take_off() {
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  if (internals::eval_frame_function(interpreter) == eval_frame)
    internals::set_eval_frame_function(interpreter,
                                       internals::default_eval_frame());
}

// Offers the frame to the capture. True: answered.
bool offer_to_capture(CaptureCallbackScope* capture, PyObject* function,
                      PyObject* const* slots, size_t count, PyObject** result) {
  try {
    return capture->callback()(function, slots, count, result);
  } catch (...) {
    // The frame must not run: the interpreter would miss what it does.
    *result = nullptr;
    PyErr_SetString(PyExc_RuntimeError,
                    ("FrameJIT: " + current_exception_text()).c_str());
    return true;
  }
}

// No hook is on, ours or anybody's. Other threads go without meanwhile: what
// compiles their frames finds the next ones.
class NoHooks {
 public:
  NoHooks()
      : interpreter_(PyInterpreterState_Get()),
        above_(internals::eval_frame_function(interpreter_)),
        beneath_(previous_eval) {
    ++low_frames;
    ++thread_state.low_frames;
    internals::set_eval_frame_function(interpreter_,
                                       internals::default_eval_frame());
  }
  ~NoHooks() {
    --thread_state.low_frames;
    if (--low_frames != 0) return;
    if (internals::eval_frame_function(interpreter_) ==
        internals::default_eval_frame()) {
      previous_eval = beneath_;
      internals::set_eval_frame_function(
          interpreter_,
          above_ == eval_frame && installs == 0 ? beneath_ : above_);
    }
    if (installs > 0 && above_ == eval_frame) set_hook();
  }
  NoHooks(const NoHooks&) = delete;
  NoHooks& operator=(const NoHooks&) = delete;

 private:
  PyInterpreterState* interpreter_;
  internals::EvalFrame above_, beneath_;
};

// Runs a frame where little native stack is left: every hooked call nests on
// it, CPython's own do not, so no hook is on for what is beneath the frame:
// with that of another compiler alone the stack would end without a word. While
// a thread captures ours must see every frame; there the calls nest until
// nothing is left.
PyObject* run_low(PyThreadState* thread, _PyInterpreterFrame* frame,
                  int throwflag) {
  if (captures != 0) {
    if (!native_stack_low() || throwflag || !internals::is_plain_call(frame)) {
      return run_frame(thread, frame, throwflag);
    }
    PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded");
    internals::discard_frame(thread, frame);
    return nullptr;
  }
  NoHooks off;
  return internals::evaluate(internals::default_eval_frame(), thread, frame,
                             throwflag);
}

bool dispatches(const ThreadState& state) {
  return state.options || state.capture || (script_options && !state.paused);
}

// A frame outside any capture. The options to dispatch it with; null: CPython
// runs it.
const void* choose(PyThreadState* thread, const ThreadState& state,
                   _PyInterpreterFrame* frame, PyObject* function,
                   bool* suspend) {
  auto* code = reinterpret_cast<PyObject*>(internals::frame_code(frame));
  if (code_kind(code) != CodeKind::kUser) return nullptr;
  ScriptChoice choice = ScriptChoice::kDispatch;
  if (state.options) {
    CodeVerdict verdict = code_verdict(function, code);
    if (verdict == CodeVerdict::kSkip) return nullptr;
    if (verdict == CodeVerdict::kSuspend) choice = ScriptChoice::kSuspend;
  } else {
    PyObject* const* slots = internals::frame_slots(frame);
    size_t count = internals::parameter_slots(internals::frame_code(frame));
    choice = script_choice(function, code, slots, count);
  }
  *suspend = choice == ScriptChoice::kSuspend;
  if (choice != ScriptChoice::kDispatch || internals::is_traced(thread) ||
      other_compiler_active(thread)) {
    return nullptr;
  }
  return state.options ? state.options : script_options;
}

PyObject* run_suspended(PyThreadState* thread, _PyInterpreterFrame* frame,
                        int throwflag) {
  suspend_thread();
  PyObject* result = run_frame(thread, frame, throwflag);
  resume_thread();
  return result;
}

// The common case of whole-script mode: nothing of ours is under way on this
// thread, and the code is known to be none of our business.
bool passes_at_once(ThreadState& state, _PyInterpreterFrame* frame) {
  return script_options && !state.options && !state.capture &&
         !state.owned_call && !state.skipped_function && !state.passed_on &&
         !low_for_hook() &&
         script_skips_frame(
             reinterpret_cast<PyObject*>(internals::frame_code(frame)));
}

[[gnu::noinline]] PyObject* look_at_frame(PyThreadState* thread,
                                          _PyInterpreterFrame* frame,
                                          int throwflag) {
  ThreadState& state = thread_state;
  if (state.passed_on == frame) [[unlikely]] {
    return internals::default_eval_frame()(thread, frame, throwflag);
  }
  if (installs == 0) [[unlikely]]
    return run_unwanted(thread, frame, throwflag);
  bool is_low = low_for_hook();
  auto run = is_low ? run_low : run_frame;
  // Who follows a program does not compile it: it needs every frame.
  bool follows = state.capture &&
                 state.capture->beneath() == CaptureCallbackScope::kOffered;
  if (throwflag || !(internals::is_plain_call(frame) ||
                     (follows && internals::is_generator_call(frame)))) {
    // What a module does once, as it is imported, is not worth compiling; a
    // library that is imported late would fill caches and reports.
    std::optional<PauseHook> pause;
    if (state.options && !throwflag && internals::is_module_body(frame))
      pause.emplace();
    return run(thread, frame, throwflag);
  }
  PyObject* function = internals::frame_function(frame);
  if (OwnedCall* call = state.owned_call; call && call->function == function) {
    state.owned_call = call->outer;
    call->started = true;
    if (call->put_on) take_off();
    uninstall();
    // The frame holds references of its own: nothing is destroyed here.
    for (size_t i = 0; i < call->num_args; ++i) Py_CLEAR(call->args[i]);
    if (call->put_on && !is_low)
      return internals::evaluate(internals::default_eval_frame(), thread, frame,
                                 throwflag);
    return run(thread, frame, throwflag);
  }
  if (state.skipped_function == function) {
    state.skipped_function = nullptr;
    return run(thread, frame, throwflag);
  }
  // A capture breaks by itself where little is left.
  if (!dispatches(state) || ((state.suspended || all_original) && !follows) ||
      (is_low && !state.capture)) {
    return run(thread, frame, throwflag);
  }
  auto* code = reinterpret_cast<PyObject*>(internals::frame_code(frame));
  PyObject* const* slots = internals::frame_slots(frame);
  size_t count = internals::parameter_slots(internals::frame_code(frame));
  PyObject* result = nullptr;
  if (state.capture) {
    if (!offer_to_capture(state.capture, function, slots, count, &result)) {
      if (follows) return run(thread, frame, throwflag);
      PauseHook pause;
      return run_frame(thread, frame, throwflag);
    }
  } else {
    bool suspend = false;
    const void* options = choose(thread, state, frame, function, &suspend);
    if (suspend) return run_suspended(thread, frame, throwflag);
    if (!options) return run_frame(thread, frame, throwflag);
    CodeCache* cache = code_cache(code, options);
    if (!cache || cache->is_hopeless()) {
      return run_frame(thread, frame, throwflag);
    }
    CallEnd end;
    if (dispatch(function, cache, slots, &result, &end) ==
        DispatchOutcome::kRunOriginal) {
      result = run_frame(thread, frame, throwflag);
      end.end(result);
      return result;
    }
    result = run_tokens(result, options, std::move(end));
  }
  internals::discard_frame(thread, frame);
  return result;
}

[[gnu::noinline]] PyObject* look_at_interrupted(PyThreadState* thread,
                                                _PyInterpreterFrame* frame,
                                                int throwflag) {
  BehindFrame behind;
  return look_at_frame(thread, frame, throwflag);
}

// Small, so that a frame we pass on costs CPython's own evaluation and little
// else: no registers to save, and a tail call.
PyObject* eval_frame(PyThreadState* thread, _PyInterpreterFrame* frame,
                     int throwflag) {
  if (interruption_waits()) [[unlikely]]
    return look_at_interrupted(thread, frame, throwflag);
  if (passes_at_once(thread_state, frame))
    return run_frame(thread, frame, throwflag);
  return look_at_frame(thread, frame, throwflag);
}

}  // namespace

HookOff::HookOff()
    : taken_off_(captures == 0 && hooked_interpreter &&
                 internals::eval_frame_function(hooked_interpreter) ==
                     eval_frame) {
  if (!taken_off_) return;
  ++low_frames;
  ++thread_state.low_frames;
  remove_hook();
}

HookOff::~HookOff() {
  if (!taken_off_) return;
  --thread_state.low_frames;
  if (--low_frames == 0 && installs > 0) set_hook();
}

HookExtent::HookExtent(const void* options)
    : saved_options_(thread_state.options) {
  thread_state.options = options;
  install();
}

HookExtent::~HookExtent() {
  uninstall();
  thread_state.options = saved_options_;
}

PauseHook::PauseHook()
    : saved_options_(thread_state.options),
      saved_capture_(thread_state.capture) {
  thread_state.options = nullptr;
  thread_state.capture = nullptr;
  ++thread_state.paused;
}

PauseHook::~PauseHook() {
  --thread_state.paused;
  thread_state.options = saved_options_;
  thread_state.capture = saved_capture_;
}

CodeVerdict code_verdict(PyObject* function, PyObject* code) {
  CodeMemory* memory = code_memory(code);
  if (memory && memory->verdict != CodeVerdict::kUnknown) {
    return memory->verdict;
  }
  if (!should_compile) return CodeVerdict::kSkip;
  CodeVerdict answer = CodeVerdict::kSkip;
  {
    CompilingScope scope;
    ErrorGuard error;
    Interjections interjections;
    try {
      answer = should_compile(function, code);
    } catch (...) {
      log_notice(Notice::kInternalError, code,
                 "should_compile: " + current_exception_text());
    }
    if (PyErr_Occurred()) PyErr_Clear();
  }
  // Asked again: what ran may have changed the extra data.
  if ((memory = code_memory(code))) memory->verdict = answer;
  return answer;
}

CaptureCallbackScope::CaptureCallbackScope(FrameCallback callback,
                                           Beneath beneath)
    : callback_(std::move(callback)),
      beneath_(beneath),
      saved_capture_(thread_state.capture),
      saved_options_(thread_state.options) {
  thread_state.capture = this;
  thread_state.options = nullptr;
  ++captures;
  ++thread_state.captures;
  install();
}

CaptureCallbackScope::~CaptureCallbackScope() {
  uninstall();
  --captures;
  --thread_state.captures;
  thread_state.capture = saved_capture_;
  thread_state.options = saved_options_;
}

bool CaptureCallbackScope::keep_hook() { return set_hook(); }

CompilingScope::CompilingScope() {
  ++thread_state.compiling;
  ++threads_with_attention;
  begin_unobserved();
}

CompilingScope::~CompilingScope() {
  end_unobserved();
  --thread_state.compiling;
  --threads_with_attention;
}

bool is_compiling() { return thread_state.compiling != 0; }

void suspend_thread() {
  ++thread_state.suspended;
  ++threads_with_attention;
}

void resume_thread() {
  if (thread_state.suspended == 0) return;
  --thread_state.suspended;
  --threads_with_attention;
}

bool script_applies_here() {
  const ThreadState& state = thread_state;
  return !state.options && !state.capture && !state.paused &&
         !state.suspended && !all_original &&
         !other_compiler_active(PyThreadState_Get());
}

void set_other_compiler(bool (*is_active)()) { other_is_active = is_active; }

bool other_compiler_active(PyThreadState* thread) {
  internals::EvalFrame eval = internals::installed_hook(thread);
  if (!eval || eval == internals::default_eval_frame()) [[likely]]
    return false;
  if (eval == eval_frame && previous_eval == internals::default_eval_frame())
    return false;
  return other_is_active && other_is_active();
}

void set_script_options(const void* options) { script_options = options; }

void hold_hook(bool installed) {
  if (installed == script_installed) return;
  script_installed = installed;
  if (installed) {
    register_fork_handler();
    ++installs;
    set_hook();
  } else if (--installs == 0) {
    remove_hook();
  }
}

void force_original(bool on) {
  if (on == all_original) return;
  all_original = on;
  threads_with_attention += on ? 1 : -1;
}

bool thread_needs_original() {
  return all_original || thread_state.compiling != 0 ||
         thread_state.suspended != 0;
}

PyObject* call_original(PyObject* function, PyObject* const* args,
                        size_t nargsf, PyObject* kwnames) {
  ThreadState& state = thread_state;
  if (installs == 0 || !dispatches(state) || state.capture) {
    // A capture wants to see this frame.
    return call_unwatched(function, args, nargsf, kwnames);
  }
  PyObject* outer = std::exchange(state.skipped_function, function);
  PyObject* result = call_unwatched(function, args, nargsf, kwnames);
  state.skipped_function = outer;
  return result;
}

PyObject* call_owned(PyObject* function, PyObject** args, size_t num_args) {
  ThreadState& state = thread_state;
  OwnedCall call{function, args, num_args, state.owned_call};
  state.owned_call = &call;
  install();
  call.put_on = put_on();
  PyObject* result = call_unwatched(function, args, num_args, nullptr);
  if (!call.started) {
    state.owned_call = call.outer;
    if (call.put_on) take_off();
    uninstall();
    // After the result: destructors may run code.
    ErrorGuard error;
    for (size_t i = 0; i < num_args; ++i) Py_CLEAR(args[i]);
  }
  return result;
}

void set_should_compile(ShouldCompile callback) { should_compile = callback; }

int hook_installs() { return installs; }

}  // namespace framejit
