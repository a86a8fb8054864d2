// cummax, cummin: the extreme so far, and where it was last met.
#include "backend/lowering/pointwise_math.h"
#include "backend/lowering/rows.h"

namespace framejit::backend {

using codegen::Combiner;
using codegen::DType;
using codegen::Index;

namespace {

// A tensor with one dim moved to the end, where it is scanned.
struct Scanned {
  std::vector<Expr> loops;
  std::vector<int> loop_of;  // of each dim

  Scanned(const std::vector<Expr>& sizes, int dim) : loop_of(sizes.size()) {
    for (int i = 0; i < static_cast<int>(sizes.size()); ++i) {
      if (i == dim) continue;
      loop_of[i] = static_cast<int>(loops.size());
      loops.push_back(sizes[i]);
    }
    loop_of[dim] = static_cast<int>(loops.size());
    loops.push_back(sizes[dim]);
  }
  Term load(Elements& elements, const TensorView& view) const {
    std::vector<Index> indices;
    for (int loop : loop_of) indices.push_back(elements.at_loop(loop));
    return elements.load(view, indices);
  }
  // The view over the tensor's own dims.
  TensorView back(const TensorView& scanned,
                  const std::vector<Expr>& sizes) const {
    std::vector<Index> indices(sizes.size());
    for (size_t i = 0; i < sizes.size(); ++i)
      indices[loop_of[i]] =
          index_along(static_cast<int>(sizes.size()), static_cast<int>(i));
    return LoopBuilder::reindex(scanned, sizes, indices);
  }
};

void set_running(NodeLowering& node, Combiner combiner) {
  const TensorView view = node.tensor(0);
  const DType type = compute_type(view.type);
  require(node.out_type() == view.type, "a result of another type");
  if (view.rank() == 0) {
    Elements value(node, {}), place(node, {});
    Term same = value.load(view, {}), zero = place.integer(DType::kI64, 0);
    node.set_map(0, std::move(value), same);
    node.set_map(1, std::move(place), zero);
    return;
  }
  const int dim = node.dim(1, view.rank());
  const Scanned scanned(view.sizes, dim);
  const int last = view.rank() - 1;
  Elements values(node, scanned.loops);
  Term element = cast(type, scanned.load(values, view));
  const TensorView extremes = node.scan(std::move(values), combiner, element);
  // An element is the extreme if it equals it. From a NaN on only NaN does.
  Elements met(node, scanned.loops);
  element = cast(type, scanned.load(met, view));
  Term extreme = met.load(extremes, met.at_loops(0, view.rank()));
  Term place =
      select(is_nan(element) | (element == extreme), met.loop(last), 0);
  const TensorView places = scanned.back(
      node.scan(std::move(met), Combiner::kMax, place), view.sizes);
  // Of zeros it is the sign of the last.
  Elements elements(node, view.sizes);
  auto indices = elements.at_loops(0, view.rank());
  indices[dim] = elements.at_data(elements.load(places, indices));
  Term value = elements.load(view, indices);
  node.set_map(0, std::move(elements), value);
  Elements copied(node, view.sizes);
  Term found = copied.load(places, copied.at_loops(0, view.rank()));
  node.set_map(1, std::move(copied), found);
}

}  // namespace

void lower_cummax(NodeLowering& node) { set_running(node, Combiner::kMax); }
void lower_cummin(NodeLowering& node) { set_running(node, Combiner::kMin); }

}  // namespace framejit::backend
