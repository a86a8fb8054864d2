// Tensors put together of parts, copies, and tensors out of nothing.
#include <c10/core/DefaultDtype.h>

#include "backend/lowering/lower.h"
#include "backend/lowering/pointwise.h"
#include "backend/lowering/pointwise_math.h"
#include "backend/lowering/rows.h"
#include "graph/tensors/memory_places.h"

namespace framejit::backend {

using codegen::DType;
using codegen::Index;

namespace {

// Memory with nothing in it yet, to be updated: in the order of eager's result.
TensorView nothing(NodeLowering& node) {
  TensorView out;
  out.type = node.out_type();
  out.sizes = node.out().sizes;
  return out;
}

// One value everywhere.
TensorView filled(NodeLowering& node, double value) {
  Elements elements(node, node.out().sizes);
  Term number = elements.constant(node.out_type(), value);
  return node.map(std::move(elements), number, node.out_type(),
                  graph::is_dense(node.out().sizes, node.out().strides)
                      ? &node.out().strides
                      : nullptr);
}

// How many elements of a dim the arguments `first` (start), the end and the
// step behind it choose.
Expr slice_length(NodeLowering& node, size_t first, const Expr& size) {
  auto place = [&](size_t i, const Expr& missing) {
    if (!node.has(i)) return missing;
    Expr at = node.integer(i);
    if (!at.is_const()) {
      node.ensure(expr_le(0, at), "a place that counts from the end");
    } else if (at.constant() == INT64_MAX) {
      return size;
    } else if (at.constant() < 0) {
      return Expr::make(ExprOp::kMax, {size + at, Expr(0)});
    }
    return at == size ? size : Expr::make(ExprOp::kMin, {at, size});
  };
  const Expr start = place(first, 0), end = place(first + 1, size);
  const int64_t step = node.known_integer(first + 2);
  require(step > 0, "no step forward");
  Expr length = end - start;
  if (!start.is_const(0) || !(end == size))
    length = Expr::make(ExprOp::kMax, {length, Expr(0)});
  return step == 1 ? length : floor_div(length + (step - 1), step);
}

// The sizes that a part has which is put into dim of `sizes`.
void ensure_part(NodeLowering& node, const TensorView& part,
                 std::vector<Expr> sizes, int dim, const Expr& length) {
  sizes[dim] = length;
  node.ensure_sizes(part.sizes, sizes, "a part of other sizes");
}

// An index of a dim, also from its end.
void ensure_index(NodeLowering& node, const Expr& index, const Expr& size) {
  node.ensure(expr_le(size * -1, index), "an index out of range");
  node.ensure(expr_lt(index, size), "an index out of range");
}

// `base` with `part` at start + index * step of dim.
TensorView put_slice(NodeLowering& node, const TensorView& base,
                     const TensorView& part, int dim, const Expr& start,
                     const Expr& step) {
  Elements elements(node, part.sizes);
  auto target = elements.at_loops(0, part.rank());
  target[dim] = elements.at_loop(dim, step, start);
  Term value = elements.load(part, elements.at_loops(0, part.rank()));
  const graph::TensorMeta& out = node.out();
  const bool fits =
      base.sizes == out.sizes && graph::is_dense(out.sizes, out.strides);
  return node.update(std::move(elements), base, target, value, {},
                     fits ? &out.strides : nullptr);
}

void set_copy(NodeLowering& node, const TensorView& view) {
  Elements elements(node, node.out().sizes);
  Term value = elements.load_broadcast(view);
  DType type = node.out_type();
  node.set_map(0, std::move(elements), cast(type, value));
}

// The dim along which elements lie side by side; -1: none.
int dim_in_one_piece(const graph::TensorMeta& meta) {
  for (size_t i = meta.sizes.size(); i-- > 0;) {
    if (meta.strides[i].is_const(1) && !meta.sizes[i].is_const(1))
      return static_cast<int>(i);
  }
  return -1;
}

// Rows become columns, and how many there are is a symbol: kernels make no
// blocks of those (schedule/arrange_loops.cpp), and ATen does.
bool transposes_symbols(const graph::TensorMeta& from,
                        const graph::TensorMeta& to) {
  const int row = dim_in_one_piece(from), column = dim_in_one_piece(to);
  return row >= 0 && column >= 0 && row != column &&
         !(to.sizes[row].is_const() && to.sizes[column].is_const());
}

}  // namespace

void lower_copy(NodeLowering& node) {
  require(!transposes_symbols(node.meta_of(0), node.out()),
          "rows and columns change places whose number is not known");
  set_copy(node, node.tensor(0));
}

void lower_copy_from(NodeLowering& node) { set_copy(node, node.tensor(1)); }

void lower_cat(NodeLowering& node) {
  const int rank = static_cast<int>(node.out().sizes.size());
  const int dim = node.dim(1, rank);
  TensorView whole = nothing(node);
  Expr start = 0;
  for (const TensorView& part : node.tensors(0)) {
    // Once upon a time all empty tensors had one dim.
    if (part.rank() == 1 && part.sizes[0].is_const(0)) continue;
    require(part.rank() == rank, "parts of different rank");
    whole = put_slice(node, whole, part, dim, start, 1);
    start = start + part.sizes[dim];
  }
  require(whole.buffer != codegen::kNoBuffer, "nothing to put together");
  node.ensure_equal(start, node.out().sizes[dim], "sizes that do not add up");
  node.set(0, whole);
}

void lower_stack(NodeLowering& node) {
  const int dim = node.dim(1, static_cast<int>(node.out().sizes.size()));
  TensorView whole = nothing(node);
  int64_t start = 0;
  for (const TensorView& part : node.tensors(0))
    whole = put_slice(node, whole, with_dim(part, dim), dim, start++, 1);
  require(start > 0, "nothing to put together");
  node.set(0, whole);
}

void lower_constant_pad(NodeLowering& node) {
  TensorView view = node.tensor(0);
  auto pads = node.integers(1);
  Elements fill(node, node.out().sizes);
  Term number = node.number(fill, 2, node.out_type());
  TensorView base = node.map(std::move(fill), number);
  std::vector<Expr> starts(view.rank());
  for (size_t i = 0; i + 1 < pads.size(); i += 2) {
    int dim = view.rank() - 1 - static_cast<int>(i / 2);
    require(pads[i].is_const() && pads[i + 1].is_const(), "symbolic pads");
    int64_t low = pads[i].constant(), high = pads[i + 1].constant();
    Expr length = view.sizes[dim] + std::min<int64_t>(low, 0) +
                  std::min<int64_t>(high, 0);
    view = sliced(view, dim, std::max<int64_t>(-low, 0), length, 1);
    starts[dim] = std::max<int64_t>(low, 0);
  }
  Elements elements(node, view.sizes);
  std::vector<Index> target;
  for (int dim = 0; dim < view.rank(); ++dim)
    target.push_back(elements.at_loop(dim, 1, starts[dim]));
  Term value = elements.load(view, elements.at_loops(0, view.rank()));
  node.set(0, node.update(std::move(elements), base, target, value));
}

void lower_slice_scatter(NodeLowering& node) {
  TensorView base = node.tensor(0), part = node.tensor(1);
  int dim = node.dim(2, base.rank());
  const Expr length = slice_length(node, 3, base.sizes[dim]);
  ensure_part(node, part, base.sizes, dim, length);
  const Expr start =
      slice_start(node.has(3) ? node.integer(3) : Expr(0), base.sizes[dim]);
  const Expr step = node.integer(5);
  auto put = node.put_back(
      base, sliced(base, dim, start, part.sizes[dim], step), part);
  node.set(0, put ? *put : put_slice(node, base, part, dim, start, step));
}

namespace {

// `part` in place of one index of the dim, which is argument 3.
void put_selected(NodeLowering& node, const TensorView& base,
                  const TensorView& part, int dim) {
  const Expr& size = base.sizes[dim];
  require(part.rank() + 1 == base.rank(), "a part of other dims");
  const TensorView slice = with_dim(part, dim);
  ensure_part(node, slice, base.sizes, dim, 1);
  ensure_index(node, node.integer(3), size);
  const Expr place = from_front(node.integer(3), size);
  auto put = node.put_back(base, selected(base, dim, place), part);
  node.set(0, put ? *put : put_slice(node, base, slice, dim, place, 1));
}

}  // namespace

void lower_select_scatter(NodeLowering& node) {
  TensorView base = node.tensor(0);
  int dim = node.dim(2, base.rank());
  put_selected(node, base, node.tensor(1), dim);
}

namespace {

Expr diagonal_length(const Expr& rows, const Expr& columns, int64_t offset) {
  const Expr a = rows + std::min<int64_t>(offset, 0);
  const Expr b = columns - std::max<int64_t>(offset, 0);
  return a == b ? a : Expr::make(ExprOp::kMin, {a, b});
}

TensorView put_diagonal(NodeLowering& node, const TensorView& base,
                        const TensorView& part, int64_t offset, int dim1,
                        int dim2) {
  require(dim1 != dim2 && part.rank() == base.rank() - 1, "no diagonal");
  std::vector<Expr> sizes;
  for (int dim = 0; dim < base.rank(); ++dim)
    if (dim != dim1 && dim != dim2) sizes.push_back(base.sizes[dim]);
  sizes.push_back(diagonal_length(base.sizes[dim1], base.sizes[dim2], offset));
  node.ensure_sizes(part.sizes, sizes, "another diagonal");
  Elements elements(node, part.sizes);
  std::vector<Index> target;
  const int last = part.rank() - 1;
  int next = 0;
  for (int dim = 0; dim < base.rank(); ++dim) {
    if (dim == dim1) {
      target.push_back(elements.at_loop(last, 1, offset < 0 ? -offset : 0));
    } else if (dim == dim2) {
      target.push_back(elements.at_loop(last, 1, offset > 0 ? offset : 0));
    } else {
      target.push_back(elements.at_loop(next++));
    }
  }
  Term value = elements.load(part, elements.at_loops(0, part.rank()));
  return node.update(std::move(elements), base, target, value);
}

}  // namespace

void lower_diagonal_scatter(NodeLowering& node) {
  TensorView base = node.tensor(0);
  node.set(0, put_diagonal(node, base, node.tensor(1), node.known_integer(2),
                           node.dim(3, base.rank()), node.dim(4, base.rank())));
}

void lower_slice_backward(NodeLowering& node) {
  TensorView part = node.tensor(0), base = filled(node, 0);
  int dim = node.dim(2, base.rank());
  ensure_part(node, part, base.sizes, dim,
              slice_length(node, 3, base.sizes[dim]));
  node.set(0, put_slice(node, base, part, dim,
                        slice_start(node.integer(3), base.sizes[dim]),
                        node.integer(5)));
}

void lower_select_backward(NodeLowering& node) {
  TensorView base = filled(node, 0);
  int dim = node.dim(2, base.rank());
  put_selected(node, base, node.tensor(0), dim);
}

void lower_diagonal_backward(NodeLowering& node) {
  TensorView base = filled(node, 0);
  node.set(0, put_diagonal(node, base, node.tensor(0), node.known_integer(2),
                           node.dim(3, base.rank()), node.dim(4, base.rank())));
}

void lower_diag_embed(NodeLowering& node) {
  TensorView base = filled(node, 0);
  node.set(0, put_diagonal(node, base, node.tensor(0), node.known_integer(1),
                           node.dim(2, base.rank()), node.dim(3, base.rank())));
}

void lower_unfold_backward(NodeLowering& node) {
  TensorView part = node.tensor(0);
  const DType type = node.out_type(), computed = compute_type(type);
  require(!node.out().sizes.empty(), "a fold of no dims");
  std::vector<Expr> sizes = node.out().sizes;
  int dim = node.dim(2, static_cast<int>(sizes.size()));
  const Expr size = node.integer(3);
  const int64_t step = node.known_integer(4);
  require(step > 0, "no step forward");
  sizes[dim] = floor_div(sizes[dim] - size, step) + 1;
  sizes.push_back(size);
  node.ensure_sizes(part.sizes, sizes, "parts of other sizes");
  Elements zeros(node, node.out().sizes);
  Term zero = zeros.constant(computed, 0);
  TensorView base = node.map(std::move(zeros), zero);
  Elements elements(node, part.sizes);
  auto target = elements.at_loops(0, part.rank() - 1);
  target[dim].coefficients[dim] = node.integer(4);
  target[dim].coefficients[part.rank() - 1] = 1;
  Term value =
      cast(computed, elements.load(part, elements.at_loops(0, part.rank())));
  TensorView sums = node.update(std::move(elements), base, target, value,
                                codegen::Combiner::kSum);
  node.set(0, computed == type ? sums : node.copy(sums, type));
}

void lower_roll(NodeLowering& node) {
  TensorView view = node.tensor(0);
  auto shifts = node.integers(1);
  auto dims = node.integers(2);
  if (dims.empty() && view.rank() == 1) dims.emplace_back(0);
  require(dims.size() == shifts.size() && !dims.empty(), "a flat roll");
  for (size_t i = 0; i < dims.size(); ++i) {
    require(dims[i].is_const() && shifts[i].is_const(), "a symbolic roll");
    int dim = static_cast<int>(dims[i].constant() +
                               (dims[i].constant() < 0 ? view.rank() : 0));
    require(view.sizes[dim].is_const(), "a symbolic roll");
    const int64_t size = view.sizes[dim].constant();
    if (size == 0) continue;
    int64_t shift = shifts[i].constant() % size;
    if (shift < 0) shift += size;
    if (shift == 0) continue;
    TensorView whole = nothing(node);
    whole = put_slice(node, whole, sliced(view, dim, size - shift, shift, 1),
                      dim, 0, 1);
    view = put_slice(node, whole, sliced(view, dim, 0, size - shift, 1), dim,
                     shift, 1);
  }
  node.set(0, view);
}

void lower_rot90(NodeLowering& node) {
  TensorView view = node.tensor(0);
  auto dims = node.dims(2, view.rank());
  auto given = node.integers(2);
  require(dims.size() == 2 && given.size() == 2, "not two dims");
  auto first = static_cast<int>(given[0].constant());
  if (first < 0) first += view.rank();
  const int a = first, b = dims[0] == first ? dims[1] : dims[0];
  const int64_t turns = ((node.known_integer(1) % 4) + 4) % 4;
  const int rank = view.rank();
  std::vector<Index> indices;
  for (int dim = 0; dim < rank; ++dim)
    indices.push_back(index_along(rank, dim));
  std::vector<Expr> sizes = view.sizes;
  if (turns % 2) {
    std::swap(indices[a], indices[b]);
    std::swap(sizes[a], sizes[b]);
  }
  auto turn = [&](int dim) {
    for (Expr& coefficient : indices[dim].coefficients)
      coefficient = coefficient * -1;
    indices[dim].offset = view.sizes[dim] - 1;
  };
  if (turns == 1 || turns == 2) turn(b);
  if (turns == 3 || turns == 2) turn(a);
  node.set(0, LoopBuilder::reindex(view, std::move(sizes), indices));
}

namespace {

// Dims that are put together when the elements lie in this order.
void set_merged(NodeLowering& node, const TensorView& view,
                const std::vector<int>& order) {
  auto strides = codegen::contiguous_strides(node.out().sizes);
  require(node.out().strides == strides, "a result in another order");
  std::vector<Expr> sizes;
  std::vector<Index> indices(view.rank());
  for (int dim = 0; dim < view.rank(); ++dim) {
    sizes.push_back(view.sizes[order[dim]]);
    indices[order[dim]] = index_along(view.rank(), dim);
  }
  TensorView memory = node.copy(
      LoopBuilder::reindex(view, std::move(sizes), indices), view.type);
  node.set(0, node.alias(memory, node.out().sizes, strides, 0));
}

TensorView split_dims(const TensorView& view, const std::vector<Expr>& sizes) {
  auto out = reshaped(view, sizes);
  require(out.has_value(), "sizes that are not known to divide");
  return *out;
}

// The dims in front, then those of the end in the given order.
std::vector<int> behind(int front, const std::vector<int>& order) {
  std::vector<int> out;
  for (int dim = 0; dim < front; ++dim) out.push_back(dim);
  for (int dim : order) out.push_back(front + dim);
  return out;
}

}  // namespace

void lower_pixel_shuffle(NodeLowering& node) {
  TensorView view = node.tensor(0);
  const int front = view.rank() - 3;
  const int64_t factor = node.known_integer(1);
  std::vector<Expr> sizes(view.sizes.begin(), view.sizes.begin() + front);
  for (const Expr& size : {node.out().sizes[front], Expr(factor), Expr(factor),
                           view.sizes[front + 1], view.sizes[front + 2]})
    sizes.push_back(size);
  set_merged(node, split_dims(view, sizes), behind(front, {0, 3, 1, 4, 2}));
}

void lower_pixel_unshuffle(NodeLowering& node) {
  TensorView view = node.tensor(0);
  const int front = view.rank() - 3;
  const int64_t factor = node.known_integer(1);
  std::vector<Expr> sizes(view.sizes.begin(), view.sizes.begin() + front + 1);
  for (const Expr& size : {node.out().sizes[front + 1], Expr(factor),
                           node.out().sizes[front + 2], Expr(factor)})
    sizes.push_back(size);
  set_merged(node, split_dims(view, sizes), behind(front, {0, 2, 4, 1, 3}));
}

void lower_channel_shuffle(NodeLowering& node) {
  TensorView view = node.tensor(0);
  const int64_t groups = node.known_integer(1);
  require(view.rank() >= 2 && view.sizes[1].is_const(), "symbolic channels");
  std::vector<Expr> sizes{view.sizes[0], groups,
                          view.sizes[1].constant() / groups};
  std::vector<int> order{0, 2, 1};
  for (int dim = 2; dim < view.rank(); ++dim) {
    order.push_back(static_cast<int>(sizes.size()));
    sizes.push_back(view.sizes[dim]);
  }
  set_merged(node, split_dims(view, sizes), order);
}

void lower_repeat(NodeLowering& node) {
  TensorView view = node.tensor(0);
  auto repeats = node.integers(1);
  const int rank = static_cast<int>(repeats.size());
  require(rank == static_cast<int>(node.out().sizes.size()),
          "repeated in other dims");
  const int missing = rank - view.rank();
  std::vector<Expr> loops = repeats;
  for (int dim = 0; dim < rank; ++dim)
    loops.push_back(dim < missing ? Expr(1) : view.sizes[dim - missing]);
  Elements elements(node, loops);
  std::vector<Index> target, source;
  for (int dim = 0; dim < rank; ++dim) {
    Index index = elements.at_loop(rank + dim);
    index.coefficients[dim] = loops[rank + dim];
    target.push_back(std::move(index));
    if (dim >= missing) source.push_back(elements.at_loop(rank + dim));
  }
  Term value = elements.load(view, source);
  node.set(0, node.update(std::move(elements), nothing(node), target, value));
}

namespace {

void lower_triangle(NodeLowering& node, bool is_lower) {
  TensorView view = node.tensor(0);
  Elements elements(node, view.sizes);
  Term value = elements.load_broadcast(view);
  Term distance =
      elements.loop(view.rank() - 1) - elements.loop(view.rank() - 2);
  Term diagonal = node.number(elements, 1, DType::kI64);
  Term inside = is_lower ? distance <= diagonal : distance >= diagonal;
  Term zero = elements.constant(value.type(), 0);
  Term kept = select(inside, value, zero);
  node.set_map(0, std::move(elements), kept);
}

}  // namespace

void lower_tril(NodeLowering& node) { lower_triangle(node, true); }
void lower_triu(NodeLowering& node) { lower_triangle(node, false); }

void lower_masked_fill(NodeLowering& node) {
  Elements elements(node, node.out().sizes);
  const DType type = node.out_type();
  Term value = elements.load_broadcast(node.tensor(0));
  Term mask = elements.load_broadcast(node.tensor(1));
  require(mask.type() == DType::kBool, "a mask that is not of bools");
  Term fill = node.is_tensor(2) ? node.number(elements, node.tensor(2), type)
                                : node.number(elements, 2, type);
  require(value.type() == type, "a result of another type");
  Term result = select(mask, fill, value);
  node.set_map(0, std::move(elements), result);
}

void lower_nan_to_num(NodeLowering& node) {
  Elements elements(node, node.out().sizes);
  const DType type = node.out_type();
  Term value = elements.load_broadcast(node.tensor(0));
  if (!codegen::is_float(type)) {
    node.set_map(0, std::move(elements), value);
    return;
  }
  double largest = type == DType::kF64    ? 0x1.fffffffffffffp1023
                   : type == DType::kF32  ? 0x1.fffffep127
                   : type == DType::kBF16 ? 0x1.fep127
                                          : 65504;
  const DType computed = compute_type(type);
  value = cast(computed, value);
  auto replacement = [&](size_t i, double number) {
    return node.has(i) ? cast(computed, node.number(elements, i, type))
                       : elements.constant(computed, number);
  };
  Term nan = replacement(1, 0), high = replacement(2, largest),
       low = replacement(3, -largest);
  value = select(
      is_nan(value), nan,
      select(value == HUGE_VAL, high, select(value == -HUGE_VAL, low, value)));
  node.set_map(0, std::move(elements), value);
}

namespace {

// An element in the type it is computed in.
Term computed_load(Elements& elements, const TensorView& view) {
  return cast(compute_type(view.type), elements.load_broadcast(view));
}

}  // namespace

void lower_glu(NodeLowering& node) {
  TensorView view = node.tensor(0);
  int dim = node.dim(1, view.rank());
  const Expr& half = node.out().sizes[dim];
  Elements elements(node, node.out().sizes);
  Term a = computed_load(elements, sliced(view, dim, 0, half, 1));
  Term b = computed_load(elements, sliced(view, dim, half, half, 1));
  require(is_float(a), "no floats");
  Term result = a * sigmoid(b);
  node.set_map(0, std::move(elements), result);
}

void lower_glu_backward(NodeLowering& node) {
  TensorView gradient = node.tensor(0), view = node.tensor(1);
  int dim = node.dim(2, view.rank());
  const Expr half = gradient.sizes[dim];
  TensorView whole = nothing(node);
  for (bool is_gate : {false, true}) {
    Elements elements(node, gradient.sizes);
    Term g = computed_load(elements, gradient);
    Term a = computed_load(elements, sliced(view, dim, 0, half, 1));
    Term s = sigmoid(computed_load(elements, sliced(view, dim, half, half, 1)));
    Term value = is_gate ? (1 - s) * s * g * a : s * g;
    auto target = elements.at_loops(0, view.rank());
    if (is_gate) target[dim] = elements.at_loop(dim, 1, half);
    whole = node.update(std::move(elements), whole, target, value);
  }
  node.set(0, whole);
}

void lower_log_sigmoid(NodeLowering& node) {
  require(codegen::is_float(node.tensor(0).type), "no floats");
  Elements elements(node, node.out().sizes);
  Term a = computed_load(elements, node.tensor(0));
  Term z = exp(-abs(a));
  Term result = minimum(a, 0) - log1p(z);
  node.set_map(0, std::move(elements), result);
  if (node.out(1).sizes != node.out().sizes) {
    require(node.node().outputs[1]->users.empty(), "a buffer of another size");
    return;
  }
  Elements buffer(node, node.out(1).sizes);
  Term b = exp(-abs(computed_load(buffer, node.tensor(0))));
  node.set_map(1, std::move(buffer), b);
}

void lower_prelu_backward(NodeLowering& node) {
  for (bool of_weight : {false, true}) {
    Elements elements(node, node.out(of_weight).sizes);
    Term g = computed_load(elements, node.tensor(0));
    Term a = computed_load(elements, node.tensor(1));
    Term w = computed_load(elements, node.tensor(2));
    Term result = of_weight ? select(a > 0, 0, a * g) : select(a > 0, g, w * g);
    node.set_map(of_weight, std::move(elements), result);
  }
}

// ---- out of nothing

void lower_zeros(NodeLowering& node) { node.set(0, filled(node, 0)); }
void lower_ones(NodeLowering& node) { node.set(0, filled(node, 1)); }

namespace {

void fill_with(NodeLowering& node, size_t value) {
  Elements elements(node, node.out().sizes);
  Term number = node.is_tensor(value)
                    ? node.number(elements, node.tensor(value), node.out_type())
                    : node.number(elements, value, node.out_type());
  node.set_map(0, std::move(elements), number);
}

}  // namespace

void lower_full(NodeLowering& node) { fill_with(node, 1); }
void lower_new_full(NodeLowering& node) { fill_with(node, 2); }
void lower_scalar_tensor(NodeLowering& node) { fill_with(node, 0); }

void lower_eye(NodeLowering& node) {
  Elements elements(node, node.out().sizes);
  Term on_diagonal = elements.loop(0) == elements.loop(1);
  Term value = cast(node.out_type(), on_diagonal);
  node.set_map(0, std::move(elements), value);
}

}  // namespace framejit::backend
