// Tensors put together of parts, copies, and tensors out of nothing.
#include <c10/core/DefaultDtype.h>

#include "backend/lowering/lower.h"
#include "backend/lowering/pointwise.h"
#include "backend/lowering/pointwise_math.h"
#include "backend/lowering/rows.h"

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
                  is_dense(node.out().sizes, node.out().strides)
                      ? &node.out().strides
                      : nullptr);
}

// `base` with `part` at start + index * step of dim.
TensorView put_slice(NodeLowering& node, const TensorView& base,
                     const TensorView& part, int dim, const Expr& start,
                     const Expr& step) {
  Elements elements(node, part.sizes);
  auto target = elements.at_loops(0, part.rank());
  target[dim] = elements.at_loop(dim, step, start);
  Term value = elements.load(part, elements.at_loops(0, part.rank()));
  return node.update(std::move(elements), base, target, value);
}

void set_copy(NodeLowering& node, const TensorView& view) {
  Elements elements(node, node.out().sizes);
  Term value = elements.load_broadcast(view);
  DType type = node.out_type();
  node.set_map(0, std::move(elements), cast(type, value));
}

}  // namespace

void lower_copy(NodeLowering& node) { set_copy(node, node.tensor(0)); }

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
  require(same_size(start, node.out().sizes[dim]), "sizes that do not add up");
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
  Expr start = node.has(3) ? node.integer(3) : Expr(0);
  node.set(0, put_slice(node, base, part, dim,
                        slice_start(start, base.sizes[dim]), node.integer(5)));
}

void lower_select_scatter(NodeLowering& node) {
  TensorView base = node.tensor(0);
  int dim = node.dim(2, base.rank());
  node.set(0, put_slice(node, base, with_dim(node.tensor(1), dim), dim,
                        from_front(node.integer(3), base.sizes[dim]), 1));
}

namespace {

TensorView put_diagonal(NodeLowering& node, const TensorView& base,
                        const TensorView& part, int64_t offset, int dim1,
                        int dim2) {
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
  node.set(0, put_slice(node, base, part, dim,
                        slice_start(node.integer(3), base.sizes[dim]),
                        node.integer(5)));
}

void lower_select_backward(NodeLowering& node) {
  TensorView base = filled(node, 0);
  int dim = node.dim(2, base.rank());
  node.set(0, put_slice(node, base, with_dim(node.tensor(0), dim), dim,
                        from_front(node.integer(3), base.sizes[dim]), 1));
}

void lower_diagonal_backward(NodeLowering& node) {
  TensorView base = filled(node, 0);
  node.set(0, put_diagonal(node, base, node.tensor(0), node.known_integer(2),
                           node.dim(3, base.rank()), node.dim(4, base.rank())));
}

void lower_unfold_backward(NodeLowering& node) {
  TensorView part = node.tensor(0);
  const DType type = node.out_type(), computed = compute_type(type);
  require(!node.out().sizes.empty(), "a fold of no dims");
  int dim = node.dim(2, static_cast<int>(node.out().sizes.size()));
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
  Term mask = cast(DType::kBool, elements.load_broadcast(node.tensor(1)));
  Term fill = node.is_tensor(2)
                  ? cast(type, elements.load_broadcast(node.tensor(2)))
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
  Term number =
      node.is_tensor(value)
          ? cast(node.out_type(), elements.load_broadcast(node.tensor(value)))
          : node.number(elements, value, node.out_type());
  node.set_map(0, std::move(elements), number);
}

}  // namespace

void lower_full(NodeLowering& node) { fill_with(node, 1); }
void lower_new_full(NodeLowering& node) { fill_with(node, 2); }
void lower_scalar_tensor(NodeLowering& node) { fill_with(node, 0); }

void lower_arange(NodeLowering& node) {
  const std::string name = node.node().aten->operator_name().overload_name;
  require(!codegen::is_float(node.out_type()), "a range of floats");
  Expr start = name.empty() ? Expr(0) : node.integer(0);
  Expr step = name == "start_step" ? node.integer(2) : Expr(1);
  Elements elements(node, node.out().sizes);
  Term value = elements.value_of(elements.at_loop(0, step, start));
  value = cast(node.out_type(), value);
  node.set_map(0, std::move(elements), value);
}

void lower_eye(NodeLowering& node) {
  Elements elements(node, node.out().sizes);
  Term on_diagonal = elements.loop(0) == elements.loop(1);
  Term value = cast(node.out_type(), on_diagonal);
  node.set_map(0, std::move(elements), value);
}

}  // namespace framejit::backend
