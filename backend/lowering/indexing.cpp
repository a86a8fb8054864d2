// Operators whose indices are data. What eager refuses fails a Check: then the
// run has no result, and the program runs as it is.
#include "backend/lowering/pointwise_math.h"
#include "backend/lowering/reductions.h"
#include "backend/lowering/rows.h"

namespace framejit::backend {

using codegen::Combiner;
using codegen::DType;
using codegen::Index;

namespace {

Term in_range(Elements& elements, Term place, const Expr& size) {
  return (place >= 0) & (place < elements.number(size));
}

// From 0 to size - 1, else the run fails.
Term checked(Elements& elements, Term place, const Expr& size) {
  place = cast(DType::kI64, place);
  return select(check(in_range(elements, place, size)), place, 0);
}

// Negative ones count from the end.
Term checked_from_end(Elements& elements, Term place, const Expr& size) {
  place = cast(DType::kI64, place);
  return checked(elements,
                 select(place < 0, place + elements.number(size), place), size);
}

// One index of a dim, or a list of them.
TensorView index_list(NodeLowering& node, size_t i, bool or_int32 = true) {
  TensorView places = node.tensor(i);
  node.require_index(places, or_int32);
  require(places.rank() <= 1, "indices of more dims");
  return places.rank() == 0 ? with_dim(places, 0) : places;
}

// `part` is no longer than `whole` along any dim but one.
void ensure_within(NodeLowering& node, const TensorView& part,
                   const TensorView& whole, int but = -1) {
  require(part.rank() == whole.rank(), "tensors of other dims");
  for (int dim = 0; dim < part.rank(); ++dim)
    if (dim != but && !same_size(part.sizes[dim], whole.sizes[dim]))
      node.ensure(expr_le(part.sizes[dim], whole.sizes[dim]),
                  "more indices than elements");
}

// A source has `length` in place of the dim's size.
void ensure_source(NodeLowering& node, const TensorView& view,
                   const TensorView& source, int dim, const Expr& length) {
  std::vector<Expr> sizes = view.sizes;
  sizes[dim] = length;
  node.ensure_sizes(source.sizes, sizes, "a source of other sizes");
}

// A view of the type that sums are made in, in memory of its own.
TensorView summing(NodeLowering& node, const TensorView& view) {
  const DType type = compute_type(view.type);
  return type == view.type ? view : node.copy(view, type);
}

void set_summed(NodeLowering& node, const TensorView& sums) {
  node.set(0, sums.type == node.out_type() ? sums
                                           : node.copy(sums, node.out_type()));
}

TensorView zeros(NodeLowering& node, DType type) {
  Elements elements(node, node.out().sizes);
  Term zero = elements.constant(type, 0);
  return node.map(std::move(elements), zero);
}

}  // namespace

void lower_embedding(NodeLowering& node) {
  TensorView weight = node.tensor(0), places = node.tensor(1);
  node.require_index(places);
  require(weight.rank() == 2, "no table");
  Elements elements(node, node.out().sizes);
  Term place = checked(
      elements, elements.load(places, elements.at_loops(0, places.rank())),
      weight.sizes[0]);
  Term value = elements.load(
      weight, {elements.at_data(place), elements.at_loop(places.rank())});
  node.set_map(0, std::move(elements), value);
}

void lower_embedding_backward(NodeLowering& node) {
  // (grad, indices, num_weights, padding_idx, scale_grad_by_freq)
  TensorView gradient = node.tensor(0), places = node.tensor(1);
  node.require_index(places);
  require(!node.flag(4), "gradients scaled by frequency");
  std::vector<Expr> sizes = places.sizes;
  sizes.push_back(node.out().sizes[1]);
  node.ensure_sizes(gradient.sizes, sizes, "gradients of other sizes");
  const DType type = compute_type(node.out_type());
  TensorView base = zeros(node, type);
  Elements elements(node, gradient.sizes);
  Term place = checked(
      elements, elements.load(places, elements.at_loops(0, places.rank())),
      node.out().sizes[0]);
  Term value = cast(type, elements.load_broadcast(gradient));
  Term padding = node.number(elements, 3, DType::kI64);
  value = select(place == padding, 0, value);
  std::vector<Index> target{elements.at_data(place),
                            elements.at_loop(places.rank())};
  set_summed(node, node.update(std::move(elements), base, target, value,
                               Combiner::kSum));
}

void lower_gather(NodeLowering& node) {
  TensorView view = node.tensor(0), places = node.tensor(2);
  node.require_index(places);
  require(view.rank() == places.rank() && view.rank() > 0,
          "a gather of scalars");
  const int dim = node.dim(1, view.rank());
  ensure_within(node, places, view, dim);
  Elements elements(node, places.sizes);
  Term place =
      checked(elements, elements.load_broadcast(places), view.sizes[dim]);
  auto indices = elements.at_loops(0, view.rank());
  indices[dim] = elements.at_data(place);
  Term value = elements.load(view, indices);
  node.set_map(0, std::move(elements), value);
}

void lower_index_select(NodeLowering& node) {
  TensorView view = node.tensor(0), places = index_list(node, 2);
  require(view.rank() > 0, "a selection of a scalar");
  const int dim = node.dim(1, view.rank());
  Elements elements(node, node.out().sizes);
  Term place = checked(elements, elements.load(places, {elements.at_loop(dim)}),
                       view.sizes[dim]);
  auto indices = elements.at_loops(0, view.rank());
  indices[dim] = elements.at_data(place);
  Term value = elements.load(view, indices);
  node.set_map(0, std::move(elements), value);
}

// ---- x[i, :, j]

namespace {

// Tensors in place of some dims: their broadcast sizes go where the first of
// them is, or to the front if other dims lie between them.
struct AdvancedIndex {
  std::vector<std::optional<TensorView>> tensors;  // of each dim
  std::vector<Expr> sizes;                         // broadcast
  std::vector<Expr> loops;                         // of the result
  int first = 0;  // loop at which `sizes` begin

  AdvancedIndex(NodeLowering& node, const TensorView& view, size_t argument);
  // The indices of the view, within loops over the result's dims.
  std::vector<Index> indices(Elements& elements, const TensorView& view) const;
};

std::vector<std::optional<TensorView>> index_tensors(NodeLowering& node,
                                                     size_t argument) {
  const graph::Arg list = node.arg(argument);
  require(list.is<graph::Arg::List>() || list.is<graph::Arg::Tuple>(),
          "no list of indices");
  const auto& items = list.is<graph::Arg::List>()
                          ? list.get<graph::Arg::List>().items
                          : list.get<graph::Arg::Tuple>().items;
  std::vector<std::optional<TensorView>> out;
  for (const graph::Arg& item : items) {
    if (item.is<graph::Arg::None>()) {
      out.emplace_back();
      continue;
    }
    require(item.is<graph::Value*>(), "an index that is no tensor");
    out.push_back(node.view_of(item.get<graph::Value*>()));
    node.require_index(*out.back());
  }
  return out;
}

AdvancedIndex::AdvancedIndex(NodeLowering& node, const TensorView& view,
                             size_t argument)
    : tensors(index_tensors(node, argument)) {
  require(tensors.size() <= view.sizes.size(), "too many indices");
  tensors.resize(view.rank());
  int last = -1, count = 0;
  first = -1;
  for (int dim = 0; dim < view.rank(); ++dim) {
    if (!tensors[dim]) continue;
    if (first < 0) first = dim;
    last = dim;
    ++count;
    std::vector<Expr> other = tensors[dim]->sizes;
    if (other.size() > sizes.size()) std::swap(other, sizes);
    for (size_t i = 0; i < other.size(); ++i) {
      Expr& size = sizes[sizes.size() - other.size() + i];
      if (size.is_const(1)) size = other[i];
    }
  }
  require(count > 0, "no index");
  if (last - first + 1 != count) first = 0;
  for (int dim = 0; dim < view.rank(); ++dim)
    if (!tensors[dim]) loops.push_back(view.sizes[dim]);
  loops.insert(loops.begin() + first, sizes.begin(), sizes.end());
}

std::vector<Index> AdvancedIndex::indices(Elements& elements,
                                          const TensorView& view) const {
  const int rank = static_cast<int>(sizes.size());
  std::vector<Index> out;
  int next = 0;  // loop of a dim without a tensor
  for (int dim = 0; dim < view.rank(); ++dim) {
    if (!tensors[dim]) {
      if (next == first) next += rank;
      out.push_back(elements.at_loop(next++));
      continue;
    }
    TensorView places = expanded(elements.builder(), *tensors[dim], sizes);
    Term place = elements.load(places, elements.at_loops(first, rank));
    out.push_back(
        elements.at_data(checked_from_end(elements, place, view.sizes[dim])));
  }
  return out;
}

}  // namespace

void lower_index(NodeLowering& node) {
  TensorView view = node.tensor(0);
  AdvancedIndex index(node, view, 1);
  require(index.loops == node.out().sizes, "a result of other sizes");
  Elements elements(node, index.loops);
  Term value = elements.load(view, index.indices(elements, view));
  node.set_map(0, std::move(elements), value);
}

void lower_index_put(NodeLowering& node) {
  // (self, indices, values, accumulate)
  TensorView view = node.tensor(0);
  AdvancedIndex index(node, view, 1);
  node.require_one_type({0, 2});
  const bool adds = node.flag(3);
  const DType type = adds ? compute_type(view.type) : view.type;
  require(!adds || type != DType::kBool, "a sum of bools");
  TensorView base = adds ? summing(node, view) : view;
  Elements elements(node, index.loops);
  auto target = index.indices(elements, view);
  Term value = cast(type, elements.load_broadcast(node.tensor(2)));
  std::optional<Combiner> combiner;
  if (adds) combiner = Combiner::kSum;
  set_summed(node,
             node.update(std::move(elements), base, target, value, combiner));
}

void lower_index_add(NodeLowering& node) {
  // (self, dim, index, source, alpha)
  TensorView view = node.tensor(0), places = node.tensor(2),
             source = node.tensor(3);
  node.require_index(places);
  node.require_one_type({0, 3});
  require(view.rank() > 0 && places.rank() == 1 && source.rank() == view.rank(),
          "a sum of scalars");
  const int dim = node.dim(1, view.rank());
  ensure_source(node, view, source, dim, places.sizes[0]);
  const DType type = compute_type(view.type);
  require(type != DType::kBool, "a sum of bools");
  TensorView base = summing(node, view);
  Elements elements(node, source.sizes);
  Term place = checked(elements, elements.load(places, {elements.at_loop(dim)}),
                       view.sizes[dim]);
  auto target = elements.at_loops(0, view.rank());
  target[dim] = elements.at_data(place);
  Term value = cast(type, elements.load_broadcast(source));
  Term alpha = node.number(elements, 4, type);
  if (!is_constant(alpha, 1)) value = value * alpha;
  set_summed(node, node.update(std::move(elements), base, target, value,
                               Combiner::kSum));
}

void lower_index_copy(NodeLowering& node) {
  // (self, dim, index, source)
  TensorView view = node.tensor(0), places = index_list(node, 2, false),
             source = node.tensor(3);
  node.require_one_type({0, 3});
  require(view.rank() > 0 && source.rank() == view.rank(), "a copy of scalars");
  const int dim = node.dim(1, view.rank());
  ensure_source(node, view, source, dim, places.sizes[0]);
  Elements elements(node, source.sizes);
  Term place = checked(elements, elements.load(places, {elements.at_loop(dim)}),
                       view.sizes[dim]);
  auto target = elements.at_loops(0, view.rank());
  target[dim] = elements.at_data(place);
  Term value = elements.load_broadcast(source);
  node.set(0, node.update(std::move(elements), view, target, value));
}

void lower_index_fill(NodeLowering& node) {
  // (self, dim, index, value)
  TensorView view = node.tensor(0), places = index_list(node, 2, false);
  require(view.rank() > 0, "a fill of a scalar");
  const int dim = node.dim(1, view.rank());
  std::vector<Expr> loops = view.sizes;
  loops[dim] = places.sizes[0];
  Elements elements(node, loops);
  Term place =
      checked_from_end(elements, elements.load(places, {elements.at_loop(dim)}),
                       view.sizes[dim]);
  auto target = elements.at_loops(0, view.rank());
  target[dim] = elements.at_data(place);
  Term value = node.is_tensor(3)
                   ? node.number(elements, node.tensor(3), view.type)
                   : node.number(elements, 3, view.type);
  node.set(0, node.update(std::move(elements), view, target, value));
}

namespace {

// self with `value` at self[.., index[i], ..] for the points of index.
void lower_scatter(NodeLowering& node, bool adds,
                   const std::function<Term(Elements&)>& value_of) {
  TensorView view = node.tensor(0), places = node.tensor(2);
  node.require_index(places);
  require(view.rank() == places.rank() && view.rank() > 0,
          "a scatter of scalars");
  const int dim = node.dim(1, view.rank());
  ensure_within(node, places, view, dim);
  const DType type = adds ? compute_type(view.type) : view.type;
  require(!adds || type != DType::kBool, "a sum of bools");
  TensorView base = adds ? summing(node, view) : view;
  Elements elements(node, places.sizes);
  Term place =
      checked(elements, elements.load_broadcast(places), view.sizes[dim]);
  auto target = elements.at_loops(0, view.rank());
  target[dim] = elements.at_data(place);
  Term value = cast(type, value_of(elements));
  std::optional<Combiner> combiner;
  if (adds) combiner = Combiner::kSum;
  set_summed(node,
             node.update(std::move(elements), base, target, value, combiner));
}

Term source_element(NodeLowering& node, Elements& elements) {
  TensorView source = node.tensor(3);
  node.require_one_type({0, 3});
  ensure_within(node, node.tensor(2), source);
  return elements.load(source, elements.at_loops(0, source.rank()));
}

}  // namespace

void lower_scatter_src(NodeLowering& node) {
  lower_scatter(node, false, [&](Elements& elements) {
    return source_element(node, elements);
  });
}

void lower_scatter_value(NodeLowering& node) {
  lower_scatter(node, false, [&](Elements& elements) {
    return node.number(elements, 3, node.out_type());
  });
}

void lower_scatter_add(NodeLowering& node) {
  lower_scatter(node, true, [&](Elements& elements) {
    return source_element(node, elements);
  });
}

}  // namespace framejit::backend
