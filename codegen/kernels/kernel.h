// Kernel: fused loops in the order in which they run, not yet instructions.
//
//   kernel softmax(%0: f32, %1: out f32) outer (i0 < s0) inner rows (r0: f32,
//   r1: f32) {
//     stage (i1 < 64) {
//       v0: f32 = load %0[i0*64 + i1]
//       r0, r1 = softmax_sum v0
//     }
//     stage (i1 < 64) {
//       ...
//       store %1[i0*64 + i1] = v5
//     }
//   }
//
// The outer loops may run in any order, on any number of threads. For each
// point of them the *stages* run one after the other: a nest of inner loops
// that loads, computes, stores, and puts values together in accumulators. What
// accumulators hold at the end is a *row value*, which later stages read (Row).
// A stage without inner loops is arithmetic on row values, once a point; it can
// give row values, too.
//
// One loop is *vectorised*: the last inner loop of each stage (kInner: rows
// that lie in one piece, accumulators joined across lanes at the end), or the
// last outer loop (kOuter: columns side by side, row values are vectors,
// nothing is joined).
//
// Memory is an argument number and a place linear in the loops. Arguments of
// one kernel overlap only where they are one argument. Of an argument that is
// both loaded and stored, a stage that stores loads only elements that the same
// point of its loops stores, or that no point does; what an earlier stage
// stored, a later one may load for the same outer point. Loads of a point come
// before its stores.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codegen/loops/loops.h"

namespace framejit::codegen {

struct KernelArgument {
  DType type;
  bool is_written = false;
  bool operator==(const KernelArgument&) const = default;
};

// Element offset + sum(strides[k] * loop k) + sum(stride * data), loops being
// the outer ones, then those of the stage.
struct Place {
  int argument = 0;
  Expr offset;
  std::vector<Expr> strides;
  // Data that decides (i64), one term for each dim that is gathered. Of a load
  // it comes before the Load in the body, as `when` does; so does a Check that
  // guards it, for nothing is accessed once a Check failed.
  std::vector<std::pair<ScalarId, Expr>> data;
  // The access is only done where this is true; a load is 0 elsewhere.
  ScalarId when = kNoScalar;
  bool operator==(const Place&) const = default;
};

// Puts the values of all points of the stage's loops together. The place that
// argmin and argmax give counts the points in loop order.
struct Reduction {
  Combiner combiner;
  ScalarId value;
  int row;  // its first result; if there is a second, it is row + 1
  bool operator==(const Reduction&) const = default;
};

struct Store {
  Place place;
  ScalarId value = kNoScalar;
  // What is there, combined with the value: by combiners with one result.
  // Points come in loop order where `place` has data.
  std::optional<Combiner> combiner;
  // Instead of a value: what this reduction of the stage holds, the point
  // itself included (a prefix along the loops).
  int prefix_of = -1;
  bool operator==(const Store&) const = default;
};

struct Stage {
  std::vector<Expr> loops;  // inner extents, outer first
  // Load: of loads; Row: a row value of an earlier stage; Index: of loops, the
  // outer ones first; Number: of the kernel's.
  Body body;
  std::vector<Place> loads;
  std::vector<Reduction> reductions;
  std::vector<Store> stores;
  // Row values that the body gives as they are (stages without loops).
  std::vector<std::pair<ScalarId, int>> rows;
};

enum class Vectorised : uint8_t { kInner, kOuter };

struct Kernel {
  std::string name = "kernel";
  std::vector<KernelArgument> arguments;
  std::vector<Expr> numbers;  // of Number leaves: ints, or floats
  std::vector<Expr> loops;    // outer extents
  Vectorised vectorised = Vectorised::kInner;
  std::vector<DType> row_types;
  std::vector<Stage> stages;

  int add_number(const Expr& number);  // its place in numbers
};

// "": fine; otherwise what is wrong.
std::string verify(const Kernel& kernel);

}  // namespace framejit::codegen
