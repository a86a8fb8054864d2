#include "frame_hook/function_watcher.h"

#include <new>
#include <utility>

#include "frame_hook/argument_binding.h"
#include "frame_hook/code_cache.h"
#include "frame_hook/cpython_internals.h"
#include "frame_hook/dispatcher.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/native_stack.h"
#include "frame_hook/script_mode.h"

namespace framejit {

#if FJ_FUNCTION_WATCHERS

namespace {

int watcher_id = -1;
vectorcallfunc own_vectorcall = nullptr;  // CPython's

PyObject* watched_call(PyObject* callable, PyObject* const* args, size_t nargsf,
                       PyObject* kwnames);

PyFunctionObject* function_of(PyObject* object) {
  return reinterpret_cast<PyFunctionObject*>(object);
}

// CPython does not export its vectorcall of functions; each function has it.
bool find_own_vectorcall() {
  if (own_vectorcall) return true;
  Ref code =
      Ref::steal(reinterpret_cast<PyObject*>(PyCode_NewEmpty("", "f", 1)));
  Ref globals = Ref::steal(PyDict_New());
  if (!code || !globals) return false;
  Ref function = Ref::steal(PyFunction_New(code.get(), globals.get()));
  if (function) own_vectorcall = function_of(function.get())->vectorcall;
  return function && own_vectorcall;
}

// Will calls of this code be passed on, all of them?
bool is_settled(const CodeMemory& memory) {
  return script_skips(memory) ||
         (memory.hopeless_with &&
          memory.hopeless_with == script_mode_options());
}

// Code whose calls could be dispatched, as far as it says itself: functions
// only (class and module bodies have no CO_OPTIMIZED), no generators.
bool may_be_dispatched(PyObject* code) {
  auto* code_object = reinterpret_cast<PyCodeObject*>(code);
  return (code_object->co_flags & CO_OPTIMIZED) &&
         !internals::is_generator_like(code_object);
}

bool is_worth_watching(PyObject* code) {
  if (!may_be_dispatched(code)) return false;
  const CodeMemory* memory = find_code_memory(code);
  if (!memory) return true;
  return !is_settled(*memory) && code_kind(code) == CodeKind::kUser;
}

void give_version_back(PyObject* code, CodeMemory& memory) {
  if (memory.taken_version == 0) return;
  internals::give_code_version(code, std::exchange(memory.taken_version, 0));
}

// CPython's own slot again, and a version.
void let_go(PyFunctionObject* function) {
  if (function->vectorcall != watched_call) return;
  PyFunction_SetVectorcall(function, own_vectorcall);
  if (CodeMemory* memory = code_memory(function->func_code)) {
    memory->watched = true;
    internals::renew_function_version(reinterpret_cast<PyObject*>(function));
  }
}

void watch_function(PyFunctionObject* function) {
  if (function->vectorcall != own_vectorcall) return;
  PyFunction_SetVectorcall(function, watched_call);
}

PyObject* call_own(PyObject* callable, PyObject* const* args, size_t nargsf,
                   PyObject* kwnames) {
  return internals::call_uncounted(own_vectorcall, callable, args, nargsf,
                                   kwnames);
}

// Stubs nest on the native stack, inlined calls do not: without its stub the
// function goes on as deep as CPython lets it, and what is left of the stack is
// for calls that must nest.
PyObject* call_own_without_stub(PyObject* callable, PyObject* const* args,
                                size_t nargsf, PyObject* kwnames) {
  Ref kept = Ref::borrow(callable);
  PyFunctionObject* function = function_of(callable);
  let_go(function);
  PyObject* result = internals::call_with_low_stack(own_vectorcall, callable,
                                                    args, nargsf, kwnames);
  if (watches_functions() && is_worth_watching(function->func_code)) {
    watch_function(function);
  }
  return result;
}

// A call whose arguments are bound. True: answered, perhaps by a token.
bool answer(PyObject* function, PyObject* code, PyObject* const* slots,
            size_t count, ScriptChoice* choice, PyObject** result,
            CallEnd* end) {
  *choice = script_choice(function, code, slots, count);
  if (*choice != ScriptChoice::kDispatch ||
      internals::is_traced(PyThreadState_Get()) ||
      function_of(function)->func_code != code) {
    return false;
  }
  const void* options = script_mode_options();
  CodeCache* cache = options ? code_cache(code, options) : nullptr;
  if (!cache) return false;
  if (dispatch(function, cache, slots, result, end) ==
      DispatchOutcome::kResult) {
    return true;
  }
  // Asked anew: a compilation may have cleared everything.
  cache = find_code_cache(code, options);
  if (cache && cache->is_hopeless()) {
    if (CodeMemory* memory = code_memory(code)) memory->hopeless_with = options;
  }
  return false;
}

// The call of a function whose code is not settled.
[[gnu::noinline]] PyObject* look_at_call(PyObject* callable,
                                         PyObject* const* args, size_t nargsf,
                                         PyObject* kwnames) {
  Ref kept_function = Ref::borrow(callable);
  PyFunctionObject* function = function_of(callable);
  Ref code = Ref::borrow(function->func_code);
  auto* code_object = reinterpret_cast<PyCodeObject*>(code.get());
  const void* options = script_mode_options();
  size_t nargs = PyVectorcall_NARGS(nargsf);
  ScriptChoice choice = ScriptChoice::kPass;
  PyObject* result = nullptr;
  bool answered = false;
  CallEnd end;
  if (static_cast<Py_ssize_t>(nargs) == plain_parameters(code_object) &&
      (!kwnames || PyTuple_GET_SIZE(kwnames) == 0)) {
    answered =
        answer(callable, code.get(), args, nargs, &choice, &result, &end);
  } else {
    // Gone before the original runs: it sees the references it always sees.
    BoundArguments bound;
    try {
      answered = bound.bind(function, args, nargs, kwnames) &&
                 answer(callable, code.get(), bound.slots(), bound.size(),
                        &choice, &result, &end);
    } catch (const std::bad_alloc&) {
    }
  }
  if (answered) return run_tokens(result, options, std::move(end));
  if (choice == ScriptChoice::kSuspend) {
    suspend_thread();
    result = call_own(callable, args, nargsf, kwnames);
    resume_thread();
    return result;
  }
  CodeMemory* memory = find_code_memory(code.get());
  if (memory && is_settled(*memory)) {
    give_version_back(code.get(), *memory);
    if (function->func_code == code.get()) let_go(function);
  }
  result = call_own(callable, args, nargsf, kwnames);
  end.end(result);
  return result;
}

// The stub.
PyObject* watched_call(PyObject* callable, PyObject* const* args, size_t nargsf,
                       PyObject* kwnames) {
  PyFunctionObject* function = function_of(callable);
  if (watcher_id < 0 || !is_worth_watching(function->func_code)) {
    let_go(function);
    return call_own(callable, args, nargsf, kwnames);
  }
  if (native_stack_half_used()) [[unlikely]] {
    return call_own_without_stub(callable, args, nargsf, kwnames);
  }
  if (!script_applies_here()) return call_own(callable, args, nargsf, kwnames);
  return look_at_call(callable, args, nargsf, kwnames);
}

void watch_new_function(PyFunctionObject* function) {
  PyObject* code = function->func_code;
  CodeMemory* memory = find_code_memory(code);
  if (memory && is_settled(*memory)) return give_version_back(code, *memory);
  if (function->vectorcall != own_vectorcall || !may_be_dispatched(code) ||
      code_kind(code) != CodeKind::kUser || !(memory = code_memory(code))) {
    return;
  }
  // The function gets the code's version after this event, and a call site
  // specialised for the version would not come to the stub.
  if (uint32_t version = internals::take_code_version(code)) {
    memory->taken_version = version;
    memory->watched = true;
  }
  PyFunction_SetVectorcall(function, watched_call);
}

int on_event(PyFunction_WatchEvent event, PyFunctionObject* function,
             PyObject* value) {
  if (event == PyFunction_EVENT_DESTROY) return 0;
  if (event == PyFunction_EVENT_CREATE) {
    watch_new_function(function);
  } else if (event == PyFunction_EVENT_MODIFY_CODE && value &&
             PyCode_Check(value) && is_worth_watching(value)) {
    watch_function(function);
  }
  return 0;
}

}  // namespace

bool watch_functions() {
  if (watcher_id >= 0) return true;
  if (!find_own_vectorcall() ||
      (watcher_id = PyFunction_AddWatcher(on_event)) < 0) {
    PyErr_Clear();
    return false;
  }
  watch_all_functions();
  return true;
}

void unwatch_functions() {
  if (watcher_id < 0) return;
  if (PyFunction_ClearWatcher(watcher_id) < 0) PyErr_Clear();
  watcher_id = -1;
  auto visit = [](PyObject* object, void*) {
    if (PyFunction_Check(object)) let_go(function_of(object));
    return 1;
  };
  internals::visit_objects(visit, nullptr);
  for_each_code_memory(give_version_back);
}

bool watches_functions() { return watcher_id >= 0; }

void watch_all_functions() {
  auto visit = [](PyObject* object, void*) {
    if (PyFunction_Check(object) &&
        is_worth_watching(function_of(object)->func_code)) {
      watch_function(function_of(object));
    }
    return 1;
  };
  internals::visit_objects(visit, nullptr);
}

PyObject* call_unwatched(PyObject* function, PyObject* const* args,
                         size_t nargsf, PyObject* kwnames) {
  if (function_of(function)->vectorcall == watched_call) {
    return own_vectorcall(function, args, nargsf, kwnames);
  }
  return PyObject_Vectorcall(function, args, nargsf, kwnames);
}

bool is_watched_function(PyObject* function) {
  return PyFunction_Check(function) &&
         function_of(function)->vectorcall == watched_call;
}

#else

bool watch_functions() { return false; }
void unwatch_functions() {}
bool watches_functions() { return false; }
void watch_all_functions() {}
PyObject* call_unwatched(PyObject* function, PyObject* const* args,
                         size_t nargsf, PyObject* kwnames) {
  return PyObject_Vectorcall(function, args, nargsf, kwnames);
}
bool is_watched_function(PyObject*) { return false; }

#endif

}  // namespace framejit
