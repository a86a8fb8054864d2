// Losses, forward and backward.
#include "backend/lowering/pointwise_math.h"
#include "backend/lowering/reductions.h"
#include "backend/lowering/rows.h"

namespace framejit::backend {

using codegen::Combiner;
using codegen::DType;

namespace {

int64_t reduction_of(const NodeLowering& node, size_t argument) {
  const int64_t how = node.known_integer(argument);
  require(how >= kNone && how <= kSum, "another reduction");
  return how;
}

// Elements of the broadcast operands, in the type that is computed in.
class LossOperands {
 public:
  LossOperands(NodeLowering& node, std::vector<Expr> loops)
      : node(node),
        elements(node, std::move(loops)),
        type(compute_type(node.out_type())) {
    require(codegen::is_float(type), "no floats");
  }
  Term x(size_t i) {
    return cast(type, elements.load_broadcast(node.tensor(i)));
  }
  Term n(size_t i) { return node.number(elements, i, type); }
  Term optional(size_t i) { return node.has(i) ? x(i) : Term(); }

  NodeLowering& node;
  Elements elements;
  DType type;
};

using LossFunction = std::function<Term(LossOperands&)>;

std::vector<Expr> broadcast_sizes(const NodeLowering& node, size_t a,
                                  size_t b) {
  std::vector<Expr> x = node.tensor(a).sizes, y = node.tensor(b).sizes;
  if (x.size() < y.size()) std::swap(x, y);
  for (size_t i = 0; i < y.size(); ++i) {
    Expr& size = x[x.size() - y.size() + i];
    if (size.is_const(1)) size = y[i];
  }
  return x;
}

// loss of arguments 0 and 1, put together as argument `reduction` says.
void lower_loss(NodeLowering& node, size_t reduction,
                const LossFunction& loss) {
  const int64_t how = reduction_of(node, reduction);
  std::vector<Expr> sizes = broadcast_sizes(node, 0, 1);
  LossOperands operands(node, sizes);
  Term element = loss(operands);
  if (how == kNone)
    return node.set_map(0, std::move(operands.elements), element);
  auto sums =
      node.reduce(std::move(operands.elements), static_cast<int>(sizes.size()),
                  Combiner::kSum, element);
  Elements result(node, {});
  Term sum = result.load(sums[0], {});
  if (how == kMean) sum = sum / count_as(result, product(sizes), sum.type());
  node.set_map(0, std::move(result), sum);
}

// The gradient (argument 0), divided by the count where the mean was taken.
void lower_loss_backward(NodeLowering& node, size_t reduction,
                         const LossFunction& slope) {
  const int64_t how = reduction_of(node, reduction);
  const std::vector<Expr> sizes = node.out().sizes;
  LossOperands operands(node, sizes);
  Term gradient = operands.x(0);
  if (how == kMean)
    gradient =
        gradient / count_as(operands.elements, product(sizes), operands.type);
  Term result = slope(operands) * gradient;
  node.set_map(0, std::move(operands.elements), result);
}

// Input and target are alike.
void check_pair(NodeLowering& node, size_t input) {
  node.require_one_type({input, input + 1});
  node.ensure_sizes(node.tensor(input).sizes, node.tensor(input + 1).sizes,
                    "a target of other sizes");
}

Term clamped_log(Term a) { return maximum(log(a), -100); }

Term between_0_and_1(Term a) { return (a >= 0) & (a <= 1); }

}  // namespace

void lower_mse_loss(NodeLowering& node) {
  lower_loss(node, 2, [](LossOperands& o) {
    Term distance = o.x(0) - o.x(1);
    return distance * distance;
  });
}

void lower_mse_loss_backward(NodeLowering& node) {
  lower_loss_backward(node, 3,
                      [](LossOperands& o) { return 2 * (o.x(1) - o.x(2)); });
}

void lower_huber_loss(NodeLowering& node) {
  node.ensure(less(0, node.number(3)), "no positive delta");
  lower_loss(node, 2, [](LossOperands& o) {
    Term z = abs(o.x(0) - o.x(1)), delta = o.n(3);
    return select(z <= delta, 0.5 * z * z, delta * (z - 0.5 * delta));
  });
}

void lower_huber_loss_backward(NodeLowering& node) {
  node.require_one_type({0, 1, 2});
  lower_loss_backward(node, 3, [](LossOperands& o) {
    Term z = o.x(1) - o.x(2), delta = o.n(4);
    return select(z <= -delta, -delta, select(z >= delta, delta, z));
  });
}

void lower_smooth_l1_loss(NodeLowering& node) {
  node.ensure(at_most(0, node.number(3)), "a negative beta");
  lower_loss(node, 2, [](LossOperands& o) {
    Term z = abs(o.x(0) - o.x(1)), beta = o.n(3);
    return select(z < beta, 0.5 * z * z / beta, z - 0.5 * beta);
  });
}

void lower_smooth_l1_loss_backward(NodeLowering& node) {
  lower_loss_backward(node, 3, [](LossOperands& o) {
    Term z = o.x(1) - o.x(2), beta = o.n(4);
    return select(z <= -beta, -1, select(z >= beta, constant(z, 1), z / beta));
  });
}

void lower_soft_margin_loss(NodeLowering& node) {
  check_pair(node, 0);
  lower_loss(node, 2,
             [](LossOperands& o) { return log1p(exp(-o.x(1) * o.x(0))); });
}

void lower_soft_margin_loss_backward(NodeLowering& node) {
  node.require_one_type({0, 1});
  check_pair(node, 1);
  lower_loss_backward(node, 3, [](LossOperands& o) {
    Term z = exp(-o.x(2) * o.x(1));
    return -o.x(2) * z / (z + 1);
  });
}

void lower_bce(NodeLowering& node) {
  // Eager refuses an input or a target outside of [0, 1].
  check_pair(node, 0);
  node.require_one_type({0, 2});
  lower_loss(node, 3, [](LossOperands& o) {
    Term x = o.x(0), y = o.x(1);
    Term inside = check(between_0_and_1(x) & between_0_and_1(y));
    Term loss = (y - 1) * maximum(log1p(-x), -100) - y * clamped_log(x);
    if (Term weight = o.optional(2)) loss = loss * weight;
    return select(inside, loss, 0);
  });
}

void lower_bce_backward(NodeLowering& node) {
  // (grad, self, target, weight, reduction)
  check_pair(node, 1);
  node.require_one_type({0, 1, 3});
  lower_loss_backward(node, 4, [](LossOperands& o) {
    Term x = o.x(1), y = o.x(2);
    Term slope = (x - y) / maximum((1 - x) * x, 1e-12);
    if (Term weight = o.optional(3)) slope = slope * weight;
    return slope;
  });
}

void lower_bce_with_logits(NodeLowering& node) {
  // (self, target, weight, pos_weight, reduction)
  check_pair(node, 0);
  node.require_one_type({0, 2, 3});
  lower_loss(node, 4, [](LossOperands& o) {
    Term x = o.x(0), y = o.x(1);
    Term log_sigmoid = minimum(x, 0) - log1p(exp(-abs(x)));
    Term loss = (1 - y) * x;
    if (Term positive = o.optional(3)) {
      loss = loss - ((positive - 1) * y + 1) * log_sigmoid;
    } else {
      loss = loss - log_sigmoid;
    }
    if (Term weight = o.optional(2)) loss = loss * weight;
    return loss;
  });
}

// ---- negative log likelihood

namespace {

// target[row].
struct Target {
  Term place, counts;
  // The class, checked; of ignored rows it is 0.
  Term checked_place(Elements& elements, const Expr& classes) const {
    Term inside =
        check(~counts | ((place >= 0) & (place < elements.number(classes))));
    return select(inside & counts, place, constant(place, 0));
  }
};

// Of (self, target, weight), which begin at this argument.
void check_nll(NodeLowering& node, size_t first) {
  const TensorView x = node.tensor(first), target = node.tensor(first + 1);
  require(codegen::is_float(x.type), "no floats");
  require(x.rank() == 2 && target.rank() == 1, "a loss of one row");
  node.ensure_equal(x.sizes[0], target.sizes[0], "a target of other sizes");
  require(target.type == DType::kI64 || target.type == DType::kU8,
          "a target of another type");
  node.require_one_type({first, first + 2});
  if (!node.has(first + 2)) return;
  const TensorView weight = node.tensor(first + 2);
  node.ensure_sizes(weight.sizes, {x.sizes[1]}, "a weight of other sizes");
}

Target target_of(Elements& elements, const TensorView& target,
                 const std::vector<codegen::Index>& row, Term ignored) {
  Term place = cast(DType::kI64, elements.load(target, row));
  return {place, place != ignored};
}

}  // namespace

void lower_nll_loss(NodeLowering& node) {
  // (self, target, weight, reduction, ignore_index) -> loss, total_weight
  TensorView x = node.tensor(0), target = node.tensor(1);
  auto weight = node.optional_tensor(2);
  const int64_t how = reduction_of(node, 3);
  const DType type = compute_type(x.type);
  check_nll(node, 0);
  require(node.out_type(1) == node.out_type(), "another total");
  const Expr rows = x.sizes[0], classes = x.sizes[1];
  auto terms = [&](Elements& elements, bool of_weight) {
    Target t = target_of(elements, target, {elements.at_loop(0)},
                         node.number(elements, 4, DType::kI64));
    Term one = elements.constant(type, 1);
    // How many rows count asks for no class.
    if (of_weight && !weight) return select(t.counts, one, 0);
    codegen::Index place = elements.at_data(t.checked_place(elements, classes));
    Term w = weight ? cast(type, elements.load(*weight, {place})) : one;
    if (of_weight) return select(t.counts, w, 0);
    Term p = cast(type, elements.load(x, {elements.at_loop(0), place}));
    return select(t.counts, -p * w, 0);
  };
  if (how == kNone) {
    Elements elements(node, {rows});
    Term loss = terms(elements, false);
    node.set_map(0, std::move(elements), loss);
    Elements total(node, node.out(1).sizes);
    Term zero = total.constant(node.out_type(1), 0);
    node.set(1, node.map(std::move(total), zero));
    return;
  }
  ReducedDims dims({rows}, {0});
  auto sums = reduce_over(node, dims, Combiner::kSum,
                          [&](Elements& e) { return terms(e, false); });
  auto weights = reduce_over(node, dims, Combiner::kSum,
                             [&](Elements& e) { return terms(e, true); });
  Elements loss(node, {}), total(node, {});
  Term sum = loss.load(sums[0], {});
  if (how == kMean) sum = sum / loss.load(weights[0], {});
  node.set_map(0, std::move(loss), sum);
  Term all = total.load(weights[0], {});
  node.set_map(1, std::move(total), all);
}

void lower_nll_loss_backward(NodeLowering& node) {
  // (grad, self, target, weight, reduction, ignore_index, total_weight)
  TensorView gradient = node.tensor(0), x = node.tensor(1),
             target = node.tensor(2);
  auto weight = node.optional_tensor(3);
  const int64_t how = reduction_of(node, 4);
  const DType type = compute_type(node.out_type());
  check_nll(node, 1);
  node.require_one_type({0, 1, 6});
  require(
      gradient.rank() == (how == kNone ? 1 : 0) && node.tensor(6).rank() == 0,
      "a gradient of other sizes");
  if (how == kNone)
    node.ensure_sizes(gradient.sizes, target.sizes, "another gradient");
  Elements elements(node, x.sizes);
  Target t = target_of(elements, target, {elements.at_loop(0)},
                       node.number(elements, 5, DType::kI64));
  Term place = t.checked_place(elements, x.sizes[1]);
  Term g = how == kNone ? elements.load(gradient, {elements.at_loop(0)})
                        : elements.load(gradient, {});
  g = cast(type, g);
  Term w = weight
               ? cast(type, elements.load(*weight, {elements.at_data(place)}))
               : elements.constant(type, 1);
  Term slope = -w * g;
  if (how == kMean)
    slope = slope / cast(type, elements.load(node.tensor(6), {}));
  Term here = t.counts & (place == elements.loop(1));
  Term result = select(here, slope, 0);
  node.set_map(0, std::move(elements), result);
}

}  // namespace framejit::backend
