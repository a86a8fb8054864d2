#include "random_scalars.h"

#include <algorithm>
#include <cmath>

namespace framejit::codegen {

namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

double rounding(DType type) {
  return type == DType::kBF16 ? 0x1p-8 : type == DType::kF16 ? 0x1p-10 : 0;
}

Known cast(Known known, DType from, DType to) {
  if (!known.exact()) {
    if (to == DType::kF32 && from == DType::kF64)
      known.error += known.bound * kRelative;
    known.error += known.bound * rounding(to);
    return known;
  }
  if (from == to) return known;
  if (to == DType::kBool) return {1, 0};
  if (is_float(to) && known.bound < 1e4) {
    known.bound *= 1.01;
    return known;
  }
  return {};
}

// inf * 0 and the like: nothing is known.
Known normal(Known known) {
  if (std::isnan(known.bound) || known.bound > 1e30) known.bound = kUnbounded;
  return known;
}

}  // namespace

void RandomScalars::start(Body* body) {
  body_ = body;
  scalars_.clear();
}

std::vector<ScalarId> RandomScalars::integers_so_far() const {
  std::vector<ScalarId> out;
  for (const auto& [id, known] : scalars_)
    if (is_integer(body_->type(id))) out.push_back(id);
  return out;
}

void RandomScalars::add(ScalarId id, Known known) {
  if (is_float(body_->type(id)) && !known.exact() &&
      !(known.bound < 1e4 && known.error < 1e-2 * (1 + known.bound)))
    return;  // too far off to be of use
  scalars_.emplace_back(id, known);
}

RandomScalars::Scalar RandomScalars::scalar(bool exact) {
  for (int attempt = 0; attempt < 8; ++attempt) {
    auto found = random_.pick(scalars_);
    if (!exact || found.second.exact()) return found;
  }
  return {body_->constant(DType::kF32, 1.5), {2, 0}};
}

RandomScalars::Scalar RandomScalars::scalar_of(DType type, bool exact) {
  auto [id, known] = scalar(exact || !is_float(type));
  return {body_->cast(type, id), cast(known, body_->type(id), type)};
}

RandomScalars::Scalar RandomScalars::bounded(Scalar value, double limit) {
  Body& body = *body_;
  if (value.second.bound <= limit) return value;
  if (!value.second.exact()) {
    // Scaled, so that it still decides nothing.
    double factor = limit / value.second.bound;
    ScalarId scaled =
        body.binary(ScalarOp::kMul, value.first,
                    body.constant(body.type(value.first), factor));
    return {scaled,
            {limit * 1.01, value.second.error * factor + limit * kRelative}};
  }
  DType type = body.type(value.first);
  ScalarId low =
      body.binary(ScalarOp::kMax, value.first, body.constant(type, -limit));
  return {body.binary(ScalarOp::kMin, low, body.constant(type, limit)),
          {limit, 0}};
}

void RandomScalars::operation() {
  switch (random_.below(9)) {
    case 0:
    case 1:
      return float_arithmetic();
    case 2:
      return exact_floats();
    case 3:
      return named_function();
    case 4:
    case 5:
      return integers();
    case 6:
      return comparison();
    case 7:
      return conversion();
    default:
      return selection();
  }
}

DType RandomScalars::float_type() {
  return random_.chance(3) ? DType::kF64 : DType::kF32;
}

void RandomScalars::float_arithmetic() {
  Body& body = *body_;
  DType type = float_type();
  auto [a, known_a] = scalar_of(type, false);
  auto [b, known_b] = scalar_of(type, false);
  ScalarOp op =
      random_.pick<ScalarOp>({ScalarOp::kAdd, ScalarOp::kSub, ScalarOp::kMul,
                              ScalarOp::kNeg, ScalarOp::kAbs, ScalarOp::kFma});
  if (op == ScalarOp::kNeg || op == ScalarOp::kAbs)
    return add(body.unary(op, a), known_a);
  if (!known_a.exact() || !known_b.exact()) {
    std::tie(a, known_a) = bounded({a, known_a}, 30);
    std::tie(b, known_b) = bounded({b, known_b}, 30);
  }
  Known product{known_a.bound * known_b.bound, 0},
      sum{known_a.bound + known_b.bound, 0};
  if (!known_a.exact() || !known_b.exact()) {
    product.error = known_a.error * known_b.bound +
                    known_b.error * known_a.bound + product.bound * kRelative;
    sum.error = known_a.error + known_b.error + sum.bound * kRelative;
  }
  if (op == ScalarOp::kFma) {
    // Always of three values: a * b + a.
    Known known{product.bound + known_a.bound, 0};
    if (product.error > 0)
      known.error = product.error + known_a.error + known.bound * kRelative;
    return add(body.ternary(op, a, b, a), normal(known));
  }
  add(body.binary(op, a, b), normal(op == ScalarOp::kMul ? product : sum));
}

// What is rounded once, or not at all, and may be far from smooth.
void RandomScalars::exact_floats() {
  Body& body = *body_;
  DType type = float_type();
  ScalarId a = scalar_of(type, true).first, b = scalar_of(type, true).first;
  ScalarOp op = random_.pick<ScalarOp>(
      {ScalarOp::kDiv, ScalarOp::kMin, ScalarOp::kMax, ScalarOp::kFloor,
       ScalarOp::kCeil, ScalarOp::kTrunc, ScalarOp::kRint, ScalarOp::kSqrt,
       ScalarOp::kFmod});
  add(scalar_op_row(op).operands == 1 ? body.unary(op, a)
                                      : body.binary(op, a, b),
      {});
}

void RandomScalars::named_function() {
  Body& body = *body_;
  // |f(x)| <= bound and |f'(x)| <= slope where |x| <= 3.
  static constexpr struct {
    ScalarOp op;
    double bound, slope;
  } kRows[] = {
      {ScalarOp::kExp, 21, 21},  {ScalarOp::kExpm1, 20, 21},
      {ScalarOp::kExp2, 8, 6},   {ScalarOp::kSin, 1, 1},
      {ScalarOp::kCos, 1, 1},    {ScalarOp::kAtan, 1.6, 1},
      {ScalarOp::kSinh, 11, 11}, {ScalarOp::kCosh, 11, 11},
      {ScalarOp::kTanh, 1, 1},   {ScalarOp::kAsinh, 2, 1},
      {ScalarOp::kErf, 1, 1.2},  {ScalarOp::kErfc, 2, 1.2},
  };
  const auto& row = kRows[random_.below(std::size(kRows))];
  auto [a, known] = bounded(scalar_of(float_type(), false), 3);
  if (random_.chance(5)) {
    // log of what is at least 1.
    ScalarId one = body.constant(body.type(a), 1);
    a = body.binary(ScalarOp::kAdd, body.unary(ScalarOp::kAbs, a), one);
    ScalarOp op = random_.pick<ScalarOp>(
        {ScalarOp::kLog, ScalarOp::kLog2, ScalarOp::kLog10, ScalarOp::kLog1p});
    return add(body.unary(op, a),
               {3, (known.error + kRelative * 4) * 2 + kRelative * 12});
  }
  add(body.unary(row.op, a),
      {row.bound, known.error * row.slope + row.bound * kRelative * 4});
}

void RandomScalars::integers() {
  Body& body = *body_;
  DType type = random_.pick<DType>({DType::kU8, DType::kI8, DType::kI16,
                                    DType::kI32, DType::kI64, DType::kBool});
  ScalarId a = scalar_of(type, true).first, b = scalar_of(type, true).first;
  if (type == DType::kBool) {
    ScalarOp op = random_.pick<ScalarOp>(
        {ScalarOp::kAnd, ScalarOp::kOr, ScalarOp::kXor, ScalarOp::kMin});
    return add(random_.chance(4) ? body.unary(ScalarOp::kNot, a)
                                 : body.binary(op, a, b),
               {1, 0});
  }
  ScalarOp op = random_.pick<ScalarOp>(
      {ScalarOp::kAdd, ScalarOp::kSub, ScalarOp::kMul, ScalarOp::kTruncDiv,
       ScalarOp::kFloorDiv, ScalarOp::kFmod, ScalarOp::kMod, ScalarOp::kNeg,
       ScalarOp::kAbs, ScalarOp::kMin, ScalarOp::kMax, ScalarOp::kAnd,
       ScalarOp::kOr, ScalarOp::kXor, ScalarOp::kNot, ScalarOp::kShiftLeft,
       ScalarOp::kShiftRight});
  bool divides = op == ScalarOp::kTruncDiv || op == ScalarOp::kFloorDiv ||
                 op == ScalarOp::kFmod || op == ScalarOp::kMod;
  if (divides) {
    ScalarId zero = body.integer(type, 0);
    b = random_.chance(2)
            ? body.ternary(ScalarOp::kSelect,
                           body.binary(ScalarOp::kEq, b, zero),
                           body.integer(type, 3), b)
            : body.integer(type, random_.pick<int64_t>({1, 2, 3, 7, 10, 64}));
  }
  add(scalar_op_row(op).operands == 1 ? body.unary(op, a)
                                      : body.binary(op, a, b),
      {});
}

void RandomScalars::comparison() {
  Body& body = *body_;
  DType type = body.type(scalar(true).first);
  ScalarId a = scalar_of(type, true).first, b = scalar_of(type, true).first;
  add(body.binary(random_.pick<ScalarOp>({ScalarOp::kLt, ScalarOp::kLe,
                                          ScalarOp::kEq, ScalarOp::kNe}),
                  a, b),
      {1, 0});
}

void RandomScalars::conversion() {
  Body& body = *body_;
  DType to = random_.pick(types_);
  auto [id, known] = scalar_of(to, false);
  // Through a small float and back.
  if (is_small_float(to)) id = body.cast(DType::kF32, id);
  add(id, known);
}

void RandomScalars::selection() {
  Body& body = *body_;
  DType type = body.type(scalar(false).first);
  ScalarId condition = scalar_of(DType::kBool, true).first;
  auto [a, known_a] = scalar_of(type, false);
  auto [b, known_b] = scalar_of(type, false);
  add(body.ternary(ScalarOp::kSelect, condition, a, b),
      {std::max(known_a.bound, known_b.bound),
       std::max(known_a.error, known_b.error)});
}

}  // namespace framejit::codegen
