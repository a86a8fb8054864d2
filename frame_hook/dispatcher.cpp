#include "frame_hook/dispatcher.h"

#include <pthread.h>
#include <algorithm>

#include <exception>
#include <new>
#include <optional>
#include <utility>

#include "frame_hook/break_reason.h"
#include "frame_hook/call_array.h"
#include "frame_hook/cpython_internals.h"
#include "frame_hook/event_log.h"
#include "frame_hook/failing_graphs.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/interjections.h"
#include "frame_hook/native_stack.h"
#include "frame_hook/notices.h"
#include "frame_hook/options.h"
#include "frame_hook/program_code.h"
#include "frame_hook/python_text.h"

namespace framejit {

size_t detail::graph_runs = 0;

// What is to be told of how a call ends.
struct detail::BegunCall {
  std::shared_ptr<bool> completed;  // of an entry, or of an attempt in vain
  struct Failure {
    Ref code;
    std::string function, text;
    std::weak_ptr<bool> entry;  // its `completed`
  };
  std::optional<Failure> failure;
  std::shared_ptr<RaiseBackOff> back_off;  // of an attempt, or passed over
  bool passed_over = false;

  void tell_back_off(bool returned) const {
    if (!back_off) return;
    if (passed_over) {
      back_off->passed_over_ended(returned);
    } else {
      back_off->attempt_ended(returned);
    }
  }
};

namespace {

using detail::graph_runs;

Compiler* current_compiler = nullptr;
Stance own_stance = Stance::kDefault;
Stance other_stance = Stance::kDefault;
Stance stance = Stance::kDefault;  // in force
std::string (*exception_text)() = nullptr;
RecompileLimitRules limit_rules = {nullptr, nullptr};

RecompileLimit recompile_limit(const void* compile_options) {
  if (limit_rules.of) return limit_rules.of(compile_options);
  return {static_cast<size_t>(options().recompile_limit), false};
}

PyObject* function_code(PyObject* function) {
  return reinterpret_cast<PyFunctionObject*>(function)->func_code;
}

// An error inside FrameJIT before anything was changed.
DispatchOutcome internal_failure(PyObject* function, const char* where,
                                 const std::string& text, PyObject** result) {
  ++event_counters().failures;
  std::string message = "internal error while " + std::string(where) + " " +
                        describe_function(function) + ": " + text;
  log_notice(Notice::kInternalError, function_code(function), message);
  if (!options().strict) {
    return DispatchOutcome::kRunOriginal;
  }
  *result = nullptr;
  set_internal_error(message);
  return DispatchOutcome::kResult;
}

// Is the pending error what a signal handler raised?
bool is_interruption() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (value && traceback) PyException_SetTraceback(value, traceback);
  bool answer = value && raised_by_handler(value);
  PyErr_Restore(type, value, traceback);
  return answer;
}

constexpr char kOwnMistake[] = "FrameJIT: ";

// Is the pending error one of set_internal_error()? (str() would look for
// signals, whose handlers may raise.)
bool is_own_mistake() {
  if (!PyErr_ExceptionMatches(PyExc_RuntimeError)) return false;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  PyObject* args =
      value ? reinterpret_cast<PyBaseExceptionObject*>(value)->args : nullptr;
  bool answer = args && PyTuple_GET_SIZE(args) == 1 &&
                text_of(PyTuple_GET_ITEM(args, 0)).starts_with(kOwnMistake);
  PyErr_Restore(type, value, traceback);
  return answer;
}

// The executor failed before its commit: eager raises its own error, unless
// the failure is a request to stop, which running again would lose.
DispatchOutcome rejected_by_executor(PyObject* function,
                                     std::weak_ptr<bool> entry,
                                     PyObject** result, CallEnd* end) {
  *result = nullptr;
  if (is_interruption()) {
    return raise_in_next_code() ? DispatchOutcome::kRunOriginal
                                : DispatchOutcome::kResult;
  }
  if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) {
    return DispatchOutcome::kResult;
  }
  if (options().strict && PyErr_Occurred() && is_own_mistake())
    return DispatchOutcome::kResult;
  std::string text = take_error_text();
  end->begun().failure = {Ref::borrow(function_code(function)),
                          describe_function(function), std::move(text),
                          std::move(entry)};
  return DispatchOutcome::kRunOriginal;
}

// Mistakes count towards the limit, so that they end. The error stays set.
void forget_mistaken(CacheEntry* entry, PyObject* function,
                     const void* options) {
  CodeCache* cache = find_code_cache(PyFunction_GET_CODE(function), options);
  if (!cache || !cache->remove(entry)) return;
  *cache->add_failed_attempt() = true;
}

// Owns what a running entry was given and has made.
struct HeldObjects {
  HeldObjects(PyObject** objects, uint32_t count)
      : objects(objects), count(count) {
    // Backwards: the guards have just read the last ones.
    for (uint32_t i = count; i > 0; --i) Py_XINCREF(objects[i - 1]);
  }
  ~HeldObjects() {
    if (!PyErr_Occurred()) {
      release();
    } else {
      ErrorGuard error;
      release();
    }
  }
  void release() {
    for (uint32_t i = 0; i < count; ++i) Py_XDECREF(objects[i]);
  }
  PyObject** objects;
  uint32_t count;
};

RunStatus run_executor(CacheEntry* entry, PyObject** objects, int64_t* symbols,
                       PyObject** outputs) {
  PauseHook pause;
  ++graph_runs;
  try {
    return entry->executor->run(objects, symbols, outputs);
  } catch (...) {
    // Executors report failures as a status: nobody knows whether this one had
    // begun to commit, so nothing may be run again.
    if (!PyErr_Occurred()) {
      PyErr_SetString(PyExc_RuntimeError,
                      ("FrameJIT: " + current_exception_text()).c_str());
    }
    return RunStatus::kFailedInCommit;
  }
}

PyObject* finish_entry(CacheEntry* entry, PyObject** objects, int64_t* symbols,
                       PyObject** outputs, PyObject* function) {
  try {
    return entry->finish(objects, symbols, outputs, function);
  } catch (...) {
    if (!PyErr_Occurred()) {
      PyErr_SetString(PyExc_RuntimeError,
                      ("FrameJIT: " + current_exception_text()).c_str());
    }
    return nullptr;
  }
}

// A predicate of `entry` held: objects and symbols are filled in.
[[gnu::noinline]] DispatchOutcome run_entry_once(
    CacheEntry* entry, PyObject* function, const void* options,
    PyObject** objects, int64_t* symbols, PyObject** result, CallEnd* end) {
  if (!failing_graphs().may_run(entry)) return DispatchOutcome::kRunOriginal;
  ActiveEntry active(entry);
  HeldObjects held(objects, entry->num_objects);
  ObjectArray output_array(entry->num_outputs);
  PyObject** outputs = output_array.data();
  if (entry->executor) {
    switch (run_executor(entry, objects, symbols, outputs)) {
      case RunStatus::kOk:
        failing_graphs().worked(entry);
        break;
      case RunStatus::kFailedBeforeCommit:
        return rejected_by_executor(function, entry->completed, result, end);
      case RunStatus::kMistaken:
        forget_mistaken(entry, function, options);
        return rejected_by_executor(function, {}, result, end);
      case RunStatus::kFailedInCommit:
        *result = nullptr;
        return DispatchOutcome::kResult;
    }
  } else {
    std::fill_n(outputs, entry->num_outputs, nullptr);
  }
  if (entry->finish_runs_code()) {
    HookExtent extent(options);
    *result = finish_entry(entry, objects, symbols, outputs, function);
  } else {
    *result = finish_entry(entry, objects, symbols, outputs, function);
  }
  auto release = [&] {
    for (uint32_t i = 0; i < entry->num_outputs; ++i) Py_XDECREF(outputs[i]);
  };
  if (*result) {
    release();  // no exception that finalizers could lose
  } else {
    ErrorGuard error;
    release();
  }
  return DispatchOutcome::kResult;
}

// An entry that has completed no call yet.
[[gnu::noinline]] DispatchOutcome run_unsettled_entry(
    CacheEntry* entry, PyObject* function, const void* options,
    PyObject** objects, int64_t* symbols, PyObject** result, CallEnd* end) {
  std::shared_ptr<bool> completed = entry->completed;
  if (*completed) entry->settled = true;
  DispatchOutcome outcome =
      run_entry_once(entry, function, options, objects, symbols, result, end);
  // The entry may be gone.
  bool ended = outcome == DispatchOutcome::kResult && !is_token(*result);
  if (!ended) {
    end->begun().completed = std::move(completed);
  } else if (*result) {
    *completed = true;
  }
  return outcome;
}

DispatchOutcome run_entry(CacheEntry* entry, PyObject* function,
                          const void* options, PyObject** objects,
                          int64_t* symbols, PyObject** result, CallEnd* end) {
  if (!entry->settled) [[unlikely]] {
    return run_unsettled_entry(entry, function, options, objects, symbols,
                               result, end);
  }
  return run_entry_once(entry, function, options, objects, symbols, result,
                        end);
}

// Structural evaluation of the entries, most recent first.
bool match_structurally(CodeCache* cache, PyObject* function,
                        PyObject* const* slots, PyObject** result, CallEnd* end,
                        DispatchOutcome* outcome) {
  // A copy: evaluation may run code that changes the cache.
  const std::vector<std::shared_ptr<CacheEntry>> entries = cache->entries();
  for (const std::shared_ptr<CacheEntry>& entry : entries) {
    ObjectArray objects(entry->num_objects);
    SymbolArray symbols(entry->num_symbols);
    if (!entry->match_slow(slots, function, objects.data(), symbols.data())) {
      continue;
    }
    for (size_t i = 0; i < cache->entries().size(); ++i) {
      if (cache->entries()[i] == entry) cache->move_to_front(i);
    }
    ++entry->hits;
    *outcome = run_entry(entry.get(), function, cache->options(),
                         objects.data(), symbols.data(), result, end);
    return true;
  }
  return false;
}

bool compilation_runs = false;
thread_local bool compilation_is_here = false;

CompileRequest request_of(CodeCache* cache, PyObject* function,
                          PyObject* const* slots) {
  CompileRequest request;
  request.function = function;
  request.code = cache->code();
  request.args = slots;
  request.num_args = internals::parameter_slots(
      reinterpret_cast<PyCodeObject*>(cache->code()));
  request.options = cache->options();
  request.cache = cache;
  request.is_resume = code_kind(cache->code()) == CodeKind::kResume;
  return request;
}

enum class MayCompile { kYes, kNo, kAtLimit };

MayCompile may_compile(const CodeCache* cache) {
  if (cache->skip_forever || !current_compiler || is_compiling())
    return MayCompile::kNo;
  if (compilation_runs || low_for_capture() || interruption_waits())
    return MayCompile::kNo;
  size_t limit = recompile_limit(cache->options()).entries;
  bool below =
      cache->num_completed() < limit && cache->num_failed_attempts() < limit;
  return below ? MayCompile::kYes : MayCompile::kAtLimit;
}

void note_limit(CodeCache* cache, PyObject* function, PyObject* const* slots) {
  if (cache->limit_logged) return;
  cache->limit_logged = true;
  std::string reason;
  {
    Interjections interjections;
    CompilingScope compiling;
    reason = current_compiler->explain_miss(request_of(cache, function, slots));
  }
  std::string limit =
      "recompile_limit (" +
      std::to_string(recompile_limit(cache->options()).entries) +
      ") reached for " + describe_function(function) + " (" +
      break_reason_row(BreakReason::kRecompileLimit).id + "): ";
  limit += cache->entries().empty()
               ? "nothing was found to compile in so many calls, others run "
                 "the original code (FRAMEJIT_LOG=graph_breaks says why)"
               : "other calls run the original code";
  log_notice(Notice::kLimit, cache->code(),
             limit + (reason.empty() ? "" : "; this one: " + reason));
}

void note_passing_over(CodeCache* cache, PyObject* function) {
  log_notice(
      Notice::kLimit, cache->code(),
      "recompile_limit (" + std::to_string(cache->short_lived) +
          ") reached for " + describe_function(function) + " (" +
          break_reason_row(BreakReason::kRecompileLimit).id +
          "): compiled anew every few calls, for an object that the compiled "
          "code guards was gone by then (a lambda or local "
          "function that is stored or handed to C code, a model or an "
          "optimizer made in the call); most other calls run the original "
          "code. Make it once, outside");
}

void note_back_off(const CodeCache* cache, PyObject* function) {
  if (std::exchange(cache->raise_back_off()->said, true)) return;
  log_event(Channel::k_recompiles,
            "calls of " + describe_function(function) +
                " raise, each in another way: of those that no entry answers "
                "few are captured from here on (" +
                break_reason_row(BreakReason::kUnsupportedException).id + ")",
            Severity::kInfo);
}

DispatchOutcome run_new_entry(const std::shared_ptr<CacheEntry>& entry,
                              PyObject* function, const void* options,
                              PyObject* const* slots, PyObject** result,
                              CallEnd* end) {
  ObjectArray objects(entry->num_objects);
  SymbolArray symbols(entry->num_symbols);
  bool matches = false;
  for (PredicateFn predicate : entry->predicates) {
    matches = predicate(slots, function, objects.data(), symbols.data()) != 0;
    if (matches) break;
  }
  if (!matches) {
    matches =
        entry->match_slow(slots, function, objects.data(), symbols.data());
  }
  if (!matches) {
    return internal_failure(function, "calling",
                            "a new entry rejects the call it was made for",
                            result);
  }
  ++entry->hits;
  return run_entry(entry.get(), function, options, objects.data(),
                   symbols.data(), result, end);
}

// refuse: says why the call is not compiled. True: it fails, the Python error
// is set.
template <class Refuse>
DispatchOutcome refuse_to_compile(CodeCache* cache, PyObject* function,
                                  PyObject* const* slots, PyObject** result,
                                  Refuse refuse) {
  bool raised = false;
  Interjections interjections;
  {
    CompilingScope compiling;
    raised = refuse(request_of(cache, function, slots));
  }
  Interjections::End end = interjections.end();
  if (end == Interjections::End::kInterrupted) raised = false;
  if (end == Interjections::End::kRaised) raised = true;
  if (!raised) return DispatchOutcome::kRunOriginal;
  *result = nullptr;
  return DispatchOutcome::kResult;
}

// The stance forbids to compile. Code that has never been worth compiling, or
// whose entries are at their limit, does not count.
DispatchOutcome refuse_by_stance(CodeCache* cache, PyObject* function,
                                 PyObject* const* slots, PyObject** result) {
  return refuse_to_compile(cache, function, slots, result,
                           [](const CompileRequest& request) {
                             return current_compiler->refuse(
                                 request, stance == Stance::kFailOnRecompile);
                           });
}

DispatchOutcome refuse_by_limit(CodeCache* cache, PyObject* function,
                                PyObject* const* slots, PyObject** result) {
  RecompileLimit limit = recompile_limit(cache->options());
  if (!limit.is_error) {
    note_limit(cache, function, slots);
    return DispatchOutcome::kRunOriginal;
  }
  return refuse_to_compile(cache, function, slots, result,
                           [limit](const CompileRequest& request) {
                             limit_rules.raise(request, limit.entries);
                             return true;
                           });
}

// The compiler's answer; a C++ exception of it comes as text.
CompileOutcome ask_compiler(const CompileRequest& request, std::string* error) {
  CompilingScope compiling;
  try {
    return current_compiler->compile(request);
  } catch (...) {
    *error = current_exception_text();
    drop_error();
    return {};
  }
}

}  // namespace

WorkEnd run_alone(const std::function<void()>& work, std::string* error) {
  if (is_compiling() || compilation_runs) return WorkEnd::kBusy;
  OnlyCompilation only;
  Interjections interjections;
  {
    CompilingScope compiling;
    try {
      work();
    } catch (...) {
      *error = current_exception_text();
      drop_error();
    }
  }
  switch (interjections.end()) {
    case Interjections::End::kInterrupted:
      return WorkEnd::kInterrupted;
    case Interjections::End::kRaised:
      return WorkEnd::kRaised;
    case Interjections::End::kQuiet:
      break;
  }
  return error->empty() ? WorkEnd::kDone : WorkEnd::kFailed;
}

namespace {

DispatchOutcome compile_and_run(CodeCache* cache, PyObject* function,
                                PyObject* const* slots, PyObject** result,
                                CallEnd* end) {
  CompileRequest request = request_of(cache, function, slots);
  *result = nullptr;
  std::optional<OnlyCompilation> only(std::in_place);
  Interjections interjections;
  std::string error;
  CompileOutcome outcome = ask_compiler(request, &error);
  if (interrupted()) {
    // Destroyed while handlers still wait.
    ErrorGuard pending;
    outcome = {};
  }
  switch (interjections.end()) {
    case Interjections::End::kQuiet:
      break;
    case Interjections::End::kInterrupted:
      return DispatchOutcome::kRunOriginal;
    case Interjections::End::kRaised:
      return DispatchOutcome::kResult;
  }
  if (!error.empty()) {
    *cache->add_failed_attempt() = true;
    return internal_failure(function, "compiling", error, result);
  }
  if (outcome.raise) {
    if (!PyErr_Occurred()) {
      PyErr_SetString(PyExc_RuntimeError, "FrameJIT: compilation failed");
    }
    return DispatchOutcome::kResult;
  }
  if (PyErr_Occurred()) {
    return internal_failure(function, "compiling", take_error_text(), result);
  }
  if (outcome.skip_forever) cache->skip_forever = true;
  cache->hook_callees = outcome.hook_callees;
  if (!outcome.entry) {
    if (outcome.raising) cache->add_raising(std::move(outcome.raising));
    if (!outcome.skip_forever && !outcome.not_now) {
      end->begun().completed = cache->add_failed_attempt();
      end->begun().back_off = cache->raise_back_off();
    }
    return DispatchOutcome::kRunOriginal;
  }
  ++event_counters().compiles;
  if (!cache->entries().empty()) ++event_counters().recompiles;
  size_t limit = recompile_limit(cache->options()).entries;
  cache->limit_others(limit > 0 ? limit - 1 : 0);
  cache->insert(outcome.entry);
  only.reset();  // running the entry may compile what it calls
  std::shared_ptr<RaiseBackOff> back_off = cache->raise_back_off();
  DispatchOutcome ran = run_new_entry(outcome.entry, function, cache->options(),
                                      slots, result, end);
  // The cache may be gone.
  if (ran == DispatchOutcome::kResult && !is_token(*result)) {
    back_off->attempt_ended(*result != nullptr);
  } else {
    end->begun().back_off = std::move(back_off);
  }
  return ran;
}

// Is this call, which no predicate let through, not to be compiled because
// those before it raised? Where a call has to be compiled or fail, none is.
bool passes_over_for_raises(CodeCache* cache) {
  return stance == Stance::kDefault &&
         !recompile_limit(cache->options()).is_error &&
         cache->raise_back_off()->passes_over();
}

// To look through the entries without their predicates costs more than a small
// function. Where nothing is compiled all the same, nothing comes of it but a
// predicate that is armed anew, so after some looks in vain few calls look.
constexpr uint32_t kVainLooks = 16, kCallsALook = 64;
bool is_worth_a_look(CodeCache* cache, bool passed_over) {
  if (cache->entries().empty()) return false;
  if (cache->vain_looks < kVainLooks) return true;
  if (!passed_over &&
      !(cache->limit_logged && may_compile(cache) == MayCompile::kAtLimit))
    return true;
  return ++cache->calls_unlooked % kCallsALook == 0;
}

[[gnu::noinline]] DispatchOutcome dispatch_miss(PyObject* function,
                                                CodeCache* cache,
                                                PyObject* const* slots,
                                                PyObject** result,
                                                CallEnd* end) {
  // The code owns the cache, and code run from here may change the function's.
  Ref code = Ref::borrow(cache->code());
  Ref kept_function = Ref::borrow(function);
  ++cache->misses;
  try {
    DispatchOutcome outcome = DispatchOutcome::kRunOriginal;
    const bool passed_over = passes_over_for_raises(cache);
    if (is_worth_a_look(cache, passed_over)) {
      if (match_structurally(cache, function, slots, result, end, &outcome)) {
        cache->vain_looks = 0;
        return outcome;
      }
      if ((cache->limit_logged || passed_over) &&
          cache->vain_looks < kVainLooks)
        ++cache->vain_looks;
    }
    if (passed_over) {
      note_back_off(cache, function);
      end->begun().back_off = cache->raise_back_off();
      end->begun().passed_over = true;
      return DispatchOutcome::kRunOriginal;
    }
    if (cache->is_known_to_raise(slots, function)) {
      return DispatchOutcome::kRunOriginal;
    }
    switch (may_compile(cache)) {
      case MayCompile::kNo:
        return DispatchOutcome::kRunOriginal;
      case MayCompile::kAtLimit:
        return refuse_by_limit(cache, function, slots, result);
      case MayCompile::kYes:
        break;
    }
    if (stance != Stance::kDefault) {
      return refuse_by_stance(cache, function, slots, result);
    }
    const RecompileLimit limit = recompile_limit(cache->options());
    if (!limit.is_error && cache->passes_over(limit.entries)) {
      note_passing_over(cache, function);
      return DispatchOutcome::kRunOriginal;
    }
    return compile_and_run(cache, function, slots, result, end);
  } catch (...) {
    std::string text = current_exception_text();
    drop_error();
    *cache->add_failed_attempt() = true;
    return internal_failure(function, "matching", text, result);
  }
}

}  // namespace

DispatchOutcome dispatch(PyObject* function, CodeCache* cache,
                         PyObject* const* slots, PyObject** result,
                         CallEnd* end) try {
  ObjectArray object_array(cache->max_objects());
  SymbolArray symbol_array(cache->max_symbols());
  PyObject** objects = object_array.data();
  int64_t* symbols = symbol_array.data();
  const auto& entries = cache->entries();
  for (size_t i = 0, n = entries.size(); i < n; ++i) {
    CacheEntry* entry = entries[i].get();
    for (PredicateFn predicate : entry->predicates) {
      if (!predicate(slots, function, objects, symbols)) continue;
      ++entry->hits;
      if (i != 0) cache->move_to_front(i);
      if (entry->identity_result >= 0) {
        *result = Py_NewRef(objects[entry->identity_result]);
        return DispatchOutcome::kResult;
      }
      return run_entry(entry, function, cache->options(), objects, symbols,
                       result, end);
    }
  }
  return dispatch_miss(function, cache, slots, result, end);
} catch (const std::bad_alloc&) {
  // Only the arrays of a call can get here: nothing has happened yet.
  return DispatchOutcome::kRunOriginal;
}

void set_internal_error(const std::string& text) {
  PyErr_SetString(PyExc_RuntimeError, (kOwnMistake + text).c_str());
}

OnlyCompilation::OnlyCompilation() : ok_(!compilation_runs) {
  // A child of fork() has none of the other threads.
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { compilation_runs = false; });
  (void)registered;
  if (!ok_) return;
  compilation_runs = compilation_is_here = true;
}

OnlyCompilation::~OnlyCompilation() {
  if (ok_) compilation_runs = compilation_is_here = false;
}

bool OnlyCompilation::is_under_way_here() { return compilation_is_here; }

detail::BegunCall& CallEnd::begun() {
  if (!begun_) begun_ = new detail::BegunCall;
  return *begun_;
}

void CallEnd::forget() { delete begun_; }

void CallEnd::tell(bool returned) {
  const std::unique_ptr<detail::BegunCall> begun(
      std::exchange(begun_, nullptr));
  if (begun->completed && returned) *begun->completed = true;
  begun->tell_back_off(returned);
  if (!begun->failure) return;
  PyObject* code = begun->failure->code.get();
  const std::string& text = begun->failure->text;
  ErrorGuard error;
  std::string graph = "graph of " + begun->failure->function;
  if (returned) {
    failing_graphs().failed(begun->failure->entry);
    log_notice(Notice::kOriginalRuns, code,
               graph + " failed, original code runs: " + text);
  } else {
    log_event(Channel::k_fallbacks,
              graph + " failed, as the original code did: " + text,
              Severity::kInfo);
  }
}

bool must_run_original() {
  if (threads_with_attention != 0 && thread_needs_original()) return true;
  PyThreadState* thread = PyThreadState_Get();
  return internals::is_traced(thread) || other_compiler_active(thread);
}

namespace {

void choose_stance() {
  stance = Stance::kDefault;
  for (Stance strict : {Stance::kEagerOnRecompile, Stance::kFailOnRecompile,
                        Stance::kForceEager}) {
    if (own_stance == strict || other_stance == strict) stance = strict;
  }
  force_original(stance == Stance::kForceEager);
}

}  // namespace

void set_stance(Stance value) {
  own_stance = value;
  choose_stance();
}
Stance current_stance() { return own_stance; }

void set_other_stance(Stance value) {
  other_stance = value;
  choose_stance();
}

void set_compiler(Compiler* compiler) { current_compiler = compiler; }
Compiler* compiler() { return current_compiler; }

std::string current_exception_text() {
  if (exception_text) {
    std::string text = exception_text();
    if (!text.empty()) return text;
  }
  try {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  } catch (...) {
    return "unknown C++ exception";
  }
}

void set_exception_text(std::string (*text)()) { exception_text = text; }

void set_recompile_limit(RecompileLimitRules rules) { limit_rules = rules; }

}  // namespace framejit
