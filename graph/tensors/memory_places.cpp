#include "graph/tensors/memory_places.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <optional>

#include "guards/expr/polynomial.h"

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

// `sum` is that often `divisor`; none: it does not go without a rest, or it was
// not found. Each step takes the longest product away.
std::optional<Expr> times_of(const Expr& sum, const Expr& divisor) {
  Polynomial rest, by, quotient;
  if (!to_polynomial(sum, &rest) || !to_polynomial(divisor, &by) || by.empty())
    return std::nullopt;
  auto longest = [](const Polynomial& terms) {
    auto most = terms.begin();
    for (auto at = terms.begin(); at != terms.end(); ++at)
      if (at->first.size() > most->first.size()) most = at;
    return *most;
  };
  const auto [factors, number] = longest(by);
  constexpr int kMostSteps = 16;
  for (int step = 0; !rest.empty(); ++step) {
    const auto [product, coefficient] = longest(rest);
    if (step == kMostSteps || number == -1 || coefficient % number != 0)
      return std::nullopt;
    std::vector<Expr> others = product;
    for (const Expr& factor : factors) {
      auto found = std::find(others.begin(), others.end(), factor);
      if (found == others.end()) return std::nullopt;
      others.erase(found);
    }
    Polynomial term, part;
    term[others] = coefficient / number;
    if (!multiply(term, by, &part) || !add_multiple(&rest, part, -1) ||
        !add_multiple(&quotient, term, 1))
      return std::nullopt;
  }
  return from_polynomial(quotient);
}

// Two parts of one tensor that are apart in one dim (its first and its last
// columns): what must hold for that. Of each element there are coordinates from
// the beginning of the part that comes first; where the strides are nested, two
// elements with other coordinates are two places.
class PartsInOneDim {
 public:
  PartsInOneDim(const SymbolicShape& a, const SymbolicShape& b)
      : a_(a), b_(b), strides_(a.strides) {}

  bool decide_apart() {
    if (a_.sizes.size() != b_.sizes.size()) return false;
    for (size_t i = 0; i < a_.sizes.size(); ++i) {
      const bool is_one = a_.sizes[i].is_const(1) && b_.sizes[i].is_const(1);
      if (!is_one && a_.strides[i] != b_.strides[i]) return false;
    }
    for (size_t dim = 0; dim < a_.sizes.size(); ++dim) {
      facts_.clear();
      if (!are_apart(dim)) continue;
      for (const Expr& fact : facts_) decide(fact);
      return true;
    }
    return false;
  }

 private:
  // True now; then it is to be guarded if the answer is yes.
  bool holds(const Expr& fact) {
    facts_.push_back(fact);
    return hint_of(fact) != 0;
  }

  bool are_apart(size_t dim) {
    auto steps = times_of(b_.storage_offset - a_.storage_offset, strides_[dim]);
    if (!steps) return false;
    const bool a_first = hint_of(*steps) > 0;
    const Expr distance = a_first ? *steps : Expr(0) - *steps;
    const SymbolicShape &first = a_first ? a_ : b_, &second = a_first ? b_ : a_;
    if (!holds(expr_le(first.sizes[dim], distance))) return false;
    std::vector<Expr> counts;
    for (size_t i = 0; i < a_.sizes.size(); ++i) {
      const Expr &x = a_.sizes[i], &y = b_.sizes[i];
      const bool x_more = hint_of(x) >= hint_of(y);
      if (i == dim) {
        counts.push_back(distance + second.sizes[dim]);
      } else {
        if (x != y) holds(x_more ? expr_le(y, x) : expr_le(x, y));
        counts.push_back(x_more ? x : y);
      }
    }
    Expr reach(0);  // of the dims nested inside
    for (size_t i : nesting_order(counts, strides_)) {
      if (counts[i].is_const(1)) continue;
      if (!holds(expr_lt(reach, strides_[i]))) return false;
      reach = reach + (counts[i] - 1) * strides_[i];
    }
    return true;
  }

  const SymbolicShape &a_, &b_;
  const std::vector<Expr>& strides_;
  std::vector<Expr> facts_;
};

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
  if (other_parts_of_rows(a, b) || PartsInOneDim(a, b).decide_apart())
    return Overlap::kNone;
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
