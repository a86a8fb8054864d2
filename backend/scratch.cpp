#include "backend/scratch.h"

#include <c10/core/CPUAllocator.h>

#include <algorithm>
#include <utility>

namespace framejit::backend {

namespace {

// What a thread keeps at most.
constexpr int64_t kMostKept = 64 << 20;

thread_local at::Storage kept;

}  // namespace

at::Storage new_storage(int64_t bytes) {
  return at::Storage(at::Storage::use_byte_size_t(), bytes,
                     c10::GetCPUAllocator(), /*resizable=*/true);
}

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
