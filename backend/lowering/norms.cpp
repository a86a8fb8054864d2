// Softmax and normalisations, forward and backward, as definitions over rows:
// the schedule puts those over the same rows into one kernel.
#include "backend/lowering/pointwise_math.h"
#include "backend/lowering/reductions.h"
#include "backend/lowering/rows.h"
#include "graph/tensors/memory_places.h"

namespace framejit::backend {

using codegen::Combiner;
using codegen::DType;

namespace {

ReducedDims dims_behind(const std::vector<Expr>& sizes, int first) {
  std::vector<int> dims;
  for (int dim = first; dim < static_cast<int>(sizes.size()); ++dim)
    dims.push_back(dim);
  return {sizes, dims};
}

// All dims but one.
ReducedDims dims_but(const std::vector<Expr>& sizes, int kept) {
  std::vector<int> dims;
  for (int dim = 0; dim < static_cast<int>(sizes.size()); ++dim)
    if (dim != kept) dims.push_back(dim);
  return {sizes, dims};
}

// Parameters have the input's type, or are all of f32 where that is smaller.
void check_parameter_types(NodeLowering& node, size_t input,
                           std::initializer_list<size_t> parameters) {
  const DType type = node.tensor(input).type;
  require(codegen::is_float(type), "no floats");
  std::optional<DType> common;
  for (size_t i : parameters) {
    if (!node.has(i)) continue;
    const DType own = node.tensor(i).type;
    // (Statistics of small floats are of f32 where parameters need not be.)
    const bool may_differ = !node.node().outputs[0]->meta.device.is_cpu() &&
                            (own == type || own == DType::kF32);
    if (may_differ && codegen::is_small_float(type)) continue;
    require(!common || own == *common, "parameters of different types");
    common = own;
  }
  require(!common || *common == type ||
              (codegen::is_small_float(type) && *common == DType::kF32),
          "parameters of another type");
}

// Each is a row of so many.
void check_channels(NodeLowering& node, const Expr& channels,
                    std::initializer_list<size_t> parameters) {
  for (size_t i : parameters)
    if (node.has(i))
      node.ensure_sizes(node.tensor(i).sizes, {channels},
                        "parameters of other sizes");
}

ReducedDims softmax_dim(const NodeLowering& node, size_t tensor,
                        size_t argument) {
  std::vector<Expr> sizes = node.tensor(tensor).sizes;
  const int rank = static_cast<int>(sizes.size());
  if (rank == 0) return {sizes, {}};
  return {sizes, {node.dim(argument, rank)}};
}

// An element of a view over the kept dims, in loops over kept and reduced.
Term load_row(Elements& elements, const ReducedDims& dims,
              const TensorView& row) {
  return elements.load(
      row, elements.at_loops(0, static_cast<int>(dims.kept.size())));
}

Term load_as(Elements& elements, DType type, const TensorView& view) {
  return cast(type, elements.load_broadcast(view));
}

void lower_softmax_like(NodeLowering& node, bool is_log) {
  require(!node.flag(2), "a conversion that CPUs do not make");
  ReducedDims dims = softmax_dim(node, 0, 1);
  TensorView x = node.tensor(0);
  const DType type = compute_type(node.out_type());
  require(codegen::is_float(type), "no floats");
  auto row = reduce_over(
      node, dims, Combiner::kSoftmaxSum,
      [&](Elements& elements) { return cast(type, dims.load(elements, x)); });
  Elements elements(node, x.sizes);
  Term shifted =
      load_as(elements, type, x) - dims.load_result(elements, row[0]);
  Term sum = dims.load_result(elements, row[1]);
  Term result = is_log ? shifted - log(sum) : exp(shifted) / sum;
  node.set_map(0, std::move(elements), result);
}

// (grad, output, dim, input_dtype)
void check_softmax_backward(NodeLowering& node) {
  node.require_one_type({0, 1});
  require(node.out_type() == node.tensor(1).type, "a result of another type");
  require(codegen::is_float(node.out_type()), "no floats");
  node.ensure_sizes(node.tensor(0).sizes, node.tensor(1).sizes,
                    "a gradient of other sizes");
}

}  // namespace

void lower_softmax(NodeLowering& node) { lower_softmax_like(node, false); }
void lower_log_softmax(NodeLowering& node) { lower_softmax_like(node, true); }

// Rows of -inf alone, all that is masked, become zeros.
void lower_safe_softmax(NodeLowering& node) {
  TensorView x = node.tensor(0);
  require(node.out_type() == x.type, "a softmax in another type");
  ReducedDims dims = softmax_dim(node, 0, 1);
  const DType type = compute_type(x.type);
  require(codegen::is_float(type), "no floats");
  auto row = reduce_over(
      node, dims, Combiner::kSoftmaxSum,
      [&](Elements& elements) { return cast(type, dims.load(elements, x)); });
  Elements elements(node, x.sizes);
  Term largest = dims.load_result(elements, row[0]);
  Term value = exp(load_as(elements, type, x) - largest) /
               dims.load_result(elements, row[1]);
  value = select(largest == -HUGE_VAL, 0, value);
  node.set_map(0, std::move(elements), value);
}

void lower_softmax_backward(NodeLowering& node) {
  check_softmax_backward(node);
  ReducedDims dims = softmax_dim(node, 1, 2);
  TensorView gradient = node.tensor(0), output = node.tensor(1);
  const DType type = compute_type(output.type);
  auto sums = reduce_over(node, dims, Combiner::kSum, [&](Elements& elements) {
    return cast(type, dims.load_broadcast(elements, gradient)) *
           cast(type, dims.load(elements, output));
  });
  Elements elements(node, output.sizes);
  Term result = (load_as(elements, type, gradient) -
                 dims.load_result(elements, sums[0])) *
                load_as(elements, type, output);
  node.set_map(0, std::move(elements), result);
}

void lower_log_softmax_backward(NodeLowering& node) {
  check_softmax_backward(node);
  ReducedDims dims = softmax_dim(node, 1, 2);
  TensorView gradient = node.tensor(0), output = node.tensor(1);
  const DType type = compute_type(output.type);
  auto sums = reduce_over(node, dims, Combiner::kSum, [&](Elements& elements) {
    return cast(type, dims.load_broadcast(elements, gradient));
  });
  Elements elements(node, output.sizes);
  Term result = load_as(elements, type, gradient) -
                exp(load_as(elements, type, output)) *
                    dims.load_result(elements, sums[0]);
  node.set_map(0, std::move(elements), result);
}

// ---- layer norm

namespace {

// 1 / sqrt(variance + eps), over the rows.
TensorView inverse_deviation(NodeLowering& node, const TensorView& squares,
                             const Expr& count, size_t eps) {
  Elements rows(node, squares.sizes);
  Term variance =
      load_kept(rows, squares) / count_as(rows, count, squares.type);
  Term result = 1 / sqrt(variance + node.number(rows, eps, squares.type));
  return node.map(std::move(rows), result);
}

Term normalised(Elements& elements, const ReducedDims& dims,
                const TensorView& x, const TensorView& mean,
                const TensorView& scale) {
  return (load_as(elements, mean.type, x) - dims.load_result(elements, mean)) *
         dims.load_result(elements, scale);
}

// The first of the dims at the end that are normalised: they, and parameters,
// have the sizes that argument `shape` says.
int first_normalised(NodeLowering& node, size_t input, size_t shape,
                     std::initializer_list<size_t> parameters) {
  const std::vector<Expr> sizes = node.tensor(input).sizes;
  const std::vector<Expr> normalised = node.integers(shape);
  require(!normalised.empty() && normalised.size() <= sizes.size(),
          "other dims than there are");
  const std::vector<Expr> last(
      sizes.end() - static_cast<std::ptrdiff_t>(normalised.size()),
      sizes.end());
  node.ensure_sizes(last, normalised, "a normalised shape that is another");
  for (size_t i : parameters)
    if (node.has(i))
      node.ensure_sizes(node.tensor(i).sizes, last,
                        "parameters of other sizes");
  return static_cast<int>(sizes.size() - normalised.size());
}

// Rows as a view over the kept dims, in the type that is computed in.
TensorView row_view(const ReducedDims& dims, const TensorView& view) {
  auto out = reshaped(view, dims.kept_sizes());
  require(out.has_value(), "statistics of another shape");
  return *out;
}

}  // namespace

void lower_layer_norm(NodeLowering& node) {
  // (input, normalized_shape, weight, bias, eps)
  TensorView x = node.tensor(0);
  auto weight = node.optional_tensor(2), bias = node.optional_tensor(3);
  check_parameter_types(node, 0, {2, 3});
  ReducedDims dims = dims_behind(x.sizes, first_normalised(node, 0, 1, {2, 3}));
  const DType type = compute_type(x.type);
  auto moments = reduce_over(
      node, dims, Combiner::kWelford,
      [&](Elements& elements) { return cast(type, dims.load(elements, x)); });
  TensorView scale = inverse_deviation(node, moments[1], dims.count(), 4);
  Elements elements(node, x.sizes);
  Term result = normalised(elements, dims, x, moments[0], scale);
  if (weight) result = result * load_as(elements, type, *weight);
  if (bias) result = result + load_as(elements, type, *bias);
  node.set_map(0, std::move(elements), result);
  set_row(node, 1, dims, moments[0]);
  set_row(node, 2, dims, scale);
}

void lower_layer_norm_backward(NodeLowering& node) {
  // (grad, input, normalized_shape, mean, rstd, weight, bias, mask)
  TensorView gradient = node.tensor(0), x = node.tensor(1);
  auto weight = node.optional_tensor(5);
  node.require_one_type({0, 1});
  check_parameter_types(node, 1, {5, 6});
  node.ensure_sizes(gradient.sizes, x.sizes, "a gradient of other sizes");
  const int first = first_normalised(node, 1, 2, {5, 6});
  ReducedDims dims = dims_behind(x.sizes, first);
  const DType type = compute_type(x.type);
  TensorView mean = row_view(dims, node.tensor(3));
  TensorView scale = row_view(dims, node.tensor(4));
  auto row = [&](Elements& elements, const TensorView& view) {
    return cast(type, load_row(elements, dims, view));
  };
  auto upstream = [&](Elements& elements) {
    Term g = cast(type, dims.load_broadcast(elements, gradient));
    return weight ? g * cast(type, dims.load_broadcast(elements, *weight)) : g;
  };
  auto centred = [&](Elements& elements) {
    return (cast(type, dims.load(elements, x)) - row(elements, mean)) *
           row(elements, scale);
  };
  if (!node.node().outputs[0]->users.empty()) {
    auto sums = reduce_over(node, dims, Combiner::kSum, upstream);
    auto products =
        reduce_over(node, dims, Combiner::kSum, [&](Elements& elements) {
          return upstream(elements) * centred(elements);
        });
    Elements elements(node, x.sizes);
    Term g = load_as(elements, type, gradient);
    if (weight) g = g * load_as(elements, type, *weight);
    Term s = cast(type, dims.load_result(elements, scale));
    Term a = (load_as(elements, type, x) -
              cast(type, dims.load_result(elements, mean))) *
             s;
    Term n = count_as(elements, dims.count(), type);
    Term result = s / n *
                  (n * g - dims.load_result(elements, sums[0]) -
                   a * dims.load_result(elements, products[0]));
    node.set_map(0, std::move(elements), result);
  }
  std::vector<int> outer;
  for (int dim = 0; dim < first; ++dim) outer.push_back(dim);
  ReducedDims columns(x.sizes, outer);
  auto column_sum = [&](size_t i, const ElementFunction& value) {
    if (node.node().outputs[i]->users.empty()) return;
    auto sums = reduce_over(node, columns, Combiner::kSum, value);
    set_row(node, i, columns, sums[0]);
  };
  // Loops: those of the row, then the rows.
  auto row_of_column = [&](Elements& elements, const TensorView& view) {
    return cast(
        type, elements.load(view, elements.at_loops(x.rank() - first, first)));
  };
  column_sum(1, [&](Elements& elements) {
    return cast(type, columns.load_broadcast(elements, gradient)) *
           ((cast(type, columns.load(elements, x)) -
             row_of_column(elements, mean)) *
            row_of_column(elements, scale));
  });
  column_sum(2, [&](Elements& elements) {
    return cast(type, columns.load_broadcast(elements, gradient));
  });
}

// ---- group norm: x as [N, groups, channels of a group, elements]

namespace {

struct Groups {
  TensorView x;  // in four dims
  ReducedDims dims;
  DType type;
};

// An input, and the arguments N, C, HxW and group from `first` on.
void check_groups(NodeLowering& node, size_t input, size_t first) {
  const int64_t channels = node.known_integer(first + 1),
                groups = node.known_integer(first + 3);
  require(groups > 0 && channels > 0 && channels % groups == 0,
          "groups that are not even");
  node.ensure_equal(product(node.tensor(input).sizes),
                    node.integer(first) * channels * node.integer(first + 2),
                    "an input of other sizes");
}

// Strides of the four dims, where the elements of a channel are one dim: always
// if they lie row by row, and with channels last.
std::optional<std::vector<Expr>> strides_in_four(
    const std::vector<Expr>& sizes, const std::vector<Expr>& strides,
    const std::vector<Expr>& four) {
  if (sizes.size() < 3 || !graph::is_dense(sizes, strides) ||
      sizes[0] != four[0] || sizes[1] != four[1] * four[2])
    return std::nullopt;
  Expr elements = 1;
  for (size_t dim = sizes.size(); dim-- > 2;) {
    if (strides[dim] != strides.back() * elements && !sizes[dim].is_const(1))
      return std::nullopt;
    elements = elements * sizes[dim];
  }
  if (elements != four[3] || sizes.back().is_const(1)) return std::nullopt;
  return std::vector<Expr>{strides[0], strides[1] * four[2], strides[1],
                           strides.back()};
}

TensorView in_four(NodeLowering& node, const TensorView& view,
                   const std::vector<Expr>& sizes) {
  const LoopBuilder::Memory memory = node.memory_of(view);
  if (auto strides = strides_in_four(view.sizes, memory.strides, sizes))
    return node.alias(view, sizes, *strides, memory.offset);
  // Memory row by row, so that dims can be merged.
  auto strides = codegen::contiguous_strides(view.sizes);
  TensorView whole = node.whole(node.buffer_of(view, &strides));
  return node.alias(whole, sizes, codegen::contiguous_strides(sizes),
                    node.memory_of(whole).offset);
}

// Result i from elements in the four dims, lying as eager's does.
void set_from_four(NodeLowering& node, size_t i, Elements elements, Term value,
                   const std::vector<Expr>& sizes) {
  const graph::TensorMeta& out = node.out(i);
  auto strides = strides_in_four(out.sizes, out.strides, sizes);
  TensorView made = node.map(std::move(elements), value, node.out_type(i),
                             strides ? &*strides : nullptr);
  node.set(i, node.alias(made, out.sizes,
                         strides ? out.strides
                                 : codegen::contiguous_strides(out.sizes),
                         0));
}

// Of a tensor of channels: [groups, channels of a group].
TensorView per_channel(const TensorView& view, const Expr& groups,
                       const Expr& channels) {
  auto out = reshaped(view, {groups, channels});
  require(out.has_value(), "channels that are not even");
  return *out;
}

// Of a view in four dims: the channels of a group lie side by side.
bool is_channels_last(NodeLowering& node, const TensorView& x) {
  const std::vector<Expr> strides = node.memory_of(x).strides;
  return strides[2].is_const(1) && !strides[3].is_const(1) &&
         !x.sizes[2].is_const(1);
}

// Mean and sum of squared distances of each group, by way of those of its
// channels: vectors go along all channels then, not along those of a group.
std::vector<TensorView> moments_by_channel(NodeLowering& node,
                                           const TensorView& x, DType type) {
  ReducedDims elements_of(x.sizes, {3});
  auto channels = reduce_over(
      node, elements_of, Combiner::kWelford,
      [&](Elements& e) { return cast(type, elements_of.load(e, x)); });
  ReducedDims dims(channels[0].sizes, {2});
  auto sum = reduce_over(node, dims, Combiner::kSum, [&](Elements& e) {
    return dims.load(e, channels[0]);
  });
  Elements groups(node, sum[0].sizes);
  Term value = load_kept(groups, sum[0]) / count_as(groups, x.sizes[2], type);
  TensorView mean = node.map(std::move(groups), value);
  auto squares = reduce_over(node, dims, Combiner::kSum, [&](Elements& e) {
    Term apart = dims.load(e, channels[0]) - load_row(e, dims, mean);
    return dims.load(e, channels[1]) +
           apart * apart * count_as(e, x.sizes[3], type);
  });
  return {mean, squares[0]};
}

// The result from statistics of groups, which each channel gets for itself
// first: they are rows beside those of the channels of a pixel.
void set_normalised_by_channel(NodeLowering& node,
                               const std::vector<Expr>& four,
                               const TensorView& mean,
                               const TensorView& scale) {
  // (input, weight, bias, ...)
  const DType type = mean.type;
  const std::vector<Expr> sizes{four[0], four[1], four[2]};
  auto of_channels = [&](const TensorView& of, bool weighted) {
    Elements rows(node, sizes);
    Term value = rows.load(of, {rows.at_loop(0), rows.at_loop(1)});
    if (weighted && node.has(1))
      value =
          value *
          cast(type, rows.load(per_channel(node.tensor(1), four[1], four[2]),
                               {rows.at_loop(1), rows.at_loop(2)}));
    TensorView made = node.map(std::move(rows), value);
    const std::vector<Expr> flat{four[0], four[1] * four[2]};
    return node.alias(made, flat, codegen::contiguous_strides(flat), 0);
  };
  TensorView means = of_channels(mean, false);
  TensorView scales = of_channels(scale, true);
  Elements elements(node, node.out().sizes);
  auto at = [&](const TensorView& of) {
    return elements.load(of, {elements.at_loop(0), elements.at_loop(1)});
  };
  Term result =
      (load_as(elements, type, node.tensor(0)) - at(means)) * at(scales);
  if (node.has(2))
    result = result +
             cast(type, elements.load(node.tensor(2), {elements.at_loop(1)}));
  node.set_map(0, std::move(elements), result);
}

}  // namespace

void lower_group_norm(NodeLowering& node) {
  // (input, weight, bias, N, C, HxW, group, eps)
  const Expr n = node.integer(3), spatial = node.integer(5);
  const int64_t groups = node.known_integer(6);
  check_parameter_types(node, 0, {1, 2});
  check_groups(node, 0, 3);
  check_channels(node, node.known_integer(4), {1, 2});
  const Expr of_group = node.known_integer(4) / groups;
  const std::vector<Expr> four{n, groups, of_group, spatial};
  TensorView x = in_four(node, node.tensor(0), four);
  auto weight = node.optional_tensor(1), bias = node.optional_tensor(2);
  const DType type = compute_type(x.type);
  ReducedDims dims = dims_behind(x.sizes, 2);
  auto moments = is_channels_last(node, x)
                     ? moments_by_channel(node, x, type)
                     : reduce_over(node, dims, Combiner::kWelford,
                                   [&](Elements& elements) {
                                     return cast(type, dims.load(elements, x));
                                   });
  TensorView scale = inverse_deviation(node, moments[1], dims.count(), 7);
  set_row(node, 1, dims, moments[0]);
  set_row(node, 2, dims, scale);
  if (is_channels_last(node, x))
    return set_normalised_by_channel(node, four, moments[0], scale);
  Elements elements(node, x.sizes);
  Term result = normalised(elements, dims, x, moments[0], scale);
  auto channel = [&](const TensorView& view) {
    return cast(type,
                elements.load(per_channel(view, groups, of_group),
                              {elements.at_loop(1), elements.at_loop(2)}));
  };
  if (weight) result = result * channel(*weight);
  if (bias) result = result + channel(*bias);
  set_from_four(node, 0, std::move(elements), result, four);
}

void lower_group_norm_backward(NodeLowering& node) {
  // (grad, input, mean, rstd, weight, N, C, HxW, group, mask)
  const Expr n = node.integer(5), spatial = node.integer(7);
  const int64_t groups = node.known_integer(8);
  node.require_one_type({0, 1});
  check_parameter_types(node, 1, {2, 3, 4});
  check_groups(node, 1, 5);
  check_channels(node, node.known_integer(6), {4});
  node.ensure_sizes(node.tensor(0).sizes, node.tensor(1).sizes,
                    "a gradient of other sizes");
  for (size_t i : {2, 3})
    node.ensure_sizes(node.tensor(i).sizes, {n, groups},
                      "statistics of other sizes");
  const Expr of_group = node.known_integer(6) / groups;
  const std::vector<Expr> four{n, groups, of_group, spatial};
  TensorView g = in_four(node, node.tensor(0), four);
  TensorView x = in_four(node, node.tensor(1), four);
  TensorView mean = node.tensor(2), scale = node.tensor(3);
  auto weight = node.optional_tensor(4);
  const DType type = compute_type(x.type);
  ReducedDims dims = dims_behind(x.sizes, 2);
  // Loops: N, group, channel, element, in this order or the other.
  auto at = [&](Elements& elements, const TensorView& view,
                std::vector<int> loops) {
    std::vector<codegen::Index> indices;
    for (int loop : loops) indices.push_back(elements.at_loop(loop));
    return cast(type, elements.load(view, indices));
  };
  auto upstream = [&](Elements& elements) {
    Term out = at(elements, g, {0, 1, 2, 3});
    return weight ? out * at(elements, per_channel(*weight, groups, of_group),
                             {1, 2})
                  : out;
  };
  auto centred = [&](Elements& elements) {
    return (at(elements, x, {0, 1, 2, 3}) - at(elements, mean, {0, 1})) *
           at(elements, scale, {0, 1});
  };
  if (!node.node().outputs[0]->users.empty()) {
    auto sums = reduce_over(node, dims, Combiner::kSum, upstream);
    auto products =
        reduce_over(node, dims, Combiner::kSum, [&](Elements& elements) {
          return upstream(elements) * centred(elements);
        });
    Elements elements(node, x.sizes);
    Term count = count_as(elements, dims.count(), type);
    Term result = at(elements, scale, {0, 1}) / count *
                  (count * upstream(elements) - at(elements, sums[0], {0, 1}) -
                   centred(elements) * at(elements, products[0], {0, 1}));
    set_from_four(node, 0, std::move(elements), result, four);
  }
  // Per channel, over N and elements: loops group, channel, N, element.
  ReducedDims channels(x.sizes, {0, 3});
  auto channel_sum = [&](size_t i, bool of_weight) {
    if (node.node().outputs[i]->users.empty()) return;
    auto sums =
        reduce_over(node, channels, Combiner::kSum, [&](Elements& elements) {
          Term out = at(elements, g, {2, 0, 1, 3});
          if (!of_weight) return out;
          return out *
                 ((at(elements, x, {2, 0, 1, 3}) - at(elements, mean, {2, 0})) *
                  at(elements, scale, {2, 0}));
        });
    const std::vector<Expr>& sizes = node.out(i).sizes;
    TensorView flat =
        node.alias(sums[0], sizes, codegen::contiguous_strides(sizes), 0);
    node.set(
        i, type == node.out_type(i) ? flat : node.copy(flat, node.out_type(i)));
  };
  channel_sum(1, true);
  channel_sum(2, false);
}

// ---- batch norm: channels are dim 1

namespace {

struct BatchNorm {
  TensorView x;
  ReducedDims dims;
  DType type;
};

BatchNorm batch_norm_of(NodeLowering& node, size_t input,
                        std::initializer_list<size_t> parameters) {
  TensorView x = node.tensor(input);
  require(x.rank() >= 2, "no channels");
  check_parameter_types(node, input, parameters);
  check_channels(node, x.sizes[1], parameters);
  return {x, dims_but(x.sizes, 1), compute_type(x.type)};
}

// y of output 0, from statistics over the channels.
void set_batch_normed(NodeLowering& node, const BatchNorm& norm,
                      const TensorView& mean, const TensorView& scale,
                      size_t weight, size_t bias) {
  Elements elements(node, norm.x.sizes);
  auto channel = [&](const TensorView& view) {
    return cast(norm.type, elements.load(view, {elements.at_loop(1)}));
  };
  Term result =
      (load_as(elements, norm.type, norm.x) - channel(mean)) * channel(scale);
  if (node.has(weight)) result = result * channel(node.tensor(weight));
  if (node.has(bias)) result = result + channel(node.tensor(bias));
  node.set_map(0, std::move(elements), result);
}

struct BatchMoments {
  TensorView mean, squares, scale;
};

BatchMoments batch_moments(NodeLowering& node, const BatchNorm& norm,
                           size_t eps) {
  auto moments =
      reduce_over(node, norm.dims, Combiner::kWelford, [&](Elements& elements) {
        return cast(norm.type, norm.dims.load(elements, norm.x));
      });
  return {moments[0], moments[1],
          inverse_deviation(node, moments[1], norm.dims.count(), eps)};
}

// 1 / sqrt(running variance + eps)
TensorView running_scale(NodeLowering& node, const BatchNorm& norm,
                         size_t variance, size_t eps) {
  TensorView of = node.tensor(variance);
  Elements elements(node, of.sizes);
  Term value = cast(norm.type, load_kept(elements, of)) +
               node.number(elements, eps, norm.type);
  Term result = 1 / sqrt(value);
  return node.map(std::move(elements), result);
}

void set_channels(NodeLowering& node, size_t i, const BatchNorm& norm,
                  const TensorView& view) {
  set_row(node, i, norm.dims, view);
}

void set_nothing(NodeLowering& node, size_t i) {
  if (node.node().outputs[i]->users.empty()) return;
  require(node.out(i).sizes.size() == 1 && node.out(i).sizes[0].is_const(0),
          "statistics of an inference");
  Elements elements(node, node.out(i).sizes);
  Term zero = elements.constant(node.out_type(i), 0);
  node.set(i, node.map(std::move(elements), zero));
}

}  // namespace

void lower_batch_norm_no_stats(NodeLowering& node) {
  // (input, weight, bias, training, momentum, eps)
  require(node.flag(3), "inference without statistics");
  BatchNorm norm = batch_norm_of(node, 0, {1, 2});
  BatchMoments moments = batch_moments(node, norm, 5);
  set_batch_normed(node, norm, moments.mean, moments.scale, 1, 2);
  set_channels(node, 1, norm, moments.mean);
  set_channels(node, 2, norm, moments.scale);
}

void lower_batch_norm_inference(NodeLowering& node) {
  // (input, weight, bias, running_mean, running_var, momentum, eps)
  BatchNorm norm = batch_norm_of(node, 0, {1, 2, 3, 4});
  set_batch_normed(node, norm, node.tensor(3), running_scale(node, norm, 4, 6),
                   1, 2);
  set_nothing(node, 1);
  set_nothing(node, 2);
}

void lower_batch_norm(NodeLowering& node) {
  // (input, weight, bias, running_mean, running_var, training, momentum, eps)
  BatchNorm norm = batch_norm_of(node, 0, {1, 2, 3, 4});
  if (!node.flag(5)) {
    require(node.has(3) && node.has(4), "inference without statistics");
    set_batch_normed(node, norm, node.tensor(3),
                     running_scale(node, norm, 4, 7), 1, 2);
    set_nothing(node, 1);
    set_nothing(node, 2);
    return;
  }
  // It would write to them.
  require(!node.has(3) && !node.has(4), "running statistics in place");
  BatchMoments moments = batch_moments(node, norm, 7);
  set_batch_normed(node, norm, moments.mean, moments.scale, 1, 2);
  set_channels(node, 1, norm, moments.mean);
  set_channels(node, 2, norm, moments.scale);
}

void lower_batch_norm_functional(NodeLowering& node) {
  // (input, weight, bias, running_mean, running_var, training, momentum, eps)
  // -> y, mean, scale, new running_mean, new running_var
  require(node.flag(5), "inference");
  BatchNorm norm = batch_norm_of(node, 0, {1, 2, 3, 4});
  BatchMoments moments = batch_moments(node, norm, 7);
  set_batch_normed(node, norm, moments.mean, moments.scale, 1, 2);
  set_channels(node, 1, norm, moments.mean);
  set_channels(node, 2, norm, moments.scale);
  for (size_t i : {3, 4}) {
    TensorView running = node.tensor(i);
    Elements elements(node, running.sizes);
    Term momentum = node.number(elements, 6, norm.type);
    Term fresh;
    if (i == 3) {
      fresh = load_kept(elements, moments.mean);
    } else {
      Term count = count_as(elements, norm.dims.count(), norm.type);
      fresh = load_kept(elements, moments.squares) / (count - 1);
    }
    Term old = cast(norm.type, load_kept(elements, running));
    Term result = momentum * fresh + (1 - momentum) * old;
    node.set_map(i, std::move(elements), result);
  }
}

void lower_batch_norm_backward(NodeLowering& node) {
  // (grad, input, weight, running_mean, running_var, save_mean, save_invstd,
  //  train, eps, mask)
  const bool train = node.flag(7);
  BatchNorm norm = train ? batch_norm_of(node, 1, {2, 5, 6})
                         : batch_norm_of(node, 1, {2, 3, 4});
  node.require_one_type({0, 1});
  node.ensure_sizes(node.tensor(0).sizes, norm.x.sizes,
                    "a gradient of other sizes");
  TensorView g = node.tensor(0);
  TensorView mean = train ? node.tensor(5) : node.tensor(3);
  TensorView scale = train ? node.tensor(6) : running_scale(node, norm, 4, 8);
  auto row = [&](Elements& elements, const TensorView& view, int loop) {
    return cast(norm.type, elements.load(view, {elements.at_loop(loop)}));
  };
  auto gradient = [&](Elements& elements) {
    return cast(norm.type, norm.dims.load_broadcast(elements, g));
  };
  auto sums = reduce_over(node, norm.dims, Combiner::kSum, gradient);
  auto products =
      reduce_over(node, norm.dims, Combiner::kSum, [&](Elements& elements) {
        return gradient(elements) *
               (cast(norm.type, norm.dims.load(elements, norm.x)) -
                row(elements, mean, 0));
      });
  if (!node.node().outputs[0]->users.empty()) {
    Elements elements(node, norm.x.sizes);
    Term s = row(elements, scale, 1);
    Term out = load_as(elements, norm.type, g);
    if (train) {
      Term count = count_as(elements, norm.dims.count(), norm.type);
      Term slope = row(elements, products[0], 1) * s * s / count;
      Term distance =
          load_as(elements, norm.type, norm.x) - row(elements, mean, 1);
      out = out - distance * slope - row(elements, sums[0], 1) / count;
    }
    out = out * s;
    if (node.has(2)) out = out * row(elements, node.tensor(2), 1);
    node.set_map(0, std::move(elements), out);
  }
  if (!node.node().outputs[1]->users.empty()) {
    Elements elements(node, products[0].sizes);
    Term result = row(elements, products[0], 0) * row(elements, scale, 0);
    node.set_map(1, std::move(elements), result);
  }
  if (!node.node().outputs[2]->users.empty())
    set_row(node, 2, norm.dims, sums[0]);
}

}  // namespace framejit::backend
