// The token loop: what goes on after a break, one function after the other.
#include <new>
#include <utility>
#include <vector>

#include "frame_hook/break_reason.h"
#include "frame_hook/call_array.h"
#include "frame_hook/cpython_internals.h"
#include "frame_hook/dispatcher.h"
#include "frame_hook/event_log.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/hook_off.h"
#include "frame_hook/interjections.h"
#include "frame_hook/program_code.h"
#include "frame_hook/python_text.h"

namespace framejit {

namespace {

// "FJ410 breaks again and again in a loop"
std::string reason_text(BreakReason reason) {
  const BreakReasonRow& row = break_reason_row(reason);
  return std::string(row.id) + " " + row.title;
}

// Takes the arguments out of a token: owned references.
void take_arguments(PyObject* token, PyObject** args, size_t count) {
  bool sole_owner = Py_REFCNT(token) == 1;
  // With its items gone the tuple must be invisible to the collector.
  if (sole_owner && PyObject_GC_IsTracked(token)) PyObject_GC_UnTrack(token);
  for (size_t i = 0; i < count; ++i) {
    PyObject*& item = reinterpret_cast<PyTupleObject*>(token)->ob_item[i + 2];
    args[i] = sole_owner ? std::exchange(item, nullptr) : Py_NewRef(item);
  }
}

// The turns of one call that came to a resume function and ran no graph in it:
// a loop of such breaks is quicker in CPython.
class IdleTurns {
 public:
  // True: once too often.
  bool add(const CodeCache* cache) {
    for (auto& [known, count] : counts_) {
      if (known == cache) return ++count > kLimit;
    }
    counts_.emplace_back(cache, 1);
    return false;
  }

 private:
  static constexpr int kLimit = 64;
  std::vector<std::pair<const CodeCache*, int>> counts_;
};

void leave_to_cpython(CodeCache* cache, PyObject* function) {
  cache->left_to_cpython = true;
  log_event(Channel::k_graph_breaks,
            reason_text(BreakReason::kLoopOfBreaks) +
                " without tensor work: the rest of " +
                describe_code(PyFunction_GET_CODE(function)) +
                " is left to CPython");
}

// What the steps of one call have begun.
class BegunSteps {
 public:
  // Whoever comes to the same code again has completed a turn of a loop: what
  // was compiled for that counts towards the limit.
  DispatchOutcome dispatch(PyObject* function, CodeCache* cache,
                           PyObject* const* slots, PyObject** result) {
    for (auto& [before, end] : steps_)
      if (before == cache) end.end(Py_None);
    std::erase_if(steps_,
                  [&](const auto& step) { return step.first == cache; });
    CallEnd end;
    DispatchOutcome outcome =
        framejit::dispatch(function, cache, slots, result, &end);
    if (end.is_awaited()) steps_.emplace_back(cache, std::move(end));
    return outcome;
  }
  void end(PyObject* result) {
    for (auto& [cache, end] : steps_) end.end(result);
  }

 private:
  std::vector<std::pair<const CodeCache*, CallEnd>> steps_;
};

// One step of the token loop: `args` are owned and given up.
PyObject* run_token_function(PyObject* function, PyObject** args, size_t count,
                             const void* options, IdleTurns& idle,
                             BegunSteps& begun) {
  PyObject* code = PyFunction_GET_CODE(function);
  PyObject* result = nullptr;
  // What waits to be raised is raised by CPython, at a place of the program.
  PyThreadState* thread = PyThreadState_Get();
  const bool raises =
      interruption_waits() || internals::has_async_exception(thread);
  if (code_kind(code) == CodeKind::kResume && !raises && !must_run_original() &&
      internals::parameter_slots(reinterpret_cast<PyCodeObject*>(code)) ==
          static_cast<int>(count)) {
    CodeCache* cache = code_cache(code, options);
    size_t runs_before = num_graph_runs();
    if (cache && !cache->left_to_cpython &&
        begun.dispatch(function, cache, args, &result) ==
            DispatchOutcome::kResult) {
      if (num_graph_runs() == runs_before && is_token(result) &&
          idle.add(cache)) {
        leave_to_cpython(cache, function);
      }
      ErrorGuard error;
      for (size_t i = 0; i < count; ++i) Py_CLEAR(args[i]);
      return result;
    }
  }
  if (runs_without_hook(code)) {
    HookOff off;
    return call_owned(function, args, count);
  }
  HookExtent extent(options);
  return call_owned(function, args, count);
}

}  // namespace

PyObject* run_tokens(PyObject* result, const void* options, CallEnd first) try {
  BegunSteps begun;
  IdleTurns idle;
  while (is_token(result)) {
    if (!do_pending_work(PyThreadState_Get())) {
      ErrorGuard error;
      Py_CLEAR(result);
      break;
    }
    size_t count = PyTuple_GET_SIZE(result) - 2;
    Ref function = Ref::borrow(PyTuple_GET_ITEM(result, 1));
    if (!PyFunction_Check(function.get())) {
      Py_DECREF(result);
      PyErr_SetString(PyExc_RuntimeError, "FrameJIT: malformed token");
      return nullptr;
    }
    ObjectArray args(count);
    take_arguments(result, args.data(), count);
    Py_DECREF(result);
    result = run_token_function(function.get(), args.data(), count, options,
                                idle, begun);
  }
  first.end(result);
  begun.end(result);
  return result;
} catch (const std::bad_alloc&) {
  Py_XDECREF(result);
  return PyErr_NoMemory();
}

PyObject* token_marker() {
  static PyObject* marker = made_once(new_marker);
  return marker;
}

}  // namespace framejit
