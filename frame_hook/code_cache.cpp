#include "frame_hook/code_cache.h"

#include <algorithm>
#include <new>
#include <unordered_set>

#include "frame_hook/cpython_internals.h"
#include "frame_hook/function_watcher.h"
#include "frame_hook/hook_off.h"
#include "frame_hook/notices.h"

namespace framejit {
namespace {

// CPython keeps a pointer to the memory.
struct CodeExtra : CodeMemory {
  PyObject* code = nullptr;  // borrowed: the owner of this struct
  CodeKind kind = CodeKind::kUser;
  bool without_hook = false;  // hook_off.h
  std::vector<std::unique_ptr<CodeCache>> caches;
};

// Every code object that carries our extra data. Never destroyed: code objects
// die late in interpreter shutdown.
std::unordered_set<CodeExtra*>& registry() {
  static auto* instance = new std::unordered_set<CodeExtra*>;
  return *instance;
}

void free_extra(void* pointer) {
  auto* extra = static_cast<CodeExtra*>(static_cast<CodeMemory*>(pointer));
  if (!extra) return;
  registry().erase(extra);
#if FJ_FUNCTION_WATCHERS
  if (extra->watched) internals::forget_code_versions(extra->code);
#endif
  // Runs in the code object's destructor: a pending exception survives.
  ErrorGuard error;
  delete extra;
}

Py_ssize_t extra_index() {
  static const Py_ssize_t index =
      internals::request_code_extra_index(free_extra);
  return detail::code_extra_index = index;
}

CodeExtra* find_extra(PyObject* code) {
  return static_cast<CodeExtra*>(find_code_memory(code));
}

CodeExtra* get_extra(PyObject* code) {
  if (CodeExtra* extra = find_extra(code)) return extra;
  if (extra_index() < 0) return nullptr;
  auto extra = std::make_unique<CodeExtra>();
  extra->code = code;
  registry().insert(extra.get());
  if (!internals::set_code_extra(code, extra_index(),
                                 static_cast<CodeMemory*>(extra.get()))) {
    PyErr_Clear();
    registry().erase(extra.get());
    return nullptr;
  }
  return extra.release();
}

CodeCache* find_in(CodeExtra* extra, const void* options) {
  for (const auto& cache : extra->caches) {
    if (cache->options() == options) return cache.get();
  }
  return nullptr;
}

}  // namespace

Py_ssize_t detail::code_extra_index = -1;

void CodeCache::insert(std::shared_ptr<CacheEntry> entry) {
  max_objects_ = std::max(max_objects_, entry->num_objects);
  max_symbols_ = std::max(max_symbols_, entry->num_symbols);
  entries_.insert(entries_.begin(), std::move(entry));
}

void CodeCache::move_to_front(size_t index) {
  if (index == 0 || index >= entries_.size()) return;
  std::rotate(entries_.begin(), entries_.begin() + index,
              entries_.begin() + index + 1);
}

bool CodeCache::remove(CacheEntry* entry) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].get() != entry) continue;
    std::shared_ptr<CacheEntry> removed = std::move(entries_[i]);
    entries_.erase(entries_.begin() + i);
    if (removed->active != 0) removed->retired_self = removed;
    return true;
  }
  return false;
}

namespace {

// Running for the first time, it may still complete.
bool counts(const CacheEntry& entry) {
  return entry.active != 0 || *entry.completed || entry.identity_result >= 0;
}

}  // namespace

size_t CodeCache::num_completed() const {
  size_t count = 0;
  for (const auto& entry : entries_) count += counts(*entry);
  return count;
}

void CodeCache::limit_others(size_t count) {
  std::vector<CacheEntry*> others;
  for (const auto& entry : entries_) {
    if (!counts(*entry)) others.push_back(entry.get());
  }
  // The end of one may run any code, which may take others out.
  for (size_t i = count; i < others.size(); ++i) remove(others[i]);
}

std::shared_ptr<bool> CodeCache::add_failed_attempt() {
  // Those whose calls are over and raised.
  std::erase_if(failed_attempts_, [](const std::shared_ptr<bool>& attempt) {
    return !*attempt && attempt.use_count() == 1;
  });
  return failed_attempts_.emplace_back(std::make_shared<bool>(false));
}

size_t CodeCache::num_failed_attempts() const {
  size_t count = 0;
  for (const auto& attempt : failed_attempts_) count += *attempt;
  return count;
}

void CodeCache::add_raising(std::shared_ptr<RaisingCalls> calls) {
  constexpr size_t kMaxKinds = 8;
  raising_.insert(raising_.begin(), std::move(calls));
  if (raising_.size() <= kMaxKinds) return;
  std::shared_ptr<RaisingCalls> last = std::move(raising_.back());
  raising_.pop_back();
}

bool CodeCache::is_known_to_raise(PyObject* const* slots, PyObject* function) {
  if (raising_.empty()) return false;
  // A copy: looking may run code that changes the cache.
  const std::vector<std::shared_ptr<RaisingCalls>> known = raising_;
  for (const auto& calls : known) {
    if (calls->covers(slots, function)) return true;
  }
  return false;
}

void CodeCache::note_death(const CacheEntry& entry) {
  // Calls that a compile has to serve: it takes as long as some dozens of them.
  constexpr uint64_t kFewHits = 16;
  if (entry.hits < kFewHits) {
    ++short_lived;
  } else {
    short_lived = 0;
  }
}

bool CodeCache::passes_over(size_t limit) {
  if (short_lived < limit) return false;
  constexpr uint32_t kFirst = 4, kLast = 12;
  const size_t shift = std::min<size_t>(kFirst + short_lived - limit, kLast);
  return ++calls_passed_over_ % (uint32_t{1} << shift) != 0;
}

void CodeCache::clear() {
  // Destroying an entry may run any code, which may come back here.
  std::vector<std::shared_ptr<CacheEntry>> old = std::move(entries_);
  std::vector<std::shared_ptr<RaisingCalls>> old_raising = std::move(raising_);
  entries_.clear();
  raising_.clear();
  max_objects_ = max_symbols_ = 0;
  compiler_state.reset();
  skip_forever = hook_callees = limit_logged = left_to_cpython = false;
  vain_looks = calls_unlooked = short_lived = calls_passed_over_ = 0;
  failed_attempts_.clear();
  raise_back_off_ = std::make_shared<RaiseBackOff>();
  misses = 0;
  for (std::shared_ptr<CacheEntry>& entry : old) {
    if (entry->active != 0) entry->retired_self = entry;
  }
}

CodeCache* code_cache(PyObject* code, const void* options) {
  try {
    CodeExtra* extra = get_extra(code);
    if (!extra) return nullptr;
    if (CodeCache* cache = find_in(extra, options)) return cache;
    extra->caches.push_back(std::make_unique<CodeCache>(code, options));
    return extra->caches.back().get();
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

CodeCache* find_code_cache(PyObject* code, const void* options) {
  CodeExtra* extra = find_extra(code);
  return extra ? find_in(extra, options) : nullptr;
}

bool mark_code(PyObject* code, CodeKind kind) {
  try {
    CodeExtra* extra = get_extra(code);
    if (!extra) return false;
    extra->kind = kind;
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

void run_without_hook(PyObject* code) {
  CodeExtra* extra = find_extra(code);
  if (extra) extra->without_hook = true;
}

bool runs_without_hook(PyObject* code) {
  CodeExtra* extra = find_extra(code);
  return extra && extra->without_hook;
}

CodeKind code_kind(PyObject* code) {
  CodeExtra* extra = find_extra(code);
  return extra ? extra->kind : CodeKind::kUser;
}

CodeMemory* code_memory(PyObject* code) {
  if (CodeMemory* memory = find_code_memory(code)) return memory;
  try {
    return get_extra(code);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void for_each_code_memory(
    const std::function<void(PyObject* code, CodeMemory&)>& visit) {
  for (CodeExtra* extra : registry()) visit(extra->code, *extra);
}

void drop_entry(CacheEntry* entry) {
  entry->predicates.clear();
  for (CodeExtra* extra : registry()) {
    for (size_t i = 0; i < extra->caches.size(); ++i) {
      // Destroying it may run any code: nothing here is looked at again.
      CodeCache& cache = *extra->caches[i];
      if (!std::ranges::any_of(cache.entries(), [entry](const auto& own) {
            return own.get() == entry;
          }))
        continue;
      cache.note_death(*entry);
      cache.remove(entry);
      return;
    }
  }
}

void forget_options(const void* options) {
  std::vector<std::unique_ptr<CodeCache>> old;
  for (CodeExtra* extra : registry()) {
    auto keep = std::stable_partition(
        extra->caches.begin(), extra->caches.end(),
        [&](const auto& cache) { return cache->options() != options; });
    std::move(keep, extra->caches.end(), std::back_inserter(old));
    extra->caches.erase(keep, extra->caches.end());
    if (extra->hopeless_with == options) extra->hopeless_with = nullptr;
  }
  // Destroyed here, with the registry no longer being walked.
}

void clear_all_caches() {
  forget_notices();
  // Clearing one cache may free code objects, and so other caches: hold them.
  std::vector<Ref> codes;
  for (CodeExtra* extra : registry()) {
    CodeMemory fresh;
    fresh.taken_version = extra->taken_version;
    fresh.watched = extra->watched;
    fresh.stands_for = extra->stands_for;
    fresh.first_passed = extra->first_passed;
    fresh.lines = std::move(extra->lines);
    static_cast<CodeMemory&>(*extra) = std::move(fresh);
    codes.push_back(Ref::borrow(extra->code));
  }
  for (const Ref& code : codes) {
    CodeExtra* extra = find_extra(code.get());
    for (size_t i = 0; extra && i < extra->caches.size(); ++i) {
      extra->caches[i]->clear();
    }
  }
  // Functions that were let go are worth a look again.
  if (watches_functions()) watch_all_functions();
}

void for_each_cache(PyObject* code,
                    const std::function<void(CodeCache&)>& visit) {
  if (code) {
    if (CodeExtra* extra = find_extra(code)) {
      for (const auto& cache : extra->caches) visit(*cache);
    }
    return;
  }
  for (CodeExtra* extra : registry()) {
    for (const auto& cache : extra->caches) visit(*cache);
  }
}

}  // namespace framejit
