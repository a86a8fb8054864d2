// What a schedule is made for: sizes of the machine, and what is known of
// sizes that are symbols. It changes how fast the result is, never its value.
#pragma once

#include <cstdint>
#include <vector>

#include "codegen/scalar/body.h"
#include "guards/expr/expr.h"

namespace framejit::codegen {

struct TargetInfo {
  int threads = 1;
  int vector_bytes = 64;
  int64_t l2_bytes = 1 << 20;  // of one core
  // With fewer outer points than this, what is fused with a reduction runs by
  // itself; 0: than two a thread.
  int64_t fewest_points = 0;
  // If a point has more elements than this, what is fused with a reduction
  // wants two points a thread after all; 0: no number is too many.
  int64_t long_row = 0;
  // Mean and squared distances of at most so many elements of a row are two
  // sums, of which the second is of the differences; 0: one.
  int64_t short_row = 0;
  // A reduction of so many elements, to few points, is done in parts: so many a
  // thread, or as many as make so many points a thread with those there are.
  int64_t large_reduction = 1 << 16;
  int parts_per_thread = 8;
  bool points_are_parts = false;
  // What a kernel holds: nodes of its bodies, and arguments.
  int max_nodes = 400;
  // How many nodes an operation counts for; null: each for one.
  int (*node_size)(ScalarOp op, DType operands) = nullptr;
  int max_arguments = 24;
  bool recomputes_views = false;
  // Of each symbol: its value when the graph was captured (kUnknownSize where
  // the list ends).
  std::vector<int64_t> hints;

  static constexpr int64_t kUnknownSize = 1024;
  // What an integer expression probably is.
  int64_t hint(const Expr& e) const;
  // The product.
  int64_t hint(const std::vector<Expr>& sizes) const;
  int size(const Body& body) const;  // in nodes
};

}  // namespace framejit::codegen
