#include "graph/ops/symbolic_products.h"

#if !FJ_TORCH_213

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include "graph/ops/cumprod_gradient.h"
#include "graph/tensors/trace_tensor.h"

namespace framejit::graph {
namespace {

using ProductSizes = at::SymDimVector;
using MatmulFunction = at::Tensor(const at::Tensor&, const at::Tensor&);
using CumprodGradient = at::Tensor(const at::Tensor&, const at::Tensor&,
                                   int64_t, const at::Tensor&);

const c10::TypedOperatorHandle<MatmulFunction>& matmul_of_torch() {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("aten::matmul", "")
                             .typed<MatmulFunction>();
  return op;
}

const c10::TypedOperatorHandle<CumprodGradient>& cumprod_gradient_of_torch() {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("aten::cumprod_backward", "")
                             .typed<CumprodGradient>();
  return op;
}

c10::SymInt count_of(c10::SymIntArrayRef sizes) {
  c10::SymInt result = 1;
  for (const c10::SymInt& size : sizes) result = result * size;
  return result;
}

// All dims of the first but the last are one in memory.
bool rows_are_one_dim(const at::Tensor& tensor) {
  auto sizes = tensor.sym_sizes(), strides = tensor.sym_strides();
  for (int64_t i = 0; i + 2 < tensor.dim(); ++i) {
    c10::SymInt next = strides[i + 1] * sizes[i + 1];
    if (!strides[i].sym_eq(next).guard_bool(__FILE__, __LINE__)) return false;
  }
  return true;
}

// Eager makes a matrix of a stack of them where the other is one (or a vector),
// and this needs no copy, or the copy is cheaper than what a gradient of the
// other, repeated, would take.
bool is_one_matrix(const at::Tensor& a, const at::Tensor& b) {
  bool first = a.dim() >= b.dim();
  const at::Tensor& small = first ? b : a;
  at::Tensor large = first ? a : b.mT();
  if (large.dim() < 3 || small.dim() > 2) return false;
  if (small.requires_grad()) return true;
  return a.dim() != 2 && rows_are_one_dim(large);
}

at::Tensor by_one_matrix(const at::Tensor& a, const at::Tensor& b) {
  bool first = a.dim() >= b.dim();
  at::Tensor large = first ? a : b.mT();
  at::Tensor small = first ? b : a.dim() == 2 ? a.t() : a;
  ProductSizes sizes(large.sym_sizes().begin(), large.sym_sizes().end() - 1);
  at::Tensor rows =
      large.reshape_symint({count_of(sizes), large.sym_sizes().back()});
  if (small.dim() == 1) {
    return at::_unsafe_view_symint(rows.mv(small), sizes);
  }
  sizes.push_back(small.sym_size(1));
  at::Tensor result = at::_unsafe_view_symint(rows.mm(small), sizes);
  return first ? result : result.mT().contiguous();
}

// As a stack of matrices, with these dims in front.
at::Tensor stack_of(const at::Tensor& tensor, c10::SymIntArrayRef batch) {
  auto matrix = tensor.sym_sizes().slice(tensor.dim() - 2);
  ProductSizes sizes(batch.begin(), batch.end());
  sizes.append(matrix.begin(), matrix.end());
  return tensor.expand_symint(sizes).reshape_symint(
      {count_of(batch), matrix[0], matrix[1]});
}

at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b);

at::Tensor by_stacks(const at::Tensor& a, const at::Tensor& b) {
  auto is_one = [](const at::Tensor& tensor) {
    return tensor.sym_size(0).sym_eq(1).guard_bool(__FILE__, __LINE__);
  };
  // A stack of one whose gradient would be of all its repetitions is the
  // matrix in it.
  if (a.dim() == 3 && b.dim() == 3 &&
      !a.sym_size(0).sym_eq(b.sym_size(0)).guard_bool(__FILE__, __LINE__)) {
    if (a.requires_grad() && is_one(a)) return matrix_product(a.squeeze(0), b);
    if (b.requires_grad() && is_one(b)) return matrix_product(a, b.squeeze(0));
  }
  at::Tensor x = a.dim() == 1 ? a.unsqueeze(0) : a;
  at::Tensor y = b.dim() == 1 ? b.unsqueeze(1) : b;
  auto front = [](const at::Tensor& tensor) {
    return tensor.sym_sizes().slice(0, tensor.dim() - 2);
  };
  ProductSizes batch = at::infer_size_symdimvector(front(x), front(y));
  at::Tensor result = stack_of(x, batch).bmm(stack_of(y, batch));
  ProductSizes sizes = batch;
  if (a.dim() > 1) sizes.push_back(a.sym_size(-2));
  if (b.dim() > 1) sizes.push_back(b.sym_size(-1));
  if (b.dim() == 1) result = result.squeeze(-1);
  return at::_unsafe_view_symint(result, sizes);
}

at::Tensor matrix_product(const at::Tensor& a, const at::Tensor& b) {
  return is_one_matrix(a, b) ? by_one_matrix(a, b) : by_stacks(a, b);
}

bool has_symbolic_layout(const at::Tensor& tensor) {
  return tensor.defined() &&
         tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

at::Tensor symbolic_matmul(c10::DispatchKeySet keys, const at::Tensor& a,
                           const at::Tensor& b) {
  // Autocast comes first: it calls matmul again, on what it has converted.
  bool ours = TraceSession::active() &&
              !keys.has_any(c10::autocast_dispatch_keyset) &&
              (has_symbolic_layout(a) || has_symbolic_layout(b)) &&
              as_trace(a) && as_trace(b);
  // torch's kernel reads no sizes of vectors and matrices.
  if (ours && a.dim() > 0 && b.dim() > 0 && (a.dim() > 2 || b.dim() > 2)) {
    return matrix_product(a, b);
  }
  c10::DispatchKeySet below(c10::DispatchKeySet::FULL_AFTER, kCompositesKey);
  return matmul_of_torch().redispatch(keys & below, a, b);
}

at::Tensor captured_cumprod_gradient(c10::DispatchKeySet keys,
                                     const at::Tensor& gradient,
                                     const at::Tensor& input, int64_t dim,
                                     const at::Tensor& output) {
  // With a second derivative, eager multiplies each element's others anew.
  bool ours = TraceSession::active() && !c10::GradMode::is_enabled() &&
              as_trace(gradient) && as_trace(input) && as_trace(output);
  if (ours) return cumprod_gradient(gradient, input, dim, output);
  c10::DispatchKeySet below(c10::DispatchKeySet::FULL_AFTER, kCompositesKey);
  return cumprod_gradient_of_torch().redispatch(keys & below, gradient, input,
                                                dim, output);
}

}  // namespace

void register_symbolic_products() {
  auto& dispatcher = c10::Dispatcher::singleton();
  static bool registered = false;
  if (registered || dispatcher.hasBackendFallbackForDispatchKey(kCompositesKey))
    return;
  registered = true;
  // Kept for the life of the process, like the fallback on Fake.
  static auto* fallthrough =
      new c10::RegistrationHandleRAII(dispatcher.registerFallback(
          kCompositesKey, c10::KernelFunction::makeFallthrough(), "FrameJIT"));
  static auto* library = new torch::Library(torch::Library::IMPL, "aten",
                                            kCompositesKey, __FILE__, __LINE__);
  library->impl("matmul", &symbolic_matmul);
  library->impl("cumprod_backward", &captured_cumprod_gradient);
  (void)fallthrough;
}

}  // namespace framejit::graph

#endif
