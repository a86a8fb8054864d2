#include "codegen/legalise/fold.h"

#include <limits>

#include "codegen/scalar/evaluate.h"
#include "guards/result.h"

namespace framejit::codegen {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

ScalarId leaf(Body& b, DType type, size_t number) {
  return b.emit(ScalarOp::kLoad, type, {-1, -1, -1},
                static_cast<int64_t>(number));
}

// The smallest and the largest element.
Element extreme(DType type, bool largest) {
  if (is_float(type)) return element_of(type, largest ? kInfinity : -kInfinity);
  if (type == DType::kBool) return largest;
  const int bits = static_cast<int>(dtype_size(type)) * 8;
  if (type == DType::kU8) return largest ? 255 : 0;
  int64_t top = static_cast<int64_t>(~0ull >> (65 - bits));
  return static_cast<Element>(largest ? top : -top - 1);
}

Element identity(Combiner combiner, DType type) {
  switch (combiner) {
    case Combiner::kProduct:
    case Combiner::kAll:
      return element_of_integer(type, 1);
    case Combiner::kMin:
    case Combiner::kArgMin:
      return extreme(type, true);
    case Combiner::kMax:
    case Combiner::kArgMax:
      return extreme(type, false);
    default:
      return 0;
  }
}

class Builder {
 public:
  explicit Builder(DType type) : type_(type) {}

  Fold simple(Combiner combiner);
  Fold sum();
  Fold compensated_sum();
  Fold place(Combiner combiner);
  Fold welford_of_f32();
  Fold welford_of_f64();
  Fold softmax_sum();

 private:
  // States s of a body with `halves` sets of them, then the element.
  std::vector<ScalarId> open(Body& b, int halves) {
    std::vector<ScalarId> result;
    for (int h = 0; h < halves; ++h) {
      for (DType state : fold_.states) {
        result.push_back(leaf(b, state, result.size()));
      }
    }
    return result;
  }
  ScalarId element(Body& b) { return leaf(b, type_, fold_.states.size()); }

  DType type_;
  Fold fold_;
};

Fold Builder::simple(Combiner combiner) {
  const ScalarOp op = *combiner_row(combiner).operation;
  const bool widens =
      type_ == DType::kF32 && (op == ScalarOp::kAdd || op == ScalarOp::kMul);
  const DType state = widens ? DType::kF64 : type_;
  fold_.states = {state};
  fold_.initial = {convert(type_, state, identity(combiner, type_))};
  ScalarId x = fold_.step.cast(state, element(fold_.step));
  fold_.stepped = {fold_.step.binary(op, open(fold_.step, 1)[0], x)};
  auto halves = open(fold_.join, 2);
  fold_.joined = {fold_.join.binary(op, halves[0], halves[1])};
  fold_.results = {fold_.finish.cast(type_, open(fold_.finish, 1)[0])};
  return fold_;
}

Fold Builder::sum() {
  if (is_float(type_)) {
    Body& b = fold_.pair;
    ScalarId first = leaf(b, type_, 0), second = leaf(b, type_, 1);
    fold_.paired = b.binary(ScalarOp::kAdd, first, second);
  }
  return type_ == DType::kF64 ? compensated_sum() : simple(Combiner::kSum);
}

// s + x and what its rounding lost (exact: two_sum of Knuth). Where something
// is infinite the loss is NaN and of no use.
Fold Builder::compensated_sum() {
  auto add = [&](Body& b, ScalarId s, ScalarId x, ScalarId* lost) {
    ScalarId sum = b.binary(ScalarOp::kAdd, s, x);
    ScalarId back = b.binary(ScalarOp::kSub, sum, s);
    ScalarId rest = b.binary(ScalarOp::kSub, sum, back);
    *lost = b.binary(ScalarOp::kAdd, b.binary(ScalarOp::kSub, s, rest),
                     b.binary(ScalarOp::kSub, x, back));
    return sum;
  };
  fold_.states = {type_, type_};
  fold_.initial = {0, 0};
  ScalarId lost;
  auto s = open(fold_.step, 1);
  ScalarId sum = add(fold_.step, s[0], element(fold_.step), &lost);
  fold_.stepped = {sum, fold_.step.binary(ScalarOp::kAdd, s[1], lost)};
  auto h = open(fold_.join, 2);
  sum = add(fold_.join, h[0], h[2], &lost);
  ScalarId rest = fold_.join.binary(ScalarOp::kAdd, h[1], h[3]);
  fold_.joined = {sum, fold_.join.binary(ScalarOp::kAdd, rest, lost)};
  Body& f = fold_.finish;
  auto r = open(f, 1);
  ScalarId corrected = f.binary(ScalarOp::kAdd, r[0], r[1]);
  ScalarId usable = f.binary(ScalarOp::kEq, r[1], r[1]);
  fold_.results = {f.ternary(ScalarOp::kSelect, usable, corrected, r[0])};
  return fold_;
}

// The best value and its place; none yet: a place beyond all others. A step
// comes behind those before it, so equal elements change nothing, and where all
// are the worst there is, the first of all is the place.
Fold Builder::place(Combiner combiner) {
  const bool least = combiner == Combiner::kArgMin;
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  auto choose = [&](Body& b, ScalarId best, ScalarId at, ScalarId x,
                    ScalarId place) {
    ScalarId better = least ? b.binary(ScalarOp::kLt, x, best)
                            : b.binary(ScalarOp::kLt, best, x);
    ScalarId same = b.binary(ScalarOp::kEq, x, best);
    if (is_float(type_)) {
      ScalarId x_nan = b.binary(ScalarOp::kNe, x, x);
      ScalarId best_nan = b.binary(ScalarOp::kNe, best, best);
      ScalarId first =
          b.binary(ScalarOp::kAnd, x_nan, b.unary(ScalarOp::kNot, best_nan));
      better = b.binary(ScalarOp::kOr, better, first);
      same = b.binary(ScalarOp::kOr, same,
                      b.binary(ScalarOp::kAnd, x_nan, best_nan));
    }
    ScalarId earlier =
        b.binary(ScalarOp::kAnd, same, b.binary(ScalarOp::kLt, place, at));
    ScalarId take = b.binary(ScalarOp::kOr, better, earlier);
    return std::vector<ScalarId>{b.ternary(ScalarOp::kSelect, take, x, best),
                                 b.ternary(ScalarOp::kSelect, take, place, at)};
  };
  fold_.states = {type_, DType::kI64};
  fold_.initial = {identity(combiner, type_), static_cast<Element>(kNone)};
  {
    Body& b = fold_.step;
    auto s = open(b, 1);
    ScalarId x = element(b), at = leaf(b, DType::kI64, 3);
    ScalarId take;
    if (is_float(type_)) {
      // The first NaN is taken, and nothing behind it.
      ScalarId worse = least ? b.binary(ScalarOp::kLe, s[0], x)
                             : b.binary(ScalarOp::kLe, x, s[0]);
      take = b.binary(ScalarOp::kAnd, b.unary(ScalarOp::kNot, worse),
                      b.binary(ScalarOp::kEq, s[0], s[0]));
    } else {
      take = least ? b.binary(ScalarOp::kLt, x, s[0])
                   : b.binary(ScalarOp::kLt, s[0], x);
    }
    fold_.stepped = {b.ternary(ScalarOp::kSelect, take, x, s[0]),
                     b.ternary(ScalarOp::kSelect, take, at, s[1])};
  }
  auto h = open(fold_.join, 2);
  fold_.joined = choose(fold_.join, h[0], h[1], h[2], h[3]);
  Body& f = fold_.finish;
  auto r = open(f, 1);
  ScalarId none = f.binary(ScalarOp::kEq, r[1], f.integer(DType::kI64, kNone));
  fold_.results = {r[0], f.ternary(ScalarOp::kSelect, none,
                                   f.integer(DType::kI64, 0), r[1])};
  return fold_;
}

// Sums of distances from the first element, in f64: states are that element, a
// count, the distances and their squares. As the element is one of the set,
// what cancels in squares - distances^2 / n is at most a factor of n.
Fold Builder::welford_of_f32() {
  constexpr DType kWide = DType::kF64;
  fold_.states = {kWide, kWide, kWide, kWide};
  fold_.initial = {0, 0, 0, 0};
  {
    Body& b = fold_.step;
    auto s = open(b, 1);
    ScalarId x = b.cast(kWide, element(b));
    ScalarId none = b.binary(ScalarOp::kEq, s[1], b.constant(kWide, 0));
    ScalarId first = b.ternary(ScalarOp::kSelect, none, x, s[0]);
    ScalarId distance = b.binary(ScalarOp::kSub, x, first);
    fold_.stepped = {first,
                     b.binary(ScalarOp::kAdd, s[1], b.constant(kWide, 1)),
                     b.binary(ScalarOp::kAdd, s[2], distance),
                     b.ternary(ScalarOp::kFma, distance, distance, s[3])};
  }
  {
    Body& b = fold_.join;
    auto h = open(b, 2);
    ScalarId zero = b.constant(kWide, 0);
    ScalarId none = b.binary(ScalarOp::kEq, h[1], zero);
    ScalarId first = b.ternary(ScalarOp::kSelect, none, h[4], h[0]);
    ScalarId moved = b.binary(ScalarOp::kSub, h[4], first);
    // No elements on the right: nothing moves.
    moved = b.ternary(ScalarOp::kSelect, b.binary(ScalarOp::kEq, h[5], zero),
                      zero, moved);
    ScalarId sum = b.ternary(ScalarOp::kFma, h[5], moved, h[6]);
    // squares + 2 moved distances + n moved^2
    ScalarId both = b.binary(ScalarOp::kAdd, h[6], sum);
    ScalarId squares = b.ternary(ScalarOp::kFma, moved, both, h[7]);
    fold_.joined = {first, b.binary(ScalarOp::kAdd, h[1], h[5]),
                    b.binary(ScalarOp::kAdd, h[2], sum),
                    b.binary(ScalarOp::kAdd, h[3], squares)};
  }
  Body& f = fold_.finish;
  auto r = open(f, 1);
  ScalarId one = f.constant(kWide, 1);
  ScalarId count = f.binary(ScalarOp::kMax, r[1], one);
  ScalarId mean = f.binary(ScalarOp::kDiv, r[2], count);
  ScalarId squares = f.ternary(ScalarOp::kFnma, mean, r[2], r[3]);
  // Not below 0 by rounding (NaN stays).
  squares = f.binary(ScalarOp::kMax, squares, f.constant(kWide, 0));
  fold_.results = {f.cast(type_, f.binary(ScalarOp::kAdd, r[0], mean)),
                   f.cast(type_, squares)};
  return fold_;
}

// Count, mean, squared distances from it, updated by each element.
Fold Builder::welford_of_f64() {
  fold_.states = {type_, type_, type_};
  fold_.initial = {0, 0, 0};
  {
    Body& b = fold_.step;
    auto s = open(b, 1);
    ScalarId x = element(b);
    ScalarId count = b.binary(ScalarOp::kAdd, s[0], b.constant(type_, 1));
    ScalarId distance = b.binary(ScalarOp::kSub, x, s[1]);
    ScalarId mean = b.binary(ScalarOp::kAdd, s[1],
                             b.binary(ScalarOp::kDiv, distance, count));
    fold_.stepped = {count, mean,
                     b.ternary(ScalarOp::kFma, distance,
                               b.binary(ScalarOp::kSub, x, mean), s[2])};
  }
  Body& b = fold_.join;
  auto h = open(b, 2);
  ScalarId count = b.binary(ScalarOp::kAdd, h[0], h[3]);
  ScalarId some = b.binary(ScalarOp::kMax, count, b.constant(type_, 1));
  ScalarId share = b.binary(ScalarOp::kDiv, h[3], some);
  ScalarId apart = b.binary(ScalarOp::kSub, h[4], h[1]);
  ScalarId mean = b.ternary(ScalarOp::kFma, apart, share, h[1]);
  ScalarId weight = b.binary(ScalarOp::kMul, h[0], share);
  ScalarId squares =
      b.ternary(ScalarOp::kFma, b.binary(ScalarOp::kMul, apart, apart), weight,
                b.binary(ScalarOp::kAdd, h[2], h[5]));
  fold_.joined = {count, mean, squares};
  auto r = open(fold_.finish, 1);
  fold_.results = {r[1], r[2]};
  return fold_;
}

// The maximum so far and the sum of exp(x - maximum); elements of -inf add
// nothing. Before the first element the sum is -0.0, so that all of -inf is
// told from none: the one gives NaN, the other 0.
Fold Builder::softmax_sum() {
  fold_.states = {type_, type_};
  fold_.initial = {element_of(type_, -kInfinity), element_of(type_, -0.0)};
  auto add = [&](Body& b, ScalarId m, ScalarId s, ScalarId x, ScalarId t) {
    ScalarId lowest = b.constant(type_, -kInfinity);
    ScalarId top = b.binary(ScalarOp::kMax, m, x);
    auto scaled = [&](ScalarId from, ScalarId sum) {
      ScalarId factor =
          b.unary(ScalarOp::kExp, b.binary(ScalarOp::kSub, from, top));
      ScalarId value =
          sum == kNoScalar ? factor : b.binary(ScalarOp::kMul, sum, factor);
      // Its sum is a zero; the sign says which.
      ScalarId nothing = sum == kNoScalar ? b.constant(type_, 0) : sum;
      return b.ternary(ScalarOp::kSelect, b.binary(ScalarOp::kEq, from, lowest),
                       nothing, value);
    };
    return std::vector<ScalarId>{
        top, b.binary(ScalarOp::kAdd, scaled(m, s), scaled(x, t))};
  };
  auto s = open(fold_.step, 1);
  fold_.stepped = add(fold_.step, s[0], s[1], element(fold_.step), kNoScalar);
  auto h = open(fold_.join, 2);
  fold_.joined = add(fold_.join, h[0], h[1], h[2], h[3]);
  Body& f = fold_.finish;
  auto r = open(f, 1);
  ScalarId lowest = f.constant(type_, -kInfinity);
  ScalarId all_low = f.binary(ScalarOp::kEq, r[0], lowest);
  DType bits = type_ == DType::kF64 ? DType::kI64 : DType::kI32;
  ScalarId negative =
      f.binary(ScalarOp::kLt, f.emit(ScalarOp::kBitcast, bits, {r[1], -1, -1}),
               f.integer(bits, 0));
  ScalarId sum =
      f.ternary(ScalarOp::kSelect, negative, f.constant(type_, 0),
                f.constant(type_, std::numeric_limits<double>::quiet_NaN()));
  fold_.results = {r[0], f.ternary(ScalarOp::kSelect, all_low, sum, r[1])};
  return fold_;
}

}  // namespace

Fold make_fold(Combiner combiner, DType type) {
  Builder builder(type);
  switch (combiner) {
    case Combiner::kArgMin:
    case Combiner::kArgMax:
      return builder.place(combiner);
    case Combiner::kWelford:
      return type == DType::kF32 ? builder.welford_of_f32()
                                 : builder.welford_of_f64();
    case Combiner::kSoftmaxSum:
      return builder.softmax_sum();
    case Combiner::kSum:
      return builder.sum();
    default:
      return builder.simple(combiner);
  }
}

Fold make_plain_fold(Combiner combiner, DType type) {
  if (combiner == Combiner::kSum && type == DType::kF64)
    return Builder(type).simple(combiner);
  return make_fold(combiner, type);
}

}  // namespace framejit::codegen
