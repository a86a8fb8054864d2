#include "graph/ops/op_facts.h"

#include <ATen/core/enum_tag.h>

#include <algorithm>
#include <memory>
#include <unordered_map>

#include "graph/ops/shape_families.h"

namespace framejit::graph {
namespace {

std::string name_of(const c10::FunctionSchema& schema) {
  if (schema.overload_name().empty()) return schema.name();
  return schema.name() + "." + schema.overload_name();
}

bool writes(const c10::Argument& argument) {
  return argument.alias_info() && argument.alias_info()->isWrite();
}

bool takes_tensors(const c10::Argument& argument) {
  return argument.type()->str().find("Tensor") != std::string::npos;
}

// The arguments that both forms have, in one order, of one type each.
bool same_arguments(const c10::FunctionSchema& functional,
                    const c10::FunctionSchema& writing) {
  auto given = functional.arguments().begin(),
       end = functional.arguments().end();
  for (const c10::Argument& argument : writing.arguments()) {
    if (argument.is_out()) continue;
    if (given == end || given->name() != argument.name() ||
        *given->real_type() != *argument.real_type()) {
      return false;
    }
    ++given;
  }
  return given == end;
}

// Every overload by the name they have in common.
const std::vector<c10::OperatorHandle>& overloads_of(const std::string& name) {
  using Index =
      std::unordered_map<std::string, std::vector<c10::OperatorHandle>>;
  static const auto* index = [] {
    auto* made = new Index;
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const c10::OperatorName& each : dispatcher.getAllOpNames()) {
      if (!each.name.starts_with("aten::")) continue;
      if (auto op = dispatcher.findSchema(each)) {
        (*made)[each.name].push_back(*op);
      }
    }
    return made;
  }();
  static const std::vector<c10::OperatorHandle> none;
  auto found = index->find(name);
  return found == index->end() ? none : found->second;
}

// Of the same overload, or else of the same arguments: floor_divide_.Tensor is
// floor_divide. Not bernoulli_.float, which draws in another order than
// bernoulli.p.
std::optional<c10::OperatorHandle> in_place_twin(
    const c10::OperatorHandle& writing) {
  const c10::FunctionSchema& schema = writing.schema();
  const std::string& name = schema.name();
  if (name.size() < 8 || !name.ends_with("_") || name.ends_with("__")) {
    return std::nullopt;
  }
  bool same_overload = writing.hasTag(at::Tag::nondeterministic_seeded);
  std::optional<c10::OperatorHandle> twin;
  for (const c10::OperatorHandle& op :
       overloads_of(name.substr(0, name.size() - 1))) {
    const c10::FunctionSchema& other = op.schema();
    if (other.is_mutable() || !same_arguments(other, schema)) continue;
    if (other.overload_name() == schema.overload_name()) return op;
    if (!same_overload) twin = op;
  }
  return twin;
}

std::optional<c10::OperatorHandle> out_twin(const c10::FunctionSchema& schema) {
  for (const c10::OperatorHandle& op : overloads_of(schema.name())) {
    const c10::FunctionSchema& other = op.schema();
    if (!other.is_mutable() &&
        other.returns().size() == schema.returns().size() &&
        same_arguments(other, schema)) {
      return op;
    }
  }
  return std::nullopt;
}

// What the tags say of an operator without a row.
Traits tagged(const c10::OperatorHandle& op, const std::string& name) {
  Traits traits = kNoTraits;
  if (op.hasTag(at::Tag::pointwise)) traits = traits | kPointwise;
  if (op.hasTag(at::Tag::reduction)) traits = traits | kReduction;
  if (op.hasTag(at::Tag::nondeterministic_seeded)) traits = traits | kRandom;
  if (op.hasTag(at::Tag::data_dependent_output)) traits = traits | kReadsData;
  if (op.hasTag(at::Tag::dynamic_output_shape)) traits = traits | kDataShape;
  if (is_custom_operator(name) || name.starts_with("aten::linalg_") ||
      name.starts_with("aten::_linalg_")) {
    traits = traits | kRefuses;
  }
  return traits;
}

}  // namespace

OpFacts::OpFacts(const c10::OperatorHandle& handle)
    : op(handle), name(name_of(handle.schema())), shown(name) {
  if (size_t colons = shown.find("::"); colons != shown.npos)
    shown.replace(colons, 2, ".");
  const c10::FunctionSchema& schema = op.schema();
  num_arguments = schema.arguments().size();
  num_results = schema.returns().size();
  bool shares = std::any_of(
      schema.returns().begin(), schema.returns().end(),
      [](const c10::Argument& result) { return result.alias_info(); });
  bool outs = false;
  for (size_t i = 0; i < num_arguments; ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    int position = static_cast<int>(i);
    if (writes(argument)) written_arguments.push_back(position);
    if (shares && argument.alias_info()) aliased_arguments.push_back(position);
    if (argument.name() == "device") device_argument = position;
    if (argument.name() == "pin_memory") pin_memory_argument = position;
    has_tensor_arguments |= takes_tensors(argument);
    outs |= argument.is_out();
  }
  only_in_place = num_results > 0;
  for (const c10::Argument& result : schema.returns()) {
    int alias = -1;
    if (writes(result)) {
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
  if (outs) {
    form = Form::kOut;
    functional = out_twin(schema);
  } else if (!written_arguments.empty()) {
    form = Form::kInPlace;
    functional = in_place_twin(op);
    // Those of lists return nothing.
    if (num_results == 0) only_in_place = functional.has_value();
  }
  is_custom = is_custom_operator(schema.name());
  if (is_custom) {
    row = find_row(name);
  } else {
    row = find_row(name.substr(name.find("::") + 2));
    if (!row && functional) {
      row = find_row(name_of(functional->schema()).substr(6));
    }
  }
  traits = row ? row->traits : tagged(op, schema.name());
  if (row && row->aliasing == Aliasing::kFirst && aliased_arguments.empty()) {
    aliased_arguments.push_back(0);
  }
  changes_metadata = op.hasTag(at::Tag::inplace_view) ||
                     name.starts_with("aten::resize") ||
                     name.starts_with("aten::set_");
  keeps_sizes =
      !changes_metadata && num_results == 1 &&
      written_arguments == std::vector<int>{0} && result_alias[0] == 0 &&
      schema.name().ends_with("_") &&
      schema.arguments()[0].type()->kind() == c10::TypeKind::TensorType;
  kernel = find_meta_kernel(op);
  // A shape rule computes from sizes and integers, and what is done to each of
  // a list of tensors keeps their sizes.
  ignores_floats = keeps_sizes || name.starts_with("aten::_foreach_") ||
                   (row && row->shape && row->shape != &shape_arange);
}

namespace {

// Keyed by the schema's address: unique per registered operator.
auto& all_facts() {
  static auto* all =
      new std::unordered_map<const void*, std::unique_ptr<OpFacts>>();
  return *all;
}

}  // namespace

OpFacts& facts_of(const c10::OperatorHandle& op) {
  std::unique_ptr<OpFacts>& facts = all_facts()[&op.schema()];
  if (!facts) facts = std::make_unique<OpFacts>(op);
  return *facts;
}

void forget_surprises() {
  for (auto& [schema, facts] : all_facts()) facts->trust = Trust::kInference;
}

}  // namespace framejit::graph
