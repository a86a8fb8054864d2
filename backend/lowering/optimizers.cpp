// Steps of fused optimizers: the kernels of ATen's FusedAdamKernel.cpp,
// FusedSGDKernel.cpp and FusedAdagradKernel.cpp, in the arithmetic of their
// vector code. Numbers are computed in double and rounded once: in the program
// of symbols, or a number for each parameter where its count of steps has a
// say. The step of a parameter is one loop over the tensors that belong to it.
#include "backend/lowering/pointwise_math.h"
#include "backend/lowering/rows.h"
#include "graph/tensors/memory_places.h"
#include "guards/result.h"

namespace framejit::backend {

using codegen::DType;
using graph::Arg;
using graph::Value;

namespace {

// Where an operator has what: numbers of arguments.
struct StepArguments {
  size_t lists;  // the first ones: the same tensors of all parameters, or none
  size_t weight_decay, maximize, grad_scale, found_inf;
};
constexpr size_t kParams = 0, kGrads = 1;

size_t length_of(const NodeLowering& node, size_t list) {
  return node.tensors(list).size();
}

// The step of one parameter.
class ParameterStep {
 public:
  ParameterStep(NodeLowering& node, const StepArguments& at, size_t item)
      : node_(node), arguments_(at), item_(item) {
    for (size_t list = 0; list < at.lists; ++list)
      if (length_of(node, list) > 0) check_layout(list);
    type_ = compute_type(tensor(kParams).type);
  }

  NodeLowering& node() const { return node_; }

  // ---- numbers
  Expr real(size_t argument) const { return as_float(node_.number(argument)); }
  // In double; of a tensor, what item() gives.
  Term wide(Elements& at, size_t argument) const {
    if (!node_.is_tensor(argument)) return at.number(real(argument));
    return cast(DType::kF64, element_of(at, node_.tensor(argument)));
  }
  Term rounded(Elements& at, const Expr& number) const {
    return cast(type_, at.number(number));
  }
  Term rounded(Elements& at, size_t argument) const {
    return rounded(at, real(argument));
  }
  Term steps(Elements& at, size_t list) const {
    const TensorView steps = node_.tensors(list)[item_];
    require(steps.type == DType::kF32, "steps counted in another type");
    return cast(DType::kF64, element_of(at, steps));
  }
  // Made once and not for each element: depends on a tensor.
  template <class Make>
  TensorView once(Make make) const {
    Elements at(node_, {});
    Term value = make(at);
    return node_.map(std::move(at), cast(type_, value), type_);
  }

  // ---- elements
  Elements elements() const { return {node_, tensor(kParams).sizes}; }
  TensorView tensor(size_t list) const { return node_.tensors(list)[item_]; }
  Term load(Elements& at, const TensorView& view) const {
    return cast(type_, at.load_broadcast(view));
  }
  Term load(Elements& at, size_t list) const { return load(at, tensor(list)); }
  Term scaled_gradient(Elements& at) const {
    Term out = load(at, kGrads);
    if (!node_.has(arguments_.grad_scale)) return out;
    return out / cast(type_, flag_of(at, arguments_.grad_scale));
  }
  Term gradient(Elements& at) const {
    Term out = scaled_gradient(at);
    return node_.flag(arguments_.maximize) ? -out : out;
  }
  // Without decay nothing is multiplied by zero.
  Term unless_no_decay(Elements& at, Term decayed, Term otherwise) const {
    const Expr decay = real(arguments_.weight_decay);
    if (decay.is_float_const()) return decay.real() == 0 ? otherwise : decayed;
    return select(at.number(decay) == 0, otherwise, decayed);
  }
  Term gradient_with_decay(Elements& at) const {
    Term plain = gradient(at);
    Term decay = rounded(at, arguments_.weight_decay);
    return unless_no_decay(at, fma(load(at, kParams), decay, plain), plain);
  }

  // ---- results
  // Before it is rounded to a small float, as later parts of the step read it.
  TensorView map(Elements at, Term value) const {
    return node_.map(std::move(at), value, type_, &meta(kParams).strides);
  }
  void set(size_t list, const TensorView& view) const {
    const size_t at_result = first_result(list) + item_;
    if (!node_.has(arguments_.found_inf) && view.type == tensor(list).type)
      return node_.set(at_result, view);
    Elements at = elements();
    Term value = load(at, view);
    // Infinite gradients: nothing is written.
    if (node_.has(arguments_.found_inf))
      value =
          select(flag_of(at, arguments_.found_inf) == 1, load(at, list), value);
    node_.set_map(at_result, std::move(at), value);
  }
  void set_gradient() const {
    if (!node_.has(arguments_.grad_scale)) return keep(kGrads);
    Elements at = elements();
    Term value = scaled_gradient(at);
    set(kGrads, map(std::move(at), value));
  }
  // A list that eager's kernel does not write to.
  void keep(size_t list) const {
    node_.set(first_result(list) + item_, tensor(list));
  }

 private:
  const graph::TensorMeta& meta(size_t list) const {
    const Arg lists = node_.arg(list);
    const auto& items = lists.is<Arg::List>() ? lists.get<Arg::List>().items
                                              : lists.get<Arg::Tuple>().items;
    return items[item_].get<Value*>()->meta;
  }
  // Kernels take all tensors for what the parameter is, and go along memory.
  void check_layout(size_t list) const {
    const graph::TensorMeta &here = meta(list), &first = meta(kParams);
    require(here.dtype == first.dtype, "tensors of different types");
    require(codegen::is_float(known_type(here.dtype)), "no floats");
    node_.ensure_sizes(here.sizes, first.sizes, "tensors of different sizes");
    bool same = graph::is_dense(here.sizes, here.strides);
    for (size_t dim = 0; dim < here.sizes.size(); ++dim)
      same &= here.sizes[dim].is_const(1) ||
              here.strides[dim] == first.strides[dim];
    require(same, "tensors that lie otherwise than the parameter");
  }
  size_t first_result(size_t list) const {
    size_t out = 0;
    for (size_t i = 0; i < list; ++i) out += length_of(node_, i);
    return out;
  }
  static Term element_of(Elements& at, const TensorView& view) {
    require(view.rank() == 0 && codegen::is_float(view.type),
            "a number in another tensor");
    return at.load(view, {});
  }
  // Read as a float whatever it is, where it begins.
  Term flag_of(Elements& at, size_t argument) const {
    const TensorView view = node_.tensor(argument);
    require(view.type == DType::kF32 && view.rank() <= 1 &&
                (view.rank() == 0 || view.sizes[0].is_const(1)),
            "a number in another tensor");
    std::vector<codegen::Index> first;
    if (view.rank() == 1) first.push_back(at.at(0));
    return at.load(view, first);
  }

  NodeLowering& node_;
  const StepArguments& arguments_;
  size_t item_;
  DType type_;
};

Expr minus(const Expr& a, const Expr& b) {
  return Expr::make(ExprOp::kFloatSub, {a, b});
}

// Lists of the same length, or without tensors where `may_be_empty`.
size_t parameters_of(const NodeLowering& node, size_t lists) {
  const size_t count = length_of(node, kParams);
  for (size_t list = 1; list < lists; ++list)
    require(length_of(node, list) == count, "lists of other lengths");
  return count;
}

// ---- Adam

enum AdamArgument : size_t {
  kExpAvgs = 2,
  kExpAvgSqs,
  kMaxExpAvgSqs,
  kAdamSteps,
  kAdamRate,
  kBeta1,
  kBeta2,
  kAdamDecay,
  kAdamEps,
  kAmsgrad,
  kAdamMaximize,
  kAdamScale,
  kAdamFound,
};

class AdamStep : public ParameterStep {
 public:
  // decoupled: AdamW, which makes the parameter smaller and leaves the
  // gradient.
  AdamStep(NodeLowering& node, const StepArguments& at, size_t item,
           bool decoupled)
      : ParameterStep(node, at, item), decoupled_(decoupled) {}

  void run() {
    set_gradient();
    const TensorView average = first_moment();
    TensorView square = second_moment();
    set(kExpAvgs, average);
    set(kExpAvgSqs, square);
    if (node().flag(kAmsgrad)) {
      Elements at = elements();
      Term largest = maximum(load(at, kMaxExpAvgSqs), load(at, square));
      square = map(std::move(at), largest);
      set(kMaxExpAvgSqs, square);
    }
    set(kParams, parameter(average, square));
  }

 private:
  Term direction(Elements& at) const {
    return decoupled_ ? gradient(at) : gradient_with_decay(at);
  }
  TensorView first_moment() const {
    Elements at = elements();
    Term old = load(at, kExpAvgs), next = direction(at);
    Term weight = rounded(at, minus(Expr::real(1), real(kBeta1)));
    Term is_small = abs(weight) < 0.5;
    Term value = fma(select(is_small, weight, weight - 1), next - old,
                     select(is_small, old, next));
    return map(std::move(at), value);
  }
  TensorView second_moment() const {
    Elements at = elements();
    Term next = direction(at);
    Term weight = rounded(at, minus(Expr::real(1), real(kBeta2)));
    Term kept = load(at, kExpAvgSqs) * rounded(at, kBeta2);
    Term value = fma(weight * next, next, kept);
    return map(std::move(at), value);
  }
  Term decayed_parameter(Elements& at) const {
    Term plain = load(at, kParams);
    if (!decoupled_) return plain;
    Term factor;
    if (node().is_tensor(kAdamRate)) {
      factor =
          load(at, once([&](Elements& number) {
                 return 1 - wide(number, kAdamRate) * wide(number, kAdamDecay);
               }));
    } else {
      Expr product =
          Expr::make(ExprOp::kFloatMul, {real(kAdamRate), real(kAdamDecay)});
      factor = rounded(at, minus(Expr::real(1), product));
    }
    return unless_no_decay(at, plain * factor, plain);
  }
  TensorView parameter(const TensorView& average,
                       const TensorView& square) const {
    auto correction = [&](Elements& at, size_t beta) {
      return 1 - pow(wide(at, beta), steps(at, kAdamSteps));
    };
    const TensorView step = once([&](Elements& at) {
      return -(wide(at, kAdamRate) / correction(at, kBeta1));
    });
    const TensorView root =
        once([&](Elements& at) { return sqrt(correction(at, kBeta2)); });
    Elements at = elements();
    Term denominator =
        sqrt(load(at, square)) / load(at, root) + rounded(at, kAdamEps);
    Term value = decayed_parameter(at) +
                 load(at, step) * load(at, average) / denominator;
    return map(std::move(at), value);
  }

  bool decoupled_;
};

void lower_adam(NodeLowering& node, bool decoupled) {
  static constexpr StepArguments kAt = {5, kAdamDecay, kAdamMaximize,
                                        kAdamScale, kAdamFound};
  const size_t count = parameters_of(node, 4);
  require(length_of(node, kMaxExpAvgSqs) == (node.flag(kAmsgrad) ? count : 0) &&
              length_of(node, kAdamSteps) == count,
          "lists of other lengths");
  for (size_t item = 0; item < count; ++item)
    AdamStep(node, kAt, item, decoupled).run();
}

}  // namespace

void lower_fused_adam(NodeLowering& node) { lower_adam(node, false); }

void lower_fused_adamw(NodeLowering& node) { lower_adam(node, true); }

// ---- SGD and Adagrad

namespace {

// Small floats: eager rounds some numbers to them, but not for the last few
// elements.
void require_wide(const ParameterStep& step) {
  require(!codegen::is_small_float(step.tensor(kParams).type),
          "numbers that are rounded for some elements");
}

enum SgdArgument : size_t {
  kBuffers = 2,
  kSgdDecay,
  kMomentum,
  kSgdRate,
  kDampening,
  kNesterov,
  kSgdMaximize,
  kIsFirst,
  kSgdScale,
  kSgdFound,
};

TensorView next_momentum(const ParameterStep& step) {
  Elements at = step.elements();
  Term value = step.gradient_with_decay(at);
  if (!step.node().flag(kIsFirst)) {
    Term weight = step.rounded(at, minus(Expr::real(1), step.real(kDampening)));
    Term kept = step.load(at, kBuffers) * step.rounded(at, kMomentum);
    value = fma(value, weight, kept);
  }
  return step.map(std::move(at), value);
}

}  // namespace

void lower_fused_sgd(NodeLowering& node) {
  static constexpr StepArguments kAt = {3, kSgdDecay, kSgdMaximize, kSgdScale,
                                        kSgdFound};
  const Expr momentum = as_float(node.number(kMomentum));
  const bool has_buffers = length_of(node, kBuffers) > 0;
  const size_t count = parameters_of(node, has_buffers ? 3 : 2);
  const Expr is_off = Expr::make(ExprOp::kFloatEq, {momentum, Expr::real(0)});
  node.ensure(has_buffers ? expr_not(is_off) : is_off,
              "buffers for another momentum");
  for (size_t item = 0; item < count; ++item) {
    const ParameterStep step(node, kAt, item);
    require_wide(step);
    step.set_gradient();
    std::optional<TensorView> buffer;
    if (has_buffers) step.set(kBuffers, *(buffer = next_momentum(step)));
    Elements at = step.elements();
    Term direction =
        buffer ? step.load(at, *buffer) : step.gradient_with_decay(at);
    if (buffer && node.flag(kNesterov))
      direction = fma(direction, step.rounded(at, kMomentum),
                      step.gradient_with_decay(at));
    Term rate = node.is_tensor(kSgdRate)
                    ? cast(direction.type(), step.wide(at, kSgdRate))
                    : step.rounded(at, kSgdRate);
    Term value = fma(direction, -rate, step.load(at, kParams));
    step.set(kParams, step.map(std::move(at), value));
  }
}

namespace {

enum AdagradArgument : size_t {
  kSums = 2,
  kAdagradSteps,
  kAdagradRate,
  kRateDecay,
  kAdagradDecay,
  kAdagradEps,
  kAdagradMaximize,
  kAdagradScale,
  kAdagradFound,
};

}  // namespace

void lower_fused_adagrad(NodeLowering& node) {
  static constexpr StepArguments kAt = {3, kAdagradDecay, kAdagradMaximize,
                                        kAdagradScale, kAdagradFound};
  const size_t count = parameters_of(node, 4);
  for (size_t item = 0; item < count; ++item) {
    const ParameterStep step(node, kAt, item);
    require_wide(step);
    step.set_gradient();
    Elements sums = step.elements();
    Term gradient = step.gradient_with_decay(sums);
    Term sum = fma(gradient, gradient, step.load(sums, kSums));
    const TensorView next = step.map(std::move(sums), sum);
    step.set(kSums, next);
    // Its steps are an output of one form only, and written by none.
    if (node.node().outputs.size() == 4 * count) step.keep(kAdagradSteps);
    const TensorView rate = step.once([&](Elements& at) {
      Term before = step.steps(at, kAdagradSteps) - 1;
      return step.wide(at, kAdagradRate) /
             (before * step.wide(at, kRateDecay) + 1);
    });
    Elements at = step.elements();
    Term deviation = sqrt(step.load(at, next)) + step.rounded(at, kAdagradEps);
    Term value = step.load(at, kParams) -
                 step.load(at, rate) * step.gradient_with_decay(at) / deviation;
    step.set(kParams, step.map(std::move(at), value));
  }
}

}  // namespace framejit::backend
