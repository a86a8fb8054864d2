// The memory of storages, where two of them may have the same.
//
// A storage usually owns what its library's allocator gave it. One that was
// made over memory of somebody else (an array, a buffer, DLPack) may overlap
// any other, so a relation of storages (StorageRelation) says not only which
// tensors have one storage, but also that different storages have no byte in
// common.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace framejit {

// How to tell; implemented by the layer that knows tensors.
struct StorageMemory {
  // The word at this place in a storage is what frees its memory.
  int deleter;
  // What that is where the storage owns it; null: nobody can tell.
  const void* (*own_deleter)(const void* storage);
  // First byte, and one past the last; equal: none.
  std::pair<uintptr_t, uintptr_t> (*bytes)(const void* storage);
};
void set_storage_memory(const StorageMemory& memory);  // once, at load
const StorageMemory* storage_memory();  // null: every storage has its own

bool owns_its_memory(const void* storage);
// Different storages have no byte in common.
bool storages_lie_apart(std::vector<const void*> storages);

}  // namespace framejit
