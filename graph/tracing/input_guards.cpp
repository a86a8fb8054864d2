#include "graph/tracing/input_guards.h"

#include <ATen/core/Tensor.h>

#include <torch/csrc/DynamicTypes.h>
#include <torch/csrc/Layout.h>

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

// Strides as expressions of the sizes: products of smaller dims where the
// numbers at capture say so. The guard compares them with the strides of each
// call.
class StrideExpressions {
 public:
  StrideExpressions(const std::vector<Expr>& sizes, c10::IntArrayRef hints,
                    c10::IntArrayRef strides)
      : sizes_(sizes),
        hints_(hints),
        strides_(strides),
        result_(sizes.size()) {}

  // make_symbol(dim): an expression for a stride that is none of the sizes, or
  // nothing: it is a number.
  template <typename MakeSymbol>
  std::vector<Expr> find(MakeSymbol make_symbol) {
    std::vector<size_t> order(sizes_.size());
    // Contiguous, also where dims of one element make other orders possible.
    std::iota(order.rbegin(), order.rend(), 0);
    if (nest(order) == Gaps::kNone) return std::move(result_);
    // From the smallest stride up.
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return strides_[a] != strides_[b] ? strides_[a] < strides_[b]
                                        : hints_[a] < hints_[b];
    });
    const Gaps gaps = nest(order);
    if (gaps == Gaps::kNone) return std::move(result_);
    // A number that fits between gaps may have come so by chance.
    nest(order, [&](size_t dim, const Expr* derived) -> std::optional<Expr> {
      bool by_chance = derived && derived->is_const() && gaps == Gaps::kSome;
      return by_chance || !derived ? make_symbol(dim) : std::nullopt;
    });
    return std::move(result_);
  }

 private:
  enum class Gaps : uint8_t { kNone, kAtSizeOne, kSome };

  Gaps nest(const std::vector<size_t>& order) {
    return nest(order, [](size_t, const Expr*) { return std::nullopt; });
  }

  // choose(dim, what it is by the sizes or null).
  template <typename Choose>
  Gaps nest(const std::vector<size_t>& order, Choose choose) {
    Gaps gaps = Gaps::kNone;
    Expr product = 1;
    int64_t expected = 1;
    for (size_t dim : order) {
      const bool fits = strides_[dim] == expected, is_one = hints_[dim] == 1;
      std::optional<Expr> stride = choose(dim, fits ? &product : nullptr);
      if (!stride) stride = fits ? product : Expr(strides_[dim]);
      if (!fits) gaps = std::max(gaps, is_one ? Gaps::kAtSizeOne : Gaps::kSome);
      result_[dim] = *stride;
      // What one element has for a stride holds nothing apart.
      if (is_one) continue;
      product = hints_[dim] ? *stride * sizes_[dim] : *stride;
      expected = strides_[dim] * std::max<int64_t>(hints_[dim], 1);
    }
    return gaps;
  }

  const std::vector<Expr>& sizes_;
  c10::IntArrayRef hints_, strides_;
  std::vector<Expr> result_;
};

// Dims that are equal now are taken to be equal always, and guarded so (as
// torch.compile does): programs rarely mean anything else, and one symbol is
// what makes elementwise operations on two inputs fit. When the guard fails,
// the sizes seen then are different and get symbols of their own.
std::optional<Expr> symbol_of_equal_size(const GuardSet& guards, int64_t size) {
  if (!guards.joins_equal_sizes()) return std::nullopt;
  const std::vector<Symbol>& symbols = guards.symbols();
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (symbols[i].source->kind == SourceKind::kTensorSize &&
        symbols[i].hint == size) {
      return Expr::symbol(int(i));
    }
  }
  return std::nullopt;
}

// As a user would name it: the keys of the dispatcher say it to few.
std::string kind_of_keys(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (impl->layout() != c10::kStrided) {
    auto* layout =
        reinterpret_cast<THPLayout*>(torch::getTHPLayout(impl->layout()));
    return std::string("a tensor of layout ") + layout->name;
  }
  if (tensor.is_nested()) return "a nested tensor";
  if (impl->key_set().has_any(
          c10::DispatchKeySet({c10::DispatchKey::FuncTorchBatched,
                               c10::DispatchKey::FuncTorchGradWrapper})))
    return "a tensor inside torch.func or vmap";
  if (tensor.is_quantized()) return "a quantized tensor";
  if (impl->key_set().has(c10::DispatchKey::Python))
    return "a tensor with a __torch_dispatch__";
  if (!tensor.device().is_cpu() && !tensor.device().is_cuda())
    return "a tensor on " + tensor.device().str();
  if (!impl->has_storage()) return "a tensor that is not strided";
  return "a tensor with dispatch keys " + c10::toString(impl->key_set());
}

}  // namespace

namespace {

bool has_unusual_keys(const c10::TensorImpl* impl, bool on_meta = false) {
  c10::DispatchKeySet keys =
      impl->key_set() - c10::DispatchKeySet({c10::DispatchKey::Conjugate,
                                             c10::DispatchKey::Negative});
  if (on_meta) keys = keys.remove_backend(c10::BackendComponent::MetaBit);
  return (keys.raw_repr() & ~ordinary_keys()) ||
         impl->layout() != c10::kStrided || !impl->has_storage();
}

// ints[0] = x gives it a history, and no stand-in can have that.
bool requires_grad_by_accident(const at::Tensor& tensor) {
  return tensor.requires_grad() &&
         !torch::autograd::isDifferentiableType(tensor.scalar_type());
}

}  // namespace

std::string unusual_tensor(const at::Tensor& tensor, bool on_meta) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (has_unusual_keys(impl, on_meta)) return kind_of_keys(tensor);
  if (impl->has_symbolic_sizes_strides()) return "a tensor with symbolic sizes";
  if (tensor._fw_grad(/*level=*/0).defined())
    return "a tensor with a forward-mode gradient (a dual tensor)";
  if (requires_grad_by_accident(tensor))
    return "a tensor of integers that requires grad";
  return "";
}

bool is_unusual_tensor(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return has_unusual_keys(impl) || impl->has_symbolic_sizes_strides() ||
         requires_grad_by_accident(tensor) ||
         tensor._fw_grad(/*level=*/0).defined();
}

std::string unsupported_input(PyObject* tensor) {
  std::string reason = unsupported_class(Py_TYPE(tensor));
  if (!reason.empty()) return reason;
  const at::Tensor& value = unpack_tensor(tensor);
  if (!value.defined()) return "a tensor that is undefined";
  if (value.is_conj()) return "a tensor that is conjugated lazily";
  if (value.is_neg()) return "a tensor that is negated lazily";
  // One on meta may be passed on; no operation takes it (Recorder::argument).
  reason = unusual_tensor(value, value.is_meta());
  if (!reason.empty()) return reason;
  if (!value.device().is_cpu() && !value.device().is_cuda() && !value.is_meta())
    return "a tensor on " + value.device().str();
  return "";
}

SymbolicShape guard_input(GuardSet& guards, const Source* source,
                          PyObject* tensor, DynamicDims wanted) {
  const at::Tensor& value = unpack_tensor(tensor);
  const c10::TensorImpl* impl = value.unsafeGetTensorImpl();
  c10::IntArrayRef sizes = value.sizes(), strides = value.strides();
  SymbolicShape shape;
  std::vector<Expr> ranges;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    bool dynamic = dim < 64 && (wanted.sizes >> dim & 1) && sizes[dim] >= 2;
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
    // Sizes 0 and 1 mean other programs (broadcasting, empty reductions), and
    // so do such strides.
    ranges.push_back(expr_le(Expr(2), shape.sizes.back()));
  }
  auto symbol_of_stride = [&](size_t dim) -> std::optional<Expr> {
    if (dim >= 64 || !(wanted.strides >> dim & 1) || strides[dim] < 2)
      return std::nullopt;
    const Source* stride =
        guards.sources().make(SourceKind::kTensorStride, source, nullptr, dim);
    Expr symbol = Expr::symbol(guards.add_symbol(stride, strides[dim]));
    ranges.push_back(expr_le(Expr(2), symbol));
    return symbol;
  };
  shape.strides =
      StrideExpressions(shape.sizes, sizes, strides).find(symbol_of_stride);
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
