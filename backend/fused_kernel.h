// FusedKernel: a group of elementwise operations as one piece of machine code,
// with what is needed to run it on tensors: how each operand is walked, and the
// sizes of the results.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "backend/emit_avx512.h"
#include "guards/expr/expr.h"

namespace framejit::backend {

class FusedKernel {
 public:
  // rows * columns elements; operand layouts are in `kernel`.
  struct Shape {
    std::vector<Expr> sizes;
    int split = 0;  // dims [0, split) are the rows
    // Operands that are floats of the call, computed in double and rounded to
    // float32 as ATen does with a Python number: operand, expression.
    std::vector<std::pair<int, Expr>> parameters;
  };

  // Emits code for this CPU; without AVX-512 the interpreter runs the kernel.
  FusedKernel(Kernel kernel, Shape shape);

  // operands: the inputs that are no parameters, in order. Allocates the
  // results and computes them. Throws c10::Error when an operand does not have
  // the size the capture promised.
  void run(const at::Tensor* const* operands, const int64_t* symbols,
           at::Tensor* results) const;

  const std::string& text() const { return text_; }
  const Kernel& kernel() const { return kernel_; }
  const Shape& shape() const { return shape_; }

 private:
  Kernel kernel_;
  Shape shape_;
  bool static_sizes_ = true;
  std::vector<int64_t> sizes_;  // static
  KernelCode code_;
  KernelFn function_ = nullptr;  // of code_
  std::string text_;
};

}  // namespace framejit::backend
