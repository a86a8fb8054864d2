// The arithmetic of one random body, and how far each value may be off.
#pragma once

#include <limits>
#include <utility>
#include <vector>

#include "codegen/scalar/body.h"
#include "random_source.h"

namespace framejit::codegen {

// Of one rounding in f32, with room for the error of named functions.
constexpr double kRelative = 4e-7;

// What is known of a value: |value| <= bound, and how far it may be off.
struct Known {
  double bound = std::numeric_limits<double>::infinity();
  double error = 0;  // 0: exact
  bool exact() const { return error == 0; }
};

class RandomScalars {
 public:
  using Scalar = std::pair<ScalarId, Known>;

  // types: that values are converted to.
  RandomScalars(RandomSource& random, const std::vector<DType>& types)
      : random_(random), types_(types) {}

  void start(Body* body);
  // The same values, of a body that has moved.
  void go_on(Body* body) { body_ = body; }
  void add(ScalarId id, Known known);
  bool empty() const { return scalars_.empty(); }
  std::vector<ScalarId> integers_so_far() const;

  // One that is there. exact: whose error is 0.
  Scalar scalar(bool exact);
  // One of this type, by a cast if need be. A float only becomes an integer or
  // b8 when it is exact.
  Scalar scalar_of(DType type, bool exact);
  // An exact value becomes bounded; NaN stays.
  Scalar bounded(Scalar value, double limit);
  DType float_type();
  // Adds a value made of others.
  void operation();

 private:
  void float_arithmetic();
  void exact_floats();
  void named_function();
  void integers();
  void comparison();
  void conversion();
  void selection();

  RandomSource& random_;
  const std::vector<DType>& types_;
  Body* body_ = nullptr;
  std::vector<Scalar> scalars_;
};

}  // namespace framejit::codegen
