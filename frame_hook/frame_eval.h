// The PEP 523 hook, installed for extents only.
//
// Four things need to see Python frames that CPython enters: a capture (frames
// called by C code beneath it are interpreted, not run), who follows a program
// that CPython runs (framejit.fx), a compiled function that broke (what it
// calls is dispatched through the code cache), and whole-script mode
// (script_mode.h) where it has no function watcher.
// The hook is installed while at least one scope below exists in the process,
// or whole-script mode is awake; apart from the latter it does something only
// on threads that have a scope. Scopes nest and are strictly tied to C++
// blocks. It is also how a function called by the dispatcher comes to own its
// arguments: our references go as its frame starts.
//
// Other hooks (torch._dynamo's) come and go in any order, on any thread, each
// keeping the one it found and putting that back later. So ours is put on top
// whenever a scope begins, passes on to what it found there, cuts the circle
// that arises when that passes on to ours, and takes itself off when it is put
// back with no scope left. A thread on which the other hook is at work
// (set_other_compiler) is not ours.
#pragma once

#include <cstddef>
#include <functional>

#include "frame_hook/code_cache.h"
#include "frame_hook/py_ref.h"

namespace framejit {

// Python functions called on this thread are dispatched with `options`.
class HookExtent {
 public:
  explicit HookExtent(const void* options);
  ~HookExtent();
  HookExtent(const HookExtent&) = delete;
  HookExtent& operator=(const HookExtent&) = delete;

 private:
  const void* saved_options_;
};

// No hook on this thread for a scope: code of ours (executors, backends, the
// compiler) runs Python that is not the user's.
class PauseHook {
 public:
  PauseHook();
  ~PauseHook();
  PauseHook(const PauseHook&) = delete;
  PauseHook& operator=(const PauseHook&) = delete;

 private:
  const void* saved_options_;
  class CaptureCallbackScope* saved_capture_;
};

// For script_mode.cpp: the options of frames met outside any scope (null: none
// are dispatched), and its share of the installs. With the GIL.
void set_script_options(const void* options);
void hold_hook(bool installed);

// Another compiler that lives in this process beside us: is it at work on this
// thread? Asked only while somebody else's hook is installed. Must not raise.
void set_other_compiler(bool (*is_active)());
// Frames and calls of this thread are another compiler's.
bool other_compiler_active(PyThreadState* thread);

// set_stance("force_eager"): like a suspended thread, for all of them.
void force_original(bool on);

// Interprets a frame that is about to be run beneath a native call. args: the
// parameter slots (borrowed). True: answered (*result new, or null with an
// error set). False: CPython runs the frame, and nothing beneath it is
// offered, unless the scope says so. Called re-entrantly.
using FrameCallback =
    std::function<bool(PyObject* function, PyObject* const* args,
                       size_t num_args, PyObject** result)>;

// Offers the plain function frames entered on this thread to a capture.
class CaptureCallbackScope {
 public:
  // What lies beneath a frame that CPython runs: a capture has taken leave of
  // it; what follows a program that CPython runs sees all of it.
  enum Beneath : uint8_t { kNotOffered, kOffered };
  explicit CaptureCallbackScope(FrameCallback callback,
                                Beneath beneath = kNotOffered);
  ~CaptureCallbackScope();
  CaptureCallbackScope(const CaptureCallbackScope&) = delete;
  CaptureCallbackScope& operator=(const CaptureCallbackScope&) = delete;
  const FrameCallback& callback() const { return callback_; }
  Beneath beneath() const { return beneath_; }

  // Puts the hook on top again where another thread has taken it off. False:
  // it was off, and frames may have been missed.
  static bool keep_hook();

 private:
  FrameCallback callback_;
  Beneath beneath_;
  CaptureCallbackScope* saved_capture_;
  const void* saved_options_;
};

// While a compilation runs on this thread, compiled functions called on it run
// their original code.
class CompilingScope {
 public:
  CompilingScope();
  ~CompilingScope();
  CompilingScope(const CompilingScope&) = delete;
  CompilingScope& operator=(const CompilingScope&) = delete;

 private:
  PauseHook pause_;
};
bool is_compiling();

// framejit.disable: from suspend to resume nothing is compiled or dispatched
// on this thread. Counted.
void suspend_thread();
void resume_thread();

// May a call on this thread be answered by whole-script mode? Not beneath a
// scope (the hook sees to it), nor where the original must run.
bool script_applies_here();

// Threads that compile or are suspended; when zero, no thread need ask.
extern int threads_with_attention;
bool thread_needs_original();  // this thread compiles or is suspended

// Calls a Python function natively; its own frame is not dispatched again.
PyObject* call_original(PyObject* function, PyObject* const* args,
                        size_t nargsf, PyObject* kwnames);
// Calls a Python function with positional arguments whose references are given
// away: the array is emptied as the frame starts, so the function's own locals
// are the only owners.
PyObject* call_owned(PyObject* function, PyObject** args, size_t num_args);

// Decides whether a function met by the hook is worth compiling. Asked once per
// code object. Must not raise. None set: nothing is.
using ShouldCompile = CodeVerdict (*)(PyObject* function, PyObject* code);
void set_should_compile(ShouldCompile should_compile);
// The verdict on this code, asked for when there is none yet.
CodeVerdict code_verdict(PyObject* function, PyObject* code);

// Scopes that keep the hook installed (tests).
int hook_installs();

}  // namespace framejit
