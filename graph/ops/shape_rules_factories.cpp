#include "graph/ops/shape_families.h"
#include "graph/ops/shape_parts.h"
#include "graph/tensors/sym_node.h"

namespace framejit::graph {
namespace {

// Sizes and strides are the arguments from `first` on.
bool strided(ShapeCall& call, size_t first) {
  call.view(0, {call.integers(first), call.integers(first + 1), Expr(0)});
  return true;
}

}  // namespace

bool shape_factory(ShapeCall& call) {
  int index = argument_index(call, "size");
  if (index < 0) return false;
  std::vector<Expr> sizes = call.integers(index);
  int layout = argument_index(call, "memory_format");
  if (layout >= 0 && call.has(layout)) return false;
  for (size_t i = 0; i < call.metas.size(); ++i) {
    if (!call.fresh_contiguous(i, sizes)) return false;
  }
  return true;
}

// (size, physical_layout): the dims from the outside in.
bool shape_factory_permuted(ShapeCall& call) {
  std::vector<Expr> sizes = call.integers(0);
  std::vector<int64_t> order = call.constants(1);
  if (order.size() != sizes.size()) return false;
  std::vector<Expr> outside_in, strides(sizes.size());
  for (int64_t dim : order)
    outside_in.push_back(sizes.at(wrap_dim(dim, sizes.size())));
  std::vector<Expr> nested = contiguous_strides(outside_in);
  for (size_t i = 0; i < order.size(); ++i)
    strides[wrap_dim(order[i], sizes.size())] = nested[i];
  call.view(0, {sizes, strides, Expr(0)});
  return true;
}

bool shape_strided_first(ShapeCall& call) { return strided(call, 0); }
bool shape_strided_second(ShapeCall& call) { return strided(call, 1); }

bool shape_arange(ShapeCall& call) {
  auto is_integer = [&](int i) {
    return call.arguments[i].isInt() || call.arguments[i].isSymInt();
  };
  int start = argument_index(call, "start");
  int end = argument_index(call, "end");
  int step = argument_index(call, "step");
  if (end < 0 || !is_integer(end)) return false;
  if (start >= 0 && !is_integer(start)) return false;
  Expr length = call.integer(end), by(1);
  if (start >= 0) length = length - call.integer(start);
  if (step >= 0 && call.has(step)) {
    if (!is_integer(step)) return false;
    by = call.integer(step);
  }
  if (decide(expr_lt(by, 0))) {
    length = Expr(0) - length;
    by = Expr(0) - by;
  }
  if (decide(expr_lt(length, 0)) || !decide(expr_lt(0, by))) return false;
  if (!by.is_const(1)) length = floor_div(length + by - 1, by);
  return call.fresh_contiguous(0, {length});
}

// (n), (n, m)
bool shape_eye(ShapeCall& call) {
  Expr rows = call.integer(0);
  bool square = argument_index(call, "m") != 1;
  return call.fresh_contiguous(0, {rows, square ? rows : call.integer(1)});
}

bool shape_count(ShapeCall& call) {
  return call.fresh_contiguous(0, {call.integer(0)});
}

bool shape_steps(ShapeCall& call) {
  int steps = argument_index(call, "steps");
  return steps >= 0 && call.fresh_contiguous(0, {call.integer(steps)});
}

// (self, bins)
bool shape_histc(ShapeCall& call) {
  return call.fresh_contiguous(0, {call.integer(1)});
}

}  // namespace framejit::graph
