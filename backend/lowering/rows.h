// The functions of rows.def, and the views they share.
#pragma once

#include "backend/lowering/node.h"

namespace framejit::backend {

// The node's operator (a row's name: "add.Tensor") in loops. False: no row.
// NotLowered: not in this case.
bool lower_node(const std::string& name, NodeLowering& node);
bool lower_pointwise(const std::string& name, NodeLowering& node);
bool lower_on_lists(const std::string& name, NodeLowering& node);

#define FJ_LOWER(name, function) void function(NodeLowering& node);
#include "backend/lowering/rows.def"
#undef FJ_LOWER

// ---- views of views
TensorView expanded(const LoopBuilder& builder, const TensorView& view,
                    const std::vector<Expr>& sizes);
TensorView sliced(const TensorView& view, int dim, const Expr& start,
                  const Expr& length, const Expr& step);
TensorView selected(const TensorView& view, int dim, const Expr& index);
TensorView with_dim(const TensorView& view, int dim);  // of size 1
TensorView diagonal_of(const TensorView& view, int64_t offset, int dim1,
                       int dim2, const Expr& length);
// Nothing: not without memory.
std::optional<TensorView> reshaped(const TensorView& view,
                                   const std::vector<Expr>& sizes);
// The argument as memory that lies as eager's does.
TensorView in_memory(NodeLowering& node, size_t i);
// An index that may count from the end.
Expr from_front(const Expr& index, const Expr& size);
Expr slice_start(const Expr& start, const Expr& size);

}  // namespace framejit::backend
