// BlockCache: memory of outputs and of large arenas, used again.
//
// The allocator gives large blocks back to the system, and each page of a new
// one costs a fault: more than the kernel that fills it. So blocks of at least
// kSmallestBlock bytes that die wait here for the next output of about their
// size. Smaller ones are the plain allocator's.
//
// What waits is at most kMostWaiting bytes, and together with what is in use
// never more than was in use at once since free_blocks(): the longest there
// goes first. Any thread; a forked child has the blocks of its parent.
//
// Operators that make their results themselves (convolutions, attention) ask
// torch's allocator for memory. CachedCalls has it ask the cache.
#pragma once

#include <ATen/core/Tensor.h>

namespace framejit::backend {

inline constexpr int64_t kSmallestBlock = 128 << 10;
inline constexpr int64_t kMostWaiting = 256 << 20;

// Memory of so many bytes, to be a tensor's: as the plain allocator's, which
// is whom a resize asks.
at::Storage new_storage(int64_t bytes);

// While one lives, large tensors that its thread makes have blocks of the cache
// for memory. Unless the program brought an allocator of its own.
class CachedCalls {
 public:
  CachedCalls();
  ~CachedCalls();
  CachedCalls(const CachedCalls&) = delete;
  CachedCalls& operator=(const CachedCalls&) = delete;

 private:
  bool before_;
};

struct BlockBytes {
  int64_t used = 0;  // by tensors
  int64_t kept = 0;  // waits
};
BlockBytes block_bytes();
// What waits goes back to the system.
void free_blocks();

}  // namespace framejit::backend
