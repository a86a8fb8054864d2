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
// Quickly: what is installed; null or CPython's own: nothing.
EvalFrame installed_hook(PyThreadState* thread);

// ---- a frame at hook time
PyObject* frame_function(_PyInterpreterFrame* frame);  // borrowed
PyCodeObject* frame_code(_PyInterpreterFrame* frame);  // borrowed
PyObject** frame_slots(_PyInterpreterFrame* frame);
// A plain function call: no generator body, no resumed or foreign frame.
bool is_plain_call(_PyInterpreterFrame* frame);
// The body of a module that is being imported.
bool is_module_body(_PyInterpreterFrame* frame);
// Runs the frame in CPython (or the hook that was there before ours), giving
// back the C-recursion units that the hook costs.
PyObject* evaluate(EvalFrame eval, PyThreadState* thread,
                   _PyInterpreterFrame* frame, int throwflag);
// The same for a call that the interpreter would have inlined, had the function
// CPython's own vectorcall.
PyObject* call_uncounted(vectorcallfunc call, PyObject* function,
                         PyObject* const* args, size_t nargsf,
                         PyObject* kwnames);
// A call far down the native stack: nothing is given back, and the budget is
// cut to what the rest of the stack bears.
PyObject* call_with_low_stack(vectorcallfunc call, PyObject* function,
                              PyObject* const* args, size_t nargsf,
                              PyObject* kwnames);
// Ends a frame that was answered without being run.
void discard_frame(PyThreadState* thread, _PyInterpreterFrame* frame);

// What a class has itself. From 3.12 on tp_dict is null for the static types of
// CPython, whose dicts belong to an interpreter.
Ref own_dict(PyTypeObject* type);
// object.__dict__ = dict, whatever the class calls __dict__. False: an error is
// set.
bool set_instance_dict(PyObject* object, PyObject* dict);
// Of x.__add__ where the slot is C code; its name left the headers in 3.13.
PyTypeObject* method_wrapper_type();

// What a weak reference leads to; null: it died.
Ref weak_referent(PyObject* reference);
// __type_params__ of a function (borrowed); null: none.
inline PyObject* function_type_params(PyFunctionObject* function) {
#if PY_VERSION_HEX >= 0x030C0000
  return function->func_typeparams;
#else
  (void)function;
  return nullptr;
#endif
}
// PyCode_NewWithPosOnlyArgs, under its later name.
template <class... Parts>
PyCodeObject* new_code(Parts... parts) {
#if PY_VERSION_HEX >= 0x030C0000
  return PyUnstable_Code_NewWithPosOnlyArgs(parts...);
#else
  return PyCode_NewWithPosOnlyArgs(parts...);
#endif
}

// ---- what versions changed in the language
// ~True warns that it is deprecated.
inline constexpr bool kInvertingBoolWarns = PY_VERSION_HEX >= 0x030C0000;
// Taking apart and restoring iterators of itertools warns, too.
inline constexpr bool kItertoolsWarn = PY_VERSION_HEX >= 0x030C0000;
// Each call of locals() in a function makes a dict.
inline constexpr bool kLocalsAreSnapshots = PY_VERSION_HEX >= 0x030D0000;
inline constexpr const char* kEmptyMinMaxText =
    PY_VERSION_HEX >= 0x030C0000 ? "%s() iterable argument is empty"
                                 : "%s() arg is an empty sequence";

// ---- the state of a thread
// sys.settrace, sys.setprofile or sys.monitoring watch this thread, and do more
// than observe (frame_hook/observers.h). A tool of sys.monitoring counts from
// when it takes its id: each code knows which watch it (set_local_events).
bool is_traced(PyThreadState* thread);

// At the first instruction of a frame that is watched, 3.11 makes pending calls
// until there are none: one that asks for itself again would never end.
bool pending_calls_repeat(PyThreadState* thread);

// Do Python's signal handlers and pending calls run on this thread?
bool can_handle_signals();

// Would the interpreter do something else before it goes back in a loop: handle
// a signal, make a pending call, collect garbage, raise what another thread has
// set, give the GIL away?
bool has_pending_work(PyThreadState* thread);
// PyThreadState_SetAsyncExc() was called for it.
bool has_async_exception(PyThreadState* thread);

// Python calls this thread may nest until CPython raises RecursionError.
int python_calls_left(PyThreadState* thread);

// ---- extra data of code objects
Py_ssize_t request_code_extra_index(freefunc free);
// Read in place: the hook asks for every frame, the watcher for every new
// function.
inline void* code_extra(PyObject* code, Py_ssize_t index) {
  struct Extras {  // _PyCodeObjectExtra of codeobject.c, 3.11 to 3.13
    Py_ssize_t size;
    void* items[1];
  };
  auto* extras = static_cast<const Extras*>(
      reinterpret_cast<PyCodeObject*>(code)->co_extra);
  bool has = extras && index >= 0 && index < extras->size;
  return has ? extras->items[index] : nullptr;
}
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

// Null outside of Python, and late in its shutdown.
PyThreadState* thread_or_null();

// ---- function watchers (CPython 3.12 and newer)
#if PY_VERSION_HEX >= 0x030C0000
#define FJ_FUNCTION_WATCHERS 1
// Functions that `def` makes of this code from now on have no version, so no
// call site takes one for another. Returns what their version was.
uint32_t take_code_version(PyObject* code);
void give_code_version(PyObject* code, uint32_t version);
// A function whose vectorcall was set has no version. 3.12 gives it a new one
// when next a call of it is specialised; newer ones must be given it.
void renew_function_version(PyObject* function);
// For a code that is dying: CPython's table of versions, which knows a code by
// its first version only, forgets it.
void forget_code_versions(PyObject* code);
// Every object the collector knows, frozen ones too (gc.freeze). The visitor
// makes and destroys none.
void visit_objects(gcvisitobjects_t visit, void* argument);
#else
#define FJ_FUNCTION_WATCHERS 0
#endif

}  // namespace framejit::internals
