// Reductions over some dims of a tensor, as rows write them.
#pragma once

#include <functional>

#include "backend/lowering/node.h"

namespace framejit::backend {

// What a loss does with its elements, numbered as torch does.
enum Reduction : int64_t { kNone, kMean, kSum };

// The dims of a tensor that are reduced, and those that stay.
struct ReducedDims {
  std::vector<Expr> sizes;  // of the tensor
  std::vector<int> kept, reduced;

  ReducedDims(std::vector<Expr> sizes, const std::vector<int>& reduced);
  std::vector<Expr> kept_sizes() const;
  Expr count() const;  // of the elements that become one
  // Loops over the kept dims, then the reduced ones.
  Elements elements(LoopBuilder& builder) const;
  // An element of a view of `sizes`, within those loops.
  Term load(Elements& elements, const TensorView& view) const;
  // Of a view broadcast to `sizes`.
  Term load_broadcast(Elements& elements, const TensorView& view) const;
  // Within loops over `sizes`: an element of a result (over the kept dims).
  Term load_result(Elements& elements, const TensorView& result) const;
  // The result with dims of size 1 for the reduced ones.
  TensorView with_unit_dims(const TensorView& result) const;
};

using ElementFunction = std::function<Term(Elements&)>;
// combiner over value(elements).
std::vector<TensorView> reduce_over(LoopBuilder& builder,
                                    const ReducedDims& dims,
                                    codegen::Combiner combiner,
                                    const ElementFunction& value);
// The result of output i from reductions: value(elements) over the kept dims,
// shaped as the output is, with or without the reduced dims.
void set_from_kept(NodeLowering& node, size_t i, const ReducedDims& dims,
                   const ElementFunction& value);
// The result as it is.
void set_row(NodeLowering& node, size_t i, const ReducedDims& dims,
             const TensorView& row);
// An element of a view over the kept dims, within loops over them.
Term load_kept(Elements& elements, const TensorView& view);
Term count_as(Elements& elements, const Expr& count, codegen::DType type);

}  // namespace framejit::backend
