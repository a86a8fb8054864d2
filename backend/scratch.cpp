#include "backend/scratch.h"

#include <algorithm>
#include <utility>

#include "backend/block_cache.h"

namespace framejit::backend {

namespace {

// What a thread keeps at most.
constexpr int64_t kMostKept = 64 << 20;

thread_local at::Storage kept;

}  // namespace

Scratch::Scratch(int64_t bytes) : is_kept_(bytes <= kMostKept) {
  if (bytes <= 0) {
    is_kept_ = false;
    return;
  }
  if (is_kept_) storage_ = std::exchange(kept, at::Storage());
  if (storage_ && static_cast<int64_t>(storage_.nbytes()) >= bytes) return;
  storage_ = at::Storage();  // first, so that it can be used again
  storage_ = new_storage(is_kept_ ? std::max<int64_t>(bytes, 4096) : bytes);
}

Scratch::~Scratch() {
  // Not what somebody else still holds.
  if (!is_kept_ || storage_.use_count() != 1) return;
  if (!kept || kept.nbytes() < storage_.nbytes()) kept = std::move(storage_);
}

}  // namespace framejit::backend
