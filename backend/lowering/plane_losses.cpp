// nll_loss2d: a class for each point of a plane.
#include "backend/lowering/pointwise_math.h"
#include "backend/lowering/reductions.h"
#include "backend/lowering/rows.h"

namespace framejit::backend {

using codegen::Combiner;
using codegen::DType;
using codegen::Index;

namespace {

// (self [N, C, H, W], target [N, H, W], weight [C] or None, reduction,
// ignore_index), from argument `first` on.
class PlaneLoss {
 public:
  PlaneLoss(const NodeLowering& node, size_t first)
      : x(node.tensor(first)),
        target(node.tensor(first + 1)),
        weight(node.optional_tensor(first + 2)),
        how(node.known_integer(first + 3)),
        type(compute_type(x.type)),
        node_(node),
        ignored_(first + 4) {
    require(codegen::is_float(type) && how >= kNone && how <= kSum,
            "another reduction");
    require(x.rank() == 4 && target.rank() == 3 && target.type == DType::kI64,
            "no planes");
    for (int dim = 0; dim < 3; ++dim)
      node.ensure_equal(target.sizes[dim], x.sizes[dim == 0 ? 0 : dim + 1],
                        "planes of other sizes");
    if (!weight) return;
    require(weight->type == x.type, "a weight of another type");
    node.ensure_sizes(weight->sizes, {x.sizes[1]}, "a weight of other sizes");
  }

  // Does the point's class count? Others are ignored.
  Term counts(Elements& elements, const std::vector<Index>& point) const {
    return elements.load(target, point) !=
           node_.number(elements, ignored_, DType::kI64);
  }
  // The class, checked; 0 if it does not count.
  Term place(Elements& elements, const std::vector<Index>& point) const {
    Term label = elements.load(target, point),
         counted = counts(elements, point);
    Term inside = check(~counted |
                        ((label >= 0) & (label < elements.number(x.sizes[1]))));
    return select(inside & counted, label, 0);
  }
  Term weight_of(Elements& elements, Term place) const {
    return weight
               ? cast(type, elements.load(*weight, {elements.at_data(place)}))
               : elements.constant(type, 1);
  }

  TensorView x, target;
  std::optional<TensorView> weight;
  int64_t how;
  DType type;

 private:
  const NodeLowering& node_;
  size_t ignored_;
};

}  // namespace

void lower_nll_loss2d(NodeLowering& node) {
  // -> loss, total_weight
  const PlaneLoss loss(node, 0);
  require(node.out_type(1) == node.out_type(), "another total");
  auto term = [&](Elements& elements) {
    const auto at = elements.at_loops(0, 3);
    Term place = loss.place(elements, at);
    Term p = cast(
        loss.type,
        elements.load(loss.x, {at[0], elements.at_data(place), at[1], at[2]}));
    return select(loss.counts(elements, at),
                  -p * loss.weight_of(elements, place), 0);
  };
  if (loss.how == kNone) {
    Elements elements(node, loss.target.sizes);
    Term value = term(elements);
    node.set_map(0, std::move(elements), value);
    Elements total(node, node.out(1).sizes);
    Term zero = total.constant(node.out_type(1), 0);
    return node.set(1, node.map(std::move(total), zero));
  }
  const ReducedDims dims(loss.target.sizes, {0, 1, 2});
  auto sums = reduce_over(node, dims, Combiner::kSum, term);
  auto weights = reduce_over(node, dims, Combiner::kSum, [&](Elements& e) {
    const auto at = e.at_loops(0, 3);
    // How many points count asks for no class.
    Term one = e.constant(loss.type, 1);
    Term w = loss.weight ? loss.weight_of(e, loss.place(e, at)) : one;
    return select(loss.counts(e, at), w, 0);
  });
  Elements result(node, {}), total(node, {});
  Term sum = result.load(sums[0], {});
  if (loss.how == kMean) sum = sum / result.load(weights[0], {});
  node.set_map(0, std::move(result), sum);
  Term all = total.load(weights[0], {});
  node.set_map(1, std::move(total), all);
}

void lower_nll_loss2d_backward(NodeLowering& node) {
  // (grad, self, target, weight, reduction, ignore_index, total_weight)
  const TensorView gradient = node.tensor(0), total = node.tensor(6);
  const PlaneLoss loss(node, 1);
  require(gradient.type == loss.x.type && total.type == loss.x.type &&
              total.rank() == 0,
          "a total of another type");
  node.ensure_sizes(gradient.sizes,
                    loss.how == kNone ? loss.target.sizes : std::vector<Expr>(),
                    "a gradient of other sizes");
  Elements elements(node, loss.x.sizes);
  const std::vector<Index> at{elements.at_loop(0), elements.at_loop(2),
                              elements.at_loop(3)};
  Term place = loss.place(elements, at);
  Term g = cast(loss.type, loss.how == kNone ? elements.load(gradient, at)
                                             : elements.load(gradient, {}));
  Term slope = -loss.weight_of(elements, place) * g;
  if (loss.how == kMean)
    slope = slope / cast(loss.type, elements.load(total, {}));
  Term here = loss.counts(elements, at) & (place == elements.loop(1));
  Term result = select(here, slope, 0);
  node.set_map(0, std::move(elements), result);
}

}  // namespace framejit::backend
