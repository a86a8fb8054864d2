// Pools over planes and volumes, forward and backward. A window is unrolled in
// the body of its output; a large one that is averaged is a reduction.
#include <cmath>

#include "backend/lowering/pointwise_math.h"
#include "backend/lowering/rows.h"
#include "backend/lowering/windows.h"

namespace framejit::backend {

using codegen::Combiner;
using codegen::DType;
using codegen::Index;

namespace {

// An element in the type it is computed in; `other` where it is not inside.
Term load_or(Elements& elements, const TensorView& view,
             const Windows::Tap& tap, double other) {
  Term value = cast(compute_type(view.type),
                    elements.load(view, tap.indices, tap.inside));
  return tap.inside ? select(tap.inside, value, other) : value;
}

int dims_named(const NodeLowering& node) {
  const std::string& name = node.node().aten->operator_name().name;
  return name.find("3d") != std::string::npos ? 3 : 2;
}

// ---- the largest, and where it is

// Later ones must be larger, or NaN. Nothing larger: the first.
void set_largest(NodeLowering& node, const Windows& windows) {
  const TensorView view = node.tensor(0);
  require(codegen::is_float(compute_type(view.type)), "no floats");
  require(windows.taps() <= kMaxUnrolled, "a large window");
  for (int dim = 0; dim < windows.dims(); ++dim)
    require(windows.is_whole(dim) || windows.dilation[dim] == 1,
            "a dilated window at an edge");
  Elements values(node, windows.output_sizes());
  Term largest;
  windows.for_each_tap([&](const std::vector<int64_t>& taps) {
    Term value = load_or(values, view, windows.tap(values, taps), -HUGE_VAL);
    largest = largest ? maximum(largest, value) : value;
  });
  node.set_map(0, std::move(values), largest);
  if (node.node().outputs[1]->users.empty()) return;

  Elements places(node, windows.output_sizes());
  std::vector<Index> first = places.at_loops(0, windows.lead_dims());
  for (int dim = 0; dim < windows.dims(); ++dim) {
    const int loop = windows.lead_dims() + dim;
    Index start = places.at_loop(loop, windows.stride[dim], -windows.pad[dim]);
    first.push_back(windows.pad[dim] == 0
                        ? start
                        : places.at_data(maximum(places.value_of(start), 0)));
  }
  Term place = windows.plane_number(places, first);
  Term best = places.constant(compute_type(view.type), -HUGE_VAL);
  windows.for_each_tap([&](const std::vector<int64_t>& taps) {
    const Windows::Tap tap = windows.tap(places, taps);
    Term value = load_or(places, view, tap, -HUGE_VAL);
    Term better = (value > best) | is_nan(value);
    best = select(better, value, best);
    place = select(better, windows.plane_number(places, tap.indices), place);
  });
  node.set_map(1, std::move(places), place);
}

// The gradient goes to the element that argument `indices` names.
void set_largest_backward(NodeLowering& node, const Windows& windows,
                          size_t indices) {
  const TensorView gradient = node.tensor(0), places = node.tensor(indices);
  const DType type = compute_type(node.out_type());
  require(codegen::is_float(type), "no floats");
  require(places.type == DType::kI64, "indices of another type");
  node.ensure_sizes(gradient.sizes, windows.output_sizes(),
                    "a gradient of other sizes");
  node.ensure_sizes(places.sizes, gradient.sizes, "indices of other sizes");
  set_sums_over_windows(
      node, windows,
      [&](Elements& elements, const std::vector<Index>& output,
          const std::vector<Index>& input, Term inside) {
        Term here = elements.load(places, output, inside) ==
                    windows.plane_number(elements, input);
        if (inside) here = here & inside;
        Term value = cast(type, elements.load(gradient, output, inside));
        return select(here, value, 0);
      });
}

// ---- the average

// What a sum is divided by.
class Divisor {
 public:
  Divisor(const NodeLowering& node, const Windows& windows, size_t counts_pads)
      : windows_(windows), counts_pads_(node.flag(counts_pads)) {
    if (!node.has(counts_pads + 1)) return;
    given_ = node.known_integer(counts_pads + 1);
    require(*given_ != 0, "a division by zero");
  }

  // Within loops over outputs.
  Term of(Elements& elements, DType type) const {
    if (given_) return elements.constant(type, static_cast<double>(*given_));
    Term out = elements.integer(DType::kI64, 1);
    for (int dim = 0; dim < windows_.dims(); ++dim)
      out = out * extent(elements, dim);
    return cast(type, out);
  }

 private:
  Term extent(Elements& elements, int dim) const {
    const int64_t size = windows_.kernel[dim], pad = windows_.pad[dim];
    if (windows_.is_whole(dim)) return elements.integer(DType::kI64, size);
    Term start = elements.value_of(elements.at_loop(
        windows_.lead_dims() + dim, windows_.stride[dim], -pad));
    Term input = elements.number(windows_.inputs[dim]);
    if (counts_pads_) return minimum(start + size, input + pad) - start;
    return minimum(start + size, input) - maximum(start, 0);
  }

  const Windows& windows_;
  const bool counts_pads_;
  std::optional<int64_t> given_;
};

using Division = std::function<Term(Elements&, Term)>;

void set_average(NodeLowering& node, const Windows& windows,
                 const Division& divided) {
  const TensorView view = node.tensor(0);
  require(codegen::is_float(compute_type(view.type)), "no floats");
  if (windows.taps() <= kMaxUnrolled) {
    Elements elements(node, windows.output_sizes());
    Term sum;
    windows.for_each_tap([&](const std::vector<int64_t>& taps) {
      Term value = load_or(elements, view, windows.tap(elements, taps), 0);
      sum = sum ? sum + value : value;
    });
    Term average = divided(elements, sum);
    return node.set_map(0, std::move(elements), average);
  }
  std::vector<Expr> loops = windows.output_sizes();
  const auto first = static_cast<int>(loops.size());
  for (int64_t size : windows.kernel) loops.emplace_back(size);
  Elements elements(node, std::move(loops));
  Term value =
      load_or(elements, view, windows.tap_of_loops(elements, first), 0);
  auto sums =
      node.reduce(std::move(elements), windows.dims(), Combiner::kSum, value);
  Elements results(node, windows.output_sizes());
  Term sum = results.load(sums[0], results.at_loops(0, results.rank()));
  Term average = divided(results, sum);
  node.set_map(0, std::move(results), average);
}

void set_average_backward(NodeLowering& node, const Windows& windows,
                          const Division& divided) {
  const TensorView gradient = node.tensor(0);
  const DType type = compute_type(node.out_type());
  require(codegen::is_float(type), "no floats");
  node.ensure_sizes(gradient.sizes, windows.output_sizes(),
                    "a gradient of other sizes");
  Elements elements(node, windows.output_sizes());
  Term share = divided(
      elements, cast(type, elements.load(gradient, elements.at_loops(
                                                       0, elements.rank()))));
  const TensorView shares = node.map(std::move(elements), share);
  set_sums_over_windows(node, windows,
                        [&](Elements& inputs, const std::vector<Index>& output,
                            const std::vector<Index>&, Term inside) {
                          Term value = inputs.load(shares, output, inside);
                          return inside ? select(inside, value, 0) : value;
                        });
}

Division by_each_size(const Windows& windows) {
  return [windows](Elements&, Term sum) {
    for (int64_t size : windows.kernel) sum = sum / static_cast<double>(size);
    return sum;
  };
}

}  // namespace

void lower_max_pool(NodeLowering& node) {
  // (self, kernel_size, stride, padding, dilation, ceil_mode)
  set_largest(node,
              windows_of(node, 0, 1, true, node.out().sizes, dims_named(node)));
}

void lower_max_pool_backward(NodeLowering& node) {
  // (grad, self, kernel_size, stride, padding, dilation, ceil_mode, indices)
  set_largest_backward(
      node,
      windows_of(node, 1, 2, true, node.tensor(0).sizes, dims_named(node)), 7);
}

void lower_avg_pool(NodeLowering& node) {
  // (self, kernel_size, stride, padding, ceil_mode, count_include_pad,
  //  divisor_override)
  const Windows windows =
      windows_of(node, 0, 1, false, node.out().sizes, dims_named(node));
  const Divisor divisor(node, windows, 5);
  set_average(node, windows, [&](Elements& elements, Term sum) {
    return sum / divisor.of(elements, sum.type());
  });
}

void lower_avg_pool_backward(NodeLowering& node) {
  // (grad, self, kernel_size, stride, padding, ceil_mode, count_include_pad,
  //  divisor_override)
  const Windows windows =
      windows_of(node, 1, 2, false, node.tensor(0).sizes, dims_named(node));
  const Divisor divisor(node, windows, 6);
  set_average_backward(node, windows, [&](Elements& elements, Term value) {
    return value / divisor.of(elements, value.type());
  });
}

void lower_adaptive_avg_pool(NodeLowering& node) {
  const Windows windows =
      equal_windows(node.tensor(0).sizes, node.out().sizes, dims_named(node));
  set_average(node, windows, by_each_size(windows));
}

void lower_adaptive_avg_pool_backward(NodeLowering& node) {
  // (grad, self)
  const Windows windows = equal_windows(node.tensor(1).sizes,
                                        node.tensor(0).sizes, dims_named(node));
  set_average_backward(node, windows, by_each_size(windows));
}

void lower_adaptive_max_pool(NodeLowering& node) {
  set_largest(node, equal_windows(node.tensor(0).sizes, node.out().sizes,
                                  dims_named(node)));
}

void lower_adaptive_max_pool_backward(NodeLowering& node) {
  // (grad, self, indices)
  set_largest_backward(node,
                       equal_windows(node.tensor(1).sizes, node.tensor(0).sizes,
                                     dims_named(node)),
                       2);
}

}  // namespace framejit::backend
