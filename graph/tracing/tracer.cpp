#include "graph/tracing/tracer.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <c10/core/AutogradState.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "frame_hook/cpython_internals.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/python_text.h"
#include "graph/tensors/libtorch_private.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/sym_node.h"
#include "graph/tensors/sym_objects.h"
#include "graph/tensors/tensor_check.h"
#include "graph/tensors/thread_state.h"
#include "graph/tensors/torch_types.h"
#include "graph/tensors/without_torch_function.h"
#include "graph/tracing/ambient_state.h"
#include "graph/tracing/callees.h"
#include "graph/tracing/input_guards.h"
#include "graph/tracing/number_operations.h"
#include "graph/tracing/recorder.h"
#include "graph/tracing/region_calls.h"
#include "graph/tracing/special_methods.h"
#include "graph/tracing/substitutes.h"
#include "graph/tracing/symbolic_index.h"
#include "graph/tracing/tensor_attributes.h"
#include "graph/tracing/tensor_classes.h"
#include "graph/tracing/tensor_constructors.h"
#include "graph/tracing/tensor_methods.h"
#include "graph/tracing/tensor_scale.h"
#include "graph/tracing/tensor_writes.h"

namespace framejit::graph {

namespace {

// No C++ exception leaves the tracer except a broken invariant of FrameJIT
// (InternalError, caught by the dispatcher).
template <class F>
auto guarded(const F& f) -> decltype(f()) {
  PauseHook pause;  // Python of torch's own (SymInt.__init__) is not captured
  try {
    return f();
  } catch (const std::exception& error) {
    return Break{BreakReason::kInternal, error.what(), {}};
  }
}

class LibTorchTracer final : public TensorTracer {
 public:
  ~LibTorchTracer() override { abandon(); }

  std::string refusal() override;
  Status begin(GuardSet* guards) override;
  Result<std::unique_ptr<ForeignGraph>> finish(
      const std::vector<PyObject*>& outputs) override;
  void abandon() override;
  std::vector<std::pair<Ref, std::vector<Ref>>> state_now() override;

  ObjectClass classify(PyObject* object) override;
  Result<Ref> stand_in(PyObject* tensor, const Source* source,
                       DynamicDims dynamic) override;
  PyObject* real_of(PyObject* stand_in) override;
  const Source* source_of(PyObject* stand_in) override;

  CalleeClass classify_callee(PyObject* callable) override;
  Result<Ref> call(PyObject* callable, const std::vector<PyObject*>& args,
                   PyObject* kwnames) override;
  Result<Ref> get_attribute(PyObject* stand_in, PyObject* name) override {
    return read_attribute(stand_in, name, nullptr);
  }
  Result<Ref> get_by_descriptor(PyObject* stand_in,
                                PyObject* descriptor) override {
    return read_attribute(stand_in, PyDescr_NAME(descriptor), descriptor);
  }
  Result<Ref> set_attribute(PyObject* stand_in, PyObject* name,
                            PyObject* value) override;
  Result<bool> is_instance(PyObject* stand_in, PyObject* type) override;
  bool is_binding_metaclass(PyTypeObject* type) override {
    return type == pybind_metaclass();
  }
  Result<Ref> operate(PyObject* function,
                      const std::vector<PyObject*>& operands) override;

  Result<Ref> record_operator(PyObject* function,
                              const std::vector<PyObject*>& operands);
  bool is_subclass(PyObject* stand_in) override {
    return is_tensor_object(stand_in) && is_of_subclass(stand_in);
  }
  Status guard_special(PyObject* stand_in, const char* name) override {
    return recorder_ ? guard_special_method(stand_in, name) : ok_status();
  }
  bool is_overloaded(PyObject* object) override {
    return has_torch_function(object);
  }
  Result<std::optional<FunctionOverride>> find_override(
      PyObject* callable, const std::vector<PyObject*>& args,
      PyObject* kwnames) override;
  Result<Ref> make_instance(PyObject* type, const std::vector<PyObject*>& args,
                            PyObject* kwnames) override;
  Result<Ref> make_subclass(PyObject* type, PyObject* data,
                            bool requires_grad) override;

  Result<Ref> make_symbolic(const Expr& expr) override;
  std::optional<Expr> expr_of(PyObject* symbolic) override;
  PyObject* symbolic_type(PyObject* symbolic) override;
  Result<Ref> concretise(PyObject* symbolic) override;

  std::optional<Break> pending_break() override;
  void set_location(const Span& span) override;
  void set_stack(Stack stack) override { stack_ = std::move(stack); }
  void set_receivers(Receivers receivers) override {
    receivers_ = std::move(receivers);
  }

 private:
  Result<Ref> record_bound(PyObject* callable,
                           const std::vector<PyObject*>& args,
                           PyObject* kwnames);
  Result<Ref> access_state(PyObject* callable,
                           const std::vector<PyObject*>& args,
                           PyObject* kwnames);
  // `getter`: of C, and what the program reads by; null: by name.
  Result<Ref> read_attribute(PyObject* stand_in, PyObject* name,
                             PyObject* getter);
  Result<Ref> grad_of(PyObject* stand_in);
  Result<Ref> class_attribute(PyObject* stand_in, PyObject* name,
                              PyObject* found);
  Status check_late_read(PyObject* callable) const;
  Status guard_special_method(PyObject* stand_in, const std::string& name) {
    return special_methods_.guard(stand_in, name, *recorder_);
  }
  Status guard_operator(PyObject* function,
                        const std::vector<PyObject*>& operands);
  Result<Ref> instance_attribute(PyObject* stand_in, PyObject* name);
  Status guard_not_shadowed(PyObject* stand_in, PyObject* name);
  Break make_break(BreakReason reason, std::string detail) const;
  void leave();

  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<TracingScope> scope_;
  std::optional<WithoutTorchFunction> unasked_;
  std::shared_ptr<ThreadState> state_;
  AmbientState ambient_;  // when the capture began
  // While a capture runs torch caches no casts: they would be stand-ins.
  bool autocast_cache_ = true;
  Ref first_code_;  // of the captured frame: names of parameters
  Stack stack_;
  Receivers receivers_;
  SpecialMethods special_methods_;
};

// ---- one capture

Break LibTorchTracer::make_break(BreakReason reason, std::string detail) const {
  return Break{reason, std::move(detail),
               recorder_ ? recorder_->span() : Span{}};
}

std::string LibTorchTracer::refusal() {
  std::string unsupported = ThreadState::now().unsupported();
  return unsupported.empty() ? "" : unsupported + " is active";
}

Status LibTorchTracer::begin(GuardSet* guards) {
  abandon();
  std::string refused = refusal();
  if (!refused.empty())
    return Break{BreakReason::kThreadState, std::move(refused), {}};
  state_ = std::make_shared<ThreadState>(ThreadState::now());
  recorder_ = std::make_unique<Recorder>(guards, &stack_, &receivers_);
  scope_ = std::make_unique<TracingScope>(*recorder_);
  if (!scope_->ok()) {
    leave();
    return Break{BreakReason::kThreadState, "another thread is capturing", {}};
  }
  // Outside the tracer's own calls this thread runs torch natively: finalizers
  // and other frames are none of the capture's business.
  for (c10::DispatchKey key : kTracingKeys) {
    c10::impl::tls_set_dispatch_key_included(key, false);
  }
  guards->set_thread_state(state_);
  // torch asks nobody: what a default device of "cpu" does to calls, they do
  // without it, and the interpreter asks the classes of tensors.
  unasked_.emplace(/*modes_too=*/true);
  ambient_ = AmbientState::now();
  autocast_cache_ = ambient_.autocast.cache;
  at::autocast::set_autocast_cache_enabled(false);
  return ok_status();
}

void LibTorchTracer::leave() {
  unasked_.reset();
  scope_.reset();
  recorder_.reset();
  first_code_.reset();
  special_methods_.clear();
}

void LibTorchTracer::abandon() {
  if (!recorder_) return;
  ambient_.restore();
  leave();
}

Result<std::unique_ptr<ForeignGraph>> LibTorchTracer::finish(
    const std::vector<PyObject*>& outputs) {
  FJ_CHECK(recorder_, "finish without begin");
  auto result = guarded([&]() -> Result<std::unique_ptr<ForeignGraph>> {
    FJ_TRY(std::unique_ptr<TorchGraph> graph, recorder_->finish(outputs));
    graph->grad_enabled_at_entry = state_->grad_mode;
    graph->interrupts_autocast =
        AmbientState::now().autocast.nesting > ambient_.autocast.nesting;
    return std::unique_ptr<ForeignGraph>(std::move(graph));
  });
  abandon();
  return result;
}

std::vector<std::pair<Ref, std::vector<Ref>>> LibTorchTracer::state_now() {
  std::vector<std::pair<Ref, std::vector<Ref>>> calls;
  if (!recorder_) return calls;
  AmbientState now = AmbientState::now();
  now.autocast.cache = autocast_cache_;
  return now.calls_from(ambient_);
}

// In the backward the state may be another.
Status LibTorchTracer::check_late_read(PyObject* callable) const {
  if (!recorder_->late_state()) return ok_status();
  const std::vector<Span> stack = stack_ ? stack_() : std::vector<Span>();
  if (!reads_late_state(callable,
                        stack.empty() ? nullptr : stack.back().code.get()))
    return ok_status();
  return make_break(BreakReason::kUnguardableInput,
                    "a gradient function reads " + canonical_name(callable) +
                        ", which may have changed when the backward runs");
}

// A write is run natively and recorded; a read is guarded.
Result<Ref> LibTorchTracer::access_state(PyObject* callable,
                                         const std::vector<PyObject*>& args,
                                         PyObject* kwnames) {
  if (kwnames && PyTuple_GET_SIZE(kwnames))
    return make_break(BreakReason::kUnknownOperation, canonical_name(callable));
  using Kind = StateAccess::Kind;
  StateAccess access = state_access(callable);
  std::string unsupported = unsupported_access(access, args);
  if (!unsupported.empty())
    return make_break(BreakReason::kThreadState,
                      canonical_name(callable) + ": " + unsupported);
  if (access.is_autocast()) state_->watch_autocast(ambient_.autocast.nesting);
  if (access.is_read()) FJ_CHECK_OK(check_late_read(callable));
  if (access.kind == Kind::kAutocastEnabled && recorder_->late_state())
    recorder_->late_state()->set_casts(c10::Device(text_of(args[0])).type());
  switch (access.kind) {
    case Kind::kReadAutocastCache:
      return Ref::borrow(autocast_cache_ ? Py_True : Py_False);
    case Kind::kReadAutocastDtype:
      return from_api(
          PyObject_Vectorcall(callable, args.data(), args.size(), nullptr));
    case Kind::kAutocastCache: {
      int truth = PyObject_IsTrue(args[0]);
      if (truth < 0) return Result<Ref>::raised();
      autocast_cache_ = truth;
      return recorder_->record_state_write(callable, args, /*run=*/false);
    }
    case Kind::kAutocastClear:
      return recorder_->record_state_write(callable, args, /*run=*/false);
    default:
      return recorder_->record_state_write(callable, args);
  }
}

// ---- objects

ObjectClass LibTorchTracer::classify(PyObject* object) {
  if (is_tensor_object(object)) {
    const at::Tensor& tensor = unpack_tensor(object);
    if (!tensor.defined()) return ObjectClass::kUnsupported;
    if (TraceTensorImpl* trace = as_trace(tensor)) {
      return recorder_ && trace->session() == recorder_->id()
                 ? ObjectClass::kStandIn
                 : ObjectClass::kStaleStandIn;
    }
    return unsupported_input(object).empty() ? ObjectClass::kTensor
                                             : ObjectClass::kUnsupported;
  }
  if (is_foreign_constant(object)) return ObjectClass::kConstant;
  if (is_symbolic_object(object)) return ObjectClass::kSymbolic;
  return ObjectClass::kPlain;
}

Result<Ref> LibTorchTracer::stand_in(PyObject* tensor, const Source* source,
                                     DynamicDims dynamic) {
  FJ_CHECK(recorder_, "stand_in outside a capture");
  GuardSet& guards = *recorder_->guards();
  if (PyObject* known = recorder_->stand_in_of(tensor)) {
    const Source* first = recorder_->find(known)->source;
    if (first != source) {
      Guard same;
      same.kind = GuardKind::kSameObject;
      same.source = source;
      same.other = first;
      guards.add(std::move(same));
    }
    return Ref::borrow(known);
  }
  std::string reason = unsupported_input(tensor);
  // Constructors would move its data.
  if (state_->function_modes == FunctionModes::kDefaultDeviceCpu &&
      !unpack_tensor(tensor).device().is_cpu())
    reason = "a tensor that is not on the default device";
  if (!reason.empty()) return make_break(BreakReason::kTensorSubclass, reason);
  return guarded([&]() -> Result<Ref> {
    const at::Tensor& real = unpack_tensor(tensor);
    SymbolicShape shape = guard_input(guards, source, tensor, dynamic);
    std::vector<int64_t> hints = guards.hints();
    // An inference tensor or a normal one, whatever the mode is now.
    c10::InferenceMode as_made(real.is_inference());
    at::Tensor made = make_trace_tensor(*recorder_, real.scalar_type(),
                                        real.device(), shape, hints);
    if (real.requires_grad()) made.set_requires_grad(true);
    Ref object = wrap_tensor(made);
    if (!object) return Result<Ref>::raised();
    FJ_CHECK_OK(set_tensor_class(*recorder_, object.get(),
                                 reinterpret_cast<PyObject*>(Py_TYPE(tensor))));
    if (!first_code_ && stack_) {  // nothing but moves so far
      const std::vector<Span> stack = stack_();
      if (!stack.empty()) first_code_ = stack.front().code;
    }
    recorder_->add_input(object, Ref::borrow(tensor), source,
                         source_text(source, first_code_.get()));
    return object;
  });
}

PyObject* LibTorchTracer::real_of(PyObject* stand_in) {
  Recorder::Entry* entry = recorder_ ? recorder_->find(stand_in) : nullptr;
  return entry ? entry->real.get() : nullptr;
}

const Source* LibTorchTracer::source_of(PyObject* stand_in) {
  Recorder::Entry* entry = recorder_ ? recorder_->find(stand_in) : nullptr;
  return entry ? entry->source : nullptr;
}

// ---- calls

CalleeClass LibTorchTracer::classify_callee(PyObject* callable) {
  return find_callee(callable).kind;
}

namespace {

// Tensor's own __getitem__ and __setitem__ in C, called as such.
bool is_item_method(PyObject* callable, const std::vector<PyObject*>& args) {
  if (!Py_IS_TYPE(callable, &PyWrapperDescr_Type) || args.empty() ||
      !is_tensor_object(args[0]))
    return false;
  const std::string name = text_of(PyDescr_NAME(callable));
  return (name == "__getitem__" && args.size() == 2) ||
         (name == "__setitem__" && args.size() == 3);
}

}  // namespace

Result<Ref> LibTorchTracer::call(PyObject* callable,
                                 const std::vector<PyObject*>& args,
                                 PyObject* kwnames) {
  FJ_CHECK(recorder_, "call outside a capture");
  CalleeRow row = find_callee(callable);
  return guarded([&]() -> Result<Ref> {
    if (row.kind == CalleeClass::kSubBlock && is_region_call(callable)) {
      if (kwnames && PyTuple_GET_SIZE(kwnames))
        return make_break(BreakReason::kInternal, "keywords of a region call");
      return call_region(*recorder_, callable, args);
    }
    if (callable == THPVariableClass && args.size() == 1 && !kwnames &&
        is_tensor_object(args[0]))
      return make_view_of_class(*recorder_, args[0], callable);
    if (is_tensor_type(callable))
      return call_tensor_type(*recorder_, callable, args, kwnames);
    // Tensor.__getitem__ as such, which __torch_function__ is given.
    if (is_item_method(callable, args) &&
        !(kwnames && PyTuple_GET_SIZE(kwnames))) {
      const std::string name = text_of(PyDescr_NAME(callable));
      // The operator asks the class, where the program may have put its own.
      FJ_TRY(TensorMethod method, tensor_method(args[0], name.c_str()));
      if (!method.is_found_by_name) return record_operator(callable, args);
      Ref operators = Ref::steal(PyImport_ImportModule("operator"));
      if (!operators) return Result<Ref>::raised();
      const char* item = args.size() == 2 ? "getitem" : "setitem";
      FJ_TRY(Ref function,
             from_api(PyObject_GetAttrString(operators.get(), item)));
      return record_operator(function.get(), args);
    }
    FJ_TRY(Ref special,
           call_special_method(*recorder_, callable, args, kwnames));
    if (special) return special;
    switch (row.kind) {
      case CalleeClass::kLeaf:
        return record_bound(callable, args, kwnames);
      case CalleeClass::kPure:
        return recorder_->run_unrecorded(callable, args, kwnames);
      case CalleeClass::kStateRead: {
        FJ_CHECK_OK(check_late_read(callable));
        PauseHook pause;
        if (canonical_name(callable) == "torch._C.get_num_threads")
          state_->num_threads = at::get_num_threads();
        size_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
        Ref result = Ref::steal(PyObject_Vectorcall(
            callable, args.data(), args.size() - keywords, kwnames));
        if (result) return result;
        PyErr_Clear();
        return make_break(BreakReason::kLeafRaised, canonical_name(callable));
      }
      case CalleeClass::kStateWrite:
        return access_state(callable, args, kwnames);
      case CalleeClass::kConstFalse:
        return Ref::borrow(Py_False);
      case CalleeClass::kConstTrue:
        return Ref::borrow(Py_True);
      default:
        return make_break(row.reason, canonical_name(callable));
    }
  });
}

// A method bound to a stand-in is recorded as a method call on it, with the
// function of C as the callable.
Result<Ref> LibTorchTracer::record_bound(PyObject* callable,
                                         const std::vector<PyObject*>& args,
                                         PyObject* kwnames) {
  const bool is_function = Py_IS_TYPE(callable, &PyMethodDescr_Type);
  TensorMethod method;
  if (!is_function) {
    FJ_TRY(method, method_of(callable, args));
  }
  if (!method.self) {
    Substitute substitute = find_substitute(callable, args, kwnames);
    if (substitute.function && !substitute.exact)
      recorder_->keep_torch_level(TorchLevel::kUntraceableCall,
                                  canonical_name(callable));
    return recorder_->record_call(callable, args, kwnames, nullptr, nullptr,
                                  substitute.function);
  }
  FJ_TRY(Ref scaled, record_with_tensor_scale(*recorder_, method.name.c_str(),
                                              method.args, kwnames));
  if (scaled) return scaled;
  PyObject* descriptor = method.descriptor.get();
  if (!kwnames && is_item_method(descriptor, method.args))
    return call(descriptor, method.args, nullptr);
  Substitute substitute = find_substitute(descriptor, method.args, kwnames);
  return recorder_->record_call(descriptor, method.args, kwnames,
                                method.by_name(), nullptr, substitute.function);
}

Status LibTorchTracer::guard_operator(PyObject* function,
                                      const std::vector<PyObject*>& operands) {
  if (!PyCFunction_Check(function)) return ok_status();
  std::string name =
      reinterpret_cast<PyCFunctionObject*>(function)->m_ml->ml_name;
  if (name.ends_with('_')) name.pop_back();
  static const std::unordered_map<std::string, std::string> kSwapped = {
      {"lt", "gt"}, {"gt", "lt"}, {"le", "ge"},
      {"ge", "le"}, {"eq", "eq"}, {"ne", "ne"}};
  auto swapped = kSwapped.find(name);
  for (size_t i = 0; i < operands.size() && i < 2; ++i) {
    if (!is_tensor_object(operands[i])) continue;
    if (i == 1 && Py_TYPE(operands[0]) == Py_TYPE(operands[1])) break;
    std::string method = name;
    if (i == 1)
      method = swapped == kSwapped.end() ? "r" + name : swapped->second;
    FJ_CHECK_OK(guard_special_method(operands[i], "__" + method + "__"));
  }
  return ok_status();
}

// Or Tensor's own method in C.
bool is_item_operator(PyObject* function) {
  if (Py_IS_TYPE(function, &PyWrapperDescr_Type)) return true;
  if (!PyCFunction_Check(function)) return false;
  std::string_view name =
      reinterpret_cast<PyCFunctionObject*>(function)->m_ml->ml_name;
  return name == "getitem" || name == "setitem";
}

Result<Ref> LibTorchTracer::operate(PyObject* function,
                                    const std::vector<PyObject*>& operands) {
  FJ_CHECK(recorder_, "operate outside a capture");
  FJ_CHECK_OK(guard_operator(function, operands));
  return record_operator(function, operands);
}

Result<Ref> LibTorchTracer::record_operator(
    PyObject* function, const std::vector<PyObject*>& operands) {
  // Arithmetic on sizes alone makes expressions, no node.
  bool numbers =
      std::none_of(operands.begin(), operands.end(), [](PyObject* operand) {
        return is_tensor_object(operand) || PyList_Check(operand) ||
               PyTuple_Check(operand);
      });
  return guarded([&]() -> Result<Ref> {
    if (numbers) return operate_on_numbers(*recorder_, function, operands);
    bool item = operands.size() > 1 && is_tensor_object(operands[0]) &&
                is_item_operator(function);
    if (item) {
      FJ_TRY(SelectedItem selected,
             select_symbolic_items(*recorder_, operands[0], operands[1]));
      if (selected.tensor) {
        const bool reads = operands.size() == 2;
        if (reads && !selected.index) return selected.tensor;
        std::vector<PyObject*> rest = operands;
        rest[0] = selected.tensor.get();
        rest[1] = selected.index ? selected.index.get() : Py_Ellipsis;
        return recorder_->record_call(function, rest, nullptr);
      }
      FJ_TRY(Ref index, index_without_tensors(operands[1]));
      if (index) {
        std::vector<PyObject*> similar = operands;
        similar[1] = index.get();
        return recorder_->record_call(function, operands, nullptr, nullptr,
                                      &similar);
      }
    }
    return recorder_->record_call(function, operands, nullptr);
  });
}

// ---- attributes

namespace {

bool is_autograd_attribute(PyObject* name) {
  for (const char* row : {"requires_grad", "is_leaf", "grad_fn"})
    if (PyUnicode_CompareWithASCIIString(name, row) == 0) return true;
  return false;
}

}  // namespace

Result<Ref> LibTorchTracer::read_attribute(PyObject* stand_in, PyObject* name,
                                           PyObject* getter) {
  FJ_CHECK(recorder_, "get_attribute outside a capture");
  return guarded([&]() -> Result<Ref> {
    Recorder::Entry* entry = recorder_->find(stand_in);
    if (!entry)
      return make_break(BreakReason::kUnknownTensor,
                        "attribute of an unknown tensor");
    PauseHook pause;
    PyObject* found = _PyType_Lookup(Py_TYPE(stand_in), name);
    // By name, another one would be found, here and when the graph runs.
    const bool is_hidden = getter && getter != found;
    if (getter) found = getter;
    if (!found) return instance_attribute(stand_in, name);
    FJ_CHECK_OK(recorder_->check_late_attribute(*entry, text_of(name)));
    if (is_autograd_attribute(name)) {
      FJ_TRY(std::optional<bool> answer,
             recorder_->requires_grad_in_transform(stand_in));
      if (answer &&
          PyUnicode_CompareWithASCIIString(name, "requires_grad") == 0)
        return Ref::borrow(*answer ? Py_True : Py_False);
      if (answer && *answer)
        return make_break(BreakReason::kTensorInternals,
                          "where a tensor stands in a torch.func transform");
    }
    std::optional<AttributeAction> action = attribute_action(name);
    if (is_hidden && (!action || *action == AttributeAction::kOperation))
      return make_break(
          BreakReason::kTensorInternals,
          "attribute " + text_of(name, "?") + ", which the class has anew");
    if (!action) return class_attribute(stand_in, name, found);
    switch (*action) {
      case AttributeAction::kNative:
        if (is_hidden)
          return from_api(Py_TYPE(found)->tp_descr_get(
              found, stand_in, reinterpret_cast<PyObject*>(Py_TYPE(stand_in))));
        return from_api(PyObject_GetAttr(stand_in, name));
      case AttributeAction::kOperation: {
        Ref builtins = Ref::steal(PyImport_ImportModule("builtins"));
        if (!builtins) return Result<Ref>::raised();
        Ref getter =
            Ref::steal(PyObject_GetAttrString(builtins.get(), "getattr"));
        if (!getter) return Result<Ref>::raised();
        return recorder_->record_call(getter.get(), {stand_in, name}, nullptr);
      }
      case AttributeAction::kGrad:
        return grad_of(stand_in);
      case AttributeAction::kIsLeaf:
        return read_is_leaf(*recorder_, stand_in);
      case AttributeAction::kGradFn:
        return read_grad_fn(*recorder_, stand_in);
      case AttributeAction::kBreak:
        break;
    }
    return make_break(BreakReason::kTensorInternals,
                      "attribute " + text_of(name, "?"));
  });
}

// The .grad of an input is an input of its own, or None with a guard.
Result<Ref> LibTorchTracer::grad_of(PyObject* stand_in) {
  // Until then a gradient may have come to it.
  if (recorder_->in_block())
    return make_break(BreakReason::kTensorInternals,
                      "reads .grad in a gradient function or a transform");
  if (Ref written = written_grad(*recorder_, stand_in)) return written;
  Recorder::Entry* entry = recorder_->find(stand_in);
  if (!entry->source) {
    // What would fill it is the capture's backward.
    const at::Tensor& made = unpack_tensor(stand_in);
    if (!made.requires_grad() || made.is_leaf()) return Ref::borrow(Py_None);
    return make_break(BreakReason::kTensorInternals,
                      "grad of a computed tensor");
  }
  const at::Tensor& real = unpack_tensor(entry->real.get());
  if (!real.is_leaf())
    return make_break(BreakReason::kTensorInternals,
                      "grad of a non-leaf tensor");
  Ref grad = Ref::steal(PyObject_GetAttrString(entry->real.get(), "grad"));
  if (!grad) return Result<Ref>::raised();
  GuardSet& guards = *recorder_->guards();
  const Source* source =
      guards.sources().make(SourceKind::kTensorGrad, entry->source);
  if (grad.get() == Py_None) {
    guards.add(GuardKind::kIs, source, Py_None);
    return grad;
  }
  return this->stand_in(grad.get(), source, {});
}

// A class attribute that an instance attribute could hide: methods, and plain
// values. Input tensors may have a __dict__.
Status LibTorchTracer::guard_not_shadowed(PyObject* stand_in, PyObject* name) {
  Recorder::Entry* entry = recorder_->find(stand_in);
  if (!entry->source) return ok_status();
  PyObject** dict = _PyObject_GetDictPtr(entry->real.get());
  if (dict && *dict && PyDict_GET_SIZE(*dict) > 0) {
    int has = PyDict_Contains(*dict, name);
    if (has < 0) return Status::raised();
    if (has)
      return make_break(BreakReason::kUnguardableInput,
                        "an attribute set on a tensor hides one of its class");
    recorder_->guards()->add(GuardKind::kNoInstanceAttr, entry->source, name);
    return ok_status();
  }
  recorder_->guards()->add(GuardKind::kNoTensorAttrs, entry->source);
  return ok_status();
}

Result<Ref> LibTorchTracer::class_attribute(PyObject* stand_in, PyObject* name,
                                            PyObject* found) {
  if (Py_TYPE(found)->tp_descr_set) {
    // A property or getter without a row computes who knows what.
    std::string text = text_of(name, "?");
    if (text != "__class__")
      return make_break(BreakReason::kTensorInternals, "attribute " + text);
  } else {
    FJ_CHECK_OK(guard_not_shadowed(stand_in, name));
  }
  return from_api(PyObject_GetAttr(stand_in, name));
}

// Not on the class: set by somebody on this tensor, or absent.
Result<Ref> LibTorchTracer::instance_attribute(PyObject* stand_in,
                                               PyObject* name) {
  Recorder::Entry* entry = recorder_->find(stand_in);
  if (!entry->source) return from_api(PyObject_GetAttr(stand_in, name));
  PyObject** dict = _PyObject_GetDictPtr(entry->real.get());
  PyObject* value =
      dict && *dict ? PyDict_GetItemWithError(*dict, name) : nullptr;
  if (!value) {
    if (PyErr_Occurred()) return Result<Ref>::raised();
    FJ_CHECK_OK(guard_not_shadowed(stand_in, name));
    return from_api(PyObject_GetAttr(stand_in, name));  // AttributeError
  }
  bool constant = value == Py_None || PyBool_Check(value) ||
                  PyLong_CheckExact(value) || PyUnicode_CheckExact(value);
  if (!constant)
    return make_break(BreakReason::kUnguardableInput,
                      "an object stored on a tensor");
  GuardSet& guards = *recorder_->guards();
  const Source* source =
      guards.sources().make(SourceKind::kInstanceAttr, entry->source, name);
  guards.add(GuardKind::kEquals, source, value);
  return Ref::borrow(value);
}

Result<Ref> LibTorchTracer::set_attribute(PyObject* stand_in, PyObject* name,
                                          PyObject* value) {
  FJ_CHECK(recorder_, "set_attribute outside a capture");
  return guarded(
      [&] { return write_attribute(*recorder_, stand_in, name, value); });
}

Result<bool> LibTorchTracer::is_instance(PyObject* stand_in, PyObject* type) {
  return guarded([&] { return is_instance_of_type(stand_in, type); });
}

// ---- classes of tensors

Result<std::optional<FunctionOverride>> LibTorchTracer::find_override(
    PyObject* callable, const std::vector<PyObject*>& args, PyObject* kwnames) {
  return guarded([&] {
    return find_function_override(*recorder_, callable, args, kwnames);
  });
}

Result<Ref> LibTorchTracer::make_instance(PyObject* type,
                                          const std::vector<PyObject*>& args,
                                          PyObject* kwnames) {
  if (!recorder_ || type == THPVariableClass ||
      !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type),
                        reinterpret_cast<PyTypeObject*>(THPVariableClass)))
    return Ref();
  return guarded([&]() -> Result<Ref> {
    bool one = args.size() == 1 && !(kwnames && PyTuple_GET_SIZE(kwnames));
    if (one && is_tensor_object(args[0]))
      return make_view_of_class(*recorder_, args[0], type);
    FJ_TRY(Ref made,
           call_tensor_type(*recorder_, THPVariableClass, args, kwnames));
    FJ_CHECK_OK(set_tensor_class(*recorder_, made.get(), type));
    return made;
  });
}

Result<Ref> LibTorchTracer::make_subclass(PyObject* type, PyObject* data,
                                          bool requires_grad) {
  return guarded([&] {
    return make_detached_of_class(*recorder_, type, data, requires_grad);
  });
}

// ---- symbolic values

Result<Ref> LibTorchTracer::make_symbolic(const Expr& expr) {
  return guarded([&]() -> Result<Ref> { return sym_number_object(expr); });
}

std::optional<Expr> LibTorchTracer::expr_of(PyObject* symbolic) {
  try {
    return graph::expr_of(symbolic);
  } catch (const std::exception&) {
    PyErr_Clear();
    return std::nullopt;
  }
}

PyObject* LibTorchTracer::symbolic_type(PyObject* symbolic) {
  return reinterpret_cast<PyObject*>(plain_type_of(symbolic));
}

Result<Ref> LibTorchTracer::concretise(PyObject* symbolic) {
  FJ_TRY(Ref value, guarded([&] { return concrete_value(symbolic); }));
  if (PyFloat_Check(value.get()) && std::isnan(PyFloat_AS_DOUBLE(value.get())))
    // Keys and `in` tell one NaN from another by identity.
    return make_break(BreakReason::kUnguardableInput, "identity of a NaN");
  return value;
}

// ---- breaks

std::optional<Break> LibTorchTracer::pending_break() {
  if (!recorder_) return std::nullopt;
  return recorder_->take_break();
}

void LibTorchTracer::set_location(const Span& span) {
  if (!recorder_) return;
  if (!first_code_) first_code_ = span.code;
  recorder_->set_span(span);
}

}  // namespace

std::unique_ptr<TensorTracer> make_tracer() {
  return std::make_unique<LibTorchTracer>();
}

}  // namespace framejit::graph
