// What schedules are made for on a GPU, and what a kernel wants of its threads
// and indices.
#include <algorithm>

#include "codegen/cuda/plan.h"
#include "codegen/cuda/print_cuda.h"

namespace framejit::codegen {

namespace {

constexpr int kBlock = 256;
// Of a multiprocessor, that are enough.
constexpr int kThreads = 1024;

// The largest |element| of a place, and whether it is below the limit.
bool is_near(const Place& place, const std::vector<int64_t>& extents,
             const int64_t* symbols) {
  constexpr __int128 kLimit = 0x7fffffff;
  auto size = [&](const Expr& e) {
    const __int128 value = e.evaluate(symbols);
    return value < 0 ? -value : value;
  };
  __int128 reach = size(place.offset);
  for (size_t k = 0; k < place.strides.size(); ++k) {
    reach += size(place.strides[k]) * std::max<int64_t>(extents[k] - 1, 0);
    if (reach > kLimit) return false;
  }
  // Data are of 64 bits, and so is what is computed with them.
  for (const auto& [id, stride] : place.data) {
    if (size(stride) > kLimit) return false;
  }
  return reach <= kLimit;
}

}  // namespace

TargetInfo cuda_target(int architecture) {
  TargetInfo target;
  // Of the largest part of each generation (V100, A100, H100, B200).
  target.threads = architecture >= 100  ? 148
                   : architecture >= 90 ? 132
                   : architecture >= 80 ? 108
                                        : 80;
  target.vector_bytes = kWarp * 4;
  target.l2_bytes = 64 << 10;  // what a block finds near it
  // A launch costs more than a few idle multiprocessors, and a point has a
  // block of threads.
  target.fewest_points = 8;
  target.long_row = 1 << 16;
  target.short_row = 1 << 16;
  target.large_reduction = 1 << 18;
  target.parts_per_thread = 4;
  target.points_are_parts = true;
  target.recomputes_views = true;
  return target;
}

int cuda_team(const Kernel& kernel, const TargetInfo& target) {
  int64_t longest = 0;
  int loops = 0;
  for (const Stage& stage : kernel.stages) {
    if (stage.loops.empty()) continue;
    longest = std::max(longest, target.hint(stage.loops));
    ++loops;
  }
  if (kernel.vectorised == Vectorised::kOuter) {
    // Where columns alone do not fill the machine.
    const int64_t wanted = int64_t{target.threads} * kThreads /
                           std::max<int64_t>(target.hint(kernel.loops), 1);
    int team = 1;
    while (team < kWarp / 2 && team < wanted && team * 4 <= longest) team *= 2;
    return team;
  }
  if (longest <= 4) return 1;
  // With few rows, each gets all the threads that a block can have.
  if (longest > 2048 && target.hint(kernel.loops) < target.threads)
    return 4 * kBlock;
  // A thread that has a few points to do hides what a wait for memory costs.
  if (longest <= 1024) return kWarp;
  if (longest <= 16384) return kBlock;
  // A row that stages share is kept in registers.
  return loops > 1 && longest <= 65536 ? 4 * kBlock : 2 * kBlock;
}

bool fits_32_bits(const Kernel& kernel, const int64_t* symbols) {
  // Room for the stride of the grid.
  constexpr int64_t kMostPoints = 1 << 30;
  std::vector<int64_t> outer;
  for (const Expr& extent : kernel.loops)
    outer.push_back(extent.evaluate(symbols));
  for (const Stage& stage : kernel.stages) {
    std::vector<int64_t> extents = outer;
    for (const Expr& extent : stage.loops)
      extents.push_back(extent.evaluate(symbols));
    __int128 points = 1;
    for (int64_t extent : extents) {
      points *= extent;
      if (points > kMostPoints) return false;
    }
    if (points == 0) continue;
    for (const Place& place : stage.loads) {
      if (!is_near(place, extents, symbols)) return false;
    }
    for (const Store& store : stage.stores) {
      if (!is_near(store.place, extents, symbols)) return false;
    }
  }
  return true;
}

}  // namespace framejit::codegen
