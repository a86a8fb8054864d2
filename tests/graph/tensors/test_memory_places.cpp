// Places of two parts of one tensor: what is said at the sizes of the capture
// holds of all sizes that the guards let through.
#include "graph/tensors/memory_places.h"

#include <algorithm>
#include <random>

#include "tests/graph/tracing/trace_helpers.h"

namespace framejit::graph::testing {
namespace {

class MemoryPlaces : public ::testing::Test {
 protected:
  void SetUp() override { start_torch(); }

  int64_t below(int64_t limit) {
    return std::uniform_int_distribution<int64_t>(0, limit - 1)(random_);
  }

  // Contiguous, of the sizes s0, s1, s2.
  static SymbolicShape whole() {
    SymbolicShape shape;
    for (int i = 0; i < 3; ++i) shape.sizes.push_back(Expr::symbol(i));
    const std::vector<Expr>& n = shape.sizes;
    shape.strides = {n[1] * n[2], n[2], Expr(1)};
    return shape;
  }

  Expr bound(const Expr& size) {
    switch (below(6)) {
      case 0:
        return size - 1;
      case 1:
        return size - 2;
      case 2:
        return floor_div(size, Expr(2));
      case 3:
        return size;
      default:
        return Expr(below(4));
    }
  }

  // [start:stop:step] of one dim, where that is something at the hints.
  void slice(SymbolicShape* shape, size_t dim) {
    const Expr size = shape->sizes[dim];
    Expr start = bound(size), stop = bound(size);
    const int64_t step = below(4) == 0 ? 2 : 1;
    if (hint_of(start) < 0 || hint_of(stop) > hint_of(size) ||
        hint_of(start) >= hint_of(stop))
      return;
    shape->storage_offset = shape->storage_offset + start * shape->strides[dim];
    shape->sizes[dim] =
        step == 1 ? stop - start : floor_div(stop - start + 1, Expr(2));
    shape->strides[dim] = shape->strides[dim] * step;
  }

  static int64_t at(const Expr& e, const std::vector<int64_t>& symbols) {
    return e.evaluate(symbols.data());
  }

  static std::vector<int64_t> places(const SymbolicShape& shape,
                                     const std::vector<int64_t>& symbols) {
    std::vector<int64_t> found{at(shape.storage_offset, symbols)};
    for (size_t dim = 0; dim < shape.sizes.size(); ++dim) {
      std::vector<int64_t> next;
      for (int64_t place : found) {
        for (int64_t i = 0; i < at(shape.sizes[dim], symbols); ++i)
          next.push_back(place + i * at(shape.strides[dim], symbols));
      }
      found = std::move(next);
    }
    return found;
  }

  static bool fits(const SymbolicShape& shape,
                   const std::vector<int64_t>& symbols) {
    return std::all_of(
        shape.sizes.begin(), shape.sizes.end(),
        [&](const Expr& size) { return at(size, symbols) >= 0; });
  }

  std::mt19937_64 random_{5};
};

TEST_F(MemoryPlaces, HoldOfAllSizesThatTheGuardsLetThrough) {
  int none = 0, none_elsewhere = 0, same = 0;
  for (int round = 0; round < 4000; ++round) {
    std::vector<int64_t> hints;
    for (int i = 0; i < 3; ++i) hints.push_back(below(6) + 2);
    Symbols symbols(hints);
    RecordingSession session(&symbols.guards);
    TracingScope scope(session);
    SymbolicShape a = whole();
    if (below(2)) slice(&a, below(3));
    SymbolicShape b = a;
    slice(&a, below(3));
    slice(&b, below(3));
    if (below(3) == 0) slice(&a, below(3));
    if (below(3) == 0) slice(&b, below(3));
    const Overlap overlap = decide_overlap(a, b);
    none += overlap == Overlap::kNone;
    same += overlap == Overlap::kSame;
    for (int other = 0; other < 30; ++other) {
      std::vector<int64_t> sizes = hints;
      for (int64_t& size : sizes)
        if (other && below(2)) size = below(8) + 2;
      if (!symbols.hold(sizes) || !fits(a, sizes) || !fits(b, sizes)) continue;
      std::vector<int64_t> of_a = places(a, sizes), of_b = places(b, sizes);
      std::string text;
      for (const auto& guard : symbols.guard_texts()) text += guard + "; ";
      if (overlap == Overlap::kSame) {
        ASSERT_EQ(of_a, of_b) << text;
      }
      if (overlap != Overlap::kNone) continue;
      none_elsewhere += sizes != hints;
      std::sort(of_a.begin(), of_a.end());
      for (int64_t place : of_b)
        ASSERT_FALSE(std::binary_search(of_a.begin(), of_a.end(), place))
            << text << " at " << sizes[0] << ", " << sizes[1] << ", "
            << sizes[2];
    }
  }
  EXPECT_GT(none, 60);
  EXPECT_GT(none_elsewhere, none);
  EXPECT_GT(same, 10);
}

TEST_F(MemoryPlaces, FirstAndLastColumnsAreApart) {
  Symbols symbols({3, 4, 6});
  RecordingSession session(&symbols.guards);
  TracingScope scope(session);
  SymbolicShape first = whole(), last = whole();
  const Expr n = last.sizes[2];
  first.sizes[2] = last.sizes[2] = Expr(2);
  last.storage_offset = n - 2;
  EXPECT_EQ(decide_overlap(first, last), Overlap::kNone);
  EXPECT_TRUE(symbols.hold({30, 2, 4}));
  EXPECT_FALSE(symbols.hold({3, 4, 3}));
}

}  // namespace
}  // namespace framejit::graph::testing
