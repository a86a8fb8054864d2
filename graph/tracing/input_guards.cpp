#include "graph/tracing/input_guards.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "graph/tensors/python_tensor.h"
#include "graph/tracing/tensor_classes.h"

namespace framejit::graph {

namespace {

// The dispatch keys an ordinary strided tensor may have.
uint64_t ordinary_keys() {
  using c10::DispatchKey;
  static const uint64_t keys =
      (c10::DispatchKeySet({DispatchKey::CPU, DispatchKey::CUDA}) |
       c10::autograd_dispatch_keyset_with_ADInplaceOrView |
       c10::autocast_dispatch_keyset |
       c10::getAutogradRelatedKeySetFromBackend(c10::BackendComponent::CPUBit) |
       c10::getAutogradRelatedKeySetFromBackend(c10::BackendComponent::CUDABit))
          .raw_repr();
  return keys;
}

// Strides as expressions: products of smaller dims where the numbers at
// capture say so, constants otherwise. Either way the guard compares them with
// the strides of each call.
std::vector<Expr> stride_expressions(const std::vector<Expr>& sizes,
                                     c10::IntArrayRef hints,
                                     c10::IntArrayRef strides) {
  size_t dims = sizes.size();
  std::vector<Expr> result(dims);
  Expr product = 1;
  int64_t expected = 1;
  size_t dim = dims;
  while (dim > 0 && strides[dim - 1] == expected) {
    --dim;
    result[dim] = product;
    product = product * sizes[dim];
    expected *= hints[dim];
  }
  if (dim == 0) return result;
  // Not contiguous: walk the dims from the smallest stride up.
  std::vector<size_t> order(dims);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return strides[a] != strides[b] ? strides[a] < strides[b]
                                    : hints[a] < hints[b];
  });
  product = 1;
  expected = 1;
  for (size_t at : order) {
    if (strides[at] == expected) {
      result[at] = product;
    } else {
      result[at] = Expr(strides[at]);
      product = Expr(strides[at]);
      expected = strides[at];
    }
    if (hints[at] > 1) {
      product = product * sizes[at];
      expected *= hints[at];
    }
  }
  return result;
}

// Dims that are equal now are taken to be equal always, and guarded so (as
// torch.compile does): programs rarely mean anything else, and one symbol is
// what makes elementwise operations on two inputs fit. When the guard fails,
// the sizes seen then are different and get symbols of their own.
std::optional<Expr> symbol_of_equal_size(const GuardSet& guards, int64_t size) {
  const std::vector<Symbol>& symbols = guards.symbols();
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (symbols[i].source->kind == SourceKind::kTensorSize &&
        symbols[i].hint == size) {
      return Expr::symbol(int(i));
    }
  }
  return std::nullopt;
}

}  // namespace

std::string unusual_tensor(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  c10::DispatchKeySet keys =
      impl->key_set() - c10::DispatchKeySet({c10::DispatchKey::Conjugate,
                                             c10::DispatchKey::Negative});
  if (keys.raw_repr() & ~ordinary_keys())
    return "a tensor with dispatch keys " + c10::toString(impl->key_set());
  if (impl->layout() != c10::kStrided || !impl->has_storage())
    return "a tensor that is not strided";
  if (impl->has_symbolic_sizes_strides()) return "a tensor with symbolic sizes";
  if (tensor._fw_grad(/*level=*/0).defined())
    return "a tensor with a forward-mode gradient";
  return "";
}

std::string unsupported_input(PyObject* tensor) {
  std::string reason = unsupported_class(Py_TYPE(tensor));
  if (!reason.empty()) return reason;
  const at::Tensor& value = unpack_tensor(tensor);
  if (value.is_conj() || value.is_neg())
    return "a tensor with dispatch keys " + c10::toString(value.key_set());
  reason = unusual_tensor(value);
  if (!reason.empty()) return reason;
  if (!value.device().is_cpu() && !value.device().is_cuda())
    return "a tensor on " + value.device().str();
  return "";
}

SymbolicShape guard_input(GuardSet& guards, const Source* source,
                          PyObject* tensor, uint64_t dynamic_dims) {
  const at::Tensor& value = unpack_tensor(tensor);
  const c10::TensorImpl* impl = value.unsafeGetTensorImpl();
  c10::IntArrayRef sizes = value.sizes(), strides = value.strides();
  SymbolicShape shape;
  std::vector<Expr> ranges;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    bool dynamic = dim < 64 && (dynamic_dims >> dim & 1) && sizes[dim] >= 2;
    if (!dynamic) {
      shape.sizes.emplace_back(sizes[dim]);
      continue;
    }
    if (auto same = symbol_of_equal_size(guards, sizes[dim])) {
      shape.sizes.push_back(*same);
      continue;
    }
    const Source* size =
        guards.sources().make(SourceKind::kTensorSize, source, nullptr, dim);
    shape.sizes.push_back(Expr::symbol(guards.add_symbol(size, sizes[dim])));
    // Sizes 0 and 1 mean other programs (broadcasting, empty reductions).
    ranges.push_back(expr_le(Expr(2), shape.sizes.back()));
  }
  shape.strides = stride_expressions(shape.sizes, sizes, strides);
  shape.storage_offset = Expr(0);

  TensorSpec spec;
  spec.type = Py_TYPE(tensor);
  spec.key_set = impl->key_set().raw_repr();
  spec.dtype = static_cast<int16_t>(value.scalar_type());
  spec.device_type = static_cast<int8_t>(value.device().type());
  spec.device_index = value.device().index();
  spec.requires_grad = value.requires_grad();
  spec.sizes = shape.sizes;
  spec.strides = shape.strides;
  guards.add_tensor(source, std::move(spec));
  for (const Expr& range : ranges) guards.add_expr(range);
  return shape;
}

}  // namespace framejit::graph
