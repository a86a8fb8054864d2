#include "graph/tracing/late_state.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>

#include "frame_hook/python_text.h"
#include "graph/tensors/thread_state.h"
#include "graph/tracing/ambient_state.h"
#include "graph/tracing/callees.h"

namespace framejit::graph {

namespace {

// "mm" of torch.mm, Tensor.mm and mm_.
std::string base_name(const Node& node) {
  std::string name = node.target_name();
  name.erase(0, name.rfind('.') + 1);
  while (name.starts_with('_')) name.erase(0, 1);
  while (name.ends_with('_')) name.pop_back();
  return name;
}

template <size_t N>
bool is_one_of(std::string_view name, const std::string_view (&names)[N]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// The operators that autocast has kernels for, whatever their overload.
const std::unordered_set<std::string>& operators_cast_on(
    c10::DeviceType device) {
  static std::map<c10::DeviceType, std::unordered_set<std::string>> known;
  auto found = known.find(device);
  if (found != known.end()) return found->second;
  auto& names = known[device];
  if (!at::autocast::is_autocast_available(device)) return names;
  const auto key =
      at::autocast::get_autocast_dispatch_key_from_device_type(device);
  for (const c10::OperatorName& name :
       c10::Dispatcher::singleton().getRegistrationsForDispatchKey(key))
    names.insert(name.name);
  return names;
}

bool is_float(const Value& value) {
  return value.kind == Value::Kind::kTensor &&
         (c10::isFloatingType(value.meta.dtype) ||
          c10::isComplexType(value.meta.dtype));
}

template <class F>
void for_each_argument(const Node& node, const F& look) {
  for (const Arg& arg : node.args) look(arg);
  for (const auto& [name, arg] : node.kwargs) look(arg);
}

template <class F>
bool any_value(const Node& node, const F& is) {
  bool any = false;
  for_each_argument(node, [&](const Arg& arg) {
    for_each_value(arg, [&](Value* value) { any |= is(*value); });
  });
  return any;
}

// x.float(), x.to(torch.half), torch.sum(x, dtype=torch.half).
bool says_dtype(const Node& node) {
  static constexpr std::string_view kConversions[] = {
      "float", "double", "half", "bfloat16", "cfloat", "cdouble", "chalf"};
  bool says = is_one_of(base_name(node), kConversions);
  for_each_argument(node,
                    [&](const Arg& arg) { says |= arg.is<c10::ScalarType>(); });
  return says;
}

// The dtype of its floats is what the default dtype says.
bool has_default_dtype(const Node& node) {
  const bool makes_float =
      std::any_of(node.outputs.begin(), node.outputs.end(),
                  [](const auto& output) { return is_float(*output); });
  return makes_float && !any_value(node, is_float) && !says_dtype(node);
}

}  // namespace

bool reads_late_state(PyObject* callable, PyObject* code) {
  if (find_callee(callable).reason != BreakReason::kThreadState) return false;
  if (!code || !PyCode_Check(code)) return true;
  auto* function = reinterpret_cast<PyCodeObject*>(code);
  const std::string file = text_of(function->co_filename);
  const std::string name = text_of(function->co_name);
  const bool enters = name == "__enter__" || name == "__exit__";
  // Those that switch the grad mode are refused (region_calls.cpp), but for
  // once_differentiable's, behind which nothing is computed.
  if (file.ends_with("/torch/autograd/grad_mode.py"))
    return !(enters || name == "__init__");
  if (file.ends_with("/torch/autograd/function.py")) return name != "wrapper";
  if (!file.ends_with("/torch/amp/autocast_mode.py")) return true;
  // Whether casts are kept changes none.
  return !enters &&
         state_access(callable).kind != StateAccess::Kind::kReadAutocastCache;
}

bool LateState::is_cast(const Node& node, bool* behind_region) const {
  std::unordered_set<c10::DeviceType> devices;
  any_value(node, [&](const Value& value) {
    // Autocast leaves float64 alone.
    if (is_float(value) && value.meta.dtype != c10::kDouble)
      devices.insert(value.meta.device.type());
    return false;
  });
  const std::string own_name = "aten::" + base_name(node);
  bool any = false;
  for (c10::DeviceType device : devices) {
    const auto& names = operators_cast_on(device);
    if (!names.contains(own_name) &&
        std::none_of(node.operators.begin(), node.operators.end(),
                     [&](const c10::OperatorHandle& op) {
                       return names.contains(op.schema().name());
                     }))
      continue;
    const bool is_set = casts_set_.contains(device);
    if (is_set && autocast_nesting_now() > nesting_) continue;
    *behind_region |= is_set;
    any = true;
  }
  return any;
}

std::string LateState::note_call(const Node& node) {
  bool behind_region = false;
  const bool cast = is_cast(node, &behind_region);
  if (behind_region)
    return node.target_name() +
           " behind an autocast region: around the backward there may be "
           "another one";
  if (says_dtype(node)) return "";
  if (cast || has_default_dtype(node) ||
      any_value(node, [&](const Value& value) { return may_be_cast(&value); }))
    for (const auto& output : node.outputs)
      if (is_float(*output)) cast_.insert(output.get());
  return "";
}

std::string LateState::check_idle_call(const Node& node) const {
  // Those whose answer no cast changes.
  static constexpr std::string_view kShapes[] = {
      "size",          "dim",       "ndimension",   "numel",
      "nelement",      "len",       "contiguous",   "is_floating_point",
      "is_complex",    "is_signed", "resolve_conj", "resolve_neg",
      "is_contiguous", "stride",    "is_tensor",    "get_device",
      "cpu",           "cuda",      "detach",       "is_conj",
      "is_neg",        "expand",    "is_same_size"};
  if (base_name(node) == "is_inference")
    return node.target_name() + ", which depends on how the backward runs";
  if (is_one_of(base_name(node), kShapes) ||
      !any_value(node, [&](const Value& value) { return may_be_cast(&value); }))
    return "";
  return node.target_name() +
         " of a tensor whose dtype an autocast region around the backward "
         "would "
         "change";
}

}  // namespace framejit::graph
