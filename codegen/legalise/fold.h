// Fold: a combiner as scalar programs, so that every target computes all of
// them in one way.
//
// A reduction keeps *states*, begins with `initial`, takes an element by
// `step`, puts two halves together by `join`, and gives results by `finish`.
// Loads of these bodies are: the states (of join: of the left, then of the
// right half), behind them (of step) the element and its i64 place.
//
// Sums and products of f32 are kept in f64, and sums of many f64 with what
// rounding lost, so that no order of the elements makes the error worse than
// that of summing in pairs. A few elements of a sum may be added beforehand, as
// they are (`pair`): that costs less, and is two roundings more at most,
// however many elements there are.
#pragma once

#include <vector>

#include "codegen/loops/loops.h"

namespace framejit::codegen {

struct Fold {
  std::vector<DType> states;
  std::vector<Element> initial;
  Body step;
  std::vector<ScalarId> stepped;
  Body pair;                    // loads: two elements
  ScalarId paired = kNoScalar;  // none: each element is a step
  Body join;
  std::vector<ScalarId> joined;
  Body finish;
  std::vector<ScalarId> results;
};

Fold make_fold(Combiner combiner, DType type);
// Sums of f64 in f64: of few elements, where what is lost is as little as in
// eager's sums, or of which each prefix is a result, as eager adds them.
Fold make_plain_fold(Combiner combiner, DType type);
inline constexpr int64_t kFewElements = 16;

}  // namespace framejit::codegen
