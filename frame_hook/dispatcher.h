// The dispatcher: entries, compilation on a miss, and the token loop.
//
// dispatch() answers one call whose arguments are bound, or says that the
// caller must run the original code (only the caller knows how: a native call
// or the frame at hand). A result may be a token; run_tokens() then goes on,
// residual function by resume function, in a flat loop (token_loop.cpp):
// nothing nests however many breaks follow. What goes wrong inside FrameJIT
// ends here: it is logged and the original code runs; in strict mode it raises.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "frame_hook/code_cache.h"
#include "frame_hook/dispatch.h"

namespace framejit {

enum class DispatchOutcome {
  kResult,       // *result: value or token (new), or null with an error set
  kRunOriginal,  // nothing happened; no error is set
};

class CallEnd;
// Answers a call of `function`, whose code owns `cache`. slots: its bound
// parameter slots, kept alive by the caller. end: what the call has begun,
// where it goes on: the result is a token, or the original code is to run.
DispatchOutcome dispatch(PyObject* function, CodeCache* cache,
                         PyObject* const* slots, PyObject** result,
                         CallEnd* end);

inline bool is_token(PyObject* result) {
  return result != nullptr && PyTuple_CheckExact(result) &&
         PyTuple_GET_SIZE(result) >= 2 &&
         PyTuple_GET_ITEM(result, 0) == token_marker();
}
// Takes over `result`; returns it unless it is a token. first: of dispatch().
PyObject* run_tokens(PyObject* result, const void* options, CallEnd first);

namespace detail {
extern size_t graph_runs;
struct BegunCall;
}  // namespace detail
// Graphs run so far, of all functions: who wants to know whether one ran
// compares.
inline size_t num_graph_runs() { return detail::graph_runs; }

// What goes on with a call after dispatch(): tells the entry that began it, or
// the attempt that found nothing to compile, whether it ended without an
// exception; those of calls that raise do not count towards the recompile
// limit. And says that a graph failed, which is worth a warning only where the
// original code does not raise, too. Empty where nobody wants to know.
class CallEnd {
 public:
  CallEnd() = default;
  CallEnd(CallEnd&& other) noexcept
      : begun_(std::exchange(other.begun_, nullptr)) {}
  CallEnd& operator=(CallEnd&& other) noexcept {
    std::swap(begun_, other.begun_);
    return *this;
  }
  ~CallEnd() {
    if (begun_) [[unlikely]]
      forget();
  }
  bool is_awaited() const { return begun_ != nullptr; }
  void end(PyObject* result) {  // null: raised
    if (begun_) [[unlikely]]
      tell(result != nullptr);
  }
  detail::BegunCall& begun();  // made when missing

 private:
  void tell(bool returned);
  void forget();

  detail::BegunCall* begun_ = nullptr;
};

// One compilation at a time in the process, that of a backward included: a
// capture is exclusive, and a thread that waited for another could wait for
// itself (user code runs in backends). What would compile on other threads does
// without meanwhile, and remembers nothing of it: calls run the original code,
// so that a miss makes one entry. The GIL guards it.
class OnlyCompilation {
 public:
  OnlyCompilation();
  ~OnlyCompilation();
  OnlyCompilation(const OnlyCompilation&) = delete;
  OnlyCompilation& operator=(const OnlyCompilation&) = delete;
  // False: another one runs.
  bool ok() const { return ok_; }
  // One runs on this thread: nothing here may wait for it to end.
  static bool is_under_way_here();

 private:
  bool ok_;
};

// Is this thread one whose calls must run the original code now?
bool must_run_original();

// What a miss does, for the whole process (framejit.set_stance).
enum class Stance : uint8_t {
  kDefault,           // compiles
  kForceEager,        // every call runs the original code
  kEagerOnRecompile,  // entries answer, nothing is compiled
  kFailOnRecompile,   // a call that would have to be compiled raises
};
void set_stance(Stance stance);
Stance current_stance();
// What another compiler was told in the same words holds here, too: the
// stricter of the two is in force.
void set_other_stance(Stance stance);

// How many entries a code may have is the process-wide option's, or what the
// owner of the compile() options says here.
struct RecompileLimit {
  size_t entries;
  bool is_error;  // beyond it calls raise; otherwise the original code runs
};
struct RecompileLimitRules {
  RecompileLimit (*of)(const void* options);
  // Sets the Python error for a call beyond the limit.
  void (*raise)(const CompileRequest& request, size_t limit);
};
void set_recompile_limit(RecompileLimitRules rules);

// Something that is compiled, and is no call of a compiled function: an export.
// `work` runs as the compiler does, alone. It may set a Python error, and
// throw.
enum class WorkEnd : uint8_t {
  kDone,
  kBusy,         // another thread compiles, or this one does: nothing was done
  kFailed,       // it threw: `error` says what
  kInterrupted,  // by a handler of a signal: nothing that was made is to be
                 // used
  kRaised,       // the same, and the error is set
};
WorkEnd run_alone(const std::function<void()>& work, std::string* error);

void set_compiler(Compiler* compiler);  // not owned; null: compile nothing
Compiler* compiler();

// Sets the Python error for a mistake of FrameJIT's own, found while a graph
// ran. Where nothing was changed yet, the original code runs all the same; in
// strict mode it raises.
void set_internal_error(const std::string& text);

// The text of the C++ exception being handled. Layers above add their own
// exception types through set_exception_text, called inside a handler; it
// returns "" for a type it does not know.
std::string current_exception_text();
void set_exception_text(std::string (*text)());

}  // namespace framejit
