// Promise: what a trace says of one result (type, device, sizes, strides, the
// conjugate and the negative bit), compared with what an operator returned. A
// comparison costs nanoseconds.
//
// Captures decide by metadata: a branch on x.is_contiguous(), a cast that is
// left out because the type is right already. So a result that is not as
// promised makes the whole entry wrong: its run throws UnexpectedResult before
// anything is committed, the original code runs, the entry goes, and the
// operators that may have been at fault are trusted less (graph/ops/trust.h)
// when the function is captured again.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "graph/ir/ir.h"
#include "graph/ops/trust.h"

namespace framejit::backend {

class UnexpectedResult : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class Promise {
 public:
  Promise() = default;  // nothing is promised
  explicit Promise(const graph::TensorMeta& meta);

  enum class Kept : uint8_t { kYes, kExceptStrides, kNo };
  // Strides of dimensions of size 1 and of tensors without elements do not
  // count.
  Kept kept_by(const at::Tensor& result, const int64_t* symbols) const;
  // And so are all strides, whether they count or not. (Quicker.)
  bool exactly_kept_by(const at::Tensor& result, const int64_t* symbols) const;
  c10::SmallVector<int64_t, 8> strides(const int64_t* symbols) const;
  // "float32 [2, 3] strides [3, 1], not the bfloat16 [2, 3] ... of the trace"
  std::string difference(const at::Tensor& result,
                         const int64_t* symbols) const;
  bool is_made() const { return made_; }

 private:
  c10::SmallVector<int64_t, 8> sizes(const int64_t* symbols) const;
  bool same_kind(const at::Tensor& result) const;

  bool made_ = false;
  c10::ScalarType dtype_ = c10::ScalarType::Undefined;
  c10::Device device_ = c10::kCPU;
  bool is_conj_ = false, is_neg_ = false;
  std::vector<int64_t> sizes_, strides_;
  // Instead of those where a size or a stride is symbolic.
  std::vector<Expr> symbolic_sizes_, symbolic_strides_;
};

// The operators that may be at fault for a broken promise, with the trust they
// had when it was made. Any thread, with the GIL or without.
class Suspects {
 public:
  void add(const c10::OperatorHandle& op);  // needs the GIL
  // "aten::native_layer_norm: <difference>"
  [[noreturn]] void fail(const std::string& difference) const;
  void note() const;

 private:
  std::vector<graph::TrustedOperator> operators_;
};

}  // namespace framejit::backend
