// Interjections: code of the program that CPython runs in the middle of a
// compilation, at no place of what is being compiled.
//
// Signal handlers run wherever the interpreter looks for signals, finalizers
// wherever a collection begins. Neither is part of the program that a capture
// interprets. So while a compilation runs, no collection begins (garbage waits
// for its end), and handlers run as the program: no capture sees their frames,
// and torch's state is the program's (set_program_state). When one raises, its
// exception would come out of whatever code of ours or torch's runs at that
// moment, much of which takes exceptions for a failure to compile. It is kept;
// the compilation is given up, the original code runs, and the exception is
// raised there, at its first look for signals: inside the program's own `try`
// and `with` blocks, and once. (An import that is under way is not cut off: no
// module is left half made by us.) Should code of ours come first, it is kept
// again. Finalizers, where it could only be reported, and `__exit__`, which it
// would keep from closing what is open, are passed over. (On CPython 3.11,
// where a profiler watches, the interpreter would ask again and again: there
// the frame that begins while one waits asks for it behind its end. Where the
// hook did not see that frame, it is raised in it, as a handler's may be in
// eager.)
//
// The same scope is around Python code that we run for ourselves outside of
// compilations: logs, texts, the choice of frames, the trace of a backward. C
// calls whose errors mean nothing to us may look for signals, too (repr()
// does): drop_error() hands on what a handler raised.
//
// A compiled call itself runs no Python code of ours. Where an executor runs
// code of a backend in Python, a handler's exception ends it like any other;
// it is known by its traceback (raised_by_handler) and goes the same way.
#pragma once

#include <vector>

#include "frame_hook/collector.h"
#include "frame_hook/py_ref.h"

namespace framejit {

// The thread as the program has it, put away while we work. enter() may throw.
struct ProgramStateHooks {
  void* (*enter)() = nullptr;
  void (*leave)(void* state) = nullptr;
};
void set_program_state(const ProgramStateHooks& hooks);

// One compilation on this thread.
class Interjections {
 public:
  Interjections();
  ~Interjections();  // keeps the Python error
  Interjections(const Interjections&) = delete;
  Interjections& operator=(const Interjections&) = delete;

  enum class End {
    kQuiet,
    kInterrupted,  // nothing that was made is to be used: the original runs
    kRaised,       // the same, but the error is set and must propagate
  };
  // Ends the scope. What a handler raised is raised in the code that runs next,
  // or set; an error that was set before is gone then. Within another scope it
  // is that one's.
  End end();

 private:
  friend class AsProgram;
  friend PyObject* run_handler(PyObject* self, PyObject* args,
                               PyObject* kwargs);
  friend int raise_first(void*);
  struct Handler {
    int signal;
    Ref own;      // the program's
    Ref wrapper;  // ours
  };
  void watch_handlers();
  void unwatch_handlers();
  // Keeps the pending error, the first one. False: it is to stay set, too.
  bool keep_error();
  bool is_importing() const;

  Interjections* outer_;
  std::vector<Handler> handlers_;
  PyFrameObject* began_in_ = nullptr;  // borrowed: it outlives the scope
  Ref exception_;
  Ref traceback_;
  CollectorOff collector_;
  bool ended_ = false;
  friend bool interrupted();
};

// This thread's compilation is to be given up.
bool interrupted();
// Runs the handlers of signals that have come. No error may be set.
void look_for_signals();

// Between the parts of a function that broke, which may be turns of a loop:
// does what the interpreter would do there (internals::has_pending_work). What
// a handler or a pending call raises is raised in the code that runs next.
// False: it is set and must propagate. No error may be set before.
bool do_pending_work(PyThreadState* thread);

// Was the exception raised in a function that handles signals? Looks through
// its traceback and what it came from.
bool raised_by_handler(PyObject* exception);
// Raises the pending error in the code that runs next on the main thread, which
// this is; false: it is still pending.
bool raise_in_next_code();
// One is on its way: no compilation should begin.
inline constinit bool interruption_is_waiting = false;
inline bool interruption_waits() { return interruption_is_waiting; }
// Around a frame of the program that begins meanwhile.
class BehindFrame {
 public:
  BehindFrame() { ++open_; }
  ~BehindFrame();
  BehindFrame(const BehindFrame&) = delete;
  BehindFrame& operator=(const BehindFrame&) = delete;

 private:
  friend int raise_first(void*);
  static inline constinit thread_local int open_ = 0;
  static inline constinit bool asked_ = false;  // on the main thread
};

// Clears the pending error, if any, which means nothing to the caller; one that
// a handler raised is raised in the code that runs next.
void drop_error();

}  // namespace framejit
