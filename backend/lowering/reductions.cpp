#include "backend/lowering/reductions.h"

#include <algorithm>
#include <cmath>

#include "backend/lowering/lower.h"
#include "backend/lowering/pointwise_math.h"
#include "backend/lowering/rows.h"
#include "graph/tensors/memory_places.h"

namespace framejit::backend {

using codegen::Combiner;
using codegen::DType;
using codegen::Index;

// ---- the dims

ReducedDims::ReducedDims(std::vector<Expr> of, const std::vector<int>& dims)
    : sizes(std::move(of)), reduced(dims) {
  for (int dim = 0; dim < static_cast<int>(sizes.size()); ++dim)
    if (std::find(reduced.begin(), reduced.end(), dim) == reduced.end())
      kept.push_back(dim);
}

std::vector<Expr> ReducedDims::kept_sizes() const {
  std::vector<Expr> out;
  for (int dim : kept) out.push_back(sizes[dim]);
  return out;
}

Expr ReducedDims::count() const {
  Expr out = 1;
  for (int dim : reduced) out = out * sizes[dim];
  return out;
}

Elements ReducedDims::elements(LoopBuilder& builder) const {
  std::vector<Expr> loops = kept_sizes();
  for (int dim : reduced) loops.push_back(sizes[dim]);
  return Elements(builder, std::move(loops));
}

namespace {

std::vector<Index> indices_of(const ReducedDims& dims, Elements& elements) {
  std::vector<Index> out(dims.sizes.size());
  int loop = 0;
  for (int dim : dims.kept) out[dim] = elements.at_loop(loop++);
  for (int dim : dims.reduced) out[dim] = elements.at_loop(loop++);
  return out;
}

}  // namespace

Term ReducedDims::load(Elements& elements, const TensorView& view) const {
  return elements.load(view, indices_of(*this, elements));
}

Term ReducedDims::load_broadcast(Elements& elements,
                                 const TensorView& view) const {
  return load(elements, expanded(elements.builder(), view, sizes));
}

Term ReducedDims::load_result(Elements& elements,
                              const TensorView& result) const {
  std::vector<Index> indices;
  for (int dim : kept) indices.push_back(elements.at_loop(dim));
  return elements.load(result, indices);
}

TensorView ReducedDims::with_unit_dims(const TensorView& result) const {
  std::vector<Expr> out = sizes;
  for (int dim : reduced) out[dim] = 1;
  const int rank = static_cast<int>(sizes.size());
  std::vector<Index> indices;
  for (int dim : kept) indices.push_back(index_along(rank, dim));
  return LoopBuilder::reindex(result, std::move(out), indices);
}

std::vector<TensorView> reduce_over(LoopBuilder& builder,
                                    const ReducedDims& dims, Combiner combiner,
                                    const ElementFunction& value) {
  Elements elements = dims.elements(builder);
  Term element = value(elements);
  return builder.reduce(std::move(elements),
                        static_cast<int>(dims.reduced.size()), combiner,
                        element);
}

Term load_kept(Elements& elements, const TensorView& view) {
  return elements.load(view, elements.at_loops(0, view.rank()));
}

Term count_as(Elements& elements, const Expr& count, DType type) {
  return count.is_const()
             ? elements.constant(type, static_cast<double>(count.constant()))
             : cast(type, elements.number(count));
}

namespace {

void set_shaped(NodeLowering& node, size_t i, const ReducedDims& dims,
                const TensorView& result) {
  bool has_unit_dims = node.out(i).sizes.size() == dims.sizes.size();
  node.set(i, has_unit_dims ? dims.with_unit_dims(result) : result);
}

}  // namespace

void set_from_kept(NodeLowering& node, size_t i, const ReducedDims& dims,
                   const ElementFunction& value) {
  Elements elements(node, dims.kept_sizes());
  Term element = value(elements);
  const DType to = node.out_type(i);
  require(element.type() == to || element.type() == compute_type(to),
          "a result of another type");
  set_shaped(node, i, dims, node.map(std::move(elements), element, to));
}

void set_row(NodeLowering& node, size_t i, const ReducedDims& dims,
             const TensorView& row) {
  if (row.type == node.out_type(i)) return set_shaped(node, i, dims, row);
  set_from_kept(node, i, dims,
                [&](Elements& kept) { return load_kept(kept, row); });
}

// ---- rows

namespace {

ReducedDims dims_of(const NodeLowering& node, size_t argument) {
  std::vector<Expr> sizes = node.tensor(0).sizes;
  const int rank = static_cast<int>(sizes.size());
  return {std::move(sizes), node.dims(argument, rank)};
}

ReducedDims all_dims(const NodeLowering& node) {
  std::vector<Expr> sizes = node.tensor(0).sizes;
  std::vector<int> dims;
  for (size_t dim = 0; dim < sizes.size(); ++dim)
    dims.push_back(static_cast<int>(dim));
  return {std::move(sizes), dims};
}

ReducedDims one_dim(const NodeLowering& node, size_t argument) {
  std::vector<Expr> sizes = node.tensor(0).sizes;
  if (sizes.empty()) return {std::move(sizes), {}};
  const int rank = static_cast<int>(sizes.size());
  return {std::move(sizes), {node.dim(argument, rank)}};
}

// "sum", "any.dim": is there an argument of dims?
bool has_dims(const NodeLowering& node) {
  return !node.node().aten->operator_name().overload_name.empty();
}

ReducedDims dims_of_overload(const NodeLowering& node) {
  return has_dims(node) ? dims_of(node, 1) : all_dims(node);
}

// A reduction in the type of the result, with `value` of each element.
void lower_plain(NodeLowering& node, const ReducedDims& dims, Combiner combiner,
                 const std::function<Term(Term)>& value) {
  const DType type = compute_type(node.out_type());
  auto results = reduce_over(node, dims, combiner, [&](Elements& elements) {
    return value(cast(type, dims.load(elements, node.tensor(0))));
  });
  set_row(node, 0, dims, results[0]);
}

Term same(Term a) { return a; }

}  // namespace

void lower_sum(NodeLowering& node) {
  require(node.out_type() != DType::kBool, "a sum of bools");
  lower_plain(node, dims_of_overload(node), Combiner::kSum, same);
}

void lower_nansum(NodeLowering& node) {
  lower_plain(node, dims_of(node, 1), Combiner::kSum,
              [](Term a) { return is_float(a) ? select(is_nan(a), 0, a) : a; });
}

void lower_mean(NodeLowering& node) {
  ReducedDims dims = dims_of_overload(node);
  const DType type = compute_type(node.out_type());
  require(codegen::is_float(type), "a mean of integers");
  auto sums = reduce_over(node, dims, Combiner::kSum, [&](Elements& elements) {
    return cast(type, dims.load(elements, node.tensor(0)));
  });
  set_from_kept(node, 0, dims, [&](Elements& kept) {
    return load_kept(kept, sums[0]) / count_as(kept, dims.count(), type);
  });
}

namespace {

void lower_product(NodeLowering& node, const ReducedDims& dims) {
  const bool of_bools = node.out_type() == DType::kBool;
  lower_plain(node, dims, of_bools ? Combiner::kAll : Combiner::kProduct, same);
}

}  // namespace

void lower_prod(NodeLowering& node) { lower_product(node, all_dims(node)); }

void lower_prod_dim(NodeLowering& node) {
  lower_product(node, one_dim(node, 1));
}

void lower_trace(NodeLowering& node) {
  const TensorView view = node.tensor(0);
  require(view.rank() == 2, "no matrix");
  const Expr &rows = view.sizes[0], &columns = view.sizes[1];
  const bool wide = node.conditions().holds_when_seen(expr_le(rows, columns));
  node.ensure(wide ? expr_le(rows, columns) : expr_le(columns, rows),
              "a diagonal of another length");
  const DType type = compute_type(node.out_type());
  Elements elements(node, {wide ? rows : columns});
  Term value = cast(
      type, elements.load(view, {elements.at_loop(0), elements.at_loop(0)}));
  const TensorView sum =
      node.reduce(std::move(elements), 1, Combiner::kSum, value)[0];
  Elements result(node, {});
  Term total = result.load(sum, {});
  node.set_map(0, std::move(result), total);
}

namespace {

// Eager refuses an extreme of nothing.
void check_some(NodeLowering& node, const Expr& count) {
  node.ensure(expr_lt(0, count), "an extreme of no elements");
}

void lower_extreme(NodeLowering& node, const ReducedDims& dims,
                   Combiner combiner) {
  check_some(node, dims.count());
  lower_plain(node, dims, combiner, same);
}

void lower_extreme_and_place(NodeLowering& node, Combiner combiner) {
  ReducedDims dims = one_dim(node, 1);
  check_some(node, dims.count());
  const DType type = compute_type(node.out_type());
  auto results = reduce_over(node, dims, combiner, [&](Elements& elements) {
    return cast(type, dims.load(elements, node.tensor(0)));
  });
  set_row(node, 0, dims, results[0]);
  set_row(node, 1, dims, results[1]);
}

void lower_place(NodeLowering& node, Combiner combiner) {
  ReducedDims dims = node.has(1) ? one_dim(node, 1) : all_dims(node);
  check_some(node, dims.count());
  const DType type = compute_type(node.tensor(0).type);
  require(type != DType::kBool, "a place of bools");
  auto results = reduce_over(node, dims, combiner, [&](Elements& elements) {
    return cast(type, dims.load(elements, node.tensor(0)));
  });
  set_row(node, 0, dims, results[1]);
}

void lower_truth(NodeLowering& node, Combiner combiner) {
  ReducedDims dims = dims_of_overload(node);
  auto results = reduce_over(node, dims, combiner, [&](Elements& elements) {
    return cast(DType::kBool, dims.load(elements, node.tensor(0)));
  });
  set_from_kept(node, 0, dims, [&](Elements& kept) {
    return cast(node.out_type(), load_kept(kept, results[0]));
  });
}

}  // namespace

void lower_amax(NodeLowering& node) {
  lower_extreme(node, dims_of(node, 1), Combiner::kMax);
}
void lower_amin(NodeLowering& node) {
  lower_extreme(node, dims_of(node, 1), Combiner::kMin);
}
void lower_max(NodeLowering& node) {
  lower_extreme(node, all_dims(node), Combiner::kMax);
}
void lower_min(NodeLowering& node) {
  lower_extreme(node, all_dims(node), Combiner::kMin);
}
void lower_max_dim(NodeLowering& node) {
  lower_extreme_and_place(node, Combiner::kArgMax);
}
void lower_min_dim(NodeLowering& node) {
  lower_extreme_and_place(node, Combiner::kArgMin);
}
void lower_argmax(NodeLowering& node) { lower_place(node, Combiner::kArgMax); }
void lower_argmin(NodeLowering& node) { lower_place(node, Combiner::kArgMin); }
void lower_any(NodeLowering& node) { lower_truth(node, Combiner::kAny); }
void lower_all(NodeLowering& node) { lower_truth(node, Combiner::kAll); }

void lower_aminmax(NodeLowering& node) {
  ReducedDims dims = node.has(1) ? one_dim(node, 1) : all_dims(node);
  check_some(node, dims.count());
  const DType type = compute_type(node.out_type());
  for (size_t i : {0, 1}) {
    auto results =
        reduce_over(node, dims, i == 0 ? Combiner::kMin : Combiner::kMax,
                    [&](Elements& elements) {
                      return cast(type, dims.load(elements, node.tensor(0)));
                    });
    set_row(node, i, dims, results[0]);
  }
}

void lower_count_nonzero(NodeLowering& node) {
  ReducedDims dims = dims_of(node, 1);
  auto results =
      reduce_over(node, dims, Combiner::kSum, [&](Elements& elements) {
        Term nonzero = cast(DType::kBool, dims.load(elements, node.tensor(0)));
        return cast(DType::kI64, nonzero);
      });
  set_row(node, 0, dims, results[0]);
}

void lower_logsumexp(NodeLowering& node) {
  ReducedDims dims = dims_of(node, 1);
  check_some(node, dims.count());
  const DType type = compute_type(node.out_type());
  require(codegen::is_float(type), "no floats");
  auto element = [&](Elements& elements) {
    return cast(type, dims.load(elements, node.tensor(0)));
  };
  auto top = reduce_over(node, dims, Combiner::kMax, element);
  // An infinite maximum is not subtracted.
  auto finite = [](Term a) { return select(is_inf(a), 0, a); };
  auto sums = reduce_over(node, dims, Combiner::kSum, [&](Elements& elements) {
    std::vector<Index> kept;
    for (size_t i = 0; i < dims.kept.size(); ++i)
      kept.push_back(elements.at_loop(static_cast<int>(i)));
    return exp(element(elements) - finite(elements.load(top[0], kept)));
  });
  set_from_kept(node, 0, dims, [&](Elements& kept) {
    return log(load_kept(kept, sums[0])) + finite(load_kept(kept, top[0]));
  });
}

// ---- variance

namespace {

struct Moments {
  ReducedDims dims;
  std::vector<TensorView> results;  // mean, sum of squared distances
  DType type;
};

Moments moments_of(NodeLowering& node) {
  ReducedDims dims = dims_of(node, 1);
  const DType type = compute_type(node.tensor(0).type);
  require(codegen::is_float(type), "no floats");
  // Of no more elements than that eager warns.
  const Expr correction = node.has(2) ? node.number(2) : Expr(1);
  node.ensure(less(correction, dims.count()), "no degrees of freedom");
  node.ensure(less(0, dims.count()), "a variance of nothing");
  auto results =
      reduce_over(node, dims, Combiner::kWelford, [&](Elements& elements) {
        return cast(type, dims.load(elements, node.tensor(0)));
      });
  return {dims, results, type};
}

void set_variance(NodeLowering& node, size_t i, const Moments& moments,
                  bool is_root) {
  set_from_kept(node, i, moments.dims, [&](Elements& kept) {
    Term correction = node.has(2) ? node.number(kept, 2, moments.type)
                                  : kept.constant(moments.type, 1);
    Term divisor = maximum(
        count_as(kept, moments.dims.count(), moments.type) - correction, 0);
    Term variance = load_kept(kept, moments.results[1]) / divisor;
    return is_root ? sqrt(variance) : variance;
  });
}

void set_mean(NodeLowering& node, size_t i, const Moments& moments) {
  set_from_kept(node, i, moments.dims, [&](Elements& kept) {
    Term mean = load_kept(kept, moments.results[0]);
    Term count = count_as(kept, moments.dims.count(), moments.type);
    return select(count == 0, constant(mean, NAN), mean);
  });
}

}  // namespace

void lower_var(NodeLowering& node) {
  set_variance(node, 0, moments_of(node), false);
}
void lower_std(NodeLowering& node) {
  set_variance(node, 0, moments_of(node), true);
}
void lower_var_mean(NodeLowering& node) {
  Moments moments = moments_of(node);
  set_variance(node, 0, moments, false);
  set_mean(node, 1, moments);
}
void lower_std_mean(NodeLowering& node) {
  Moments moments = moments_of(node);
  set_variance(node, 0, moments, true);
  set_mean(node, 1, moments);
}

void lower_vector_norm(NodeLowering& node) {
  ReducedDims dims = dims_of(node, 2);
  Expr order = node.number(1);
  require(order.is_const() || order.is_float_const(), "a symbolic order");
  const double p =
      order.is_const() ? static_cast<double>(order.constant()) : order.real();
  const DType type = compute_type(node.out_type());
  require(codegen::is_float(type), "no floats");
  node.ensure_in_range(order, type);  // eager rounds it
  // Of one element eager takes the size: squares would overflow or vanish.
  const bool one = dims.count().is_const() && dims.count().constant() == 1;
  const bool infinite = std::isinf(p);
  if (infinite) check_some(node, dims.count());
  Combiner combiner = !infinite ? Combiner::kSum
                      : p > 0   ? Combiner::kMax
                                : Combiner::kMin;
  auto results = reduce_over(node, dims, combiner, [&](Elements& elements) {
    Term a = abs(cast(type, dims.load(elements, node.tensor(0))));
    if (infinite || p == 1 || (one && p != 0)) return a;
    if (p == 0) return cast(type, a != 0);
    return p == 2 ? a * a : pow(a, constant(a, p));
  });
  set_from_kept(node, 0, dims, [&](Elements& kept) {
    Term sum = load_kept(kept, results[0]);
    if (infinite || p == 1 || p == 0 || one) return sum;
    return p == 2 ? sqrt(sum) : pow(sum, constant(sum, 1 / p));
  });
}

// ---- scans

namespace {

void lower_scan(NodeLowering& node, Combiner combiner) {
  TensorView view = node.tensor(0);
  const DType type = compute_type(node.out_type());
  require(type != DType::kBool, "a scan of bools");
  if (view.rank() == 0) {
    Elements elements(node, {});
    Term value = cast(type, elements.load(view, {}));
    return node.set_map(0, std::move(elements), value);
  }
  const int dim = node.dim(1, view.rank());
  // The dim that is scanned comes last, in memory that lies as the result.
  const bool dense = graph::is_dense(node.out().sizes, node.out().strides);
  std::vector<Expr> loops, strides;
  std::vector<Index> indices(view.rank()), back;
  for (int i = 0; i < view.rank(); ++i)
    if (i != dim) loops.push_back(view.sizes[i]);
  loops.push_back(view.sizes[dim]);
  Elements elements(node, loops);
  int loop = 0;
  for (int i = 0; i < view.rank(); ++i) {
    if (i == dim) continue;
    indices[i] = elements.at_loop(loop++);
    back.push_back(index_along(view.rank(), i));
    strides.push_back(node.out().strides[i]);
  }
  indices[dim] = elements.at_loop(loop);
  back.push_back(index_along(view.rank(), dim));
  strides.push_back(node.out().strides[dim]);
  Term value = cast(type, elements.load(view, indices));
  TensorView result = node.scan(std::move(elements), combiner, value,
                                dense ? &strides : nullptr);
  result = LoopBuilder::reindex(result, view.sizes, back);
  node.set(0, type == node.out_type()
                  ? result
                  : node.copy(result, node.out_type(),
                              dense ? &node.out().strides : nullptr));
}

}  // namespace

void lower_cumsum(NodeLowering& node) { lower_scan(node, Combiner::kSum); }
void lower_cumprod(NodeLowering& node) { lower_scan(node, Combiner::kProduct); }

}  // namespace framejit::backend
