#include <ATen/InferSize.h>
#include <ATen/TensorUtils.h>

#include <algorithm>

#include "graph/ops/meta_inference.h"
#include "graph/ops/shape_families.h"
#include "graph/ops/shape_parts.h"
#include "graph/tensors/sym_node.h"

namespace framejit::graph {
namespace {

at::SymDimVector to_sym_dims(const std::vector<Expr>& exprs) {
  at::SymDimVector result;
  for (const Expr& expr : exprs) result.push_back(to_sym_int(expr));
  return result;
}

std::vector<Expr> to_exprs(const at::SymDimVector& values) {
  std::vector<Expr> result;
  for (const c10::SymInt& value : values) {
    result.push_back(to_expr(value).value());
  }
  return result;
}

void drop_dim(SymbolicShape* shape, size_t dim) {
  shape->sizes.erase(shape->sizes.begin() + dim);
  shape->strides.erase(shape->strides.begin() + dim);
}

// Python's slice bound: negative counts from the end, then clamped.
Expr clamped_bound(const Expr& bound, const Expr& size) {
  Expr value = normalised_dim(bound, size);
  if (decide(expr_lt(value, 0))) return Expr(0);
  // A bound that is the size now may be another number at the next call, with
  // the same program: a crop that ends where the image does.
  if (!value.is_const()) return decide(expr_le(value, size)) ? value : size;
  return decide(expr_le(size, value)) ? size : value;
}

bool all_views(ShapeCall& call, const SymbolicShape& shape) {
  for (size_t i = 0; i < call.metas.size(); ++i) call.view(i, shape);
  return true;
}

}  // namespace

bool shape_alias(ShapeCall& call) { return all_views(call, call.tensor(0)); }

// The very code that eager runs, on symbolic integers: its comparisons become
// guards by themselves.
bool shape_view(ShapeCall& call) {
  SymbolicShape input = call.tensor(0);
  at::SymDimVector sizes = to_sym_dims(input.sizes);
  at::SymDimVector strides = to_sym_dims(input.strides);
  at::SymDimVector wanted = to_sym_dims(call.integers(1));
  at::SymDimVector result = at::infer_size_dv(c10::SymIntArrayRef(wanted),
                                              to_sym_int(product(input.sizes)));
  auto new_strides = at::detail::computeStride(c10::SymIntArrayRef(sizes),
                                               c10::SymIntArrayRef(strides),
                                               c10::SymIntArrayRef(result));
  if (!new_strides) return false;
  call.view(0,
            {to_exprs(result), to_exprs(*new_strides), input.storage_offset});
  return true;
}

bool shape_reshape_alias(ShapeCall& call) {
  call.view(
      0, {call.integers(1), call.integers(2), call.tensor(0).storage_offset});
  return true;
}

bool shape_expand(ShapeCall& call) {
  SymbolicShape input = call.tensor(0);
  std::vector<Expr> wanted = call.integers(1);
  if (wanted.size() < input.sizes.size()) return false;
  SymbolicShape result;
  result.storage_offset = input.storage_offset;
  size_t skip = wanted.size() - input.sizes.size();
  // Strides of new dims, from the inside out, as inferExpandGeometry has them.
  result.sizes.assign(wanted.size(), Expr(1));
  result.strides.assign(wanted.size(), Expr(1));
  if (input.sizes.empty()) {  // 0 even where the size is 1
    result.sizes = std::move(wanted);
    result.strides.assign(result.sizes.size(), Expr(0));
    return all_views(call, result);
  }
  for (size_t i = wanted.size(); i-- > 0;) {
    bool old = i >= skip;
    Expr size = old ? input.sizes[i - skip] : Expr(1);
    Expr stride = old ? input.strides[i - skip]
                  : i + 1 < wanted.size()
                      ? result.sizes[i + 1] * result.strides[i + 1]
                      : Expr(1);
    bool keep = old && decide(expr_eq(wanted[i], -1));
    if (!keep && size != wanted[i]) {
      if (!decide(expr_eq(size, wanted[i]))) {
        if (!decide(expr_eq(size, 1))) return false;
        stride = Expr(0);
      }
      size = wanted[i];
    }
    result.sizes[i] = size;
    result.strides[i] = stride;
  }
  return all_views(call, result);
}

bool shape_permute(ShapeCall& call) {
  SymbolicShape input = call.tensor(0);
  SymbolicShape result;
  result.storage_offset = input.storage_offset;
  for (int64_t dim : call.constants(1)) {
    size_t from = wrap_dim(dim, input.sizes.size());
    result.sizes.push_back(input.sizes.at(from));
    result.strides.push_back(input.strides.at(from));
  }
  return all_views(call, result);
}

bool shape_transpose(ShapeCall& call) {
  SymbolicShape shape = call.tensor(0);
  if (shape.sizes.empty()) return all_views(call, shape);
  size_t a = wrap_dim(call.constant(1), shape.sizes.size());
  size_t b = wrap_dim(call.constant(2), shape.sizes.size());
  std::swap(shape.sizes[a], shape.sizes[b]);
  std::swap(shape.strides[a], shape.strides[b]);
  return all_views(call, shape);
}

// The diagonal becomes the last dim.
bool shape_diagonal(ShapeCall& call) {
  SymbolicShape shape = call.tensor(0);
  int64_t offset = call.constant_or(1, 0);
  size_t a = wrap_dim(call.constant_or(2, 0), shape.sizes.size());
  size_t b = wrap_dim(call.constant_or(3, 1), shape.sizes.size());
  if (a == b) return false;
  Expr rows = shape.sizes[a], columns = shape.sizes[b];
  if (offset >= 0) {
    columns = columns - Expr(offset);
  } else {
    rows = rows - Expr(-offset);
  }
  Expr size = rows;
  if (rows != columns && !decide(expr_le(rows, columns))) size = columns;
  bool empty = decide(expr_le(size, 0));
  if (empty) size = Expr(0);
  if (!empty && offset != 0) {
    shape.storage_offset =
        shape.storage_offset + (offset > 0 ? Expr(offset) * shape.strides[b]
                                           : Expr(-offset) * shape.strides[a]);
  }
  Expr stride = shape.strides[a] + shape.strides[b];
  drop_dim(&shape, std::max(a, b));
  drop_dim(&shape, std::min(a, b));
  shape.sizes.push_back(size);
  shape.strides.push_back(stride);
  return all_views(call, shape);
}

bool shape_t(ShapeCall& call) {
  SymbolicShape shape = call.tensor(0);
  std::reverse(shape.sizes.begin(), shape.sizes.end());
  std::reverse(shape.strides.begin(), shape.strides.end());
  return all_views(call, shape);
}

bool shape_slice(ShapeCall& call) {
  SymbolicShape shape = call.tensor(0);
  if (shape.sizes.empty()) return false;
  size_t dim = wrap_dim(call.constant_or(1, 0), shape.sizes.size());
  const Expr size = shape.sizes[dim];
  Expr start = clamped_bound(call.integer_or(2, 0), size);
  Expr stop = call.has(3) ? clamped_bound(call.integer(3), size) : size;
  Expr step = call.integer_or(4, 1);
  if (decide(expr_lt(stop, start))) stop = start;
  shape.sizes[dim] = step.is_const(1)
                         ? stop - start
                         : floor_div(stop - start + step - 1, step);
  shape.storage_offset = shape.storage_offset + start * shape.strides[dim];
  shape.strides[dim] = shape.strides[dim] * step;
  return all_views(call, shape);
}

bool shape_select(ShapeCall& call) {
  SymbolicShape shape = call.tensor(0);
  if (shape.sizes.empty()) return false;
  size_t dim = wrap_dim(call.constant(1), shape.sizes.size());
  Expr index = normalised_dim(call.integer(2), shape.sizes[dim]);
  if (decide(expr_lt(index, 0)) || !decide(expr_lt(index, shape.sizes[dim]))) {
    return false;
  }
  shape.storage_offset = shape.storage_offset + index * shape.strides[dim];
  drop_dim(&shape, dim);
  return all_views(call, shape);
}

bool shape_unsqueeze(ShapeCall& call) {
  SymbolicShape shape = call.tensor(0);
  size_t dim = wrap_dim(call.constant(1), shape.sizes.size() + 1);
  Expr stride = dim < shape.sizes.size() ? shape.sizes[dim] * shape.strides[dim]
                                         : Expr(1);
  shape.sizes.insert(shape.sizes.begin() + dim, Expr(1));
  shape.strides.insert(shape.strides.begin() + dim, stride);
  return all_views(call, shape);
}

bool shape_squeeze(ShapeCall& call) {
  SymbolicShape shape = call.tensor(0);
  std::vector<bool> candidate(shape.sizes.size(), call.arguments.size() < 2);
  if (call.arguments.size() >= 2) {
    for (int64_t dim : call.constants(1)) {
      if (!shape.sizes.empty()) {
        candidate[wrap_dim(dim, shape.sizes.size())] = true;
      }
    }
  }
  for (size_t i = candidate.size(); i-- > 0;) {
    if (candidate[i] && decide(expr_eq(shape.sizes[i], 1))) {
      drop_dim(&shape, i);
    }
  }
  return all_views(call, shape);
}

bool shape_unbind(ShapeCall& call) {
  SymbolicShape shape = call.tensor(0);
  size_t dim = wrap_dim(call.constant_or(1, 0), shape.sizes.size());
  // One result per index: their number is fixed by the graph.
  int64_t count = specialise(shape.sizes[dim]);
  Expr stride = shape.strides[dim];
  drop_dim(&shape, dim);
  for (int64_t i = 0; i < count; ++i) {
    SymbolicShape part = shape;
    part.storage_offset = part.storage_offset + Expr(i) * stride;
    call.view(i, part);
  }
  return true;
}

bool shape_split(ShapeCall& call) {
  SymbolicShape shape = call.tensor(0);
  Expr step = call.integer(1);
  size_t dim = wrap_dim(call.constant_or(2, 0), shape.sizes.size());
  const Expr size = shape.sizes[dim];
  const Expr stride = shape.strides[dim];
  int64_t count = static_cast<int64_t>(call.metas.size());
  if (count == 0) return false;
  // count - 1 whole parts and a last one of 1..step.
  Expr before_last = Expr(count - 1) * step;
  if (count > 1 && !decide(expr_lt(before_last, size))) return false;
  if (!decide(expr_le(size, Expr(count) * step))) return false;
  for (int64_t i = 0; i < count; ++i) {
    SymbolicShape part = shape;
    part.sizes[dim] = i + 1 < count ? step : size - before_last;
    part.storage_offset = part.storage_offset + Expr(i) * step * stride;
    call.view(i, part);
  }
  return true;
}

bool shape_split_with_sizes(ShapeCall& call) {
  SymbolicShape shape = call.tensor(0);
  std::vector<Expr> parts = call.integers(1);
  size_t dim = wrap_dim(call.constant_or(2, 0), shape.sizes.size());
  Expr start(0);
  for (size_t i = 0; i < parts.size(); ++i) {
    SymbolicShape part = shape;
    part.sizes[dim] = parts[i];
    part.storage_offset = part.storage_offset + start * shape.strides[dim];
    call.view(i, part);
    start = start + parts[i];
  }
  return decide(expr_eq(start, shape.sizes[dim]));
}

bool shape_as_strided(ShapeCall& call) {
  Expr offset = call.arguments.size() > 3 && call.has(3)
                    ? call.integer(3)
                    : call.tensor(0).storage_offset;
  call.view(0, {call.integers(1), call.integers(2), offset});
  return true;
}

// (self, dim, size, step): the windows become the last dim.
bool shape_unfold(ShapeCall& call) {
  SymbolicShape shape = call.tensor(0);
  if (shape.sizes.empty()) return false;
  size_t dim = wrap_dim(call.constant(1), shape.sizes.size());
  Expr size = call.integer(2), step = call.integer(3);
  Expr room = shape.sizes[dim] - size;
  if (decide(expr_lt(room, 0)) || !decide(expr_lt(0, step))) return false;
  shape.sizes.push_back(size);
  shape.strides.push_back(shape.strides[dim]);
  shape.sizes[dim] = (step.is_const(1) ? room : floor_div(room, step)) + 1;
  shape.strides[dim] = shape.strides[dim] * step;
  return all_views(call, shape);
}

bool shape_view_as_real(ShapeCall& call) {
  SymbolicShape shape = call.tensor(0);
  for (Expr& stride : shape.strides) stride = stride * Expr(2);
  shape.storage_offset = shape.storage_offset * Expr(2);
  shape.sizes.emplace_back(2);
  shape.strides.emplace_back(1);
  return all_views(call, shape);
}

bool shape_view_as_complex(ShapeCall& call) {
  SymbolicShape shape = call.tensor(0);
  if (shape.sizes.empty()) return false;
  // Pairs lie together, at even places.
  if (!decide(expr_eq(shape.sizes.back(), 2)) ||
      !decide(expr_eq(shape.strides.back(), 1)))
    return false;
  drop_dim(&shape, shape.sizes.size() - 1);
  for (Expr& stride : shape.strides) {
    if (!decide(expr_eq(mod(stride, 2), 0))) return false;
    stride = floor_div(stride, 2);
  }
  if (!decide(expr_eq(mod(shape.storage_offset, 2), 0))) return false;
  shape.storage_offset = floor_div(shape.storage_offset, 2);
  return all_views(call, shape);
}

// The functional form of a write to argument 0: the result lies as that does in
// its memory, or alone in its own.
bool shape_memory_of_first(ShapeCall& call) {
  SymbolicShape self = call.tensor(0);
  const at::Tensor& meta = call.metas.at(0);
  bool strided = true;
  for (size_t i = 0; i < self.strides.size(); ++i)
    strided &= hint_of(self.strides[i]) == meta.stride(i);
  if (!strided) return call.fresh(0, self.sizes);
  if (hint_of(self.storage_offset) != meta.storage_offset())
    self.storage_offset = Expr(0);
  return all_views(call, self);
}

// copy_()
bool shape_copy(ShapeCall& call) {
  std::vector<Expr> self = call.tensor(0).sizes, sizes;
  return broadcast(self, call.tensor(1).sizes, &sizes) &&
         sizes.size() == self.size() && shape_memory_of_first(call);
}

// (self, dim, start, length)
bool shape_narrow_copy(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(0).sizes;
  if (sizes.empty()) return false;
  sizes[wrap_dim(call.constant(1), sizes.size())] = call.integer(3);
  return call.fresh(0, sizes);
}

bool shape_of_copies(ShapeCall& call, ShapeRuleFunction view) {
  if (!view(call)) return false;
  for (size_t i = 0; i < call.metas.size(); ++i) {
    std::vector<Expr> sizes = call.shapes[i].sizes;
    if (call.metas[i].is_contiguous() ? !call.fresh_contiguous(i, sizes)
                                      : !fresh_nested(call, i, sizes))
      return false;
  }
  return true;
}

}  // namespace framejit::graph
