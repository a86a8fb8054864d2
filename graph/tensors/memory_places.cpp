#include "graph/tensors/memory_places.h"

#include <functional>
#include <iterator>
#include <optional>

namespace framejit::graph {

namespace {

// The dims that have more than one element, by strides at capture.
std::vector<size_t> nesting_order(c10::ArrayRef<Expr> sizes,
                                  c10::ArrayRef<Expr> strides) {
  std::vector<size_t> order;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!sizes[i].is_const(1)) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return hint_of(strides[a]) < hint_of(strides[b]);
  });
  return order;
}

bool decide_empty(const SymbolicShape& shape) {
  return std::any_of(shape.sizes.begin(), shape.sizes.end(),
                     [](const Expr& n) { return decide(expr_eq(n, 0)); });
}

// By the expressions, or by the numbers at capture.
template <typename Equal>
bool same_places(const SymbolicShape& a, const SymbolicShape& b, Equal equal) {
  if (a.sizes.size() != b.sizes.size() ||
      !equal(a.storage_offset, b.storage_offset))
    return false;
  for (size_t i = 0; i < a.sizes.size(); ++i) {
    // Also where one element makes the stride irrelevant: ATen compares all of
    // them, and refuses to write where they differ.
    if (!equal(a.sizes[i], b.sizes[i]) || !equal(a.strides[i], b.strides[i]))
      return false;
  }
  return true;
}

void specialise_shape(const SymbolicShape& shape) {
  for (const Expr& size : shape.sizes) specialise(size);
  for (const Expr& stride : shape.strides) specialise(stride);
  specialise(shape.storage_offset);
}

// In ascending order, of a static shape; empty: too many to say.
std::optional<std::vector<int64_t>> places_of(const SymbolicShape& shape) {
  constexpr size_t kMost = 1 << 16;
  std::vector<int64_t> places{hint_of(shape.storage_offset)};
  for (size_t dim = 0; dim < shape.sizes.size(); ++dim) {
    int64_t size = hint_of(shape.sizes[dim]);
    int64_t stride = hint_of(shape.strides[dim]);
    if (size > 0 && places.size() > kMost / static_cast<size_t>(size))
      return std::nullopt;
    std::vector<int64_t> next;
    for (int64_t place : places) {
      for (int64_t i = 0; i < size; ++i) next.push_back(place + i * stride);
    }
    places = std::move(next);
  }
  std::sort(places.begin(), places.end());
  return places;
}

// Parts of the rows of one matrix with any number of rows (the chunks of the
// gates of a cell): in rows of so many places, where in a row its elements lie.
struct RowPart {
  int64_t width = 0, begin = 0, end = 0;
};

std::optional<RowPart> row_part_of(const SymbolicShape& shape) {
  if (!shape.storage_offset.is_const()) return std::nullopt;
  RowPart part;
  int64_t extent = 1;
  for (size_t i = 0; i < shape.sizes.size(); ++i) {
    const Expr &size = shape.sizes[i], &stride = shape.strides[i];
    if (size.is_const(1)) continue;
    if (!stride.is_const()) return std::nullopt;
    if (size.is_const()) {
      extent += (size.constant() - 1) * stride.constant();
    } else if (part.width == 0) {
      part.width = stride.constant();
    } else {
      return std::nullopt;
    }
  }
  if (part.width <= 0) return std::nullopt;
  part.begin = shape.storage_offset.constant() % part.width;
  part.end = part.begin + extent;
  if (part.end > part.width) return std::nullopt;
  return part;
}

bool other_parts_of_rows(const SymbolicShape& a, const SymbolicShape& b) {
  auto x = row_part_of(a), y = row_part_of(b);
  return x && y && x->width == y->width &&
         (x->end <= y->begin || y->end <= x->begin);
}

}  // namespace

bool is_dense(c10::ArrayRef<Expr> sizes, c10::ArrayRef<Expr> strides) {
  // In some order of dims, each stride is the product of the sizes before.
  std::vector<bool> taken(sizes.size());
  Expr expected(1);
  for (size_t round = 0; round < sizes.size(); ++round) {
    bool found = false;
    for (size_t dim = sizes.size(); dim-- > 0 && !found;) {
      if (taken[dim]) continue;
      if (sizes[dim].is_const(1)) {
        taken[dim] = found = true;
      } else if (strides[dim] == expected) {
        expected = expected * sizes[dim];
        taken[dim] = found = true;
      }
    }
    if (!found) return false;
  }
  return true;
}

bool decide_repeats(c10::ArrayRef<Expr> sizes, c10::ArrayRef<Expr> strides) {
  if (is_dense(sizes, strides)) return false;
  Expr reach(0);  // of the dims nested inside
  for (size_t i : nesting_order(sizes, strides)) {
    if (decide(expr_lt(sizes[i], 2))) {
      if (decide(expr_eq(sizes[i], 0))) return false;
      continue;
    }
    if (!decide(expr_lt(reach, strides[i]))) return true;
    reach = reach + (sizes[i] - 1) * strides[i];
  }
  return false;
}

Overlap decide_overlap(const SymbolicShape& a, const SymbolicShape& b) {
  if (same_places(a, b, std::equal_to<Expr>())) return Overlap::kSame;
  if (decide_empty(a) || decide_empty(b)) return Overlap::kNone;
  if (decide(expr_le(decide_extent(a), b.storage_offset)) ||
      decide(expr_le(decide_extent(b), a.storage_offset)))
    return Overlap::kNone;
  if (other_parts_of_rows(a, b)) return Overlap::kNone;
  if (!a.is_static()) specialise_shape(a);
  if (!b.is_static()) specialise_shape(b);
  auto equal_now = [](const Expr& x, const Expr& y) {
    return hint_of(x) == hint_of(y);
  };
  if (same_places(a, b, equal_now)) return Overlap::kSame;
  auto of_a = places_of(a), of_b = places_of(b);
  if (!of_a || !of_b) return Overlap::kSome;
  std::vector<int64_t> both;
  std::set_intersection(of_a->begin(), of_a->end(), of_b->begin(), of_b->end(),
                        std::back_inserter(both));
  return both.empty() ? Overlap::kNone : Overlap::kSome;
}

Expr decide_extent(const SymbolicShape& shape) {
  if (decide_empty(shape)) return Expr(0);
  Expr extent = shape.storage_offset + 1;
  for (size_t i = 0; i < shape.sizes.size(); ++i) {
    if (!shape.sizes[i].is_const(1))
      extent = extent + (shape.sizes[i] - 1) * shape.strides[i];
  }
  return extent;
}

}  // namespace framejit::graph
