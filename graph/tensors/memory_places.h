// Where a tensor's elements lie in its storage, at every size that the guards
// let through. A question whose answer depends on a symbol becomes a guard.
#pragma once

#include <c10/util/ArrayRef.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "graph/tensors/sym_node.h"
#include "graph/tensors/trace_tensor.h"

namespace framejit::graph {

// Every element has a place of its own and no place is left out, in any order
// of the dims: so it is at all sizes, no guard is made. Not so for the result
// of expand() or unfold().
bool is_dense(c10::ArrayRef<Expr> sizes, c10::ArrayRef<Expr> strides);
template <typename Shape>  // a TensorMeta or a SymbolicShape
bool is_dense(const Shape& shape) {
  return is_dense(shape.sizes, shape.strides);
}

// Is an element at the place of another one (expand, unfold)? True also where
// the strides interleave so that this is not plain to see.
bool decide_repeats(c10::ArrayRef<Expr> sizes, c10::ArrayRef<Expr> strides);

enum class Overlap : uint8_t {
  kNone,
  kSame,  // each element at the place of its twin
  kSome,
};
// Of two tensors of one storage.
Overlap decide_overlap(const SymbolicShape& a, const SymbolicShape& b);

// One past the last place; 0: no elements.
Expr decide_extent(const SymbolicShape& shape);

}  // namespace framejit::graph
