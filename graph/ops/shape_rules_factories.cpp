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

namespace {

// Of histogram(..., weight, ...): a weight for each place in the first `rank`
// dims, which eager checks.
bool weights_fit(const ShapeCall& call, size_t rank) {
  int at = argument_index(call, "weight");
  if (at < 0 || !call.is_tensor(at)) return at >= 0;
  std::vector<Expr> self = call.tensor(0).sizes, weight = call.tensor(at).sizes;
  return rank <= self.size() && weight.size() == rank &&
         decide_same(self, weight, rank);
}

// The last dim has a coordinate for each list of bins.
bool points_fit(const ShapeCall& call, size_t lists) {
  std::vector<Expr> self = call.tensor(0).sizes;
  return self.size() >= 2 &&
         decide(expr_eq(self.back(), static_cast<int64_t>(lists))) &&
         weights_fit(call, self.size() - 1);
}

}  // namespace

// (self, bins, ...): how many bins, or their edges
bool shape_histogram(ShapeCall& call) {
  Expr edges = call.integer(1) + 1;
  if (!weights_fit(call, call.tensor(0).sizes.size())) return false;
  return call.fresh_contiguous(0, {edges - 1}) &&
         call.fresh_contiguous(1, {edges});
}

bool shape_histogram_of_edges(ShapeCall& call) {
  std::vector<Expr> edges = call.tensor(1).sizes;
  if (edges.size() != 1 || !decide(expr_lt(1, edges[0])) ||
      !weights_fit(call, call.tensor(0).sizes.size()))
    return false;
  return call.fresh_contiguous(0, {edges[0] - 1}) &&
         call.fresh_contiguous(1, edges);
}

// (self, bins, ...): a dim for each list of bins
bool shape_histogramdd(ShapeCall& call) {
  std::vector<Expr> bins;
  if (call.arguments[1].isTensorList()) {
    for (const SymbolicShape& edges : call.tensors(1)) {
      if (edges.sizes.size() != 1 || !decide(expr_lt(1, edges.sizes[0])))
        return false;
      bins.push_back(edges.sizes[0] - 1);
    }
  } else {
    bins = call.integers(1);
  }
  return points_fit(call, bins.size()) && call.fresh_contiguous(0, bins);
}

bool shape_bin_edges(ShapeCall& call) {
  std::vector<Expr> bins = call.integers(1);
  if (!points_fit(call, bins.size()) || bins.size() != call.metas.size())
    return false;
  for (size_t i = 0; i < bins.size(); ++i) {
    if (!call.fresh_contiguous(i, {bins[i] + 1})) return false;
  }
  return true;
}

// (self, size, ...): that many places, with an index for each dim
bool shape_nonzero_static(ShapeCall& call) {
  Expr rank(static_cast<int64_t>(call.tensor(0).sizes.size()));
  return call.fresh_contiguous(0, {call.integer(1), rank});
}

}  // namespace framejit::graph
