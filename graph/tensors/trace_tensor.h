// Trace tensors: real at::Tensors with no data, on which torch runs natively.
//
// A TraceTensorImpl has the dispatch keys {Fake, backend of the true device}
// plus the autograd, ADInplaceOrView and autocast keys that follow from them,
// so autograd, autocast and Python see an ordinary tensor of that device. Every
// operation on one ends in our boxed fallback on DispatchKey::Fake
// (fake_fallback.h), which infers the result and tells the active TraceSession.
// Inference runs on a *companion*: a meta tensor with the concrete (hint)
// sizes; views share its storage. Symbolic sizes live beside it, as Exprs
// wrapped in SymInts (sym_node.h, shape_rules.h).
//
// A TraceSession is one capture, or one joint trace. At most one is active in
// the process; it is not thread local, because autograd runs parts of a
// backward on its own threads. It is used with the GIL held.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "guards/expr/expr.h"
#include "guards/result.h"
#include "guards/set/guard_set.h"

namespace framejit::graph {

// Sizes and strides as expressions over the guard set's symbols.
struct SymbolicShape {
  std::vector<Expr> sizes;
  std::vector<Expr> strides;
  Expr storage_offset;

  bool is_static() const;
};

class TraceTensorImpl final : public c10::TensorImpl {
 public:
  TraceTensorImpl(at::Tensor meta, c10::Device device, uint64_t session,
                  int value_id);

  const at::Tensor& meta() const { return meta_; }
  uint64_t session() const { return session_; }
  // Names the value within its session. Detached copies (SavedVariable) keep
  // it; every result of an operation gets a new one.
  int value_id() const { return value_id_; }
  // After an operation changed the value in place.
  void set_value_id(int id) { value_id_ = id; }

  // Expressions, or constants where the tensor is static.
  SymbolicShape shape() const;
  void set_shape(const SymbolicShape& shape);
  // Takes the sizes of the companion again after it was changed in place.
  void sync_with_companion();

  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(
      const c10::VariableVersion& version, bool allow_change) const override;
  c10::intrusive_ptr<c10::TensorImpl> shallow_copy_and_detach(
      c10::VariableVersion&& version, bool allow_change) const override;
  void shallow_copy_from(
      const c10::intrusive_ptr<c10::TensorImpl>& impl) override;
  // A kernel that does not know symbols asks for numbers: it gets the hints,
  // which then are what the guards ask for.
  at::IntArrayRef sizes_custom() const override;
  at::IntArrayRef strides_custom() const override;
  int64_t numel_custom() const override;
  int64_t storage_offset_custom() const override;
  const char* tensorimpl_type_name() const override {
    return "framejit::TraceTensor";
  }

 private:
  template <class Version>
  c10::intrusive_ptr<c10::TensorImpl> detached(Version&& version,
                                               bool allow_change) const;

  at::Tensor meta_;
  uint64_t session_;
  int value_id_;
};

class TraceSession {
 public:
  // guards: receives what symbolic sizes need; may be null when nothing is
  // symbolic.
  explicit TraceSession(GuardSet* guards);
  virtual ~TraceSession();
  TraceSession(const TraceSession&) = delete;
  TraceSession& operator=(const TraceSession&) = delete;

  static TraceSession* active();
  uint64_t id() const { return id_; }
  GuardSet* guards() const { return guards_; }
  int new_value_id() { return next_value_id_++; }
  // True while the code that runs is none of the session's business: other
  // frames' operations on real tensors are then left alone.
  bool suspended() const { return suspended_ > 0; }

  // ---- what the fallback calls. A Break is stored with set_break, and the
  // operation raises.
  // Before an operation on stand-ins (or a factory) is inferred.
  virtual Status before(const c10::OperatorHandle& op) { return ok_status(); }
  // The session may do the operation by other means: it then replaces the
  // arguments on the stack by the results and returns true.
  virtual bool rewrite(const c10::OperatorHandle& op,
                       std::vector<c10::IValue>* stack) {
    return false;
  }
  // After it: the arguments as called, the results as they will be returned.
  virtual void record(const c10::OperatorHandle& op,
                      c10::ArrayRef<c10::IValue> arguments,
                      c10::ArrayRef<c10::IValue> results) {}
  // A real tensor reached an operation. `fresh`: it was made just now by a
  // constructor that needs memory (torch.tensor). The default is a break for
  // the former and a new stand-in for the latter.
  virtual Result<at::Tensor> lift(const at::Tensor& real, bool fresh);

  // A symbolic float is about to be replaced by its value, with a guard. Throws
  // where that must not be.
  virtual void before_pin(const Expr& real) {}
  // torch hides a symbolic float in a number that is NaN. Can there be copies
  // of such a number, which lost the symbol, in what runs now?
  void set_hides_floats(bool hides) { hides_floats_ = hides; }
  bool hides_floats() const { return hides_floats_; }
  // The session has made a symbolic float.
  void note_float() { makes_floats_ = hides_floats_ = true; }
  bool makes_floats() const { return makes_floats_; }

  // The first break is kept: foreign code may swallow the exception.
  void set_break(Break brk);
  [[noreturn]] void stop(Break brk);  // stores it, and raises
  bool has_break() const { return break_.has_value(); }
  std::optional<Break> take_break();

 private:
  friend class TracingScope;
  friend class SuspendTracing;
  uint64_t id_;
  GuardSet* guards_;
  int next_value_id_ = 0;
  int suspended_ = 0;
  bool makes_floats_ = false;
  bool hides_floats_ = false;
  std::optional<Break> break_;
};

// Makes the session active and adds Fake (and Functionalize) to this thread's
// dispatch keys, so that factory functions are caught as well.
class TracingScope {
 public:
  explicit TracingScope(TraceSession& session, bool functionalize = false);
  ~TracingScope();
  TracingScope(const TracingScope&) = delete;
  TracingScope& operator=(const TracingScope&) = delete;
  // False: another session is active in this process (another thread's).
  bool ok() const { return active_; }

 private:
  bool active_;
  c10::impl::LocalDispatchKeySet saved_;
};

// Lets code run natively on this thread while a session is active; operations
// on stand-ins are then errors.
class SuspendTracing {
 public:
  SuspendTracing();
  ~SuspendTracing();
  SuspendTracing(const SuspendTracing&) = delete;
  SuspendTracing& operator=(const SuspendTracing&) = delete;

 private:
  TraceSession* session_;
  c10::impl::LocalDispatchKeySet saved_;
};

// Dispatches below tracing, functionalization and autograd: for work on
// companions and on real tensors.
class BelowTracing {
 public:
  BelowTracing();

 private:
  c10::impl::ExcludeDispatchKeyGuard guard_;
};

// A meta tensor like `real` (dtype, sizes, strides), with storage of its own.
at::Tensor make_companion(const at::Tensor& real);
// A new value of the session. shape: null where the tensor is static; its
// hints must be the companion's sizes.
at::Tensor make_trace_tensor(TraceSession& session, at::Tensor companion,
                             c10::Device device,
                             const SymbolicShape* shape = nullptr);
// The stand-in of an input: like `real`, with its requires_grad. A leaf.
at::Tensor make_trace_input(TraceSession& session, const at::Tensor& real,
                            const SymbolicShape* shape = nullptr);
// The same from metadata alone; hints give the concrete sizes.
at::Tensor make_trace_tensor(TraceSession& session, c10::ScalarType dtype,
                             c10::Device device, const SymbolicShape& shape,
                             const std::vector<int64_t>& hints);

// Null when it is no trace tensor. Looks through functional wrappers (which it
// does not sync).
TraceTensorImpl* as_trace(const at::Tensor& tensor);
bool is_stale(const at::Tensor& tensor);  // of another session, or none active
// Sizes and strides as expressions: of trace tensors, wrappers and real ones.
SymbolicShape shape_of(const at::Tensor& tensor);
// Makes numpy(), data_ptr() and tolist() raise rather than read nothing.
void forbid_data_access(const at::Tensor& tensor);

}  // namespace framejit::graph
