// What FrameJIT needs of CPython's private parts, one function each.
//
// Every difference between CPython 3.11, 3.12 and 3.13 that concerns frames,
// the evaluation hook, tracing and recursion ends in cpython_internals.cpp:
// code outside it is the same for all three. The frame stays opaque here; a
// frame passed in has not begun (its slots hold the raw arguments).
#pragma once

#include <cstddef>

#include "frame_hook/py_ref.h"

struct _PyInterpreterFrame;

namespace framejit::internals {

using EvalFrame = PyObject* (*)(PyThreadState*, _PyInterpreterFrame*, int);

EvalFrame default_eval_frame();
// The interpreter's evaluation function; CPython's own is never null here.
EvalFrame eval_frame_function(PyInterpreterState* interpreter);
void set_eval_frame_function(PyInterpreterState* interpreter, EvalFrame eval);

// ---- a frame at hook time
PyObject* frame_function(_PyInterpreterFrame* frame);  // borrowed
PyCodeObject* frame_code(_PyInterpreterFrame* frame);  // borrowed
PyObject** frame_slots(_PyInterpreterFrame* frame);
// A plain function call: no generator body, no resumed or foreign frame.
bool is_plain_call(_PyInterpreterFrame* frame);
// Runs the frame in CPython (or the hook that was there before ours), giving
// back the C-recursion units that the hook costs.
PyObject* evaluate(EvalFrame eval, PyThreadState* thread,
                   _PyInterpreterFrame* frame, int throwflag);
// Ends a frame that was answered without being run.
void discard_frame(PyThreadState* thread, _PyInterpreterFrame* frame);

// Of x.__add__ where the slot is C code; its name left the headers in 3.13.
PyTypeObject* method_wrapper_type();

// sys.settrace, sys.setprofile or sys.monitoring watch this thread.
bool is_traced(PyThreadState* thread);

// The address below which less than `bytes` of this thread's native stack are
// left (of a small stack: a quarter of that).
uintptr_t native_stack_floor(size_t bytes = 256 * 1024);

// ---- extra data of code objects
Py_ssize_t request_code_extra_index(freefunc free);
void* code_extra(PyObject* code, Py_ssize_t index);
bool set_code_extra(PyObject* code, Py_ssize_t index, void* extra);

// Number of parameter slots at the start of localsplus.
inline int parameter_slots(const PyCodeObject* code) {
  return code->co_argcount + code->co_kwonlyargcount +
         ((code->co_flags & CO_VARARGS) != 0) +
         ((code->co_flags & CO_VARKEYWORDS) != 0);
}

inline bool is_generator_like(const PyCodeObject* code) {
  return (code->co_flags &
          (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR)) != 0;
}

}  // namespace framejit::internals
