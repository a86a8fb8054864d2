// scatter_reduce: elements put together with those that go to the same place.
#include <cmath>
#include <limits>

#include "backend/lowering/pointwise_math.h"
#include "backend/lowering/rows.h"

namespace framejit::backend {

using codegen::Combiner;
using codegen::DType;
using codegen::Index;

namespace {

struct ReductionKind {
  Combiner combiner;
  bool is_mean;
};

ReductionKind kind_named(const std::string& name) {
  if (name == "sum") return {Combiner::kSum, false};
  if (name == "mean") return {Combiner::kSum, true};
  if (name == "prod") return {Combiner::kProduct, false};
  if (name == "amax") return {Combiner::kMax, false};
  require(name == "amin", "an unknown reduction");
  return {Combiner::kMin, false};
}

template <class T>
Term limit(Elements& elements, DType type, bool lowest) {
  return elements.integer(type, lowest ? std::numeric_limits<T>::lowest()
                                       : std::numeric_limits<T>::max());
}

// What changes nothing.
Term neutral(Elements& elements, DType type, Combiner combiner) {
  if (combiner == Combiner::kSum) return elements.constant(type, 0);
  if (combiner == Combiner::kProduct) return elements.constant(type, 1);
  const bool lowest = combiner == Combiner::kMax;
  switch (type) {
    case DType::kU8:
      return limit<uint8_t>(elements, type, lowest);
    case DType::kI8:
      return limit<int8_t>(elements, type, lowest);
    case DType::kI16:
      return limit<int16_t>(elements, type, lowest);
    case DType::kI32:
      return limit<int32_t>(elements, type, lowest);
    case DType::kI64:
      return limit<int64_t>(elements, type, lowest);
    default:
      return elements.constant(type, lowest ? -HUGE_VAL : HUGE_VAL);
  }
}

// self[.., index, ..], where the elements of argument 3 go.
class Scatter {
 public:
  explicit Scatter(NodeLowering& node)
      : node_(node), view_(node.tensor(0)), places_(node.tensor(2)) {
    require(places_.type == DType::kI64, "indices of another type");
    require(view_.rank() > 0 && view_.rank() == places_.rank(),
            "a scatter of scalars");
    require(view_.type != DType::kBool, "a scatter of bools");
    if (node.is_tensor(3)) {
      source_ = node.tensor(3);
      require(view_.rank() == source_.rank() && view_.type == source_.type,
              "a source of another type");
    }
    dim_ = node.dim(1, view_.rank());
  }

  const TensorView& view() const { return view_; }

  using Value = std::function<Term(Elements&)>;
  TensorView put(const TensorView& base, const Value& value,
                 std::optional<Combiner> combiner) const {
    Elements elements(node_, places_.sizes);
    Term place = elements.load_broadcast(places_);
    Term inside =
        check((place >= 0) & (place < elements.number(view_.sizes[dim_])));
    auto target = elements.at_loops(0, view_.rank());
    target[dim_] = elements.at_data(select(inside, place, 0));
    Term element = value(elements);
    return node_.update(std::move(elements), base, target, element, combiner);
  }
  Term source(Elements& elements, DType type) const {
    if (!node_.is_tensor(3)) return node_.number(elements, 3, type);
    return cast(type,
                elements.load(source_, elements.at_loops(0, source_.rank())));
  }

 private:
  NodeLowering& node_;
  TensorView view_, places_, source_;
  int dim_;
};

}  // namespace

void lower_scatter_reduce(NodeLowering& node) {
  // (self, dim, index, src, reduce, include_self)
  const Scatter scatter(node);
  const ReductionKind kind = kind_named(node.text(4));
  const bool with_self = node.flag(5);
  const DType type = compute_type(scatter.view().type);
  TensorView result = type == scatter.view().type
                          ? scatter.view()
                          : node.copy(scatter.view(), type);
  if (!with_self)
    result = scatter.put(
        result, [&](Elements& e) { return neutral(e, type, kind.combiner); },
        std::nullopt);
  result = scatter.put(
      result, [&](Elements& e) { return scatter.source(e, type); },
      kind.combiner);
  if (!kind.is_mean)
    return node.set(0, type == node.out_type()
                           ? result
                           : node.copy(result, node.out_type()));
  Elements none(node, scatter.view().sizes);
  Term first = none.constant(type, with_self ? 1 : 0);
  TensorView counts = node.map(std::move(none), first);
  counts = scatter.put(
      counts, [&](Elements& e) { return e.constant(type, 1); }, Combiner::kSum);
  Elements elements(node, scatter.view().sizes);
  auto here = elements.at_loops(0, elements.rank());
  Term count = elements.load(counts, here), sum = elements.load(result, here);
  count = select(count == 0, 1, count);
  Term mean = is_float(sum) ? sum / count : floor_div(sum, count);
  node.set_map(0, std::move(elements), mean);
}

void lower_scatter_with(NodeLowering& node) {
  // (self, dim, index, src or value, reduce)
  const Scatter scatter(node);
  const std::string name = node.text(4);
  require(name == "add" || name == "multiply", "an unknown reduction");
  const DType type = scatter.view().type;
  require(type == compute_type(type), "sums that are rounded one by one");
  const TensorView result = scatter.put(
      scatter.view(), [&](Elements& e) { return scatter.source(e, type); },
      name == "add" ? Combiner::kSum : Combiner::kProduct);
  node.set(0, result);
}

}  // namespace framejit::backend
