// How far emitted functions of f32 are from libm's in f64, in units of the last
// place of the exact result.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "codegen/scalar/evaluate.h"
#include "codegen/x86/compile.h"

namespace framejit::codegen {

inline const std::vector<ScalarOp>& swept_functions() {
  static const std::vector<ScalarOp> functions = {
      ScalarOp::kSqrt, ScalarOp::kExp,   ScalarOp::kExp2,  ScalarOp::kExpm1,
      ScalarOp::kLog,  ScalarOp::kLog2,  ScalarOp::kLog10, ScalarOp::kLog1p,
      ScalarOp::kSin,  ScalarOp::kCos,   ScalarOp::kTan,   ScalarOp::kAsin,
      ScalarOp::kAcos, ScalarOp::kAtan,  ScalarOp::kSinh,  ScalarOp::kCosh,
      ScalarOp::kTanh, ScalarOp::kAsinh, ScalarOp::kAcosh, ScalarOp::kAtanh,
      ScalarOp::kErf,  ScalarOp::kErfc,  ScalarOp::kLgamma};
  return functions;
}

// Kernel: %1[i] = op(%0[i]).
inline Kernel function_kernel(ScalarOp op, DType type) {
  Kernel kernel;
  kernel.name = scalar_op_row(op).text;
  kernel.vectorised = Vectorised::kOuter;
  kernel.loops = {Expr::symbol(0)};
  kernel.arguments = {{type}, {type, true}};
  Stage stage;
  stage.loads = {Place{0, Expr(0), {Expr(1)}}};
  ScalarId x = stage.body.emit(ScalarOp::kLoad, type);
  Store store;
  store.place = Place{1, Expr(0), {Expr(1)}};
  store.value = stage.body.unary(op, x);
  stage.stores = {store};
  kernel.stages.push_back(std::move(stage));
  return kernel;
}

// Infinite where one is NaN or infinite and the other is not.
template <class T>
double ulp_error(T got, long double want) {
  const T rounded = static_cast<T>(want);
  const double none = std::numeric_limits<double>::infinity();
  if (std::isnan(want) || std::isnan(got)) {
    return std::isnan(want) == std::isnan(got) ? 0 : none;
  }
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded ? 0 : none;
  if (got == 0 && rounded == 0 && std::signbit(got) != std::signbit(rounded)) {
    return none;
  }
  T size = std::max(std::fabs(rounded), std::numeric_limits<T>::min());
  long double unit = static_cast<long double>(std::nextafter(
                         size, std::numeric_limits<T>::infinity())) -
                     size;
  return static_cast<double>(std::fabs(got - want) / unit);
}

struct Accuracy {
  double worst = 0;
  float at = 0;
  uint64_t count = 0;
};

// Over the bit patterns begin, begin + step ... below end.
inline Accuracy sweep(ScalarOp op, const KernelCode& code, uint64_t begin,
                      uint64_t end, uint64_t step) {
  constexpr int64_t kBlock = 4096;
  std::vector<float> x(kBlock), y(kBlock);
  Accuracy result;
  const Kernel kernel = function_kernel(op, DType::kF32);
  for (uint64_t bits = begin; bits < end;) {
    int64_t count = 0;
    for (; count < kBlock && bits < end; bits += step) {
      x[count++] = std::bit_cast<float>(static_cast<uint32_t>(bits));
    }
    void* arguments[] = {x.data(), y.data()};
    run(code, kernel, &count, arguments);
    for (int64_t i = 0; i < count; ++i) {
      Element in = std::bit_cast<uint64_t>(static_cast<double>(x[i]));
      double want = std::bit_cast<double>(
          evaluate(op, DType::kF64, DType::kF64, {in, 0, 0}));
      double error = ulp_error(y[i], want);
      if (!(error <= result.worst)) {
        result.worst = error;
        result.at = x[i];
      }
    }
    result.count += static_cast<uint64_t>(count);
  }
  return result;
}

}  // namespace framejit::codegen
