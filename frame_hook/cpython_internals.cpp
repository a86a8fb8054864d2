// The only file that includes CPython's core headers for frames.
#define PY_SSIZE_T_CLEAN
#define Py_BUILD_CORE 1
#include <Python.h>
#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030E0000 || \
    defined(Py_GIL_DISABLED)
#error \
    "FrameJIT supports CPython 3.11, 3.12 and 3.13 with the GIL: docs/versions.md"
#endif
// 3.11 and 3.12 include <stdatomic.h> here, which does not compile as C++.
#undef HAVE_STD_ATOMIC
#if PY_VERSION_HEX >= 0x030D0000
#include <internal/pycore_ceval.h>
#endif
#include <internal/pycore_frame.h>
#include <internal/pycore_interp.h>
#include <internal/pycore_pystate.h>
#undef Py_BUILD_CORE

#include <algorithm>
#include <climits>
#include <cstdint>
#include <iterator>
#include <utility>

#include "frame_hook/cpython_internals.h"

#include "frame_hook/generator_calls.h"
#include "frame_hook/native_stack.h"
#include "frame_hook/observers.h"

#define FJ_PYTHON_312 (PY_VERSION_HEX >= 0x030C0000)
#define FJ_PYTHON_313 (PY_VERSION_HEX >= 0x030D0000)

namespace framejit::internals {
namespace {

#if FJ_PYTHON_312
// What one entry into the evaluation loop takes of the C-recursion budget
// (PY_EVAL_C_STACK_UNITS in ceval.c): an inlined call would not have taken it.
constexpr int kHookRecursionUnits = 2;
// What a unit takes of the native stack, in bytes: 3.13 allows 10,000 of them
// on one of 8 MiB.
constexpr size_t kRecursionUnitBytes = 1024;
#endif

#if FJ_PYTHON_312 && !FJ_PYTHON_313
// _PyThreadState_PopFrame, which 3.12 does not export.
void pop_frame(PyThreadState* thread, _PyInterpreterFrame* frame) {
  PyObject** base = reinterpret_cast<PyObject**>(frame);
  _PyStackChunk* chunk = thread->datastack_chunk;
  if (base != &chunk->data[0]) {
    thread->datastack_top = base;
    return;
  }
  _PyStackChunk* previous = chunk->previous;
  thread->datastack_top = &previous->data[previous->top];
  thread->datastack_chunk = previous;
  thread->datastack_limit = reinterpret_cast<PyObject**>(
      reinterpret_cast<char*>(previous) + previous->size);
  PyObjectArenaAllocator allocator;
  PyObject_GetArenaAllocator(&allocator);
  allocator.free(allocator.ctx, chunk, chunk->size);
}
#elif FJ_PYTHON_313
void pop_frame(PyThreadState* thread, _PyInterpreterFrame* frame) {
  _PyThreadState_PopFrame(thread, frame);
}
#endif

}  // namespace

EvalFrame default_eval_frame() { return _PyEval_EvalFrameDefault; }

EvalFrame eval_frame_function(PyInterpreterState* interpreter) {
  return _PyInterpreterState_GetEvalFrameFunc(interpreter);
}

void set_eval_frame_function(PyInterpreterState* interpreter, EvalFrame eval) {
  _PyInterpreterState_SetEvalFrameFunc(interpreter, eval);
}

EvalFrame installed_hook(PyThreadState* thread) {
  return thread->interp->eval_frame;
}

PyObject* frame_function(_PyInterpreterFrame* frame) {
#if FJ_PYTHON_312
  return frame->f_funcobj;
#else
  return reinterpret_cast<PyObject*>(frame->f_func);
#endif
}

PyCodeObject* frame_code(_PyInterpreterFrame* frame) {
#if FJ_PYTHON_313
  return reinterpret_cast<PyCodeObject*>(frame->f_executable);
#else
  return frame->f_code;
#endif
}

PyObject** frame_slots(_PyInterpreterFrame* frame) { return frame->localsplus; }

namespace {

bool is_call(_PyInterpreterFrame* frame, bool of_generator) {
  if (frame->owner != FRAME_OWNED_BY_THREAD) return false;
#if FJ_PYTHON_313
  if (!PyCode_Check(frame->f_executable)) return false;
#endif
  PyObject* function = frame_function(frame);
  if (function == nullptr || !PyFunction_Check(function)) return false;
  PyCodeObject* code = frame_code(frame);
  // Class and module bodies have no CO_OPTIMIZED: their locals are a dict.
  if (is_generator_like(code) != of_generator ||
      !(code->co_flags & CO_OPTIMIZED))
    return false;
  return frame->frame_obj == nullptr && frame->f_locals == nullptr;
}

}  // namespace

bool is_plain_call(_PyInterpreterFrame* frame) { return is_call(frame, false); }
bool is_generator_call(_PyInterpreterFrame* frame) {
  return is_call(frame, true);
}

bool is_module_body(_PyInterpreterFrame* frame) {
  if (frame->owner != FRAME_OWNED_BY_THREAD || frame->f_locals == nullptr ||
      frame->f_locals != frame->f_globals || !PyDict_Check(frame->f_globals)) {
    return false;
  }
  ErrorGuard error;
  Ref spec = Ref::borrow(PyDict_GetItemString(frame->f_globals, "__spec__"));
  if (!spec) return false;
  // importlib sets it while the module's code runs.
  Ref initializing =
      Ref::steal(PyObject_GetAttrString(spec.get(), "_initializing"));
  if (!initializing) PyErr_Clear();
  return initializing.get() == Py_True;
}

PyObject* evaluate(EvalFrame eval, PyThreadState* thread,
                   _PyInterpreterFrame* frame, int throwflag) {
#if FJ_PYTHON_312
  thread->c_recursion_remaining += kHookRecursionUnits;
  PyObject* result = eval(thread, frame, throwflag);
  thread->c_recursion_remaining -= kHookRecursionUnits;
  return result;
#else
  return eval(thread, frame, throwflag);
#endif
}

PyObject* call_uncounted(vectorcallfunc call, PyObject* function,
                         PyObject* const* args, size_t nargsf,
                         PyObject* kwnames) {
#if FJ_PYTHON_312
  PyThreadState* thread = PyThreadState_Get();
  // Beneath a frame hook nothing is inlined, and ours gives back itself.
  if (thread->interp->eval_frame == nullptr) {
    thread->c_recursion_remaining += kHookRecursionUnits;
    PyObject* result = call(function, args, nargsf, kwnames);
    thread->c_recursion_remaining -= kHookRecursionUnits;
    return result;
  }
#endif
  return call(function, args, nargsf, kwnames);
}

PyObject* call_with_low_stack(vectorcallfunc call, PyObject* function,
                              PyObject* const* args, size_t nargsf,
                              PyObject* kwnames) {
#if FJ_PYTHON_312
  PyThreadState* thread = PyThreadState_Get();
  size_t units =
      std::min<size_t>(native_stack_left() / kRecursionUnitBytes, INT_MAX);
  int cut =
      std::max(thread->c_recursion_remaining - static_cast<int>(units), 0);
  thread->c_recursion_remaining -= cut;
  PyObject* result = call(function, args, nargsf, kwnames);
  thread->c_recursion_remaining += cut;
  return result;
#else
  return call(function, args, nargsf, kwnames);
#endif
}

void discard_frame(PyThreadState* thread, _PyInterpreterFrame* frame) {
#if FJ_PYTHON_312
  // The evaluation function owns the frame. One that never ran has no frame
  // object, is not linked and not visible to the collector, so this is all of
  // _PyEval_FrameClearAndPop that is needed. Releasing the references may run
  // code that pushes frames above this one; hence the pop comes last.
  for (int i = 0, n = frame->stacktop; i < n; ++i) {
    Py_XDECREF(frame->localsplus[i]);
  }
  Py_XDECREF(frame->f_locals);
  Py_DECREF(frame->f_funcobj);
  Py_DECREF(reinterpret_cast<PyObject*>(frame_code(frame)));
  pop_frame(thread, frame);
#else
  // The caller of the evaluation function clears the frame.
  (void)thread;
  (void)frame;
#endif
}

Ref own_dict(PyTypeObject* type) {
#if FJ_PYTHON_312
  return Ref::steal(PyType_GetDict(type));
#else
  return Ref::borrow(type->tp_dict);
#endif
}

bool set_instance_dict(PyObject* object, PyObject* dict) {
#if FJ_PYTHON_313
  // Values may lie in the object itself, which only the descriptor that CPython
  // made for the class takes out.
  static PyObject* const name = PyUnicode_InternFromString("__dict__");
  if (!name) return false;
  PyTypeObject* type = Py_TYPE(object);
  PyObject* mro = type->tp_mro;
  const Py_ssize_t count = PyType_HasFeature(type, Py_TPFLAGS_MANAGED_DICT)
                               ? PyTuple_GET_SIZE(mro)
                               : 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    Ref own =
        own_dict(reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i)));
    PyObject* found = own ? PyDict_GetItemWithError(own.get(), name) : nullptr;
    if (!found && PyErr_Occurred()) return false;
    if (found && Py_IS_TYPE(found, &PyGetSetDescr_Type))
      return Py_TYPE(found)->tp_descr_set(found, object, dict) == 0;
  }
#endif
  return PyObject_GenericSetDict(object, dict, nullptr) == 0;
}

PyTypeObject* method_wrapper_type() {
  static PyTypeObject* const type = made_once([] {
    Ref wrapper = Ref::steal(PyObject_GetAttrString(Py_None, "__repr__"));
    if (!wrapper) Py_FatalError("None has no __repr__");
    return reinterpret_cast<PyTypeObject*>(
        Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(wrapper.get()))));
  });
  return type;
}

Ref weak_referent(PyObject* reference) {
#if FJ_PYTHON_313
  PyObject* object = nullptr;
  if (PyWeakref_GetRef(reference, &object) < 0) PyErr_Clear();
  return Ref::steal(object);
#else
  PyObject* object = PyWeakref_GetObject(reference);
  return object == Py_None ? Ref() : Ref::borrow(object);
#endif
}

#if FJ_PYTHON_312
namespace {

// The tools of sys.monitoring that are more than observers, a bit each. Those
// behind sys.settrace and sys.setprofile, which have events of their own, ask
// what is set in the thread.
uint8_t tracing_tools(PyInterpreterState* interpreter, uint8_t tools) {
  uint8_t tracing = 0;
  for (int tool = 0; tool < PY_MONITORING_SYS_PROFILE_ID; ++tool) {
    if (!(tools & (1 << tool))) continue;
    bool observes = false;
    for (PyObject* callback : interpreter->monitoring_callables[tool]) {
      if (!callback) continue;
      observes = is_observer_callback(callback);
      if (!observes) break;
    }
    if (!observes) tracing |= 1 << tool;
  }
  return tracing;
}

}  // namespace
#endif

bool is_traced(PyThreadState* thread) {
  // Not cframe->use_tracing, which is off inside the trace function itself.
  if (thread->c_tracefunc != nullptr) return true;
  if (thread->c_profilefunc != nullptr && !is_observer(thread->c_profileobj)) {
    return true;
  }
#if FJ_PYTHON_312
  uint8_t tools = 0;
  // Global events outlive the id of their tool.
  for (uint8_t monitors : thread->interp->monitors.tools) tools |= monitors;
  const auto& names = thread->interp->monitoring_tool_names;
  for (size_t tool = 0; tool < std::size(names); ++tool) {
    if (names[tool]) tools |= 1 << tool;
  }
  if (tools != 0) return tracing_tools(thread->interp, tools) != 0;
#endif
  return false;
}

bool pending_calls_repeat(PyThreadState* thread) {
#if FJ_PYTHON_312
  return false;
#else
  return thread->c_tracefunc != nullptr || thread->c_profilefunc != nullptr;
#endif
}

bool can_handle_signals() {
  return _Py_ThreadCanHandleSignals(PyInterpreterState_Get());
}

bool has_pending_work(PyThreadState* thread) {
#if FJ_PYTHON_313
  return (_Py_atomic_load_uintptr_relaxed(&thread->eval_breaker) &
          _PY_EVAL_EVENTS_MASK) != 0;
#else
  return _Py_atomic_load_relaxed(&thread->interp->ceval.eval_breaker) != 0;
#endif
}

bool has_async_exception(PyThreadState* thread) {
  return thread->async_exc != nullptr;
}

int python_calls_left(PyThreadState* thread) {
#if FJ_PYTHON_312
  return thread->py_recursion_remaining;
#else
  return thread->recursion_remaining;
#endif
}

Py_ssize_t request_code_extra_index(freefunc free) {
#if FJ_PYTHON_312
  return PyUnstable_Eval_RequestCodeExtraIndex(free);
#else
  return _PyEval_RequestCodeExtraIndex(free);
#endif
}

bool set_code_extra(PyObject* code, Py_ssize_t index, void* extra) {
#if FJ_PYTHON_312
  return PyUnstable_Code_SetExtra(code, index, extra) == 0;
#else
  return _PyCode_SetExtra(code, index, extra) == 0;
#endif
}

PyThreadState* thread_or_null() {
#if FJ_PYTHON_313
  return PyThreadState_GetUnchecked();
#else
  return _PyThreadState_UncheckedGet();
#endif
}

#if FJ_FUNCTION_WATCHERS
uint32_t take_code_version(PyObject* code) {
  return std::exchange(reinterpret_cast<PyCodeObject*>(code)->co_version, 0);
}

void give_code_version(PyObject* code, uint32_t version) {
  reinterpret_cast<PyCodeObject*>(code)->co_version = version;
}

void renew_function_version(PyObject* function) {
#if FJ_PYTHON_313
  uint32_t& next = PyInterpreterState_Get()->func_state.next_version;
  if (next == 0) return;  // they are used up
  _PyFunction_SetVersion(reinterpret_cast<PyFunctionObject*>(function), next++);
#else
  (void)function;
#endif
}

void forget_code_versions(PyObject* code) {
#if FJ_PYTHON_313
  // Codes die late in interpreter shutdown, too.
  PyThreadState* thread = thread_or_null();
  if (!thread) return;
  for (auto& item : thread->interp->func_state.func_version_cache) {
    if (item.code == code) item = {};
  }
#else
  (void)code;
#endif
}

void visit_objects(gcvisitobjects_t visit, void* argument) {
  PyUnstable_GC_VisitObjects(visit, argument);
  PyGC_Head* frozen = &PyInterpreterState_Get()->gc.permanent_generation.head;
  for (PyGC_Head* item = _PyGCHead_NEXT(frozen); item && item != frozen;
       item = _PyGCHead_NEXT(item)) {
    visit(reinterpret_cast<PyObject*>(item + 1), argument);
  }
}
#endif

}  // namespace framejit::internals
