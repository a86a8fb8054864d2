// Dispatch: what happens on a warm call, and the interfaces of what it runs.
//
// A code object's cache holds `CacheEntry`s. A call binds its arguments to the
// parameter slots of the code ("args": positional, keyword-only, *args, **kw,
// in localsplus order), tries each entry's native predicates, runs the entry's
// executor with the gathered inputs, and finishes: the entry replays the
// capture's effects and gives the return value, or a *token* (token_marker(),
// function, arguments...) with which the dispatcher's loop goes on: first the
// residual function (runs the breaking instruction, natively, and returns the
// next token), then a resume function (dispatched through its own cache). No
// entry matches: the Compiler is asked once; when it has nothing, the original
// code runs.
//
// This layer knows nothing of guards, graphs or tensors: all is behind these
// abstract classes, plugged together by the Python bindings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "frame_hook/py_ref.h"

namespace framejit {

// True when every guard holds. `args` are the bound parameter slots, `function`
// the PyFunctionObject called. On success `objects` holds borrowed references
// (kept alive by args/function) to the gathered inputs, and `symbols` the
// values of the symbolic ints. Emitted by guards/emit/emit_x64.cpp.
using PredicateFn = int (*)(PyObject* const* args, PyObject* function,
                            PyObject** objects, int64_t* symbols);

enum class RunStatus {
  kOk,
  kFailedBeforeCommit,  // nothing was changed; run the original code
  // The same, and the entry rests on something that is not so: it goes.
  kMistaken,
  kFailedInCommit,  // an error is set and must propagate
};

// Runs one captured graph. Implemented by backend/.
class Executor {
 public:
  virtual ~Executor() = default;
  // inputs: borrowed, in gather order. outputs: receives new references.
  // On failure the Python error is set. Takes its own references to whatever
  // must survive Python code running meanwhile.
  virtual RunStatus run(PyObject* const* inputs, const int64_t* symbols,
                        PyObject** outputs) = 0;

  // Not to be let go of while it runs: what the guards read is written behind
  // it, and another thread's `n += 1` meanwhile would be lost. (That statement
  // is one step of CPython, as good as.)
  bool keeps_gil = false;
};

// One compiled specialisation of a code object.
class CacheEntry {
 public:
  virtual ~CacheEntry() = default;

  // Hot data, read by the dispatcher without a virtual call.
  std::vector<PredicateFn> predicates;  // any one suffices; most recent first
  uint32_t num_objects = 0;             // gathered objects
  uint32_t num_symbols = 0;
  uint32_t num_outputs = 0;
  Executor* executor = nullptr;  // owned by the subclass; null: no tensor work
  // The function's result is gathered object `identity_result` itself, and
  // there is nothing else to do (no executor, no effects): finish() is skipped.
  int32_t identity_result = -1;

  // Structural evaluation after every predicate failed. True: the facts hold,
  // objects/symbols are filled in and a predicate was re-armed or added.
  // False: a real miss. Never leaves a Python error set.
  virtual bool match_slow(PyObject* const* args, PyObject* function,
                          PyObject** objects, int64_t* symbols) = 0;
  // Builds the result from the outputs (borrowed): the return value, or a
  // token. New reference, or null with an error set.
  virtual PyObject* finish(PyObject* const* objects, const int64_t* symbols,
                           PyObject* const* outputs, PyObject* function) = 0;
  // True when finish() runs user code (a residual function): the frame hook is
  // then installed for its extent.
  virtual bool finish_runs_code() const = 0;
  uint64_t hits = 0;
  // Has a call that this entry answered, or began, ended without an exception?
  // One whose calls all raise does not count towards the recompile limit.
  // Shared with calls under way, which may outlive the entry.
  std::shared_ptr<bool> completed = std::make_shared<bool>(false);
  bool settled = false;  // *completed, where the warm path sees it
  // Of the last match_slow() that was false: which fact failed first, by the
  // entry's own count.
  static constexpr size_t kUnknownFact = SIZE_MAX;
  size_t failed_fact = kUnknownFact;

  // Executions in progress. An entry taken out of its cache meanwhile (reset,
  // re-entrant calls) keeps itself alive until the last one ends; so a call
  // costs no shared_ptr traffic. Both belong to the dispatcher.
  uint32_t active = 0;
  std::shared_ptr<CacheEntry> retired_self;
};

class CodeCache;

struct CompileRequest {
  PyObject* function;     // PyFunctionObject, borrowed
  PyObject* code;         // its code object
  PyObject* const* args;  // bound parameter slots (borrowed)
  size_t num_args;
  const void* options;     // the compile() options of the code cache key
  bool is_resume = false;  // the function is one of our resume functions
  // Where the entry will go. The entries in it were asked and do not match:
  // their failed_fact belongs to this call.
  CodeCache* cache = nullptr;
};

// Calls that are known to raise: nothing is compiled for them.
class RaisingCalls {
 public:
  virtual ~RaisingCalls() = default;
  // Is this call one of them? Leaves no error set.
  virtual bool covers(PyObject* const* args, PyObject* function) = 0;
};

struct CompileOutcome {
  std::shared_ptr<CacheEntry> entry;  // null: run the original code this time
  // No entry, for a reason that lies in the thread's state and not in the code:
  // does not count towards the recompile limit.
  bool not_now = false;
  // The call raises, and so do those that these are; or null.
  std::shared_ptr<RaisingCalls> raising;
  bool skip_forever = false;  // nothing to gain in this code: never ask again
  // The original code runs, but what it calls is worth compiling: the frame
  // hook is installed for its extent (the function broke as a whole).
  bool hook_callees = false;
  // Set when the caller must see an exception (fullgraph, strict): the Python
  // error is set.
  bool raise = false;
};

// First item of a token tuple. A private object no user code can reach.
PyObject* token_marker();  // borrowed, immortal (token_loop.cpp)

// Plugged in by framejit/: capture, compile and make the entry. Called with
// the GIL held, never recursively for the same thread. Throws nothing.
class Compiler {
 public:
  virtual ~Compiler() = default;
  virtual CompileOutcome compile(const CompileRequest& request) = 0;
  // A call that no entry matches will not be compiled, by the stance. True:
  // it must fail, the Python error is set.
  virtual bool refuse(const CompileRequest& request, bool raise) {
    return false;
  }
  // A function given to framejit.compile() that is never compiled, for it is a
  // generator or a coroutine. Told once for each code it has.
  virtual void pass_over(PyObject* function, const void* options) {}
  // Why the last entry used does not fit the call, for a log; "": none knows.
  virtual std::string explain_miss(const CompileRequest& request) { return ""; }
};

}  // namespace framejit
