// How the threads of a CUDA kernel share its work, before it is printed.
//
// Who does a point of the outer loops (a *team*):
//   flat      one thread; neighbours do neighbours of the fastest loop.
//   tiles     one thread; a block does a tile of 32 x 32 of two loops, and what
//             lies along the slower one goes through shared memory.
//   rows      a warp or a block, which shares out the inner points of a stage.
//   columns   threads of one column of a block 32 wide, one in each of its
//             warps, which share out the inner points.
//
// A thread of `flat` and `rows` does `width` points side by side at once, and
// loads and stores what lies side by side as one, if it lies on a multiple of
// so many bytes: `multiples` and `alignments` are what has to hold for that.
//
// Where the inner points are a known number, and few for each thread, the loops
// over them are unrolled, and what one stage loads or stores and a later one
// loads stays in registers: a softmax reads its row once.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "codegen/cuda/print_cuda.h"
#include "codegen/kernels/kernel.h"

namespace framejit::codegen {

constexpr int kWarp = 32;  // threads that run together

enum class CudaShape : uint8_t { kFlat, kTiles, kRows, kColumns };

// Of a load or a store.
struct AccessPlan {
  bool is_wide = false;  // `width` elements at once
  int kept = -1;         // registers that have, or get, the values
  // Of a load: they have them already. Of a store: a later one is to the same
  // place, and nobody reads it before.
  bool is_dropped = false;
  // A block's tile of it goes through shared memory.
  bool is_staged = false;
};

struct StagePlan {
  int width = 1;
  int turns = 0;  // of the unrolled loop over inner points; 0: a loop
  std::vector<AccessPlan> loads, stores;
};

struct CudaPlan {
  CudaShape shape = CudaShape::kFlat;
  int team = 1, block = 256;
  int width = 1;
  // The loops that are shared out among teams (those of the only stage, too,
  // where each of its points is a thread's), and their order, slowest first.
  std::vector<Expr> loops;
  std::vector<size_t> order;
  std::vector<StagePlan> stages;
  // Types of the registers that keep values, and how many of each.
  std::vector<DType> kept;
  int turns = 0;
  std::vector<Expr> multiples;                  // of width
  std::vector<std::pair<int, int>> alignments;  // argument, bytes

  // One stage, each point of which is a thread's.
  bool is_flat_stage = false;

  // The loop along which points lie side by side, as places count loops.
  size_t fastest(const Kernel& kernel, const Stage& stage) const {
    return shape == CudaShape::kRows
               ? kernel.loops.size() + stage.loops.size() - 1
               : order.back();
  }
};

// A stage whose points come one after the other.
bool is_sequential(const Stage& stage, const CudaOptions& options);
bool has_prefix(const Stage& stage);

CudaPlan plan_cuda(const Kernel& kernel, const CudaOptions& options);

}  // namespace framejit::codegen
