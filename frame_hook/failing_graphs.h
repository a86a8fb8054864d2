// Graphs that failed in vain: the original code, which ran instead, did not
// raise. One that goes on so is not run at every call, but ever more rarely: it
// may have failed for the data it was given. The GIL guards it.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include "frame_hook/dispatch.h"

namespace framejit {

class FailingGraphs {
 public:
  // Whether this call is to run it.
  bool may_run(const CacheEntry* entry) {
    if (records_.empty()) [[likely]]
      return true;
    auto found = records_.find(entry->completed.get());
    if (found == records_.end() || found->second.failures < kPatience)
      return true;
    uint64_t calls = ++found->second.calls;
    return (calls & (calls - 1)) == 0 && calls >= kFewestCalls;
  }
  void failed(const std::weak_ptr<bool>& entry) {
    std::erase_if(records_,
                  [](const auto& row) { return row.second.entry.expired(); });
    std::shared_ptr<bool> alive = entry.lock();
    if (!alive) return;
    Record& record = records_[alive.get()];
    record.entry = entry;
    ++record.failures;
  }
  void worked(const CacheEntry* entry) {
    if (!records_.empty()) [[unlikely]]
      records_.erase(entry->completed.get());
  }

 private:
  static constexpr uint32_t kPatience = 3;
  static constexpr uint64_t kFewestCalls = 64;
  struct Record {
    std::weak_ptr<bool> entry;  // keeps the address from being used again
    uint32_t failures = 0;      // since it worked
    uint64_t calls = 0;         // since then
  };
  std::unordered_map<const bool*, Record> records_;
};
inline FailingGraphs& failing_graphs() {
  static auto* graphs = new FailingGraphs;
  return *graphs;
}

}  // namespace framejit
