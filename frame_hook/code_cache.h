// The code cache: what was compiled for a (code object, compile options) pair.
//
// It lives in the code object's extra data, so all functions of one code share
// it and it goes when the code goes. Entries are kept in order of last use.
// Taking an entry out while it runs retires it: it is destroyed when the last
// execution ends. The same extra data says what kind of code this is: the
// user's, a residual function's or a resume function's.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "frame_hook/cpython_internals.h"
#include "frame_hook/dispatch.h"
#include "frame_hook/line_table.h"
#include "frame_hook/raise_back_off.h"

namespace framejit {

enum class CodeKind : uint8_t {
  kUser,
  kResidual,  // run natively by the dispatcher; may return the next token
  kResume,    // dispatched through its own cache
};

class CodeCache {
 public:
  CodeCache(PyObject* code, const void* options)
      : code_(code), options_(options) {}
  ~CodeCache() { clear(); }
  CodeCache(const CodeCache&) = delete;
  CodeCache& operator=(const CodeCache&) = delete;

  PyObject* code() const { return code_; }  // borrowed: it owns this cache
  const void* options() const { return options_; }
  const std::vector<std::shared_ptr<CacheEntry>>& entries() const {
    return entries_;
  }
  void insert(std::shared_ptr<CacheEntry> entry);  // as the most recent
  void move_to_front(size_t index);
  bool remove(CacheEntry* entry);  // false: not here
  // Of those that count towards the recompile limit.
  size_t num_completed() const;
  // Takes out the least recent of the other entries, beyond so many.
  void limit_others(size_t count);

  // An attempt that gave neither entry nor verdict. It counts towards the limit
  // once the result is set true: when its call has ended without an exception.
  std::shared_ptr<bool> add_failed_attempt();
  size_t num_failed_attempts() const;

  // Calls known to raise, a few kinds of them; most recent first.
  void add_raising(std::shared_ptr<RaisingCalls> calls);
  bool is_known_to_raise(PyObject* const* slots, PyObject* function);
  // Takes every entry out and forgets all verdicts (reset()).
  void clear();

  // An object that the entry guards is gone. It answered few calls? Then what
  // is guarded may be made anew every few calls.
  void note_death(const CacheEntry& entry);
  // After `limit` such entries in a row few calls are compiled, fewer the
  // longer it goes on. Counts this call.
  bool passes_over(size_t limit);
  // Shared with calls under way, which may outlive the cache.
  const std::shared_ptr<RaiseBackOff>& raise_back_off() const {
    return raise_back_off_;
  }

  // No call will be answered: nothing is there and nothing will be made.
  bool is_hopeless() const { return skip_forever && entries_.empty(); }

  // Room the arrays of any entry need.
  uint32_t max_objects() const { return max_objects_; }
  uint32_t max_symbols() const { return max_symbols_; }

  // The compiler's own memory of this key (sizes seen so far ...).
  std::shared_ptr<void> compiler_state;

  bool skip_forever = false;  // the compiler has nothing for this code
  bool hook_callees = false;  // see CompileOutcome
  bool is_asked_for = false;  // of a function given to framejit.compile()
  bool limit_logged = false;
  // At the limit, and where calls raise: looks in a row that found no entry,
  // and calls without a look.
  uint32_t vain_looks = 0, calls_unlooked = 0;
  uint32_t short_lived = 0;  // entries in a row, see note_death()
  // FJ410: resume functions of a loop that breaks at every turn.
  bool left_to_cpython = false;
  uint64_t misses = 0;  // calls that no entry matched

 private:
  PyObject* code_;
  const void* options_;
  std::vector<std::shared_ptr<CacheEntry>> entries_;
  std::vector<std::shared_ptr<RaisingCalls>> raising_;
  std::vector<std::shared_ptr<bool>> failed_attempts_;
  std::shared_ptr<RaiseBackOff> raise_back_off_ =
      std::make_shared<RaiseBackOff>();
  uint32_t max_objects_ = 0;
  uint32_t max_symbols_ = 0;
  uint32_t calls_passed_over_ = 0;
};

// Marks an entry as running for a scope. The GIL orders the counts.
class ActiveEntry {
 public:
  explicit ActiveEntry(CacheEntry* entry) : entry_(entry) { ++entry->active; }
  ~ActiveEntry() {
    if (--entry_->active == 0 && entry_->retired_self) [[unlikely]] {
      // Moved out first: the destructor must not see the owner inside it.
      std::shared_ptr<CacheEntry> last = std::move(entry_->retired_self);
    }
  }
  ActiveEntry(const ActiveEntry&) = delete;
  ActiveEntry& operator=(const ActiveEntry&) = delete;

 private:
  CacheEntry* entry_;
};

// The cache of the pair, made when missing; null (no error set) only when
// there is no memory. `options` may be any address that outlives the cache;
// its owner calls forget_options() before it goes.
CodeCache* code_cache(PyObject* code, const void* options);
CodeCache* find_code_cache(PyObject* code, const void* options);

// False: no memory.
bool mark_code(PyObject* code, CodeKind kind);
CodeKind code_kind(PyObject* code);

// Whether a code met by the frame hook is worth compiling. Decided once.
enum class CodeVerdict : uint8_t {
  kUnknown,  // not judged yet
  kSkip,     // no
  kCallee,   // beneath a compiled function only
  kTensors,  // in whole-script mode, too, when an argument holds a tensor
  kLibrary,  // likewise, and without one: it names the tensors' library
  kSuspend,  // traces or compiles on its own: nothing beneath it is ours
};
struct CodeMemory {
  CodeVerdict verdict = CodeVerdict::kUnknown;
  uint8_t calls_without_tensor = 0;  // whole-script mode
  bool gave_up = false;              // whole-script mode: never a tensor
  uint8_t notices = 0;               // said of this code (notices.h)
  // Options for which the compiler had nothing: the cache's skip_forever.
  const void* hopeless_with = nullptr;
  // A weak reference (program_code.h); not forgotten by clear_all_caches().
  Ref stands_for;
  int8_t first_passed = 0;
  // Of long code, once somebody has asked (line_table.h).
  std::unique_ptr<const LineTable> lines;

  // The function watcher's; not forgotten by clear_all_caches().
  uint32_t taken_version = 0;  // see internals::take_code_version()
  bool watched = false;        // a function of this code was
};
// Lives as long as the code. Null: no memory.
CodeMemory* code_memory(PyObject* code);
namespace detail {
extern Py_ssize_t code_extra_index;  // -1: not asked for yet
}
// Null also when not made yet. In line: asked for every function that is made.
inline CodeMemory* find_code_memory(PyObject* code) {
  return static_cast<CodeMemory*>(
      internals::code_extra(code, detail::code_extra_index));
}
// The callback must not run Python code.
void for_each_code_memory(
    const std::function<void(PyObject* code, CodeMemory&)>& visit);

// Takes the entry out of whatever cache it is in (it can never match again).
void drop_entry(CacheEntry* entry);
// Deletes every cache made for these options (their owner is being destroyed:
// nothing runs with them any more).
void forget_options(const void* options);
// Empties every cache of the process and forgets verdicts (framejit.reset()).
void clear_all_caches();
// Caches of one code (inspect()), or of all codes when `code` is null. The
// callback must not run Python code.
void for_each_cache(PyObject* code,
                    const std::function<void(CodeCache&)>& visit);

}  // namespace framejit
