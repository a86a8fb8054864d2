#include "graph/ops/fake_fallback.h"

#include <ATen/ScalarOps.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <cmath>

#include "graph/ops/meta_inference.h"
#include "graph/ops/op_facts.h"
#include "graph/ops/recurrent.h"
#include "graph/ops/shape_rules.h"
#include "graph/ops/symbolic_products.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/sym_node.h"
#include "graph/tensors/trace_tensor.h"

namespace framejit::graph {
namespace {

[[noreturn]] void stop(TraceSession* session, Break brk) {
  if (session) session->stop(std::move(brk));
  TORCH_CHECK_NOT_IMPLEMENTED(false, "FrameJIT: ", format_break(brk));
}

c10::ArrayRef<c10::IValue> arguments_of(const OpFacts& facts,
                                        const Stack& stack) {
  return c10::ArrayRef<c10::IValue>(stack).slice(stack.size() -
                                                 facts.num_arguments);
}

struct TensorKinds {
  bool trace = false;   // stand-ins
  bool meta = false;    // plain meta tensors: functionalization checks shapes
  bool number = false;  // wrapped numbers
  bool real = false;
  bool symbolic_meta = false;
};

TensorKinds kinds_of(c10::ArrayRef<c10::IValue> arguments) {
  TensorKinds kinds;
  for (const c10::IValue& argument : arguments) {
    visit_tensors(argument, [&](const at::Tensor& tensor) {
      auto* impl = tensor.unsafeGetTensorImpl();
      if (impl->key_set().has(c10::DispatchKey::Fake)) {
        kinds.trace = true;
      } else if (impl->is_wrapped_number()) {
        kinds.number = true;
      } else if (tensor.is_meta()) {
        kinds.meta = true;
        kinds.symbolic_meta |= impl->has_symbolic_sizes_strides();
      } else {
        kinds.real = true;
      }
    });
  }
  return kinds;
}

void call_natively(OpFacts& facts, Stack* stack) {
  BelowTracing below;
  facts.op.callBoxed(stack);
}

// torch.tensor() and friends need memory: they run with these keys off.
bool inside_constructor() {
  auto keys = c10::impl::tls_local_dispatch_key_set();
  return keys.excluded_.has(c10::DispatchKey::Python) &&
         keys.excluded_.has(c10::DispatchKey::PythonTLSSnapshot);
}

// Functionalization runs an in-place operation on plain meta tensors first, to
// check the shapes. Nothing to record.
void check_on_metas(OpFacts& facts, const TensorKinds& kinds, Stack* stack) {
  if (kinds.symbolic_meta) {
    // TensorIterator cannot take symbols; the functional form that follows
    // makes the same checks as guards.
    if (!facts.only_in_place) {
      stop(TraceSession::active(),
           {BreakReason::kNoMetaKernel,
            facts.name + " on symbolic sizes in functionalization",
            {}});
    }
    Stack results;
    auto arguments = arguments_of(facts, *stack);
    for (int i : facts.result_alias) results.push_back(arguments[i]);
    stack->resize(stack->size() - facts.num_arguments);
    for (c10::IValue& result : results) stack->push_back(std::move(result));
    return;
  }
  if (facts.ignores_floats) {
    for (size_t i = stack->size() - facts.num_arguments; i < stack->size();
         ++i) {
      c10::IValue& value = (*stack)[i];
      if (value.isSymFloat()) value = hint_of(value.toSymFloat());
    }
  }
  infer_meta(facts, stack);
}

// One recorded operation.
class Operation {
 public:
  Operation(TraceSession& session, OpFacts& facts, Stack* stack)
      : session_(session), facts_(facts), stack_(stack) {}

  void run() {
    lift_arguments();
    if (!trace_arguments_ && facts_.has_tensor_arguments &&
        facts_.device_argument < 0) {
      // Numbers only: there is nothing to trace.
      specialise_numbers();
      call_natively(facts_, stack_);
      return;
    }
    symbolic_ = is_symbolic_call(arguments_of(facts_, *stack_));
    Stack concrete = concrete_arguments();
    if (facts_.keeps_sizes) {
      infer_in_place(&concrete);
    } else {
      infer_meta(facts_, &concrete, device_);
    }
    Stack results = wrap_results(concrete);
    sync_written_arguments();
    session_.record(facts_.op, arguments_of(facts_, *stack_), results);
    count_writes_to_lists();
    stack_->resize(stack_->size() - facts_.num_arguments);
    for (c10::IValue& result : results) stack_->push_back(std::move(result));
  }

 private:
  // A SymInt hides in a number whose value is not its own.
  void specialise_numbers() {
    size_t base = stack_->size() - facts_.num_arguments;
    for (size_t i = base; i < stack_->size(); ++i) {
      (*stack_)[i] = map_tensors((*stack_)[i], [](const at::Tensor& tensor) {
        c10::SymNode node = symbolic_wrapped_number(tensor);
        if (!node) return tensor;
        at::Tensor number =
            node->is_int()
                ? c10::scalar_to_tensor(node->guard_int(__FILE__, __LINE__))
                : c10::scalar_to_tensor(node->guard_float(__FILE__, __LINE__));
        number.unsafeGetTensorImpl()->set_wrapped_number(true);
        return number;
      });
    }
  }

  // Some Python meta functions resize where the operator itself raises.
  void infer_in_place(Stack* concrete) {
    at::Tensor self = concrete->front().toTensor();
    std::vector<int64_t> sizes = self.sizes().vec();
    std::vector<int64_t> strides = self.strides().vec();
    infer_meta(facts_, concrete, device_);
    if (self.sizes() == sizes) return;
    self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
    TORCH_CHECK(false, "output with shape ", at::IntArrayRef(sizes),
                " doesn't match the broadcast shape");
  }

  // Replaces real tensors by stand-ins; checks the others.
  void lift_arguments() {
    size_t base = stack_->size() - facts_.num_arguments;
    for (size_t i = base; i < stack_->size(); ++i) {
      bool replace = false;
      visit_tensors((*stack_)[i], [&](const at::Tensor& tensor) {
        if (!check_number(tensor) && !check_trace(tensor)) replace = true;
      });
      if (!replace) continue;
      (*stack_)[i] = map_tensors((*stack_)[i], [&](const at::Tensor& tensor) {
        if (tensor.unsafeGetTensorImpl()->is_wrapped_number() ||
            as_trace(tensor)) {
          return tensor;
        }
        Result<at::Tensor> lifted = session_.lift(tensor, false);
        if (!lifted.ok()) stop(&session_, lifted.take_break());
        trace_arguments_ = true;
        note_device(lifted.value());
        return lifted.take();
      });
    }
  }

  bool check_number(const at::Tensor& tensor) {
    if (!tensor.unsafeGetTensorImpl()->is_wrapped_number()) return false;
    if (as_trace(tensor)) return false;
    // torch hides a SymInt in a number with this value, a SymFloat in a NaN; a
    // copy of it has lost the symbol.
    bool suspicious = tensor.scalar_type() == at::kLong
                          ? *tensor.const_data_ptr<int64_t>() == 7777777
                          : session_.hides_floats() &&
                                tensor.scalar_type() == at::kDouble &&
                                std::isnan(*tensor.const_data_ptr<double>());
    suspicious = suspicious && !symbolic_wrapped_number(tensor);
    if (suspicious) {
      stop(&session_, {BreakReason::kNoMetaKernel,
                       "a symbolic number was copied into a tensor",
                       {}});
    }
    return true;
  }

  bool check_trace(const at::Tensor& tensor) {
    TraceTensorImpl* trace = as_trace(tensor);
    if (!trace) return false;
    if (trace->session() != session_.id()) {
      stop(&session_,
           {BreakReason::kUnknownTensor, "a stand-in of another capture", {}});
    }
    trace_arguments_ = true;
    note_device(tensor);
    return true;
  }

  // The device of the results: that of the arguments, where tensors with
  // dimensions win over numbers and accelerators over the CPU.
  void note_device(const at::Tensor& tensor) {
    bool scalar = tensor.dim() == 0;
    if (!have_device_ || (scalar_device_ && !scalar) ||
        (device_.is_cpu() && !tensor.device().is_cpu())) {
      device_ = tensor.device();
      scalar_device_ = scalar;
      have_device_ = true;
    }
  }

  Stack concrete_arguments() {
    auto arguments = arguments_of(facts_, *stack_);
    Stack concrete;
    concrete.reserve(arguments.size() + 2);
    for (const c10::IValue& argument : arguments) {
      concrete.push_back(concrete_value(argument));
    }
    if (facts_.device_argument >= 0) {
      c10::IValue& device = concrete[facts_.device_argument];
      if (device.isDevice()) {
        device_ = device.toDevice();
        if (device_.is_cuda() && !device_.has_index()) {
          // Which one it is changes with torch.cuda.set_device().
          if (c10::impl::hasDeviceGuardImpl(c10::kCUDA) &&
              c10::impl::getDeviceGuardImpl(c10::kCUDA)->deviceCount() > 1)
            stop(&session_,
                 {BreakReason::kUnknownOperation,
                  facts_.name + " on \"cuda\" without a number, where there "
                                "are several devices",
                  {}});
          device_ = c10::Device(c10::kCUDA, 0);
        }
        device = c10::IValue(c10::Device(c10::kMeta));
      } else if (!trace_arguments_) {
        device = c10::IValue(c10::Device(c10::kMeta));
      }
      if (facts_.pin_memory_argument >= 0) {
        concrete[facts_.pin_memory_argument] = c10::IValue();
      }
    }
    return concrete;
  }

  c10::IValue concrete_value(const c10::IValue& value) {
    if (value.isSymInt()) return hint_of(value.toSymInt());
    if (value.isSymFloat()) {
      c10::SymFloat number = value.toSymFloat();
      return facts_.ignores_floats ? hint_of(number)
                                   : number.guard_float(__FILE__, __LINE__);
    }
    if (value.isSymBool()) {
      return value.toSymBool().guard_bool(__FILE__, __LINE__);
    }
    if (value.isSymIntList()) {
      std::vector<int64_t> hints;
      for (const c10::SymInt& item : value.toSymIntVector()) {
        hints.push_back(hint_of(item));
      }
      return hints;
    }
    if (is_list_of_numbers(value)) {
      c10::impl::GenericList numbers(c10::NumberType::get());
      for (const c10::IValue& item : value.toListRef()) {
        numbers.push_back(concrete_value(item));
      }
      return numbers;
    }
    return map_tensors(value, [&](const at::Tensor& tensor) {
      TraceTensorImpl* trace = as_trace(tensor);
      return trace ? trace->meta() : tensor;
    });
  }

  Stack wrap_results(const Stack& inferred) {
    std::vector<at::Tensor> metas;
    for (size_t i = 0; i < inferred.size(); ++i) {
      if (facts_.result_alias[i] >= 0) continue;
      visit_tensors(inferred[i],
                    [&](const at::Tensor& meta) { metas.push_back(meta); });
    }
    ShapeCall call(facts_, arguments_of(facts_, *stack_), std::move(metas));
    if (symbolic_) infer_shapes(call);
    size_t next = 0;
    Stack results;
    for (size_t i = 0; i < inferred.size(); ++i) {
      if (facts_.result_alias[i] >= 0) {
        results.push_back(
            arguments_of(facts_, *stack_)[facts_.result_alias[i]]);
        continue;
      }
      results.push_back(map_tensors(inferred[i], [&](const at::Tensor& meta) {
        const SymbolicShape* shape = symbolic_ ? &call.shapes[next] : nullptr;
        next++;
        return make_trace_tensor(session_, meta, result_device(meta, device_),
                                 shape);
      }));
    }
    return results;
  }

  void sync_written_arguments() {
    auto arguments = arguments_of(facts_, *stack_);
    for (int i : facts_.written_arguments) {
      visit_tensors(arguments[i], [&](const at::Tensor& tensor) {
        TraceTensorImpl* trace = as_trace(tensor);
        if (!trace) return;
        if (!trace->has_symbolic_sizes_strides()) {
          trace->sync_with_companion();
        } else if (facts_.changes_metadata) {
          become_view(trace);
        }
      });
    }
  }

  // squeeze_() and the like: the argument becomes the view that squeeze() is.
  void become_view(TraceTensorImpl* trace) {
    ShapeCall call(facts_, arguments_of(facts_, *stack_), {trace->meta()});
    infer_shapes(call);
    trace->sync_with_companion();
    if (!call.shapes[0].is_static()) trace->set_shape(call.shapes[0]);
  }

  // Autograd counts writes above this point, those of eager's kernel for lists
  // beneath: it calls an operator in place for each. (An inference tensor
  // refuses to be counted, behind the write as in eager.)
  void count_writes_to_lists() {
    if (!facts_.name.starts_with("aten::_foreach_")) return;
    auto arguments = arguments_of(facts_, *stack_);
    for (int i : facts_.written_arguments) {
      visit_tensors(arguments[i], [](const at::Tensor& tensor) {
        if (as_trace(tensor)) tensor.unsafeGetTensorImpl()->bump_version();
      });
    }
  }

  TraceSession& session_;
  OpFacts& facts_;
  Stack* stack_;
  c10::Device device_ = c10::kCPU;
  bool have_device_ = false;
  bool scalar_device_ = false;
  bool trace_arguments_ = false;
  bool symbolic_ = false;
};

void lift_fresh(TraceSession& session, Stack* stack) {
  at::Tensor tensor = stack->back().toTensor();
  if (as_trace(tensor) || tensor.is_meta()) return;
  Result<at::Tensor> lifted = session.lift(tensor, true);
  if (!lifted.ok()) stop(&session, lifted.take_break());
  stack->back() = lifted.take();
}

// Is one of the indices a boolean mask?
bool has_mask(const c10::IValue& indices) {
  bool found = false;
  visit_tensors(indices, [&](const at::Tensor& index) {
    found |=
        index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
  });
  return found;
}

// An operator that elsewhere is others (_fused_rms_norm) has a kernel where its
// arguments are.
bool has_own_kernel(const OpFacts& facts, const Stack& stack) {
  bool on_cuda = false;
  for (const c10::IValue& argument : arguments_of(facts, stack))
    visit_tensors(argument, [&](const at::Tensor& tensor) {
      on_cuda |= tensor.device().is_cuda();
    });
  return on_cuda && facts.op.hasKernelForDispatchKey(c10::DispatchKey::CUDA);
}

// Of the first tensor among the arguments.
c10::DeviceType device_of(const OpFacts& facts, const Stack& stack) {
  std::optional<c10::DeviceType> found;
  for (const c10::IValue& argument : arguments_of(facts, stack))
    visit_tensors(argument, [&](const at::Tensor& tensor) {
      if (!found) found = tensor.device().type();
    });
  return found.value_or(c10::DeviceType::CPU);
}

void run_in_session(TraceSession& session, OpFacts& facts, Stack* stack) {
  GuardCause cause(session.guards(), cause_of(facts));
  TensorKinds kinds = kinds_of(arguments_of(facts, *stack));
  if (kinds.meta && !kinds.trace && !kinds.real) {
    check_on_metas(facts, kinds, stack);
    return;
  }
  if (!kinds.trace && inside_constructor()) {
    call_natively(facts, stack);
    return;
  }
  if (facts.is_custom && !kinds.trace) {
    // There would be no node of it: its effect must not be lost.
    stop(&session, {BreakReason::kUnknownOperation,
                    facts.name + " on no captured tensor",
                    {}});
  }
  if (facts.has(kConstructs)) {
    lift_fresh(session, stack);
    return;
  }
  if (facts.has(kReadsData)) {
    stop(&session, {BreakReason::kDataDependentValue, facts.name, {}});
  }
  if (facts.has(kCastsWithin) &&
      at::autocast::is_autocast_enabled(device_of(facts, *stack))) {
    stop(&session, {BreakReason::kUnknownOperation,
                    facts.name + " under autocast, which casts within it",
                    {}});
  }
  if (facts.has(kDataShape)) {
    stop(&session, {BreakReason::kDataDependentShape, facts.name, {}});
  }
  if (facts.has(kMaskShape) &&
      has_mask(stack->at(stack->size() - facts.num_arguments + 1))) {
    stop(&session,
         {BreakReason::kDataDependentShape, "a boolean mask as an index", {}});
  }
  if (facts.kernel.kind == MetaKernel::Kind::kCompositeImplicit &&
      !has_own_kernel(facts, *stack)) {
    // Reached below autograd (inference mode, inside a backward): decompose.
    c10::DispatchKeySet cpu(c10::DispatchKey::CPU);
    if (facts.kernel.kernel.isValid()) {
      facts.kernel.kernel.callBoxed(facts.op, cpu, stack);
    } else {
      facts.op.redispatchBoxed(cpu, stack);
    }
    return;
  }
  Status allowed = session.before(facts.op);
  if (!allowed.ok()) stop(&session, allowed.take_break());
  if (session.rewrite(facts.op, stack)) return;
  Operation(session, facts, stack).run();
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet,
              Stack* stack) {
  // Python bindings release the GIL before they call an operator.
  HoldGil gil;
  TraceSession* session = TraceSession::active();
  try {
    OpFacts& facts = facts_of(op);
    if (is_inferring()) {
      infer_nested(facts, stack);
    } else if (!session || session->suspended()) {
      bool trace = kinds_of(arguments_of(facts, *stack)).trace;
      TORCH_CHECK(!trace, "FrameJIT: ", facts.name,
                  " on a stand-in that outlived its capture");
      call_natively(facts, stack);
    } else {
      run_in_session(*session, facts, stack);
    }
  } catch (const InternalError& error) {
    // It must not cross torch's frames, which do not know it.
    stop(session, {BreakReason::kInternal, error.message(), {}});
  }
}

}  // namespace

bool register_fake_fallback(std::string* error) {
  static bool registered = false;
  if (registered) return true;
  auto& dispatcher = c10::Dispatcher::singleton();
  if (dispatcher.hasBackendFallbackForDispatchKey(c10::DispatchKey::Fake)) {
    *error =
        "another library has registered a fallback on the dispatch key Fake, "
        "which FrameJIT's capture needs";
    return false;
  }
  // Kept for the life of the process: trace tensors may outlive any capture.
  static auto* handle =
      new c10::RegistrationHandleRAII(dispatcher.registerFallback(
          c10::DispatchKey::Fake,
          c10::KernelFunction::makeFromBoxedFunction<&fallback>(), "FrameJIT"));
  (void)handle;
  register_symbolic_products();
  register_recurrent_operators();
  registered = true;
  return true;
}

bool is_list_of_numbers(const c10::IValue& value) {
  return value.isList() &&
         value.toList().elementType()->kind() == c10::TypeKind::NumberType;
}

}  // namespace framejit::graph
