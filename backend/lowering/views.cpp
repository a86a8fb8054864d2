// Operators that move no element: index maps, or aliases of memory.
#include <algorithm>

#include "backend/lowering/rows.h"

namespace framejit::backend {

using codegen::Index;

namespace {

// For an index whose sign is not known, from -size up: index mod size. (That of
// `size` itself, behind the end, is 0: nothing is read there.)
Expr wrapped(const Expr& index, const Expr& size) {
  return mod(index, size.is_const()
                        ? Expr(std::max<int64_t>(size.constant(), 1))
                        : Expr::make(ExprOp::kMax, {size, Expr(1)}));
}

}  // namespace

Expr from_front(const Expr& index, const Expr& size) {
  if (!index.is_const()) return wrapped(index, size);
  return index.constant() < 0 ? size + index : index;
}

Expr slice_start(const Expr& start, const Expr& size) {
  if (!start.is_const())
    return wrapped(Expr::make(ExprOp::kMax, {start, size * -1}), size);
  if (start.constant() >= 0) return start;
  Expr out = size + start;
  return out.is_const() ? Expr(std::max<int64_t>(out.constant(), 0))
                        : Expr::make(ExprOp::kMax, {out, Expr(0)});
}

namespace {

// The indices that leave everything as it is.
std::vector<Index> identity(int count, int source) {
  std::vector<Index> out;
  for (int i = 0; i < source; ++i) out.push_back(index_along(count, i));
  return out;
}

TensorView permuted(const TensorView& view, const std::vector<int>& order) {
  std::vector<Expr> sizes(view.rank());
  std::vector<Index> indices(view.rank());
  for (int dim = 0; dim < view.rank(); ++dim) {
    sizes[dim] = view.sizes[order[dim]];
    indices[order[dim]] = index_along(view.rank(), dim);
  }
  return LoopBuilder::reindex(view, std::move(sizes), indices);
}

}  // namespace

TensorView expanded(const LoopBuilder& builder, const TensorView& view,
                    const std::vector<Expr>& sizes) {
  const int rank = static_cast<int>(sizes.size()), missing = rank - view.rank();
  require(missing >= 0, "expanded to fewer dims");
  std::vector<Index> indices;
  for (int dim = 0; dim < view.rank(); ++dim) {
    const Expr& size = sizes[missing + dim];
    const bool repeats =
        view.sizes[dim].is_const(1) && !same_size(view.sizes[dim], size);
    if (!repeats)
      builder.ensure_equal(view.sizes[dim], size, "an operand of other sizes");
    indices.push_back(repeats ? index_of(rank)
                              : index_along(rank, missing + dim));
  }
  return LoopBuilder::reindex(view, sizes, indices);
}

TensorView sliced(const TensorView& view, int dim, const Expr& start,
                  const Expr& length, const Expr& step) {
  std::vector<Expr> sizes = view.sizes;
  sizes[dim] = length;
  auto indices = identity(view.rank(), view.rank());
  indices[dim] = index_along(view.rank(), dim, step, start);
  return LoopBuilder::reindex(view, std::move(sizes), indices);
}

TensorView selected(const TensorView& view, int dim, const Expr& index) {
  std::vector<Expr> sizes = view.sizes;
  sizes.erase(sizes.begin() + dim);
  std::vector<Index> indices;
  for (int i = 0; i < view.rank(); ++i)
    indices.push_back(i == dim ? index_of(view.rank() - 1, index)
                               : index_along(view.rank() - 1, i - (i > dim)));
  return LoopBuilder::reindex(view, std::move(sizes), indices);
}

TensorView with_dim(const TensorView& view, int dim) {
  std::vector<Expr> sizes = view.sizes;
  sizes.insert(sizes.begin() + dim, Expr(1));
  std::vector<Index> indices;
  for (int i = 0; i < view.rank(); ++i)
    indices.push_back(index_along(view.rank() + 1, i + (i >= dim)));
  return LoopBuilder::reindex(view, std::move(sizes), indices);
}

TensorView diagonal_of(const TensorView& view, int64_t offset, int dim1,
                       int dim2, const Expr& length) {
  const int rank = view.rank() - 1;
  std::vector<Expr> sizes;
  std::vector<Index> indices(view.rank());
  for (int dim = 0; dim < view.rank(); ++dim) {
    if (dim == dim1 || dim == dim2) continue;
    indices[dim] = index_along(rank, static_cast<int>(sizes.size()));
    sizes.push_back(view.sizes[dim]);
  }
  indices[dim1] = index_along(rank, rank - 1, 1, offset < 0 ? -offset : 0);
  indices[dim2] = index_along(rank, rank - 1, 1, offset > 0 ? offset : 0);
  sizes.push_back(length);
  return LoopBuilder::reindex(view, std::move(sizes), indices);
}

std::optional<TensorView> reshaped(const TensorView& view,
                                   const std::vector<Expr>& sizes) {
  const int rank = static_cast<int>(sizes.size());
  std::vector<Index> indices;
  int next = 0;  // dim of the result
  for (int dim = 0; dim < view.rank(); ++dim) {
    const Expr& size = view.sizes[dim];
    if (size.is_const(1)) {
      indices.push_back(index_of(rank));
      continue;
    }
    // The dims that this one becomes.
    int end = next;
    Expr covered = 1;
    while (end < rank && covered != size) covered = covered * sizes[end++];
    if (covered != size) return std::nullopt;
    Index index = index_of(rank);
    Expr stride = 1;
    for (int i = end; i-- > next;) {
      if (!sizes[i].is_const(1)) index.coefficients[i] = stride;
      stride = stride * sizes[i];
    }
    indices.push_back(std::move(index));
    next = end;
  }
  for (; next < rank; ++next)
    if (!sizes[next].is_const(1)) return std::nullopt;
  return LoopBuilder::reindex(view, sizes, indices);
}

namespace {

bool lies_as(const LoopBuilder::Memory& memory, const graph::TensorMeta& meta) {
  for (size_t dim = 0; dim < meta.sizes.size(); ++dim)
    if (!meta.sizes[dim].is_const(1) &&
        memory.strides[dim] != meta.strides[dim])
      return false;
  return true;
}

}  // namespace

TensorView in_memory(NodeLowering& node, size_t i) {
  TensorView view = node.tensor(i);
  const graph::TensorMeta& meta = node.meta_of(i);
  if (lies_as(node.memory_of(view), meta)) return view;
  return node.whole(node.buffer_of(view, &meta.strides));
}

void lower_identity(NodeLowering& node) { node.set(0, node.tensor(0)); }

void lower_view(NodeLowering& node) {
  TensorView view = node.tensor(0);
  require(view.type == node.out_type(), "a view of another type");
  if (auto folded = reshaped(view, node.out().sizes))
    return node.set(0, *folded);
  TensorView memory = in_memory(node, 0);
  node.set(0, node.alias(memory, node.out().sizes, node.out().strides,
                         node.memory_of(memory).offset));
}

void lower_view_copy(NodeLowering& node) {
  auto folded = reshaped(node.tensor(0), node.out().sizes);
  require(folded.has_value(), "a reshape that copies");
  node.set(0, *folded);
}

void lower_permute(NodeLowering& node) {
  TensorView view = node.tensor(0);
  std::vector<int> order;
  for (const Expr& item : node.integers(1)) {
    require(item.is_const(), "a symbol for a dim");
    order.push_back(static_cast<int>(item.constant() +
                                     (item.constant() < 0 ? view.rank() : 0)));
  }
  node.set(0, permuted(view, order));
}

void lower_transpose(NodeLowering& node) {
  TensorView view = node.tensor(0);
  if (view.rank() == 0) return node.set(0, view);
  std::vector<int> order;
  for (int dim = 0; dim < view.rank(); ++dim) order.push_back(dim);
  std::swap(order[node.dim(1, view.rank())], order[node.dim(2, view.rank())]);
  node.set(0, permuted(view, order));
}

void lower_t(NodeLowering& node) {
  TensorView view = node.tensor(0);
  if (view.rank() < 2) return node.set(0, view);
  node.set(0, permuted(view, {1, 0}));
}

void lower_expand(NodeLowering& node) {
  node.set(0, expanded(node, node.tensor(0), node.out().sizes));
}

void lower_slice(NodeLowering& node) {
  TensorView view = node.tensor(0);
  int dim = node.dim(1, view.rank());
  Expr start = node.has(2) ? node.integer(2) : Expr(0);
  node.set(0, sliced(view, dim, slice_start(start, view.sizes[dim]),
                     node.out().sizes[dim], node.integer(4)));
}

void lower_narrow_copy(NodeLowering& node) {
  TensorView view = node.tensor(0);
  int dim = node.dim(1, view.rank());
  node.set(0, sliced(view, dim, from_front(node.integer(2), view.sizes[dim]),
                     node.out().sizes[dim], 1));
}

void lower_select(NodeLowering& node) {
  TensorView view = node.tensor(0);
  int dim = node.dim(1, view.rank());
  node.set(0,
           selected(view, dim, from_front(node.integer(2), view.sizes[dim])));
}

// Also squeeze, unsqueeze: dims of size 1 come and go.
void lower_unit_dims(NodeLowering& node) {
  auto folded = reshaped(node.tensor(0), node.out().sizes);
  require(folded.has_value(), "dims that are not of size 1");
  node.set(0, *folded);
}

void lower_split(NodeLowering& node) {
  TensorView view = node.tensor(0);
  int dim = node.dim(2, view.rank());
  Expr start = 0;
  for (size_t i = 0; i < node.node().outputs.size(); ++i) {
    const Expr& length = node.out(i).sizes[dim];
    node.set(i, sliced(view, dim, start, length, 1));
    start = start + length;
  }
}

void lower_unbind(NodeLowering& node) {
  TensorView view = node.tensor(0);
  int dim = node.dim(1, view.rank());
  for (size_t i = 0; i < node.node().outputs.size(); ++i)
    node.set(i, selected(view, dim, static_cast<int64_t>(i)));
}

void lower_diagonal(NodeLowering& node) {
  TensorView view = node.tensor(0);
  node.set(0, diagonal_of(view, node.known_integer(1), node.dim(2, view.rank()),
                          node.dim(3, view.rank()), node.out().sizes.back()));
}

void lower_unfold(NodeLowering& node) {
  TensorView view = node.tensor(0);
  if (view.rank() == 0) {
    require(node.out().sizes.size() == 1 && node.out().sizes[0].is_const(1),
            "a fold of no dims");
    return node.set(0, with_dim(view, 0));
  }
  int dim = node.dim(1, view.rank());
  auto indices = identity(view.rank() + 1, view.rank());
  indices[dim].coefficients[dim] = node.integer(3);
  indices[dim].coefficients[view.rank()] = 1;
  node.set(0, LoopBuilder::reindex(view, node.out().sizes, indices));
}

// A copy in eager, an index map for us.
void lower_flip(NodeLowering& node) {
  TensorView view = node.tensor(0);
  auto indices = identity(view.rank(), view.rank());
  std::vector<bool> flipped(view.rank());
  for (const Expr& item : node.integers(1)) {
    require(item.is_const() && item.constant() >= -view.rank() &&
                item.constant() < view.rank(),
            "a dim that is unknown, or out of range");
    int dim = static_cast<int>(item.constant() +
                               (item.constant() < 0 ? view.rank() : 0));
    require(!flipped[dim], "a dim named twice");
    flipped[dim] = true;
    indices[dim] = index_along(view.rank(), dim, -1, view.sizes[dim] - 1);
  }
  node.set(0, LoopBuilder::reindex(view, view.sizes, indices));
}

}  // namespace framejit::backend
