// Planes at other sizes: nearest, forward and backward. Which input an output
// takes is computed as eager computes it, in floats.
#include "backend/lowering/resampling.h"

#include <cmath>

#include "backend/lowering/pointwise_math.h"
#include "backend/lowering/rows.h"
#include "backend/lowering/windows.h"

namespace framejit::backend {

using codegen::Combiner;
using codegen::DType;
using codegen::Index;

Term ResampledAxis::scale(Elements& elements, DType type) const {
  if (factor) {
    Term one = elements.constant(DType::kF64, 1);
    return cast(type, one / cast(DType::kF64, elements.number(*factor)));
  }
  return cast(type, elements.number(input)) /
         cast(type, elements.number(output));
}

std::vector<ResampledAxis> axes_of(const NodeLowering& node,
                                   const std::vector<Expr>& inputs,
                                   const std::vector<Expr>& outputs,
                                   size_t scales) {
  require(inputs.size() == outputs.size() && inputs.size() > kPlaneLead,
          "a plane of other dims");
  std::vector<ResampledAxis> out;
  for (size_t dim = kPlaneLead; dim < inputs.size(); ++dim) {
    ResampledAxis axis{inputs[dim], outputs[dim], std::nullopt};
    const size_t i = scales + dim - kPlaneLead;
    if (node.has(i)) {
      Expr factor = node.number(i);
      require(factor.is_float_const(), "a symbolic factor");
      if (factor.real() > 0) axis.factor = factor;
    }
    out.push_back(std::move(axis));
  }
  return out;
}

namespace {

using Axis = ResampledAxis;

enum class Nearest : uint8_t { kFloor, kExact };

// At equal and at doubled sizes some of eager's kernels look at the factor, and
// some do not: which one runs, threads and channels decide.
void ensure_one_nearest(NodeLowering& node, const std::vector<Axis>& axes) {
  for (const Axis& axis : axes)
    for (int64_t ratio : {1, 2})
      if (axis.factor && axis.factor->real() != static_cast<double>(ratio))
        node.ensure(expr_not(expr_eq(axis.output, axis.input * ratio)),
                    "a factor that is not the ratio of the sizes");
}

// The input that output `at` takes.
Term nearest(Elements& elements, const Axis& axis, Term at, Nearest how) {
  const bool known = axis.input.is_const() && axis.output.is_const();
  Term input = elements.number(axis.input),
       output = elements.number(axis.output);
  if (how == Nearest::kFloor && axis.input == axis.output) return at;
  if (how == Nearest::kFloor && axis.output == axis.input * 2)
    return shift_right(at, 1);
  Term scale = axis.scale(elements, DType::kF32);
  Term place;
  if (how == Nearest::kFloor) {
    place = cast(DType::kF32, at) * scale;
  } else {
    Term middle = cast(DType::kF64, at) + 0.5;
    place = cast(DType::kF32, middle * cast(DType::kF64, scale));
  }
  place = minimum(cast(DType::kI64, floor(place)), input - 1);
  if (how == Nearest::kFloor && !known)
    place = select(output == input, at,
                   select(output == input * 2, shift_right(at, 1), place));
  return place;
}

// The same of constants: does each input belong to so many outputs in a row?
std::optional<int64_t> whole_ratio(const Axis& axis, Nearest how) {
  if (!axis.is_known()) return std::nullopt;
  const int64_t input = axis.input.constant(), output = axis.output.constant();
  if (input <= 0 || output % input != 0) return std::nullopt;
  const int64_t ratio = output / input;
  if (how == Nearest::kFloor && ratio <= 2) return ratio;
  const auto scale =
      axis.factor ? static_cast<float>(1.0 / axis.factor->real())
                  : static_cast<float>(input) / static_cast<float>(output);
  for (int64_t at = 0; at < output; ++at) {
    const float place =
        how == Nearest::kFloor
            ? static_cast<float>(at) * scale
            : static_cast<float>((static_cast<double>(at) + 0.5) * scale);
    if (std::min(static_cast<int64_t>(std::floor(place)), input - 1) !=
        at / ratio)
      return std::nullopt;
  }
  return ratio;
}

void set_nearest(NodeLowering& node, Nearest how) {
  // (self, output_size, scales ...)
  TensorView view = node.tensor(0);
  require(codegen::is_float(view.type) || view.type == DType::kU8,
          "integers that eager refuses");
  const auto axes = axes_of(node, view.sizes, node.out().sizes, 2);
  if (how == Nearest::kFloor) ensure_one_nearest(node, axes);
  Elements elements(node, node.out().sizes);
  auto indices = elements.at_loops(0, kPlaneLead);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int loop = kPlaneLead + static_cast<int>(i);
    indices.push_back(
        elements.at_data(nearest(elements, axes[i], elements.loop(loop), how)));
  }
  Term value = elements.load(view, indices);
  node.set_map(0, std::move(elements), value);
}

// Zeros of the result's sizes, in the type that sums are made in.
TensorView zeros(NodeLowering& node) {
  Elements elements(node, node.out().sizes);
  Term zero = elements.constant(compute_type(node.out_type()), 0);
  return node.map(std::move(elements), zero);
}

void set_sums(NodeLowering& node, const TensorView& sums) {
  Elements elements(node, node.out().sizes);
  Term value = elements.load(sums, elements.at_loops(0, sums.rank()));
  node.set_map(0, std::move(elements), value);
}

void set_nearest_backward(NodeLowering& node, Nearest how) {
  // (grad, output_size, input_size, scales ...)
  TensorView gradient = node.tensor(0);
  const auto axes = axes_of(node, node.out().sizes, gradient.sizes, 3);
  const DType type = compute_type(node.out_type());
  require(codegen::is_float(type), "no floats");
  std::vector<int64_t> ratios;
  int64_t taps = 1;
  for (const Axis& axis : axes) {
    auto ratio = whole_ratio(axis, how);
    if (!ratio) break;
    ratios.push_back(*ratio);
    taps *= *ratio;
  }
  if (ratios.size() == axes.size() && taps <= kMaxUnrolled) {
    Elements elements(node, node.out().sizes);
    Term sum;
    for (int64_t tap = 0; tap < taps; ++tap) {
      auto indices = elements.at_loops(0, kPlaneLead);
      int64_t block = taps, rest = tap;
      for (size_t i = 0; i < axes.size(); ++i) {
        block /= ratios[i];
        indices.push_back(elements.at_loop(kPlaneLead + static_cast<int>(i),
                                           ratios[i], rest / block));
        rest %= block;
      }
      Term part = cast(type, elements.load(gradient, indices));
      sum = sum ? sum + part : part;
    }
    return node.set_map(0, std::move(elements), sum);
  }
  TensorView base = zeros(node);
  Elements elements(node, gradient.sizes);
  auto target = elements.at_loops(0, kPlaneLead);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int loop = kPlaneLead + static_cast<int>(i);
    target.push_back(
        elements.at_data(nearest(elements, axes[i], elements.loop(loop), how)));
  }
  Term value = cast(type, elements.load_broadcast(gradient));
  set_sums(node, node.update(std::move(elements), base, target, value,
                             Combiner::kSum));
}

}  // namespace

void lower_upsample_nearest(NodeLowering& node) {
  set_nearest(node, Nearest::kFloor);
}
void lower_upsample_nearest_exact(NodeLowering& node) {
  set_nearest(node, Nearest::kExact);
}
void lower_upsample_nearest_backward(NodeLowering& node) {
  set_nearest_backward(node, Nearest::kFloor);
}
void lower_upsample_nearest_exact_backward(NodeLowering& node) {
  set_nearest_backward(node, Nearest::kExact);
}

}  // namespace framejit::backend
