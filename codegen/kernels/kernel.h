// Kernel: fused loops in the order in which they run, not yet instructions.
//
//   kernel(%x: f32, %y: out f32) parallel (i < s0) {
//     stage (k < 64): m = max %x[64*i + k]
//     stage (k < 64): s = sum exp(%x[64*i + k] - m)
//     stage (k < 64): %y[64*i + k] = exp(%x[64*i + k] - m) / s
//   }
//
// The outer loops may run in any order, on any number of threads. For each
// point of them the *stages* run one after the other: a nest of inner loops
// that loads, computes, stores, and puts values together in accumulators. What
// accumulators hold at the end is a *row value*, which later stages read (Row).
// A stage without inner loops is arithmetic on row values, once a point.
//
// One loop is *vectorised*: the last inner loop of each stage (kInner: rows
// that lie in one piece, accumulators joined across lanes at the end), or the
// last outer loop (kOuter: columns side by side, row values are vectors,
// nothing is joined).
//
// Memory is an argument number and a place linear in the loops. Arguments of
// one kernel overlap only where they are declared to be the same memory.
#pragma once

#include <string>
#include <vector>

#include "codegen/loops/loops.h"

namespace framejit::codegen {

struct KernelArgument {
  DType type;
  bool is_written = false;
};

// Element offset + sum(strides[k] * loop k) [+ stride_of_data * data], loops
// being the outer ones, then those of the stage.
struct Place {
  int argument;
  Expr offset;
  std::vector<Expr> strides;
  // Data that decides, one term for each dim that is gathered.
  std::vector<std::pair<ScalarId, Expr>> data;
  ScalarId when = kNoScalar;
};

struct Accumulator {
  Combiner combiner;
  ScalarId value;
  int row;  // its first result; the second follows
};

struct Store {
  Place place;
  ScalarId value;
  std::optional<Combiner> combiner;  // what is there, combined with value
};

struct Stage {
  std::vector<Expr> loops;  // inner extents, outer first
  Body body;                // Load: of loads; Row: a row value; Index: of loops
  std::vector<Place> loads;
  std::vector<Accumulator> accumulators;
  std::vector<Store> stores;
  // Row values that the body gives as they are (stages without loops).
  std::vector<std::pair<ScalarId, int>> rows;
};

enum class Vectorised : uint8_t { kInner, kOuter };

struct Kernel {
  std::string name;
  std::vector<KernelArgument> arguments;
  std::vector<Expr> numbers;  // of Number leaves
  std::vector<Expr> loops;    // outer extents
  Vectorised vectorised = Vectorised::kInner;
  std::vector<DType> row_types;
  std::vector<Stage> stages;
};

// "": fine; otherwise what is wrong.
std::string verify(const Kernel& kernel);

}  // namespace framejit::codegen
