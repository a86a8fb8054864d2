#include "backend/fused_kernel.h"

#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <algorithm>

#include "backend/isa.h"
#include "guards/result.h"

namespace framejit::backend {

namespace {

// Below this many elements threads cost more than they save.
constexpr int64_t kParallelAbove = 32768;
constexpr int64_t kGrain = 16384;

c10::ScalarType dtype_of(OperandType type) {
  return type == OperandType::kF32 ? c10::ScalarType::Float
                                   : c10::ScalarType::Bool;
}

}  // namespace

FusedKernel::FusedKernel(Kernel kernel, Shape shape)
    : kernel_(std::move(kernel)), shape_(std::move(shape)) {
  for (const Expr& size : shape_.sizes) {
    static_sizes_ &= size.is_const();
    sizes_.push_back(size.is_const() ? size.constant() : 0);
  }
  if (kernel_isa() == Isa::kFused) code_ = emit_avx512(kernel_);
  if (code_) function_ = code_->function<KernelFn>();
  text_ = kernel_.str();
}

namespace {

// Runs [begin, end) of the rows, or of the columns of the only row.
struct Slice {
  const Kernel& kernel;
  KernelFn function;
  const KernelArgs& args;

  void operator()(int64_t begin, int64_t end, bool by_rows) const {
    KernelArgs part = args;
    for (size_t i = 0; i < kernel.operands.size(); ++i) {
      int64_t step = args.row_strides[i];
      if (!by_rows) {
        Walk walk = kernel.operands[i].walk;
        step = walk == Walk::kElement || walk == Walk::kColumn
                   ? static_cast<int64_t>(item_size(kernel.operands[i].type))
                   : 0;
      }
      part.pointers[i] += begin * step;
    }
    (by_rows ? part.rows : part.columns) = end - begin;
    run(part);
  }

  // A raised flag means: some lane is beyond what the code computes exactly.
  void run(const KernelArgs& part) const {
    if (!function || function(&part) != 0) interpret(kernel, part);
  }
};

}  // namespace

void FusedKernel::run(const at::Tensor* const* operands, const int64_t* symbols,
                      at::Tensor* results) const {
  c10::SmallVector<int64_t, 6> dynamic;
  at::IntArrayRef sizes = sizes_;
  if (!static_sizes_) {
    for (const Expr& size : shape_.sizes) {
      dynamic.push_back(size.evaluate(symbols));
    }
    sizes = dynamic;
  }
  KernelArgs args;
  args.rows = args.columns = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    (static_cast<int>(i) < shape_.split ? args.rows : args.columns) *= sizes[i];
  }
  const int64_t numel = args.rows * args.columns;
  c10::SmallVector<at::Tensor, 2> copies;  // of operands with other strides
  copies.reserve(kernel_.num_inputs);
  float parameters[kMaxKernelOperands];
  size_t next_parameter = 0;
  for (size_t i = 0; i < kernel_.operands.size(); ++i) {
    const KernelOperand& operand = kernel_.operands[i];
    const int64_t item = static_cast<int64_t>(item_size(operand.type));
    int64_t expected = numel;
    args.row_strides[i] = args.columns * item;
    switch (operand.walk) {
      case Walk::kElement:
        break;
      case Walk::kColumn:
        expected = args.columns;
        args.row_strides[i] = 0;
        break;
      case Walk::kRow:
        expected = args.rows;
        args.row_strides[i] = item;
        break;
      case Walk::kScalar:
        expected = 1;
        args.row_strides[i] = 0;
        break;
    }
    if (i >= kernel_.num_inputs) {
      at::Tensor& result = results[i - kernel_.num_inputs];
      result = at::Tensor(at::detail::empty_cpu(sizes, dtype_of(operand.type)));
      args.pointers[i] =
          static_cast<char*>(result.unsafeGetTensorImpl()->mutable_data());
      continue;
    }
    if (next_parameter < shape_.parameters.size() &&
        shape_.parameters[next_parameter].first == static_cast<int>(i)) {
      float& value = parameters[next_parameter];
      value = static_cast<float>(
          shape_.parameters[next_parameter++].second.evaluate_float(symbols));
      args.pointers[i] = reinterpret_cast<char*>(&value);
      continue;
    }
    const at::Tensor* tensor = operands[i - next_parameter];
    FJ_CHECK(tensor->numel() == expected &&
                 tensor->scalar_type() == dtype_of(operand.type) &&
                 tensor->device().is_cpu() && !tensor->is_neg(),
             "an operand of a kernel is not what the capture promised");
    if (!tensor->is_contiguous()) {
      copies.push_back(tensor->contiguous());
      tensor = &copies.back();
    }
    args.pointers[i] = static_cast<char*>(
        const_cast<void*>(tensor->unsafeGetTensorImpl()->data()));
  }
  if (numel == 0) return;
  Slice slice{kernel_, function_, args};
  if (numel < kParallelAbove || at::get_num_threads() == 1) {
    slice.run(args);
  } else if (args.rows == 1) {
    at::parallel_for(0, args.columns, kGrain,
                     [&](int64_t from, int64_t to) { slice(from, to, false); });
  } else {
    int64_t grain = std::max<int64_t>(1, kGrain / args.columns);
    at::parallel_for(0, args.rows, grain,
                     [&](int64_t from, int64_t to) { slice(from, to, true); });
  }
}

}  // namespace framejit::backend
