// Elements found by data: take, and places in sorted sequences.
#include "backend/lowering/pointwise_math.h"
#include "backend/lowering/rows.h"

namespace framejit::backend {

using codegen::DType;
using codegen::Index;

namespace {

// The elements in row-major order.
TensorView flat(NodeLowering& node, const TensorView& view) {
  const auto strides = codegen::contiguous_strides(view.sizes);
  const codegen::BufferId memory = node.buffer_of(view, &strides);
  return node.alias(node.whole(memory), {product(view.sizes)}, {1},
                    node.graph().buffers[memory].offset);
}

// Of the indices (argument 1), one of `count` elements. Negative ones count
// from the end.
Index flat_place(NodeLowering& node, Elements& elements, const Expr& count) {
  const TensorView places = node.tensor(1);
  require(places.type == DType::kI64, "indices of another type");
  Term place = elements.load(places, elements.at_loops(0, places.rank()));
  place = select(place < 0, place + elements.number(count), place);
  Term inside = check((place >= 0) & (place < elements.number(count)));
  return elements.at_data(select(inside, place, 0));
}

}  // namespace

void lower_take(NodeLowering& node) {
  // (self, index)
  const TensorView view = flat(node, node.tensor(0));
  Elements elements(node, node.tensor(1).sizes);
  Term value = elements.load(view, {flat_place(node, elements, view.sizes[0])});
  node.set_map(0, std::move(elements), value);
}

void lower_put(NodeLowering& node) {
  // (self, index, source, accumulate). Which of two numbers for one place
  // stays, eager does not say.
  require(node.flag(3), "elements that are overwritten");
  const TensorView view = node.tensor(0), source = node.tensor(2);
  const DType type = compute_type(view.type);
  require(type != DType::kBool && source.type == view.type,
          "a source of another type");
  node.ensure_sizes(source.sizes, node.tensor(1).sizes,
                    "a source of other sizes");
  const TensorView base =
      flat(node, type == view.type ? view : node.copy(view, type));
  Elements elements(node, source.sizes);
  Term value = cast(type, elements.load_broadcast(source));
  const Index target = flat_place(node, elements, base.sizes[0]);
  const TensorView sums = node.update(std::move(elements), base, {target},
                                      value, codegen::Combiner::kSum);
  const TensorView whole =
      node.alias(sums, view.sizes, codegen::contiguous_strides(view.sizes), 0);
  Elements result(node, view.sizes);
  Term element = result.load_broadcast(whole);
  node.set_map(0, std::move(result), element);
}

namespace {

constexpr int64_t kMaxSequence = int64_t{1} << 20;

// The search eager does, halving by halving, so that it ends in the same place
// where the sequence is not sorted, too. row: the indices before the last.
Term found_place(Elements& elements, const TensorView& sequence,
                 std::vector<Index> row, Term wanted, bool right) {
  const Expr& size = sequence.sizes.back();
  require(
      size.is_const() && size.constant() > 0 && size.constant() <= kMaxSequence,
      "a sequence of unknown length");
  Term begin = elements.integer(DType::kI64, 0);
  Term end = elements.integer(DType::kI64, size.constant());
  for (int64_t left = size.constant(); left > 0; left /= 2) {
    Term going = begin < end;
    Term middle = begin + shift_right(end - begin, 1);
    row.push_back(elements.at_data(middle));
    Term met = cast(wanted.type(), elements.load(sequence, row, going));
    row.pop_back();
    Term stops = right ? met > wanted : met >= wanted;
    Term goes_on = going & ~stops;
    begin = select(goes_on, middle + 1, begin);
    end = select(going & stops, middle, end);
  }
  return begin;
}

void set_places(NodeLowering& node, size_t sequence_at, size_t wanted_at,
                bool right) {
  const TensorView sequence = node.tensor(sequence_at),
                   wanted = node.tensor(wanted_at);
  require(sequence.type == wanted.type, "operands of different types");
  for (size_t i : {sequence_at, wanted_at})
    require(graph::is_contiguous(node.meta_of(i)),
            "memory that eager warns of");
  require(sequence.rank() >= 1, "a sequence without dims");
  require(sequence.rank() == 1 || sequence.rank() == wanted.rank(),
          "sequences of other dims");
  Elements elements(node, wanted.sizes);
  auto row = elements.at_loops(0, sequence.rank() - 1);
  for (int dim = 0; dim + 1 < sequence.rank(); ++dim)
    node.ensure_equal(sequence.sizes[dim], wanted.sizes[dim],
                      "sequences of other dims");
  Term value = cast(compute_type(wanted.type), elements.load_broadcast(wanted));
  Term place = found_place(elements, sequence, std::move(row), value, right);
  place = cast(node.out_type(), place);
  node.set_map(0, std::move(elements), place);
}

}  // namespace

void lower_bucketize(NodeLowering& node) {
  // (self, boundaries, out_int32, right)
  require(node.tensor(1).rank() == 1, "boundaries of other dims");
  set_places(node, 1, 0, node.flag(3));
}

void lower_searchsorted(NodeLowering& node) {
  // (sorted_sequence, self, out_int32, right, side, sorter)
  require(!node.has(5), "a sequence in another order");
  bool right = node.flag(3);
  if (node.has(4)) {
    // Eager refuses left and right at once.
    const std::string side = node.text(4);
    require(side == "right" || (side == "left" && !right), "an unknown side");
    right = side == "right";
  }
  set_places(node, 0, 1, right);
}

}  // namespace framejit::backend
