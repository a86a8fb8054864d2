// Emitted functions of f32 are within 2 units in the last place of libm's,
// those of f64 within one.
#include <gtest/gtest.h>

#include <cfloat>
#include <random>

#include "tests/codegen/legalise/accuracy.h"

namespace framejit::codegen {
namespace {

TEST(Accuracy, FunctionsOfFloat) {
  for (X86Isa isa : cpu_isas()) {
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

// All magnitudes, ranges where functions change their ways, and special values.
std::vector<double> doubles() {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  std::vector<double> x = {
      0,       -0.0,     1,      -1,      0.5,    -0.5,    kInf,
      -kInf,   NAN,      5e-324, -5e-324, 1e-310, 1e-300,  1e300,
      -1e300,  2,        -2,     709.7,   710.4,  710.5,   -745.2,
      26.5,    27.3,     1e-17,  -1e-17,  1e17,   DBL_MAX, -DBL_MAX,
      DBL_MIN, -DBL_MIN, 1023.5, -1074.5, 3,      -3};
  std::mt19937_64 random(3);
  for (int i = 0; i < 40000; ++i) {
    double unit = static_cast<double>(random() >> 11) * 0x1p-53 - 0.5;
    x.push_back(std::bit_cast<double>(random()));
    for (double range : {2.0, 4.0, 60.0, 1500.0, 2000000.0}) {
      x.push_back(unit * range);
    }
    x.push_back(1 + unit * 1e-3);
    x.push_back(-std::exp2(unit * 120 - 60));
    x.push_back(std::exp2(unit * 120 - 60));
  }
  return x;
}

TEST(Accuracy, FunctionsOfDouble) {
  const std::vector<double> x = doubles();
  std::vector<double> y(x.size());
  const auto count = static_cast<int64_t>(x.size());
  using Function = long double (*)(long double);
  struct Row {
    ScalarOp op;
    Function function;
    double most;
  };
  const std::vector<Row> rows = {
      {ScalarOp::kExp, std::exp, 1},       {ScalarOp::kExpm1, std::expm1, 1},
      {ScalarOp::kExp2, std::exp2, 1},     {ScalarOp::kLog, std::log, 1},
      {ScalarOp::kLog2, std::log2, 1},     {ScalarOp::kLog10, std::log10, 1},
      {ScalarOp::kLog1p, std::log1p, 1},   {ScalarOp::kTanh, std::tanh, 1},
      {ScalarOp::kSinh, std::sinh, 1},     {ScalarOp::kCosh, std::cosh, 1},
      {ScalarOp::kAsinh, std::asinh, 1.1}, {ScalarOp::kAcosh, std::acosh, 1},
      {ScalarOp::kAtanh, std::atanh, 1},   {ScalarOp::kSin, std::sin, 1},
      {ScalarOp::kCos, std::cos, 1},       {ScalarOp::kTan, std::tan, 1},
      {ScalarOp::kAsin, std::asin, 1},     {ScalarOp::kAcos, std::acos, 1},
      {ScalarOp::kAtan, std::atan, 1},     {ScalarOp::kErf, std::erf, 1},
      {ScalarOp::kErfc, std::erfc, 1}};
  for (X86Isa isa : cpu_isas()) {
    for (const Row& row : rows) {
      Kernel kernel = function_kernel(row.op, DType::kF64);
      Compiled compiled = compile(kernel, isa);
      ASSERT_TRUE(compiled.code) << compiled.refused;
      std::vector<double> in = x;
      void* arguments[] = {in.data(), y.data()};
      run(*compiled.code, kernel, &count, arguments);
      double worst = 0, at = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        double error = ulp_error(y[i], row.function(x[i]));
        if (!(error <= worst)) {
          worst = error;
          at = x[i];
        }
      }
      EXPECT_LE(worst, row.most)
          << isa_name(isa) << " " << scalar_op_row(row.op).text << " at " << at;
      RecordProperty(std::string(isa_name(isa)) + scalar_op_row(row.op).text,
                     std::to_string(worst));
    }
  }
}

// %2[i] = op(%0[i], %1[i])
Kernel function_of_two(ScalarOp op, DType type) {
  Kernel kernel = function_kernel(ScalarOp::kNeg, type);
  Stage& stage = kernel.stages[0];
  kernel.arguments.insert(kernel.arguments.begin(), {type});
  stage.loads.push_back(Place{1, Expr(0), {Expr(1)}});
  ScalarId other = stage.body.emit(ScalarOp::kLoad, type, {-1, -1, -1}, 1);
  stage.stores[0].place.argument = 2;
  stage.stores[0].value = stage.body.binary(op, 0, other);
  EXPECT_EQ(verify(kernel), "");
  return kernel;
}

TEST(Accuracy, FunctionsOfTwoDoubles) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const std::vector<double> specials = {
      0,      -0.0,   1,       -1,       0.5,      2,
      -2,     3,      -3,      kInf,     -kInf,    NAN,
      5e-324, 1e-310, DBL_MAX, -DBL_MAX, 0.1,      9007199254740993.0,
      2.5,    1e-200, 1e200,   1e308,    0.999999, 1e-5};
  std::vector<double> x, y;
  for (double a : specials) {
    for (double b : specials) {
      x.push_back(a);
      y.push_back(b);
    }
  }
  std::mt19937_64 random(5);
  auto unit = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  for (int i = 0; i < 300000; ++i) {
    switch (i % 4) {
      case 0:
        x.push_back(std::bit_cast<double>(random()));
        y.push_back(std::bit_cast<double>(random()));
        break;
      case 1:
        x.push_back(unit() * 20 - 4);
        y.push_back(unit() * 200 - 100);
        break;
      case 2:
        x.push_back(unit() * 2 - 1);
        y.push_back(unit() * 2 - 1);
        break;
      default:  // powers in range
        x.push_back(std::exp2(unit() * 2000 - 1000));
        y.push_back((unit() * 2 - 1) * 1000 / std::log2(x.back()));
    }
  }
  const auto count = static_cast<int64_t>(x.size());
  using Function = long double (*)(long double, long double);
  struct Row {
    ScalarOp op;
    Function function;
    double most;
  };
  for (X86Isa isa : cpu_isas()) {
    for (auto [op, function, most] : {Row{ScalarOp::kPow, std::pow, 1},
                                      Row{ScalarOp::kAtan2, std::atan2, 1},
                                      Row{ScalarOp::kHypot, std::hypot, 1},
                                      Row{ScalarOp::kFmod, std::fmod, 0}}) {
      Kernel kernel = function_of_two(op, DType::kF64);
      Compiled compiled = compile(kernel, isa);
      ASSERT_TRUE(compiled.code) << compiled.refused;
      std::vector<double> got(x.size());
      void* arguments[] = {x.data(), y.data(), got.data()};
      run(*compiled.code, kernel, &count, arguments);
      double worst = 0;
      size_t at = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        double error = ulp_error(got[i], function(x[i], y[i]));
        if (!(error <= worst)) {
          worst = error;
          at = i;
        }
      }
      EXPECT_LE(worst, most)
          << isa_name(isa) << " " << scalar_op_row(op).text << "(" << x[at]
          << ", " << y[at] << ") = " << got[at];
      RecordProperty(std::string(isa_name(isa)) + scalar_op_row(op).text,
                     std::to_string(worst));
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
  for (X86Isa isa : cpu_isas()) {
    for (ScalarOp op : {ScalarOp::kPow, ScalarOp::kAtan2, ScalarOp::kHypot,
                        ScalarOp::kFmod}) {
      Kernel kernel = function_of_two(op, DType::kF32);
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
