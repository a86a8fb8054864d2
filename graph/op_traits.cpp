// What passes know about ATen operators, from schemas, tags and one short list.
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "graph/meta_inference.h"
#include "graph/passes.h"

namespace framejit::graph {

namespace {

struct Traits {
  bool random = false;
  bool writes = false;
  bool recomputable = false;
  bool refusing = false;
  bool custom = false;
  std::vector<int> aliased;  // argument positions
};

// Cheap operators without the pointwise tag: fills, copies, casts.
const std::unordered_set<std::string_view>& cheap_operators() {
  static const std::unordered_set<std::string_view> names = {
      "aten::full",
      "aten::zeros",
      "aten::ones",
      "aten::arange",
      "aten::scalar_tensor",
      "aten::zeros_like",
      "aten::ones_like",
      "aten::full_like",
      "aten::new_zeros",
      "aten::new_ones",
      "aten::new_full",
      "aten::eye",
      "aten::clone",
      "aten::_to_copy",
      "aten::where",
      "aten::tril",
      "aten::triu",
      "aten::gelu",
      "aten::silu",
      "aten::relu",
      "aten::sigmoid",
      "aten::tanh",
      "aten::hardtanh",
      "aten::leaky_relu",
      "aten::elu",
      "aten::threshold_backward",
      "aten::gelu_backward",
      "aten::sigmoid_backward",
      "aten::tanh_backward",
      "aten::silu_backward",
      "aten::constant_pad_nd",
      "aten::slice_backward",
      "aten::expand_copy",
      "aten::select_backward",
  };
  return names;
}

// Operators that look at the values of their arguments and may refuse them: an
// index out of range, a singular matrix, an integer division by zero. Eager
// raises whether or not the result is used.
const std::unordered_set<std::string_view>& refusing_operators() {
  static const std::unordered_set<std::string_view> names = {
      "aten::index",
      "aten::index_put",
      "aten::index_select",
      "aten::index_add",
      "aten::index_copy",
      "aten::index_fill",
      "aten::index_reduce",
      "aten::_unsafe_index",
      "aten::_unsafe_index_put",
      "aten::gather",
      "aten::scatter",
      "aten::scatter_add",
      "aten::scatter_reduce",
      "aten::take",
      "aten::put",
      "aten::embedding",
      "aten::_embedding_bag",
      "aten::_embedding_bag_forward_only",
      "aten::nll_loss_forward",
      "aten::nll_loss2d_forward",
      "aten::multi_margin_loss",
      "aten::multilabel_margin_loss_forward",
      "aten::_ctc_loss",
      "aten::max_unpool2d",
      "aten::max_unpool3d",
      "aten::binary_cross_entropy",
      "aten::floor_divide",
      "aten::remainder",
      "aten::fmod",
      "aten::div",
      "aten::pow",
      "aten::histc",
      "aten::bincount",
      "aten::repeat_interleave",
      "aten::cholesky",
      "aten::cholesky_inverse",
      "aten::cholesky_solve",
      "aten::lu_unpack",
      "aten::triangular_solve",
      "aten::searchsorted",
  };
  return names;
}

// Operators whose kernels take every type, and mixed ones.
const std::unordered_set<std::string_view>& operators_for_all_types() {
  static const std::unordered_set<std::string_view> names = {
      "aten::add",     "aten::sub",        "aten::mul",
      "aten::eq",      "aten::ne",         "aten::lt",
      "aten::le",      "aten::gt",         "aten::ge",
      "aten::sum",     "aten::cat",        "aten::stack",
      "aten::where",   "aten::clone",      "aten::_to_copy",
      "aten::flip",    "aten::roll",       "aten::masked_fill",
      "aten::any",     "aten::all",        "aten::maximum",
      "aten::minimum", "aten::logical_or", "aten::logical_and",
      "aten::full",    "aten::zeros_like", "aten::ones_like",
      "aten::fill",    "aten::full_like",  "aten::logical_not",
  };
  return names;
}

// Meta functions let types pass that a kernel refuses: softplus of integers,
// a product of float and double. Only ordinary floats of one type are sure.
bool may_refuse_types(const Node& node) {
  std::string_view name = node.aten->schema().name();
  if (operators_for_all_types().contains(name)) return false;
  bool ordinary = true, same = true;
  std::optional<c10::ScalarType> first;
  auto look = [&](Value* value) {
    if (value->kind != Value::Kind::kTensor) return;
    c10::ScalarType type = value->meta.dtype;
    ordinary &= type == at::kFloat || type == at::kDouble;
    same &= !first || *first == type;
    first = type;
  };
  for (const Arg& arg : node.args) for_each_value(arg, look);
  return !ordinary || !same;
}

const Traits& traits_of(const Node& node) {
  static auto* cache = new std::unordered_map<const void*, Traits>;
  const c10::FunctionSchema& schema = node.aten->schema();
  auto [place, fresh] = cache->try_emplace(&schema);
  Traits& traits = place->second;
  if (!fresh) return traits;
  traits.random = node.aten->hasTag(at::Tag::nondeterministic_seeded);
  bool returns_alias = false;
  for (const auto& result : schema.returns())
    returns_alias |= result.alias_info() != nullptr;
  const auto& arguments = schema.arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = arguments[i].alias_info();
    if (!alias) continue;
    if (alias->isWrite()) traits.writes = true;
    if (returns_alias) traits.aliased.push_back(static_cast<int>(i));
  }
  std::string_view name = schema.name();
  traits.custom = is_custom_operator(name);
  traits.refusing = traits.custom || refusing_operators().contains(name) ||
                    name.starts_with("aten::linalg_") ||
                    name.starts_with("aten::_linalg_");
  traits.recomputable =
      !traits.random && !traits.writes &&
      (node.aten->hasTag(at::Tag::pointwise) || !traits.aliased.empty() ||
       cheap_operators().contains(schema.name()));
  return traits;
}

}  // namespace

bool is_random(const Node& node) { return node.aten && traits_of(node).random; }

bool writes_arguments(const Node& node) {
  return node.aten && traits_of(node).writes;
}

bool is_custom(const Node& node) { return node.aten && traits_of(node).custom; }

bool has_effect(const Node& node) {
  switch (node.op) {
    case Opcode::kPlaceholder:
    case Opcode::kOutput:
    case Opcode::kStateEnter:
    case Opcode::kStateExit:
      return true;
    default:
      break;
  }
  if (node.must_keep) return true;
  if (!node.aten) return node.op != Opcode::kGetAttr;  // Python: who knows
  // Returns nothing, so it runs for its effect: _linalg_check_errors raises.
  if (node.aten->schema().returns().empty()) return true;
  return is_random(node) || writes_arguments(node);
}

bool must_run(const Node& node) {
  if (has_effect(node)) return true;
  if (!node.aten || node.is_backward) return false;
  const Traits& traits = traits_of(node);
  return traits.refusing || (traits.aliased.empty() && may_refuse_types(node));
}

std::vector<Value*> aliased_arguments(const Node& node) {
  std::vector<Value*> values;
  if (!node.aten) return values;
  for (int i : traits_of(node).aliased)
    for_each_value(node.args[i],
                   [&](Value* value) { values.push_back(value); });
  return values;
}

bool is_view(const Node& node) {
  return node.aten && !traits_of(node).aliased.empty() &&
         !traits_of(node).writes;
}

bool is_recomputable(const Node& node) {
  return node.aten && !node.must_keep && traits_of(node).recomputable;
}

}  // namespace framejit::graph
