// Planes at other sizes, linear: forward and backward. Where an output lies
// between inputs is computed as eager computes it, in floats.
//
// Dim after dim, the innermost first: a pass reads two elements for one
// forward, and backward those of the outputs that take of an input, which lie
// side by side. Where it is not known how many those are, outputs give instead.
#include <algorithm>
#include <cmath>
#include <functional>

#include "backend/lowering/resampling.h"
#include "backend/lowering/rows.h"

namespace framejit::backend {

using codegen::Combiner;
using codegen::DType;
using codegen::Index;

namespace {

// The two inputs that an output lies between, and their shares.
struct Between {
  Term first, second, first_share, second_share;
};

Between between(Elements& elements, const ResampledAxis& axis, Term at,
                bool align, DType type) {
  Term one = elements.constant(type, 1);
  if (axis.input == axis.output) return {at, at, one, one - 1};
  require(axis.input.is_const() && axis.output.is_const(), "a symbolic plane");
  const int64_t input = axis.input.constant(), output = axis.output.constant();
  Term place = cast(type, at);
  if (align) {
    Term steps = elements.constant(type, static_cast<double>(input - 1));
    place = output > 1 ? place * (steps / static_cast<double>(output - 1))
                       : place * 0;
  } else {
    place = axis.scale(elements, type) * (place + 0.5) - 0.5;
    place = select(place < 0, 0, place);
  }
  Term whole = minimum(floor(place), static_cast<double>(input - 1));
  Term share = minimum(maximum(place - whole, 0), 1);
  Term first = cast(DType::kI64, whole);
  return {first, minimum(first + 1, static_cast<double>(input - 1)),
          one - share, share};
}

// All dims at once.
void set_linear_at_once(NodeLowering& node,
                        const std::vector<ResampledAxis>& axes, bool align) {
  const TensorView view = node.tensor(0);
  const DType type = compute_type(view.type);
  Elements elements(node, node.out().sizes);
  std::vector<Between> places;
  for (size_t i = 0; i < axes.size(); ++i)
    places.push_back(between(elements, axes[i],
                             elements.loop(kPlaneLead + static_cast<int>(i)),
                             align, type));
  // The innermost dim first.
  auto indices = elements.at_loops(0, kPlaneLead);
  const std::function<Term(size_t)> value = [&](size_t i) {
    if (i == axes.size()) return cast(type, elements.load(view, indices));
    indices.push_back(elements.at_data(places[i].first));
    Term first = value(i + 1);
    indices.back() = elements.at_data(places[i].second);
    Term second = value(i + 1);
    indices.pop_back();
    return places[i].first_share * first + places[i].second_share * second;
  };
  Term result = value(0);
  node.set_map(0, std::move(elements), result);
}

// Result 0, from what has its elements.
void set_as_it_is(NodeLowering& node, const TensorView& view) {
  Elements elements(node, node.out().sizes);
  Term value = elements.load(view, elements.at_loops(0, view.rank()));
  node.set_map(0, std::move(elements), value);
}

// One dim.
TensorView linear_pass(NodeLowering& node, const TensorView& view,
                       const ResampledAxis& axis, int dim, bool align,
                       DType type) {
  std::vector<Expr> sizes = view.sizes;
  sizes[dim] = axis.output;
  Elements elements(node, std::move(sizes));
  const Between place =
      between(elements, axis, elements.loop(dim), align, type);
  auto indices = elements.at_loops(0, view.rank());
  indices[dim] = elements.at_data(place.first);
  Term first = cast(type, elements.load(view, indices));
  indices[dim] = elements.at_data(place.second);
  Term second = cast(type, elements.load(view, indices));
  Term value = place.first_share * first + place.second_share * second;
  return node.map(std::move(elements), value);
}

void set_linear(NodeLowering& node) {
  // (self, output_size, align_corners, scales ...)
  const TensorView view = node.tensor(0);
  const auto axes = axes_of(node, view.sizes, node.out().sizes, 3);
  const bool align = node.flag(2);
  const DType type = compute_type(view.type);
  require(codegen::is_float(type), "no floats");
  // A plane that becomes smaller has rows that nobody asks for.
  const bool grows =
      std::all_of(axes.begin(), axes.end(), [](const auto& axis) {
        return axis.is_known() &&
               axis.output.constant() >= axis.input.constant();
      });
  if (!grows || axes.size() == 1) return set_linear_at_once(node, axes, align);
  TensorView result = view;
  for (size_t i = axes.size(); i-- > 0;)
    if (axes[i].input != axes[i].output)
      result = linear_pass(node, result, axes[i],
                           kPlaneLead + static_cast<int>(i), align, type);
  set_as_it_is(node, result);
}

// ---- backward

// The outputs that take of an input j: `count` of them at most, from
// floor(step * j + offset) on.
struct Takers {
  int64_t count = 0;
  float step = 0, offset = 0;
};

constexpr int64_t kMaxTakers = 12;
constexpr double kFar = 4096;   // places beyond have few bits behind the point
constexpr double kNear = 1e-3;  // more than what rounding makes of a place

// Where output `at` lies among the inputs.
double place_of(const ResampledAxis& axis, double at, bool align) {
  const auto input = static_cast<double>(axis.input.constant());
  const auto output = static_cast<double>(axis.output.constant());
  if (align) return output > 1 ? at * (input - 1) / (output - 1) : 0;
  const double scale = axis.factor ? 1 / axis.factor->real() : input / output;
  return std::max(scale * (at + 0.5) - 0.5, 0.0);
}

std::optional<Takers> takers_of(const ResampledAxis& axis, bool align) {
  if (!axis.is_known()) return std::nullopt;
  const int64_t inputs = axis.input.constant();
  const int64_t outputs = axis.output.constant();
  if (inputs < 1 || outputs < 1 || inputs > kFar || outputs > kFar)
    return std::nullopt;
  std::vector<int64_t> low(inputs, outputs), high(inputs, -1);
  auto takes = [&](int64_t of, int64_t output) {
    of = std::clamp<int64_t>(of, 0, inputs - 1);
    low[of] = std::min(low[of], output);
    high[of] = std::max(high[of], output);
  };
  for (int64_t i = 0; i < outputs; ++i) {
    const double place = place_of(axis, static_cast<double>(i), align);
    for (double near : {place - kNear, place + kNear}) {
      takes(static_cast<int64_t>(std::floor(near)), i);
      takes(static_cast<int64_t>(std::floor(near)) + 1, i);
    }
  }
  const double step = static_cast<float>(static_cast<double>(outputs) /
                                         static_cast<double>(inputs));
  double offset = HUGE_VAL;
  for (int64_t j = 0; j < inputs; ++j)
    if (high[j] >= 0)
      offset = std::min(
          offset, static_cast<double>(low[j]) - step * static_cast<double>(j));
  offset = static_cast<float>(offset + 0.99);
  Takers out{1, static_cast<float>(step), static_cast<float>(offset)};
  for (int64_t j = 0; j < inputs; ++j) {
    if (high[j] < 0) continue;
    const auto first = static_cast<int64_t>(
        std::floor(step * static_cast<double>(j) + offset - 2 * kNear));
    out.count = std::max(out.count, high[j] - std::max<int64_t>(first, 0) + 1);
  }
  if (out.count > kMaxTakers) return std::nullopt;
  return out;
}

// How many outputs there are for an input, where that is a whole number and
// each lies where all of its kind do.
std::optional<int64_t> whole_ratio(const ResampledAxis& axis, bool align) {
  if (align || !axis.is_known() || axis.input.constant() < 1)
    return std::nullopt;
  const int64_t ratio = axis.output.constant() / axis.input.constant();
  if (ratio < 2 || 2 * ratio > kMaxTakers ||
      axis.output.constant() != ratio * axis.input.constant() ||
      (axis.factor && axis.factor->real() != static_cast<double>(ratio)))
    return std::nullopt;
  return ratio;
}

// Input j has parts of the outputs ratio * j + tap - ratio / 2. What lies
// outside of all inputs belongs to the outermost as a whole.
Term gathered_at_ratio(Elements& elements, const TensorView& view,
                       const ResampledAxis& axis, int64_t ratio, int dim,
                       DType type) {
  const int64_t before = ratio / 2;
  Term at = elements.loop(dim), sum;
  Term zero = elements.constant(type, 0);
  for (int64_t tap = 0; tap < 2 * ratio; ++tap) {
    const double away =
        (static_cast<double>(tap - before) + 0.5) / static_cast<double>(ratio) -
        0.5;
    if (away < -1 || away >= 1) continue;
    auto indices = elements.at_loops(0, view.rank());
    indices[dim] = elements.at_loop(dim, ratio, tap - before);
    Term place = elements.value_of(indices[dim]), inside;
    if (tap < before) inside = place >= 0;
    if (tap - before >= ratio) inside = place < elements.number(axis.output);
    Term share = elements.constant(type, 1 - std::abs(away));
    if (away < 0) share = select(at == 0, elements.constant(type, 1), share);
    if (away > 0)
      share = select(at == elements.number(axis.input - 1),
                     elements.constant(type, 1), share);
    Term part = cast(type, elements.load(view, indices, inside)) * share;
    if (inside) part = select(inside, part, zero);
    sum = sum ? sum + part : part;
  }
  return sum;
}

// Does each output lie in the middle of two inputs?
bool halves(const ResampledAxis& axis, bool align) {
  return !align && axis.is_known() &&
         axis.input.constant() == 2 * axis.output.constant() &&
         (!axis.factor || axis.factor->real() == 0.5);
}

Term gathered_of_pairs(Elements& elements, const TensorView& view, int dim,
                       DType type) {
  auto indices = elements.at_loops(0, view.rank());
  indices[dim] = elements.at_data(shift_right(elements.loop(dim), 1));
  return cast(type, elements.load(view, indices)) * 0.5;
}

Term gathered(Elements& elements, const TensorView& view,
              const ResampledAxis& axis, const Takers& takers, int dim,
              bool align, DType type) {
  Term at = elements.loop(dim), sum;
  Term zero = elements.constant(type, 0);
  Term start = floor(cast(DType::kF32, at) * static_cast<double>(takers.step) +
                     static_cast<double>(takers.offset));
  Term first = cast(DType::kI64, maximum(start, 0));
  for (int64_t tap = 0; tap < takers.count; ++tap) {
    Term output = first + static_cast<double>(tap);
    const Between place = between(elements, axis, output, align, type);
    Term is_first = place.first == at, is_second = place.second == at;
    Term inside =
        (output < elements.number(axis.output)) & (is_first | is_second);
    auto indices = elements.at_loops(0, view.rank());
    indices[dim] = elements.at_data(output);
    Term value = cast(type, elements.load(view, indices, inside));
    Term share = select(is_first, place.first_share, zero) +
                 select(is_second, place.second_share, zero);
    Term part = select(inside, value * share, zero);
    sum = sum ? sum + part : part;
  }
  return sum;
}

// Each output gives to the inputs around it.
void scatter_gradient(NodeLowering& node,
                      const std::vector<ResampledAxis>& axes, bool align) {
  const TensorView gradient = node.tensor(0);
  const DType type = compute_type(node.out_type());
  Elements none(node, node.out().sizes);
  Term zero = none.constant(type, 0);
  TensorView base = node.map(std::move(none), zero);
  // Each output, then which of the inputs around it.
  std::vector<Expr> loops = gradient.sizes;
  for (size_t i = 0; i < axes.size(); ++i) loops.emplace_back(2);
  Elements elements(node, std::move(loops));
  auto target = elements.at_loops(0, kPlaneLead);
  Term value = cast(
      type, elements.load(gradient, elements.at_loops(0, gradient.rank())));
  Term share;
  for (size_t i = 0; i < axes.size(); ++i) {
    const int dim = kPlaneLead + static_cast<int>(i);
    Between b = between(elements, axes[i], elements.loop(dim), align, type);
    Term is_first = elements.loop(gradient.rank() + static_cast<int>(i)) == 0;
    target.push_back(elements.at_data(select(is_first, b.first, b.second)));
    Term part = select(is_first, b.first_share, b.second_share);
    share = share ? share * part : part;
  }
  set_as_it_is(node, node.update(std::move(elements), base, target,
                                 share * value, Combiner::kSum));
}

void set_linear_backward(NodeLowering& node) {
  // (grad, output_size, input_size, align_corners, scales ...)
  const TensorView gradient = node.tensor(0);
  const auto axes = axes_of(node, node.out().sizes, gradient.sizes, 4);
  const bool align = node.flag(3);
  const DType type = compute_type(node.out_type());
  require(codegen::is_float(type), "no floats");
  std::vector<Takers> takers;
  for (const ResampledAxis& axis : axes) {
    const bool is_known = axis.input == axis.output ||
                          whole_ratio(axis, align) || halves(axis, align);
    auto found = is_known ? Takers{} : takers_of(axis, align);
    if (!found) return scatter_gradient(node, axes, align);
    takers.push_back(*found);
  }
  TensorView result = gradient;
  for (size_t i = axes.size(); i-- > 0;) {
    if (axes[i].input == axes[i].output) continue;
    const int dim = kPlaneLead + static_cast<int>(i);
    std::vector<Expr> sizes = result.sizes;
    sizes[dim] = axes[i].input;
    Elements elements(node, std::move(sizes));
    Term sum;
    if (auto ratio = whole_ratio(axes[i], align))
      sum = gathered_at_ratio(elements, result, axes[i], *ratio, dim, type);
    else if (halves(axes[i], align))
      sum = gathered_of_pairs(elements, result, dim, type);
    else
      sum = gathered(elements, result, axes[i], takers[i], dim, align, type);
    result = node.map(std::move(elements), sum);
  }
  set_as_it_is(node, result);
}

}  // namespace

void lower_upsample_linear(NodeLowering& node) { set_linear(node); }
void lower_upsample_linear_backward(NodeLowering& node) {
  set_linear_backward(node);
}

}  // namespace framejit::backend
