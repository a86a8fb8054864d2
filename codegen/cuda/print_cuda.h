// Kernel -> CUDA C++ for NVRTC.
//
// A *team* of threads does one outer point: one thread (maps: what threads side
// by side do lies side by side), a warp, or a block, whose threads share out
// the inner points of each stage and put their accumulators together at its end
// (plan.h). Teams walk the outer points in strides of the grid, so any grid
// will do. The reductions are those of codegen/legalise/fold.h, so what every
// target computes is written once.
//
// The kernel's parameters are, in this order: a pointer to element 0 of each
// argument's places, CudaKernel::parameters (i64, or double where the
// expression is a float), and a pointer to an i32 that a failing Check sets
// where kernels are emulated. (On a device it is an assertion.)
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "codegen/kernels/kernel.h"
#include "codegen/schedule/target.h"

namespace framejit::codegen {

struct CudaOptions {
  // Threads of one outer point: 1, 32, or a block of them, up to 1024; with
  // vectorised columns at most 32. Of a kernel without inner loops it is 1.
  int team = 256;
  // Elements that lie side by side are loaded and stored as one, where
  // CudaKernel::multiples and alignments hold.
  bool vectors = true;
  // Indices of 64 bits. Those of 32 do where fits_32_bits() says so.
  bool wide_indices = true;
  // Points whose data decide where they store come one after the other, as in
  // the interpreter. Otherwise updates are atomic, and of plain stores to one
  // element any may be the last (as in eager, but for torch's deterministic
  // algorithms).
  bool deterministic = false;
};

struct CudaKernel {
  std::string name;    // of the function
  std::string source;  // behind the prelude (prelude.h)
  std::vector<Expr> parameters;
  std::vector<Expr> points;  // their product: what teams walk
  // Where this does not hold, the text is for nothing: numbers that `width`
  // divides, and arguments (by number) that lie on a multiple of so many bytes.
  int width = 1;
  std::vector<Expr> multiples;
  std::vector<std::pair<int, int>> alignments;
  int team = 1;
  int block = 256;      // threads of a block
  bool waits = false;   // threads wait for each other
  std::string refused;  // why there is no text
};

CudaKernel print_cuda(const Kernel& kernel, const CudaOptions& options);

// A device of this compute capability (90 for sm_90), as schedules see it: its
// multiprocessors are the threads, a warp's columns the vector.
TargetInfo cuda_target(int architecture);

// How many threads do well for an outer point.
int cuda_team(const Kernel& kernel, const TargetInfo& target);

// No index into an argument, and no count of points, is beyond 32 bits.
bool fits_32_bits(const Kernel& kernel, const int64_t* symbols);

}  // namespace framejit::codegen
