#include "graph/meta_inference.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/enum_tag.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <pybind11/pybind11.h>

#include <algorithm>
#include <unordered_map>

#include "graph/shape_families.h"

namespace framejit::graph {
namespace {

thread_local bool inferring = false;
InferenceCounts counts;

class SetInferring {
 public:
  explicit SetInferring(bool value) : saved_(inferring) { inferring = value; }
  ~SetInferring() { inferring = saved_; }

 private:
  bool saved_;
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

void put_back(Stack* stack, Stack values) {
  for (c10::IValue& value : values) stack->push_back(std::move(value));
}

bool try_rule(OpFacts& facts, Stack* stack) {
  if (!facts.meta_rule) return false;
  Stack arguments = take_arguments(facts, stack);
  bool applied = facts.meta_rule(&arguments);
  put_back(stack, std::move(arguments));
  if (applied) counts.by_rule++;
  return applied;
}

void call_python_meta(OpFacts& facts, Stack* stack) {
  counts.by_python++;
  c10::impl::ExcludeDispatchKeyGuard exclude(c10::DispatchKey::Fake);
  facts.op.callBoxed(stack);
}

bool try_composite_kernel(OpFacts& facts, Stack* stack) {
  if (facts.kernel_unusable) return false;
  Stack arguments(stack->end() - facts.num_arguments, stack->end());
  size_t base = stack->size() - facts.num_arguments;
  try {
    facts.kernel.kernel.callBoxed(facts.op, kMetaKeys, stack);
    counts.by_kernel++;
    return true;
  } catch (const c10::Error&) {
    // It wants data, or the call is wrong: the Python function will tell.
    stack->resize(base);
    put_back(stack, std::move(arguments));
    return false;
  }
}

[[noreturn]] void no_fake_implementation(const OpFacts& facts) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, facts.name, " has no fake implementation (torch.library",
      ".register_fake), so its results are not known during capture");
}

void route(OpFacts& facts, Stack* stack) {
  using Kind = MetaKernel::Kind;
  if (try_rule(facts, stack)) return;
  switch (facts.kernel.kind) {
    case Kind::kMeta:
      counts.by_kernel++;
      facts.kernel.kernel.callBoxed(facts.op, kMetaKeys, stack);
      return;
    case Kind::kCompositeExplicit:
      if (try_composite_kernel(facts, stack)) return;
      call_python_meta(facts, stack);
      facts.kernel_unusable = true;  // not tried again: Python could do it
      return;
    case Kind::kCompositeImplicit:
      counts.by_kernel++;
      facts.op.redispatchBoxed(kMetaKeys, stack);
      return;
    case Kind::kNone:
      // What is left may be the kernel itself, in Python.
      if (facts.is_custom) {
        facts.kernel = find_meta_kernel(facts.op);  // registered meanwhile?
        if (facts.kernel.kind == Kind::kNone) no_fake_implementation(facts);
        return route(facts, stack);
      }
      break;
    case Kind::kPythonOnly:
      break;
  }
  call_python_meta(facts, stack);
}

using Special = OpFacts::Special;
Special special_of(const std::string& name, const c10::OperatorHandle& op) {
  if (name == "aten::lift_fresh" || name == "aten::lift") {
    return Special::kLiftFresh;
  }
  for (const char* reader :
       {"aten::_local_scalar_dense", "aten::equal", "aten::is_set_to",
        "aten::item", "aten::is_nonzero", "aten::allclose"}) {
    if (name == reader) return Special::kReadsData;
  }
  if (op.hasTag(at::Tag::data_dependent_output)) return Special::kReadsData;
  if (op.hasTag(at::Tag::dynamic_output_shape)) {
    if (name.starts_with("aten::index.")) return Special::kMaskedShape;
    // The lengths of this overload are numbers.
    bool fixed = name.starts_with("aten::repeat_interleave.self_int") ||
                 name == "aten::_ctc_loss";
    if (!fixed) return Special::kDataDependentShape;
  }
  return Special::kNone;
}

std::string name_of(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  if (schema.overload_name().empty()) return schema.name();
  return schema.name() + "." + schema.overload_name();
}

bool has_plain_meta(const OpFacts& facts, const Stack& stack) {
  bool found = false;
  for (size_t i = stack.size() - facts.num_arguments; i < stack.size(); ++i) {
    visit_tensors(stack[i], [&](const at::Tensor& t) { found |= t.is_meta(); });
  }
  return found;
}

}  // namespace

OpFacts::OpFacts(const c10::OperatorHandle& handle)
    : op(handle), name(name_of(handle)) {
  const c10::FunctionSchema& schema = op.schema();
  num_arguments = schema.arguments().size();
  num_results = schema.returns().size();
  for (size_t i = 0; i < num_arguments; ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (argument.alias_info() && argument.alias_info()->isWrite()) {
      written_arguments.push_back(static_cast<int>(i));
    }
    if (argument.name() == "device") device_argument = static_cast<int>(i);
    if (argument.name() == "pin_memory") {
      pin_memory_argument = static_cast<int>(i);
    }
    if (argument.type()->str().find("Tensor") != std::string::npos) {
      has_tensor_arguments = true;
    }
  }
  only_in_place = num_results > 0;
  for (const c10::Argument& result : schema.returns()) {
    int alias = -1;
    if (result.alias_info() && result.alias_info()->isWrite()) {
      for (int i : written_arguments) {
        if (schema.arguments()[i].alias_info()->beforeSets() ==
            result.alias_info()->beforeSets()) {
          alias = i;
        }
      }
    }
    result_alias.push_back(alias);
    only_in_place &= alias >= 0;
  }
  changes_metadata = op.hasTag(at::Tag::inplace_view) ||
                     name.starts_with("aten::resize") ||
                     name.starts_with("aten::set_");
  keeps_sizes =
      !changes_metadata && num_results == 1 &&
      written_arguments == std::vector<int>{0} && result_alias[0] == 0 &&
      schema.name().ends_with("_") &&
      schema.arguments()[0].type()->kind() == c10::TypeKind::TensorType;
  is_custom = is_custom_operator(schema.name());
  special = special_of(name, op);
  kernel = find_meta_kernel(op);
  meta_rule = find_meta_rule(name);
  shape_rule = find_shape_rule(name);
  // A shape rule computes from sizes and integers.
  ignores_floats =
      keeps_sizes || (shape_rule && shape_rule->function != &shape_arange);
}

OpFacts& facts_of(const c10::OperatorHandle& op) {
  // Keyed by the schema's address: unique per registered operator.
  static auto* all =
      new std::unordered_map<const void*, std::unique_ptr<OpFacts>>();
  std::unique_ptr<OpFacts>& facts = (*all)[&op.schema()];
  if (!facts) facts = std::make_unique<OpFacts>(op);
  return *facts;
}

void infer_meta(OpFacts& facts, Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard exclude(keys_above_fake());
  c10::impl::IncludeDispatchKeyGuard include(c10::DispatchKey::Fake);
  SetInferring flag(true);
  route(facts, stack);
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

const InferenceCounts& inference_counts() { return counts; }

}  // namespace framejit::graph
