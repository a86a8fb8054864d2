// Emitted functions are within 2 units in the last place of libm's.
#include <gtest/gtest.h>

#include <random>

#include "tests/codegen/legalise/accuracy.h"

namespace framejit::codegen {
namespace {

std::vector<X86Isa> isas() {
  std::vector<X86Isa> result;
  for (X86Isa isa : {X86Isa::kAvx512, X86Isa::kAvx2}) {
    if (cpu_has(isa)) result.push_back(isa);
  }
  return result;
}

TEST(Accuracy, FunctionsOfFloat) {
  for (X86Isa isa : isas()) {
    for (ScalarOp op : swept_functions()) {
      Compiled compiled = compile(function_kernel(op, DType::kF32), isa);
      ASSERT_TRUE(compiled.code) << compiled.refused;
      // All magnitudes, then every value from 0.25 on for a while.
      Accuracy all = sweep(op, *compiled.code, 0, 1ull << 32, 20011);
      Accuracy dense =
          sweep(op, *compiled.code, 0x3e800000, 0x3e800000 + 60000, 1);
      EXPECT_LE(all.worst, 2) << scalar_op_row(op).text << " at " << all.at;
      EXPECT_LE(dense.worst, 2) << scalar_op_row(op).text << dense.at;
    }
  }
}

TEST(Accuracy, FunctionsOfDouble) {
  std::mt19937_64 random(3);
  std::vector<double> x;
  for (int i = 0; i < 40000; ++i) {
    double unit = static_cast<double>(random() >> 11) * 0x1p-53;
    x.push_back(std::bit_cast<double>(random()));
    x.push_back((unit - 0.5) * 4);
    x.push_back((unit - 0.5) * 60);
    x.push_back((unit - 0.5) * 1500);
    x.push_back((unit - 0.5) * 2000000);
  }
  std::vector<double> y(x.size());
  const auto count = static_cast<int64_t>(x.size());
  using Function = long double (*)(long double);
  const std::vector<std::pair<ScalarOp, Function>> functions = {
      {ScalarOp::kExp, std::exp}, {ScalarOp::kExpm1, std::expm1},
      {ScalarOp::kLog, std::log}, {ScalarOp::kTanh, std::tanh},
      {ScalarOp::kSin, std::sin}, {ScalarOp::kCos, std::cos},
      {ScalarOp::kErf, std::erf}, {ScalarOp::kAtan, std::atan}};
  for (X86Isa isa : isas()) {
    for (auto [op, function] : functions) {
      Kernel kernel = function_kernel(op, DType::kF64);
      Compiled compiled = compile(kernel, isa);
      ASSERT_TRUE(compiled.code) << compiled.refused;
      void* arguments[] = {x.data(), y.data()};
      run(*compiled.code, kernel, &count, arguments);
      double worst = 0, at = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        double error = ulp_error(y[i], function(x[i]));
        if (!(error <= worst)) {
          worst = error;
          at = x[i];
        }
      }
      EXPECT_LE(worst, 2.5) << scalar_op_row(op).text << " at " << at;
      RecordProperty(scalar_op_row(op).text, std::to_string(worst));
    }
  }
}

// f32 functions of two operands against libm in f64.
TEST(Accuracy, FunctionsOfTwoFloats) {
  std::mt19937_64 random(5);
  const float kInf = std::numeric_limits<float>::infinity();
  const std::vector<float> specials = {
      0.f,  -0.f,  1.f, -1.f,   0.5f,  2.f,    -2.f, 3.f,        -3.f,
      kInf, -kInf, NAN, 1e-40f, 1e38f, -1e38f, 0.1f, 16777217.f, 2.5f};
  std::vector<float> x, y;
  for (float a : specials) {
    for (float b : specials) {
      x.push_back(a);
      y.push_back(b);
    }
  }
  for (int i = 0; i < 200000; ++i) {
    auto bits = [&] {
      return std::bit_cast<float>(static_cast<uint32_t>(random()));
    };
    auto unit = [&] { return static_cast<float>(random() % 100000) * 1e-3f; };
    x.push_back(i % 2 ? bits() : unit() - 20);
    y.push_back(i % 2 ? bits() : unit() - 50);
  }
  const auto count = static_cast<int64_t>(x.size());
  for (X86Isa isa : isas()) {
    for (ScalarOp op : {ScalarOp::kPow, ScalarOp::kAtan2, ScalarOp::kHypot,
                        ScalarOp::kFmod}) {
      Kernel kernel = function_kernel(ScalarOp::kNeg, DType::kF32);
      Stage& stage = kernel.stages[0];
      kernel.arguments.insert(kernel.arguments.begin(), {DType::kF32});
      stage.loads.push_back(Place{1, Expr(0), {Expr(1)}});
      ScalarId other =
          stage.body.emit(ScalarOp::kLoad, DType::kF32, {-1, -1, -1}, 1);
      stage.stores[0].place.argument = 2;
      stage.stores[0].value = stage.body.binary(op, 0, other);
      ASSERT_EQ(verify(kernel), "");
      Compiled compiled = compile(kernel, isa);
      ASSERT_TRUE(compiled.code) << compiled.refused;
      std::vector<float> got(x.size());
      void* arguments[] = {x.data(), y.data(), got.data()};
      run(*compiled.code, kernel, &count, arguments);
      for (size_t i = 0; i < x.size(); ++i) {
        auto wide = [](float value) {
          return std::bit_cast<uint64_t>(static_cast<double>(value));
        };
        double want = std::bit_cast<double>(evaluate(
            op, DType::kF64, DType::kF64, {wide(x[i]), wide(y[i]), 0}));
        ASSERT_LE(ulp_error(got[i], want), 1)
            << isa_name(isa) << " " << scalar_op_row(op).text << "(" << x[i]
            << ", " << y[i] << ") = " << got[i] << " instead of " << want;
      }
    }
  }
}

}  // namespace
}  // namespace framejit::codegen
