// Memory of outputs: what is given out again, and what is not.
#include "backend/block_cache.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/CPUAllocator.h>

#include "graph/tracing/tracer.h"
#include "guards/set/storage_memory.h"
#include "tests/backend/torch_helpers.h"

namespace framejit::backend::testing {
namespace {

constexpr int64_t kMany = 4 * kSmallestBlock;

at::Tensor floats(int64_t bytes) {
  return at::empty({bytes / 4}, at::TensorOptions(at::kFloat));
}

TEST(BlockCache, ABlockIsGivenOutAgain) {
  free_blocks();
  const int64_t used = block_bytes().used;
  at::Storage first = new_storage(kMany);
  const void* place = first.data();
  EXPECT_EQ(block_bytes().used - used, kMany);
  first = at::Storage();
  EXPECT_EQ(block_bytes().used, used);
  EXPECT_EQ(block_bytes().kept, kMany);
  at::Storage second = new_storage(kMany - 100);
  EXPECT_EQ(second.data(), place);
  EXPECT_EQ(second.nbytes(), static_cast<size_t>(kMany - 100));
  EXPECT_EQ(block_bytes().kept, 0);
}

TEST(BlockCache, TheOldestGoFirst) {
  free_blocks();
  const int64_t used = block_bytes().used;
  {
    at::Storage a = new_storage(kMany), b = new_storage(kMany);
  }
  EXPECT_EQ(block_bytes().kept, 2 * kMany);
  // Together no more than was in use at once.
  at::Storage larger = new_storage(2 * kMany);
  EXPECT_EQ(block_bytes().kept, 0);
  EXPECT_EQ(block_bytes().used - used, 2 * kMany);
}

TEST(BlockCache, WhatWaitsIsBounded) {
  free_blocks();
  {
    std::vector<at::Storage> held;
    for (int i = 0; i < 5; ++i) held.push_back(new_storage(kMostWaiting / 4));
  }
  EXPECT_EQ(block_bytes().kept, kMostWaiting);
  free_blocks();
  EXPECT_EQ(block_bytes().kept, 0);
}

TEST(BlockCache, CallsAreCachedWhereTheyAreToBe) {
  free_blocks();
  const int64_t used = block_bytes().used;
  at::Tensor inside;
  {
    const CachedCalls cached;
    {
      const CachedCalls nested;
    }
    inside = floats(kMany);
    EXPECT_EQ(block_bytes().used - used, kMany);
    floats(kSmallestBlock / 2);
    EXPECT_EQ(block_bytes().kept, 0);
  }
  at::Tensor outside = floats(kMany);
  EXPECT_EQ(block_bytes().used - used, kMany);
  // A resize asks again.
  inside.resize_({kMany});
  EXPECT_EQ(block_bytes().used, used);
  EXPECT_EQ(inside.storage().nbytes(), static_cast<size_t>(4 * kMany));
}

// Guards on shared memory are quick for those (guards/set/storage_memory.h).
TEST(BlockCache, OtherTensorsOwnTheirMemoryAsBefore) {
  exec("pass");  // imports torch
  ASSERT_TRUE(graph::initialize_tracing()) << take_error();
  const at::Tensor before = floats(10);
  const CachedCalls cached;
  const at::Tensor behind = floats(10), large = floats(kMany);
  const at::Tensor lent = at::from_blob(before.data_ptr(), {10});
  auto owns = [](const at::Tensor& tensor) {
    return owns_its_memory(tensor.storage().unsafeGetStorageImpl());
  };
  EXPECT_TRUE(owns(before));
  EXPECT_TRUE(owns(behind));
  EXPECT_FALSE(owns(lent));
  EXPECT_FALSE(owns(large));  // compared by where it lies
}

TEST(BlockCache, RawMemoryIsFreedByWhoGaveIt) {
  free_blocks();
  const int64_t used = block_bytes().used;
  at::Allocator* allocator = nullptr;
  void* ours = nullptr;
  {
    const CachedCalls cached;
    allocator = c10::GetCPUAllocator();
    ours = allocator->raw_allocate(kMany);
  }
  void* plain = allocator->raw_allocate(kMany);
  EXPECT_EQ(block_bytes().used - used, kMany);
  allocator->raw_deallocate(plain);
  EXPECT_EQ(block_bytes().used - used, kMany);
  allocator->raw_deallocate(ours);
  EXPECT_EQ(block_bytes().used, used);
}

TEST(BlockCache, TooMuchIsAnErrorAndFreesWhatWaits) {
  free_blocks();
  const BlockBytes before = block_bytes();
  new_storage(kMany);
  EXPECT_THROW(new_storage(int64_t{1} << 60), c10::Error);
  EXPECT_EQ(block_bytes().used, before.used);
  EXPECT_EQ(block_bytes().kept, 0);
}

}  // namespace
}  // namespace framejit::backend::testing
