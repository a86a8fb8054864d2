// as_strided() and its like: elements by where they lie in eager's storage. How
// they lie here is another matter, so strides are told apart by eager's own,
// and become indices where each names a dim.
#include <algorithm>
#include <numeric>

#include "backend/lowering/rows.h"
#include "graph/tensors/memory_places.h"

namespace framejit::backend {

using codegen::Index;
using graph::Arg;
using graph::TensorMeta;
using graph::Value;

namespace {

// Places in a storage, counted from the first element of some tensor.
struct Places {
  std::vector<Expr> sizes, strides;
  Expr offset;
};

// What the arguments from `first` on (sizes, strides, offset) name in the
// storage of argument 0.
Places places_of(const NodeLowering& node, size_t first) {
  const Expr from = node.meta_of(0).storage_offset;
  return {node.integers(first), node.integers(first + 1),
          node.has(first + 2) ? node.integer(first + 2) - from : Expr(0)};
}

// Has a dim of that size so many places, whatever the symbols are?
bool reaches(const Expr& size, const Expr& count) {
  return size == count || (size.is_const() && count.is_const() &&
                           count.constant() <= size.constant());
}

// No two elements at one place, whatever the symbols are.
bool are_distinct(const Places& places) {
  if (graph::is_dense(places.sizes, places.strides)) return true;
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride, size
  for (size_t dim = 0; dim < places.sizes.size(); ++dim) {
    if (places.sizes[dim].is_const(1)) continue;
    if (!places.sizes[dim].is_const() || !places.strides[dim].is_const())
      return false;
    dims.emplace_back(places.strides[dim].constant(),
                      places.sizes[dim].constant());
  }
  std::sort(dims.begin(), dims.end());
  int64_t taken = 1;
  for (auto [stride, size] : dims) {
    if (stride < taken) return false;
    taken += stride * (size - 1);
  }
  return true;
}

// The elements at those places, by their indices in a tensor of such sizes and
// strides: one index for each of its dims. Nothing: not each of the places is
// plainly an element of the tensor.
std::optional<std::vector<Index>> indices_at(const Places& places,
                                             const std::vector<Expr>& sizes,
                                             const std::vector<Expr>& strides) {
  const int rank = static_cast<int>(places.sizes.size());
  const size_t count = sizes.size();
  std::vector<Index> out(count, index_of(rank));
  if (count == 1 && strides[0].is_const(1)) {
    // All in a line.
    Expr last = out[0].offset = places.offset;
    for (int dim = 0; dim < rank; ++dim) {
      out[0].coefficients[dim] = places.strides[dim];
      last = last + (places.sizes[dim] - 1) * places.strides[dim];
    }
    const Expr behind = sizes[0] - last;
    if (places.offset.is_const() && places.offset.constant() >= 0 &&
        behind.is_const() && behind.constant() > 0)
      return out;
    return std::nullopt;
  }
  // Each dim goes along one of the tensor's, from the first element on.
  if (!places.offset.is_const(0)) return std::nullopt;
  std::vector<bool> taken(count);
  for (int dim = 0; dim < rank; ++dim) {
    const Expr &size = places.sizes[dim], &stride = places.strides[dim];
    if (size.is_const(1) || stride.is_const(0)) continue;
    size_t along = 0;
    while (along < count && (taken[along] || strides[along] != stride ||
                             !reaches(sizes[along], size)))
      ++along;
    if (along == count) return std::nullopt;
    taken[along] = true;
    out[along] = index_along(rank, dim);
  }
  for (size_t dim = 0; dim < count; ++dim)
    if (!taken[dim] && !reaches(sizes[dim], 1)) return std::nullopt;
  return out;
}

// as_strided(as_strided_scatter(base, part, ...), ...) that reads nothing but
// what was written: part. (Gradients of as_strided() are of this kind: their
// base, a storage full of zeros, is never needed.)
std::optional<TensorView> read_back(NodeLowering& node, const Places& places) {
  const Value* value = node.arg(0).get<Value*>();
  if (!value->node->aten ||
      value->node->aten->schema().name() != "aten::as_strided_scatter")
    return std::nullopt;
  // Its own arguments; the views are the same.
  const NodeLowering scatter(*value->node, node);
  Places written = places_of(scatter, 2);
  const TensorView part = scatter.tensor(1);
  if (part.type != scatter.out_type() || !are_distinct(written) ||
      written.sizes != part.sizes || written.offset != places.offset)
    return std::nullopt;
  auto indices = indices_at({places.sizes, places.strides, 0}, written.sizes,
                            written.strides);
  if (!indices) return std::nullopt;
  return LoopBuilder::reindex(part, places.sizes, *indices);
}

}  // namespace

void lower_as_strided(NodeLowering& node) {
  const Places places = places_of(node, 1);
  if (auto part = read_back(node, places)) return node.set(0, *part);
  const TensorMeta& meta = node.meta_of(0);
  if (auto indices = indices_at(places, meta.sizes, meta.strides))
    return node.set(
        0, LoopBuilder::reindex(node.tensor(0), places.sizes, *indices));
  TensorView memory = in_memory(node, 0);
  const codegen::Buffer& buffer = node.graph().buffers[memory.buffer];
  require(buffer.alias_of == codegen::kNoBuffer &&
              buffer.sizes == memory.sizes &&
              graph::is_dense(buffer.sizes, buffer.strides),
          "strides into other memory");
  Expr elements = product(buffer.sizes), last = places.offset;
  for (size_t dim = 0; dim < places.sizes.size(); ++dim)
    last = last + (places.sizes[dim] - 1) * places.strides[dim];
  require(places.offset.is_const() && last.is_const() && elements.is_const() &&
              places.offset.constant() >= 0 &&
              last.constant() < elements.constant(),
          "strides beyond the memory");
  node.set(0, node.alias(memory, places.sizes, places.strides, places.offset));
}

// `base` with `part` at those places.
void lower_as_strided_scatter(NodeLowering& node) {
  const TensorView base = node.tensor(0), part = node.tensor(1);
  const Places places = places_of(node, 2);
  const TensorMeta& meta = node.meta_of(0);
  require(are_distinct(places), "several elements at one place");
  node.ensure_sizes(part.sizes, places.sizes, "a part of other sizes");
  auto indices = indices_at(places, meta.sizes, meta.strides);
  require(indices.has_value(), "strides that are not plainly a tensor's");
  auto put = node.put_back(
      base, LoopBuilder::reindex(base, places.sizes, *indices), part);
  if (put) return node.set(0, *put);
  Elements elements(node, part.sizes);
  Term value = elements.load(part, elements.at_loops(0, part.rank()));
  node.set(0, node.update(std::move(elements), base, *indices, value));
}

}  // namespace framejit::backend
