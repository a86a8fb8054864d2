#include "guards/set/storage_memory.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>

namespace framejit {
namespace {

std::optional<StorageMemory>& installed() {
  static std::optional<StorageMemory> memory;
  return memory;
}

}  // namespace

void set_storage_memory(const StorageMemory& memory) { installed() = memory; }

const StorageMemory* storage_memory() {
  return installed() ? &*installed() : nullptr;
}

bool owns_its_memory(const void* storage) {
  const StorageMemory* memory = storage_memory();
  if (!memory) return true;
  const void* now;
  std::memcpy(&now, static_cast<const char*>(storage) + memory->deleter,
              sizeof now);
  const void* own = memory->own_deleter(storage);
  return own && now == own;
}

bool storages_lie_apart(std::vector<const void*> storages) {
  const StorageMemory* memory = storage_memory();
  if (!memory) return true;
  std::sort(storages.begin(), storages.end(), std::less<const void*>());
  storages.erase(std::unique(storages.begin(), storages.end()), storages.end());
  if (std::all_of(storages.begin(), storages.end(), owns_its_memory)) {
    return true;
  }
  std::vector<std::pair<uintptr_t, uintptr_t>> ranges;
  for (const void* storage : storages) {
    auto [begin, end] = memory->bytes(storage);
    if (begin < end) ranges.emplace_back(begin, end);
  }
  std::sort(ranges.begin(), ranges.end());
  uintptr_t last = 0;
  for (auto [begin, end] : ranges) {
    if (begin < last) return false;
    last = end;
  }
  return true;
}

}  // namespace framejit
