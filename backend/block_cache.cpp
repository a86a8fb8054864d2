#include "backend/block_cache.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <pthread.h>

#include <algorithm>
#include <bit>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace framejit::backend {

namespace {

// Sizes of blocks: eight between a power of two and the next one. What is
// beyond the bytes asked for is not touched, so it is no memory.
int64_t rounded(int64_t bytes) {
  const int64_t step =
      static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(bytes))) >> 3;
  return (bytes + step - 1) / step * step;
}

class BlockCache {
 public:
  // Never destroyed: tensors may die behind everything else.
  static BlockCache& get() {
    static BlockCache* cache = [] {
      pthread_atfork([] { get().mutex_.lock(); }, [] { get().mutex_.unlock(); },
                     [] { get().mutex_.unlock(); });
      return new BlockCache;
    }();
    return *cache;
  }

  void* allocate(int64_t bytes) {
    const int64_t size = rounded(bytes);
    std::vector<void*> freed;
    void* block = nullptr;
    {
      const std::lock_guard lock(mutex_);
      block = take(size);
      if (!block) trim(std::max(most_used_ - used_ - size, int64_t{0}), &freed);
      used_ += size;
    }
    free(freed);
    try {
      if (!block) block = new_block(size);
      const std::lock_guard lock(mutex_);
      size_of_[block] = size;
      most_used_ = std::max(most_used_, used_);
    } catch (...) {
      if (block) c10::free_cpu(block);
      const std::lock_guard lock(mutex_);
      used_ -= size;
      throw;
    }
    return block;
  }

  // False: it is none of ours.
  bool release(void* block) noexcept {
    std::vector<void*> freed;
    try {
      const std::lock_guard lock(mutex_);
      const auto found = size_of_.find(block);
      if (found == size_of_.end()) return false;
      const int64_t size = found->second;
      size_of_.erase(found);
      used_ -= size;
      // Before another thread can have it and report it anew.
      c10::profiledCPUMemoryReporter().Delete(block);
      waiting_.push_back({block, size});
      kept_ += size;
      block = nullptr;
      trim(kMostWaiting, &freed);
    } catch (const std::bad_alloc&) {
      // No place to note it.
    }
    if (block) c10::free_cpu(block);
    free(freed);
    return true;
  }

  void clear() {
    std::vector<void*> freed;
    {
      const std::lock_guard lock(mutex_);
      trim(0, &freed);
      most_used_ = used_;
    }
    free(freed);
  }

  BlockBytes bytes() {
    const std::lock_guard lock(mutex_);
    return {used_, kept_};
  }

 private:
  struct Block {
    void* at;
    int64_t size;
  };

  // What waits is not to be why there is none.
  void* new_block(int64_t size) {
    try {
      return c10::alloc_cpu(static_cast<size_t>(size));
    } catch (const c10::Error&) {
      clear();
    }
    return c10::alloc_cpu(static_cast<size_t>(size));
  }

  // The one that came last: the caches may have it. Null: there is none.
  void* take(int64_t size) {
    for (size_t i = waiting_.size(); i-- > 0;) {
      if (waiting_[i].size != size) continue;
      void* block = waiting_[i].at;
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
      kept_ -= size;
      return block;
    }
    return nullptr;
  }

  // The oldest go until no more than `most` bytes wait.
  void trim(int64_t most, std::vector<void*>* freed) {
    size_t count = 0;
    for (int64_t left = kept_; left > most; ++count)
      left -= waiting_[count].size;
    freed->reserve(count);
    for (size_t i = 0; i < count; ++i) {
      freed->push_back(waiting_[i].at);
      kept_ -= waiting_[i].size;
    }
    waiting_.erase(waiting_.begin(),
                   waiting_.begin() + static_cast<std::ptrdiff_t>(count));
  }

  static void free(const std::vector<void*>& blocks) {
    for (void* block : blocks) c10::free_cpu(block);
  }

  std::mutex mutex_;
  std::unordered_map<void*, int64_t> size_of_;  // what is in use
  std::vector<Block> waiting_;                  // the oldest first
  int64_t used_ = 0, kept_ = 0, most_used_ = 0;
};

at::DataPtr new_block(size_t bytes) {
  void* block = BlockCache::get().allocate(static_cast<int64_t>(bytes));
  c10::profiledCPUMemoryReporter().New(block, bytes);
  return {block, block, [](void* of) { BlockCache::get().release(of); },
          at::Device(at::DeviceType::CPU)};
}

thread_local bool calls_are_cached = false;

// Torch's plain allocator, but for what is large while calls are cached.
class CallAllocator final : public at::Allocator {
 public:
  at::DataPtr allocate(size_t bytes) override {
    return calls_are_cached && bytes >= static_cast<size_t>(kSmallestBlock)
               ? new_block(bytes)
               : plain()->allocate(bytes);
  }
  at::DeleterFnPtr raw_deleter() const override {
    return [](void* block) {
      if (!BlockCache::get().release(block)) plain()->raw_deleter()(block);
    };
  }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    plain()->copy_data(to, from, bytes);
  }

  // Whether large memory is ours to give: nobody else has taken torch's place.
  static bool is_installed() {
    static auto* allocator = [] {
      auto* made = new CallAllocator;
      if (c10::GetCPUAllocator() == plain()) c10::SetCPUAllocator(made);
      return made;
    }();
    return c10::GetCPUAllocator() == allocator;
  }

 private:
  static at::Allocator* plain() { return c10::GetDefaultCPUAllocator(); }
};

}  // namespace

CachedCalls::CachedCalls() : before_(calls_are_cached) {
  calls_are_cached = CallAllocator::is_installed();
}

CachedCalls::~CachedCalls() { calls_are_cached = before_; }

at::Storage new_storage(int64_t bytes) {
  at::Allocator* allocator = c10::GetCPUAllocator();
  if (bytes < kSmallestBlock || !CallAllocator::is_installed())
    return at::Storage(at::Storage::use_byte_size_t(), bytes, allocator,
                       /*resizable=*/true);
  return at::Storage(at::Storage::use_byte_size_t(), bytes,
                     new_block(static_cast<size_t>(bytes)), allocator,
                     /*resizable=*/true);
}

BlockBytes block_bytes() { return BlockCache::get().bytes(); }

void free_blocks() { BlockCache::get().clear(); }

}  // namespace framejit::backend
