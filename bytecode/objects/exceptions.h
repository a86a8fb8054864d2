// Exceptions of the interpreted program.
//
// A raised exception is pending in the thread state, as in CPython; the
// exceptions being handled are on the thread's own stack, below an entry that a
// capture pushes and pops, so that bare `raise`, sys.exc_info() and __context__
// work with CPython's own code. Their tracebacks name the frames of the program
// by file, function and line only (the code objects in them are empty): enough
// to print, and nothing of the capture is kept alive. What the program rebuilds
// after a capture has the same lines.
//
// What a caller of the compiled function handles is no input of a capture, but
// whether one handles anything is a guarded fact: an exception that is raised
// and caught meanwhile would get that one as its __context__.
#pragma once

#include "guards/result.h"

namespace framejit::bytecode {

class CaptureState;

// Takes the pending exception out of the thread state, normalised. Empty when
// none is pending.
Ref take_raised();
// Makes `exception` pending as it is (no __context__ added).
void restore_raised(Ref exception);
// Sets a pending exception of the given type with CPython's formatting.
Status raise_format(PyObject* type, const char* format, ...);
// A NameError with its `name`, as ceval raises it; format: with one %U.
Status raise_name_error(const char* format, PyObject* name);
// `raise object`: adds __context__ from the handled exception.
Status raise_object(PyObject* exception);

// Puts a line at the head of the traceback.
Status add_traceback_line(PyObject* exception, const char* file,
                          const char* function, int line);

// What stands for the traceback of a raised exception (opaque_value.h), and the
// exception gets again when that is assigned to it, or to another.
Result<Ref> traceback_of(CaptureState& state, PyObject* exception);
Status set_traceback(CaptureState& state, PyObject* exception,
                     PyObject* traceback);

// An entry of the thread's stack of handled exceptions, in force for a scope: a
// whole capture (hiding the caller's), or one resumption of an interpreted
// generator (which keeps `item` suspended).
class HandledExceptionScope {
 public:
  HandledExceptionScope(_PyErr_StackItem* item, bool hide_outer);
  ~HandledExceptionScope();
  HandledExceptionScope(const HandledExceptionScope&) = delete;
  HandledExceptionScope& operator=(const HandledExceptionScope&) = delete;

 private:
  PyThreadState* thread_;
  _PyErr_StackItem* item_;
  _PyErr_StackItem* outer_;
};
// The topmost handled exception; empty: none within this capture.
Ref handled_exception();
// Before a capture hides them from itself: does a caller handle one now?
void note_handled_outside(CaptureState& state, bool handled);
// The same during the capture, guarded.
Result<bool> is_handled_outside(CaptureState& state);
// Swaps the value of the innermost entry: what PUSH_EXC_INFO and POP_EXCEPT do.
Ref swap_handled_exception(Ref exception);

}  // namespace framejit::bytecode
