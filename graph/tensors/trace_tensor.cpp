#include "graph/tensors/trace_tensor.h"

#include <ATen/EmptyTensor.h>
#include <ATen/FunctionalTensorWrapper.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StorageImpl.h>
#include <pthread.h>

#include <atomic>

#include "graph/tensors/libtorch_private.h"
#include "graph/tensors/sym_node.h"
#include "guards/set/number_expr.h"

namespace framejit::graph {
namespace {

std::atomic<TraceSession*> active_session{nullptr};
thread_local bool session_is_here = false;
std::atomic<uint64_t> next_session_id{1};

std::vector<c10::SymInt> to_sym_ints(const std::vector<Expr>& exprs) {
  std::vector<c10::SymInt> result;
  result.reserve(exprs.size());
  for (const Expr& expr : exprs) result.push_back(to_sym_int(expr));
  return result;
}

std::vector<Expr> to_exprs(c10::SymIntArrayRef values) {
  std::vector<Expr> result;
  result.reserve(values.size());
  for (const c10::SymInt& value : values) {
    std::optional<Expr> expr = to_expr(value);
    TORCH_CHECK(expr, "a symbolic size that is not FrameJIT's");
    result.push_back(*std::move(expr));
  }
  return result;
}

// A view is an inference tensor where its base is one, whatever the mode is
// now. The companion is that view; the constructor of a tensor asks the mode
// only.
c10::DispatchKeySet in_mode_of(const at::Tensor& companion,
                               c10::DispatchKeySet keys) {
  if (companion.is_inference())
    return keys - c10::autograd_dispatch_keyset_with_ADInplaceOrView;
  return keys |
         c10::getAutogradRelatedKeySetFromBackend(keys.highestBackendKey());
}

bool counts_writes(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->version_counter().enabled();
}

void set_included(bool functionalize) {
  auto state = c10::impl::tls_local_dispatch_key_set();
  state.included_ = state.included_ | kTracingKeys;
  if (functionalize) {
    state.included_ = state.included_.add(c10::DispatchKey::Functionalize);
  }
  c10::impl::_force_tls_local_dispatch_key_set(state);
}

}  // namespace

bool SymbolicShape::is_static() const {
  for (const Expr& expr : sizes) {
    if (!expr.is_const()) return false;
  }
  for (const Expr& expr : strides) {
    if (!expr.is_const()) return false;
  }
  return storage_offset.is_const();
}

// ---- TraceTensorImpl

TraceTensorImpl::TraceTensorImpl(at::Tensor meta, c10::Device device,
                                 uint64_t session, int value_id)
    : TensorImpl(c10::DispatchKeySet(c10::DispatchKey::Fake) |
                     c10::DispatchKeySet(c10::computeDispatchKey(
                         std::nullopt, std::nullopt, device)),
                 meta.dtype(), device),
      meta_(std::move(meta)),
      session_(session),
      value_id_(value_id) {
  set_storage_access_should_throw();
  key_set_ = in_mode_of(meta_, key_set_);
  // The counter is what refuses a write outside of inference mode: `detach()`
  // gives an inference tensor one of its own, a view has none.
  if (is_inference() && !counts_writes(meta_)) {
    set_version_counter(c10::VariableVersion());
  }
  sync_with_companion();
  if (meta_.is_conj()) _set_conj(true);
  if (meta_.is_neg()) _set_neg(true);
}

SymbolicShape TraceTensorImpl::shape() const {
  SymbolicShape shape;
  if (has_symbolic_sizes_strides()) {
    shape.sizes = to_exprs(sym_sizes());
    shape.strides = to_exprs(sym_strides());
    shape.storage_offset = to_expr(sym_storage_offset()).value();
    return shape;
  }
  for (int64_t size : sizes()) shape.sizes.emplace_back(size);
  for (int64_t stride : strides()) shape.strides.emplace_back(stride);
  shape.storage_offset = Expr(storage_offset());
  return shape;
}

void TraceTensorImpl::set_shape(const SymbolicShape& shape) {
  if (shape.is_static() && !has_symbolic_sizes_strides()) return;
  bool allowed = allow_tensor_metadata_change();
  set_allow_tensor_metadata_change(true);
  auto sizes = to_sym_ints(shape.sizes);
  auto strides = to_sym_ints(shape.strides);
  set_sizes_and_strides(c10::SymIntArrayRef(sizes),
                        c10::SymIntArrayRef(strides),
                        to_sym_int(shape.storage_offset));
  set_allow_tensor_metadata_change(allowed);
}

void TraceTensorImpl::sync_with_companion() {
  const auto* meta = meta_.unsafeGetTensorImpl();
  bool allowed = allow_tensor_metadata_change();
  set_allow_tensor_metadata_change(true);
  if (has_symbolic_sizes_strides()) {
    std::vector<c10::SymInt> sizes(meta->sizes().begin(), meta->sizes().end());
    std::vector<c10::SymInt> strides(meta->strides().begin(),
                                     meta->strides().end());
    set_sizes_and_strides(c10::SymIntArrayRef(sizes),
                          c10::SymIntArrayRef(strides),
                          c10::SymInt(meta->storage_offset()));
  } else {
    set_sizes_and_strides(meta->sizes(), meta->strides(),
                          meta->storage_offset());
  }
  set_allow_tensor_metadata_change(allowed);
}

// Who asks for numbers gets those of the companion, and pins what was asked for
// and no more: a kernel that reads the sizes of a part of a tensor says nothing
// of where the part begins.

at::IntArrayRef TraceTensorImpl::sizes_custom() const {
  if (!has_symbolic_sizes_strides()) return TensorImpl::sizes_custom();
  for (const Expr& size : to_exprs(sym_sizes())) specialise(size);
  return meta_.sizes();
}

at::IntArrayRef TraceTensorImpl::strides_custom() const {
  if (!has_symbolic_sizes_strides()) return TensorImpl::strides_custom();
  for (const Expr& stride : to_exprs(sym_strides())) specialise(stride);
  return meta_.strides();
}

int64_t TraceTensorImpl::numel_custom() const {
  if (!has_symbolic_sizes_strides()) return TensorImpl::numel_custom();
  for (const Expr& size : to_exprs(sym_sizes())) specialise(size);
  return meta_.numel();
}

int64_t TraceTensorImpl::storage_offset_custom() const {
  if (!has_symbolic_sizes_strides()) return TensorImpl::storage_offset_custom();
  specialise(to_expr(sym_storage_offset()).value());
  return meta_.storage_offset();
}

template <class Version>
c10::intrusive_ptr<c10::TensorImpl> TraceTensorImpl::detached(
    Version&& version, bool allow_change) const {
  // A companion of its own, in the same memory: either may get another shape.
  at::Tensor companion(meta_.unsafeGetTensorImpl()->shallow_copy_and_detach(
      c10::VariableVersion(0), /*allow_tensor_metadata_change=*/true));
  auto copy = c10::make_intrusive<TraceTensorImpl>(
      std::move(companion), device(), session_, value_id_);
  if (!copy->is_inference()) {
    copy->set_version_counter(std::forward<Version>(version));
  }
  if (has_symbolic_sizes_strides()) copy->set_shape(shape());
  copy->set_allow_tensor_metadata_change(allow_change);
  return copy;
}

c10::intrusive_ptr<c10::TensorImpl> TraceTensorImpl::shallow_copy_and_detach(
    const c10::VariableVersion& version, bool allow_change) const {
  return detached(version, allow_change);
}

c10::intrusive_ptr<c10::TensorImpl> TraceTensorImpl::shallow_copy_and_detach(
    c10::VariableVersion&& version, bool allow_change) const {
  return detached(std::move(version), allow_change);
}

void TraceTensorImpl::shallow_copy_from(
    const c10::intrusive_ptr<c10::TensorImpl>& impl) {
  auto* other = dynamic_cast<TraceTensorImpl*>(impl.get());
  TORCH_CHECK(other, "a trace tensor cannot take the data of a real tensor");
  TORCH_CHECK(other->dtype() == dtype() && other->device() == device(),
              "the data of a trace tensor keeps its type and device");
  meta_ = other->meta_;
  key_set_ = in_mode_of(meta_, key_set_);
  value_id_ = other->value_id_;
  if (other->has_symbolic_sizes_strides()) {
    set_shape(other->shape());
  } else {
    sync_with_companion();
  }
}

// ---- sessions

TraceSession::TraceSession(GuardSet* guards)
    : id_(next_session_id.fetch_add(1)), guards_(guards) {}

TraceSession::~TraceSession() = default;

TraceSession* TraceSession::active() {
  return active_session.load(std::memory_order_acquire);
}

Result<at::Tensor> TraceSession::lift(const at::Tensor& real, bool fresh) {
  if (!fresh) {
    return Break{BreakReason::kUnknownTensor,
                 "a tensor with no source reached an operation",
                 {}};
  }
  return make_trace_tensor(*this, make_companion(real), real.device());
}

void TraceSession::set_break(Break brk) {
  if (!break_) break_ = std::move(brk);
}

void TraceSession::stop(Break brk) {
  std::string text = format_break(brk);
  set_break(std::move(brk));
  TORCH_CHECK_NOT_IMPLEMENTED(false, "FrameJIT: ", text);
}

std::optional<Break> TraceSession::take_break() {
  return std::exchange(break_, std::nullopt);
}

TracingScope::TracingScope(TraceSession& session, bool functionalize)
    : saved_(c10::impl::tls_local_dispatch_key_set()) {
  // The child of a fork() has none of the other threads.
  static const int registered = pthread_atfork(nullptr, nullptr, [] {
    if (!session_is_here) active_session = nullptr;
  });
  (void)registered;
  TraceSession* none = nullptr;
  active_ = active_session.compare_exchange_strong(none, &session);
  if (!active_) return;
  session_is_here = true;
  set_included(functionalize);
}

TracingScope::~TracingScope() {
  if (!active_) return;
  c10::impl::_force_tls_local_dispatch_key_set(saved_);
  session_is_here = false;
  active_session.store(nullptr, std::memory_order_release);
}

SuspendTracing::SuspendTracing()
    : session_(TraceSession::active()),
      saved_(c10::impl::tls_local_dispatch_key_set()) {
  if (!session_) return;
  session_->suspended_++;
  auto state = saved_;
  state.included_ =
      (state.included_ - kTracingKeys).remove(c10::DispatchKey::Functionalize);
  c10::impl::_force_tls_local_dispatch_key_set(state);
}

SuspendTracing::~SuspendTracing() {
  if (!session_) return;
  session_->suspended_--;
  c10::impl::_force_tls_local_dispatch_key_set(saved_);
}

BelowTracing::BelowTracing()
    : guard_(c10::DispatchKeySet(c10::DispatchKey::Fake) |
             c10::DispatchKeySet(c10::DispatchKey::Functionalize) |
             c10::autograd_dispatch_keyset_with_ADInplaceOrView) {}

// ---- making and looking at trace tensors

at::Tensor make_companion(const at::Tensor& real) {
  BelowTracing below;
  at::Tensor meta(at::detail::empty_strided_meta(real.sizes(), real.strides(),
                                                 real.scalar_type()));
  if (real.is_conj()) meta.unsafeGetTensorImpl()->_set_conj(true);
  if (real.is_neg()) meta.unsafeGetTensorImpl()->_set_neg(true);
  if (int64_t offset = real.storage_offset()) {
    auto* impl = meta.unsafeGetTensorImpl();
    auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
    storage->set_nbytes(storage->nbytes() + offset * meta.element_size());
    impl->set_storage_offset(offset);
  }
  return meta;
}

namespace {

// No tensor of eager's has one, but for what it computes of no elements.
void check_extent(TraceSession& session, int64_t extent,
                  const std::string& what) {
  if (extent < 0)
    session.stop({BreakReason::kUnguardableInput,
                  "a negative size or stride: " + what,
                  {}});
}

// What a graph computes of sizes and numbers has to be one at every call:
// memory is taken of such a size, and loops run so often.
void keep_extents(TraceSession& session, const SymbolicShape& shape) {
  GuardSet* guards = session.guards();
  if (!guards) return;
  const std::vector<int64_t> hints = guards->hints();
  Expr numel = 1;
  auto keep = [&](const Expr& expr) {
    check_extent(session, within(kLargestExtent, session, expr, hints),
                 expr.str());
    keep_extent(expr, guards);
  };
  for (const Expr& size : shape.sizes) {
    keep(size);
    numel = numel * size;
  }
  for (const Expr& stride : shape.strides) keep(stride);
  keep(shape.storage_offset);
  if (uses_program_numbers(numel, *guards)) keep(numel);
}

}  // namespace

at::Tensor make_trace_tensor(TraceSession& session, at::Tensor companion,
                             c10::Device device, const SymbolicShape* shape) {
  for (int64_t stride : companion.strides())
    check_extent(session, stride, std::to_string(stride));
  auto impl = c10::make_intrusive<TraceTensorImpl>(
      std::move(companion), device, session.id(), session.new_value_id());
  if (shape && !shape->is_static()) {
    keep_extents(session, *shape);
    impl->set_shape(*shape);
  }
  return at::Tensor(std::move(impl));
}

at::Tensor make_trace_input(TraceSession& session, const at::Tensor& real,
                            const SymbolicShape* shape) {
  at::Tensor tensor;
  {
    // The stand-in of a normal tensor is normal, also in inference mode.
    c10::InferenceMode mode(real.is_inference());
    tensor =
        make_trace_tensor(session, make_companion(real), real.device(), shape);
  }
  if (real.requires_grad()) tensor.set_requires_grad(true);
  return tensor;
}

at::Tensor make_trace_tensor(TraceSession& session, c10::ScalarType dtype,
                             c10::Device device, const SymbolicShape& shape,
                             const std::vector<int64_t>& hints) {
  auto value = [&](const Expr& expr) {
    const int64_t extent = within(kLargestExtent, session, expr, hints);
    check_extent(session, extent, expr.str());
    return extent;
  };
  std::vector<int64_t> sizes, strides;
  for (const Expr& size : shape.sizes) sizes.push_back(value(size));
  for (const Expr& stride : shape.strides) strides.push_back(value(stride));
  int64_t offset = value(shape.storage_offset);
  at::Tensor companion;
  {
    BelowTracing below;
    companion =
        at::Tensor(at::detail::empty_strided_meta(sizes, strides, dtype));
    if (offset) {
      auto* impl = companion.unsafeGetTensorImpl();
      auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
      storage->set_nbytes(storage->nbytes() +
                          offset * companion.element_size());
      impl->set_storage_offset(offset);
    }
  }
  return make_trace_tensor(session, std::move(companion), device, &shape);
}

TraceTensorImpl* as_trace(const at::Tensor& tensor) {
  if (!tensor.defined()) return nullptr;
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  while (impl->key_set().has(c10::DispatchKey::Functionalize)) {
    auto* wrapper = dynamic_cast<at::FunctionalTensorWrapper*>(impl);
    if (!wrapper || !wrapper->value().defined()) return nullptr;
    impl = wrapper->value().unsafeGetTensorImpl();
  }
  if (!impl->key_set().has(c10::DispatchKey::Fake)) return nullptr;
  return dynamic_cast<TraceTensorImpl*>(impl);
}

bool is_stale(const at::Tensor& tensor) {
  TraceTensorImpl* trace = as_trace(tensor);
  TraceSession* session = TraceSession::active();
  return trace && (!session || session->id() != trace->session());
}

SymbolicShape shape_of(const at::Tensor& tensor) {
  if (TraceTensorImpl* trace = as_trace(tensor)) return trace->shape();
  SymbolicShape shape;
  for (int64_t size : tensor.sizes()) shape.sizes.emplace_back(size);
  for (int64_t stride : tensor.strides()) shape.strides.emplace_back(stride);
  shape.storage_offset = Expr(tensor.storage_offset());
  return shape;
}

void forbid_data_access(const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  auto* impl = tensor.unsafeGetTensorImpl();
  if (dynamic_cast<TraceTensorImpl*>(impl)) return;  // throws by itself
  auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  if (storage) storage->set_throw_on_mutable_data_ptr();
}

}  // namespace framejit::graph
