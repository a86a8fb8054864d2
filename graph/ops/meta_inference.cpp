#include "graph/ops/meta_inference.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/native/TypeProperties.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>

#include "frame_hook/options.h"
#include "graph/ops/meta_results.h"
#include "graph/ops/rehearsal.h"
#include "guards/result.h"

namespace framejit::graph {
namespace {

thread_local bool inferring = false;
thread_local c10::Device inference_device = c10::kCPU;
thread_local std::vector<std::pair<at::Tensor, c10::Device>> result_devices;
InferenceCounts counts;

class InferringScope {
 public:
  explicit InferringScope(c10::Device device)
      : saved_(inferring), saved_device_(inference_device) {
    inferring = true;
    inference_device = device;
  }
  ~InferringScope() {
    inferring = saved_;
    inference_device = saved_device_;
  }
  InferringScope(const InferringScope&) = delete;
  InferringScope& operator=(const InferringScope&) = delete;

 private:
  bool saved_;
  c10::Device saved_device_;
};

const c10::DispatchKeySet kMetaKeys(c10::DispatchKey::Meta);

// Kernels below run with Fake among the dispatch keys, everything above it
// switched off.
c10::DispatchKeySet keys_above_fake() {
  return c10::DispatchKeySet(c10::DispatchKey::Functionalize) |
         c10::autograd_dispatch_keyset_with_ADInplaceOrView;
}

Stack take_arguments(const OpFacts& facts, Stack* stack) {
  auto first = stack->end() - facts.num_arguments;
  Stack arguments(std::make_move_iterator(first),
                  std::make_move_iterator(stack->end()));
  stack->erase(first, stack->end());
  return arguments;
}

Stack copy_arguments(const OpFacts& facts, const Stack& stack) {
  return Stack(stack.end() - facts.num_arguments, stack.end());
}

void put_back(Stack* stack, Stack values) {
  for (c10::IValue& value : values) stack->push_back(std::move(value));
}

bool try_rule(OpFacts& facts, MetaRule rule, Stack* stack) {
  Stack arguments = take_arguments(facts, stack);
  bool applied = rule(&arguments);
  put_back(stack, std::move(arguments));
  if (applied) counts.by_rule++;
  return applied;
}

void call_rehearsal(OpFacts& facts, Stack* stack) {
  counts.by_rehearsal++;
  rehearse(facts, stack, inference_device);
}

void call_python_meta(OpFacts& facts, Stack* stack) {
  counts.by_python++;
  c10::impl::ExcludeDispatchKeyGuard exclude(c10::DispatchKey::Fake);
  facts.op.callBoxed(stack);
}

void call_kernel(OpFacts& facts, Stack* stack) {
  counts.by_kernel++;
  if (facts.kernel.kernel.isValid()) {
    facts.kernel.kernel.callBoxed(facts.op, kMetaKeys, stack);
  } else {
    facts.op.redispatchBoxed(kMetaKeys, stack);
  }
}

// A kernel that is running: it may call its own out= form.
class RunningScope {
 public:
  explicit RunningScope(OpFacts& facts) : facts_(facts) { facts_.running++; }
  ~RunningScope() { facts_.running--; }
  RunningScope(const RunningScope&) = delete;
  RunningScope& operator=(const RunningScope&) = delete;

 private:
  OpFacts& facts_;
};

// A kernel for every backend may want data all the same. Then false; the
// arguments are as before.
bool try_composite_kernel(OpFacts& facts, Stack* stack) {
  if (facts.kernel.unusable) return false;
  Stack arguments = copy_arguments(facts, *stack);
  size_t base = stack->size() - facts.num_arguments;
  try {
    RunningScope scope(facts);
    call_kernel(facts, stack);
    return true;
  } catch (const c10::Error&) {
    if (facts.is_custom) throw;
    stack->resize(base);
    put_back(stack, std::move(arguments));
    return false;
  }
}

[[noreturn]] void nobody_knows(const OpFacts& facts) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      facts.trust != Trust::kNobody, facts.name,
      " returned something else than was known of it during capture, twice");
  TORCH_CHECK_NOT_IMPLEMENTED(!facts.is_custom, facts.name,
                              " has no fake implementation (torch.library",
                              ".register_fake), so its results are not known "
                              "during capture");
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, facts.name, " has no rule for what it returns during capture");
}

// ---- operators that write to arguments

void return_written(const OpFacts& facts, const Stack& arguments,
                    Stack* stack) {
  for (int i : facts.result_alias) stack->push_back(arguments.at(i));
}

// out= of another size is resized, as eager does.
void resize_out(const at::Tensor& out, const at::Tensor& result) {
  if (out.sizes() == result.sizes()) return;
  auto* impl = out.unsafeGetTensorImpl();
  auto* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  impl->set_sizes_and_strides(result.sizes(), result.strides());
  size_t end = at::detail::computeStorageNbytes(
      result.sizes(), result.strides(), out.element_size(),
      out.storage_offset());
  if (end > storage->nbytes()) storage->set_nbytes(end);
}

// A float is not written to an integer: eager says how.
void check_cast(const OpFacts& facts, const at::Tensor& result,
                const at::Tensor& written) {
  TORCH_CHECK(c10::canCast(result.scalar_type(), written.scalar_type()),
              facts.name, " with a result of type ", result.scalar_type(),
              " for a tensor of type ", written.scalar_type());
}

void infer_out_form(OpFacts& facts, Stack* stack) {
  if (!facts.functional) nobody_knows(facts);
  Stack arguments = take_arguments(facts, stack);
  const auto& schema = facts.op.schema().arguments();
  std::vector<at::Tensor> outs;
  Stack call;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!schema[i].is_out()) {
      call.push_back(arguments[i]);
    } else if (arguments[i].isTensor()) {
      outs.push_back(arguments[i].toTensor());
    } else {
      for (const at::Tensor& out : arguments[i].toTensorVector())
        outs.push_back(out);
    }
  }
  OpFacts& functional = facts_of(*facts.functional);
  if (functional.running) {
    call_rehearsal(functional, &call);
  } else {
    infer_nested(functional, &call);
  }
  std::vector<at::Tensor> results;
  for (const c10::IValue& value : call) {
    if (value.isTensor()) {
      results.push_back(value.toTensor());
    } else {
      for (const at::Tensor& each : value.toTensorVector())
        results.push_back(each);
    }
  }
  for (size_t i = 0; i < outs.size() && i < results.size(); ++i) {
    if (!results[i].defined() || !outs[i].defined()) continue;
    check_cast(facts, results[i], outs[i]);
    resize_out(outs[i], results[i]);
  }
  return_written(facts, arguments, stack);
}

// The metadata of what it writes to stays what it is.
void infer_in_place_form(OpFacts& facts, Stack* stack) {
  if (facts.changes_metadata || (!facts.only_in_place && facts.num_results)) {
    nobody_knows(facts);
  }
  Stack arguments = take_arguments(facts, stack);
  if (facts.keeps_sizes && facts.functional) {
    // Where that has other sizes, eager raises, or resizes.
    Stack call = arguments;
    OpFacts& functional = facts_of(*facts.functional);
    // Its kernel asks for the in-place form, which could not be told.
    if (functional.running) nobody_knows(facts);
    RunningScope scope(functional);
    infer_nested(functional, &call);
    at::Tensor result = call.at(0).toTensor();
    at::Tensor written = arguments.at(0).toTensor();
    TORCH_CHECK(result.sizes() == written.sizes(), facts.name,
                " with a result of another size");
    check_cast(facts, result, written);
  }
  return_written(facts, arguments, stack);
}

void infer_writing(OpFacts& facts, Stack* stack) {
  using Kind = MetaKernel::Kind;
  if (facts.trust == Trust::kNobody) nobody_knows(facts);
  // Where torch is not asked for the functional form, it is not for this one.
  bool asked = !facts.row || !facts.keeps_sizes ||
               facts.row->meta.kind == MetaColumn::Kind::kTorch;
  // In place it says nothing but whether eager refuses.
  if (facts.functional && !facts.keeps_sizes)
    asked &= facts_of(*facts.functional).trust == Trust::kInference;
  switch (asked ? facts.kernel.kind : Kind::kNone) {
    case Kind::kMeta:
      return call_kernel(facts, stack);
    case Kind::kCompositeExplicit:
    case Kind::kCompositeImplicit:
      if (try_composite_kernel(facts, stack)) return;
      break;
    case Kind::kPython:
      if (facts.is_custom) return call_python_meta(facts, stack);
      break;
    case Kind::kNone:
      break;
  }
  if (facts.is_custom) nobody_knows(facts);
  if (facts.form == OpFacts::Form::kOut) return infer_out_form(facts, stack);
  infer_in_place_form(facts, stack);
}

// ---- the others

// On the CPU, TensorIterator converts arguments to the common type before it
// looks at their strides, which makes them dense; but not before an operator
// refuses the mixture (lerp).
void convert_arguments(OpFacts& facts, Stack* stack) {
  std::optional<c10::ScalarType> type;
  bool mixed = false, sparse = false;
  size_t base = stack->size() - facts.num_arguments;
  for (size_t i = base; i < stack->size(); ++i) {
    const c10::IValue& value = (*stack)[i];
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const at::Tensor& tensor = value.toTensor();
    mixed |= type && *type != tensor.scalar_type();
    type = tensor.scalar_type();
    sparse |= !tensor.is_non_overlapping_and_dense();
  }
  if (!mixed || !sparse) return;
  if (facts.kernel.kind == MetaKernel::Kind::kMeta) {
    Stack as_they_are = copy_arguments(facts, *stack);
    call_kernel(facts, &as_they_are);
  }
  at::native::ResultTypeState state = {};
  for (size_t i = base; i < stack->size(); ++i) {
    const c10::IValue& value = (*stack)[i];
    if (value.isTensor() && value.toTensor().defined())
      state = at::native::update_result_type_state(value.toTensor(), state);
  }
  c10::ScalarType common = at::native::result_type(state);
  for (size_t i = base; i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    at::Tensor tensor = value.toTensor();
    if (tensor.is_meta() && tensor.dim() > 0 && !tensor.is_conj() &&
        !tensor.is_neg() && tensor.scalar_type() != common &&
        !tensor.is_non_overlapping_and_dense())
      value = like(tensor, common);
  }
}

void infer_by_torch(OpFacts& facts, Stack* stack) {
  using Kind = MetaKernel::Kind;
  if (facts.has(kPointwise) && inference_device.is_cpu())
    convert_arguments(facts, stack);
  switch (facts.kernel.kind) {
    case Kind::kMeta:
      return call_kernel(facts, stack);
    case Kind::kCompositeImplicit: {
      RunningScope scope(facts);
      return call_kernel(facts, stack);
    }
    case Kind::kCompositeExplicit:
      if (try_composite_kernel(facts, stack)) return;
      call_rehearsal(facts, stack);
      facts.kernel.unusable = true;  // not tried again: eager could do it
      return;
    case Kind::kPython:
      if (facts.is_custom) return call_python_meta(facts, stack);
      break;
    case Kind::kNone:
      if (!facts.is_custom) break;
      facts.kernel = find_meta_kernel(facts.op);  // registered meanwhile?
      if (facts.kernel.kind == Kind::kNone) nobody_knows(facts);
      return infer_by_torch(facts, stack);
  }
  call_rehearsal(facts, stack);
}

bool try_rehearsal(OpFacts& facts, Stack* stack) {
  Stack arguments = copy_arguments(facts, *stack);
  size_t base = stack->size() - facts.num_arguments;
  try {
    call_rehearsal(facts, stack);
    return true;
  } catch (const c10::Error&) {
    stack->resize(base);
    put_back(stack, std::move(arguments));
    return false;
  }
}

void route(OpFacts& facts, Stack* stack) {
  if (facts.op.schema().is_mutable()) return infer_writing(facts, stack);
  switch (facts.trust) {
    case Trust::kInference:
      break;
    case Trust::kRehearsal:
      if (try_rehearsal(facts, stack)) return;
      break;  // the next surprise is the last one
    case Trust::kNobody:
      nobody_knows(facts);
  }
  if (!facts.row) return infer_by_torch(facts, stack);
  switch (facts.row->meta.kind) {
    case MetaColumn::Kind::kTorch:
      return infer_by_torch(facts, stack);
    case MetaColumn::Kind::kRule:
      if (try_rule(facts, facts.row->meta.rule, stack)) return;
      return call_rehearsal(facts, stack);
    case MetaColumn::Kind::kChecked:
      try_rule(facts, facts.row->meta.rule, stack);
      return infer_by_torch(facts, stack);
    case MetaColumn::Kind::kRehearse:
      return call_rehearsal(facts, stack);
    case MetaColumn::Kind::kNone:
      nobody_knows(facts);
  }
}

bool has_plain_meta(const OpFacts& facts, const Stack& stack) {
  bool found = false;
  for (size_t i = stack.size() - facts.num_arguments; i < stack.size(); ++i) {
    visit_tensors(stack[i], [&](const at::Tensor& t) { found |= t.is_meta(); });
  }
  return found;
}

}  // namespace

void infer_meta(OpFacts& facts, Stack* stack, c10::Device device) {
  c10::impl::ExcludeDispatchKeyGuard exclude(keys_above_fake());
  c10::impl::IncludeDispatchKeyGuard include(c10::DispatchKey::Fake);
  InferringScope scope(device);
  result_devices.clear();
  if (!options().verify || facts.op.schema().is_mutable()) {
    route(facts, stack);
    return;
  }
  Stack arguments = copy_arguments(facts, *stack);
  size_t base = stack->size() - facts.num_arguments;
  route(facts, stack);
  std::string difference = difference_from_rehearsal(
      facts, std::move(arguments),
      c10::ArrayRef<c10::IValue>(*stack).slice(base), device);
  if (!difference.empty()) throw InternalError(__FILE__, __LINE__, difference);
}

void infer_nested(OpFacts& facts, Stack* stack) {
  if (facts.has_tensor_arguments) {
    if (!has_plain_meta(facts, *stack)) {
      // Scratch work on real tensors (a table of indices, a number).
      c10::impl::ExcludeDispatchKeyGuard exclude(c10::DispatchKey::Fake);
      facts.op.callBoxed(stack);
      return;
    }
  } else if (facts.device_argument >= 0) {
    c10::IValue& device =
        (*stack)[stack->size() - facts.num_arguments + facts.device_argument];
    if (device.isNone()) device = c10::IValue(c10::Device(c10::kMeta));
    if (!device.toDevice().is_meta()) {
      c10::impl::ExcludeDispatchKeyGuard exclude(c10::DispatchKey::Fake);
      facts.op.callBoxed(stack);
      return;
    }
  }
  route(facts, stack);
}

bool is_inferring() { return inferring; }

c10::DeviceType inference_device_type() { return inference_device.type(); }

void note_result_device(const at::Tensor& meta, c10::Device device) {
  result_devices.emplace_back(meta, device);
}

c10::Device result_device(const at::Tensor& meta, c10::Device otherwise) {
  for (const auto& [tensor, device] : result_devices)
    if (tensor.is_same(meta)) return device;
  return otherwise;
}

const InferenceCounts& inference_counts() { return counts; }

}  // namespace framejit::graph
