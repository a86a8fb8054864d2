#include "graph/tracing/ambient_state.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>

#include <map>
#include <string_view>

#include "frame_hook/python_text.h"
#include "graph/ir/ir.h"
#include "graph/tensors/thread_state.h"
#include "graph/tracing/callees.h"

namespace framejit::graph {

namespace {

namespace autocast = at::autocast;

struct Device {
  c10::DeviceType type;
  const char* name;
};
constexpr std::array<Device, AmbientState::kDevices> kDevices = {{
    {c10::kCPU, "cpu"},
    {c10::kCUDA, "cuda"},
    {c10::DeviceType::XPU, "xpu"},
    {c10::DeviceType::HPU, "hpu"},
}};

// torch._C._set_sdp_use_<name>
struct AttentionFlag {
  const char* setter;
  bool (at::Context::*get)() const;
  void (at::Context::*set)(bool);
};
constexpr std::array<AttentionFlag, 5> kAttention = {{
    {"_set_sdp_use_flash", &at::Context::userEnabledFlashSDP,
     &at::Context::setSDPUseFlash},
    {"_set_sdp_use_mem_efficient", &at::Context::userEnabledMemEfficientSDP,
     &at::Context::setSDPUseMemEfficient},
    {"_set_sdp_use_math", &at::Context::userEnabledMathSDP,
     &at::Context::setSDPUseMath},
    {"_set_sdp_use_cudnn", &at::Context::userEnabledCuDNNSDP,
     &at::Context::setSDPUseCuDNN},
    {"_set_sdp_use_overrideable", &at::Context::userEnabledOverrideableSDP,
     &at::Context::setSDPUseOverrideable},
}};

struct Access {
  const char* name;
  StateAccess::Kind kind;
  size_t num_args;
};
using AccessKind = StateAccess::Kind;
constexpr Access kAccesses[] = {
    {"torch._C._set_grad_enabled", AccessKind::kGradMode, 1},
    {"framejit.set_autograd_state", AccessKind::kAutogradState, 3},
    {"torch._C.set_autocast_enabled", AccessKind::kAutocastEnabled, 2},
    {"torch._C.set_autocast_dtype", AccessKind::kAutocastDtype, 2},
    {"torch._C.set_autocast_cache_enabled", AccessKind::kAutocastCache, 1},
    {"torch._C.autocast_increment_nesting", AccessKind::kAutocastNesting, 0},
    {"torch._C.autocast_decrement_nesting", AccessKind::kAutocastNesting, 0},
    {"torch._C.clear_autocast_cache", AccessKind::kAutocastClear, 0},
    {"torch._C.get_autocast_dtype", AccessKind::kReadAutocastDtype, 1},
    {"torch._C.is_autocast_cache_enabled", AccessKind::kReadAutocastCache, 0},
    {"torch._C._set_sdp_use_flash", AccessKind::kAttention, 1},
    {"torch._C._set_sdp_use_mem_efficient", AccessKind::kAttention, 1},
    {"torch._C._set_sdp_use_math", AccessKind::kAttention, 1},
    {"torch._C._set_sdp_use_cudnn", AccessKind::kAttention, 1},
    {"torch._C._set_sdp_use_overrideable", AccessKind::kAttention, 1},
};

const Access* find_access(PyObject* callable) {
  std::string name = canonical_name(callable);
  for (const Access& row : kAccesses)
    if (name == row.name) return &row;
  return nullptr;
}

Ref torch_function(const char* name) {
  Ref module = Ref::steal(PyImport_ImportModule("torch._C"));
  Ref function =
      Ref::steal(module ? PyObject_GetAttrString(module.get(), name) : nullptr);
  FJ_CHECK(function, "a function of torch._C is gone");
  return function;
}

// As c10::InferenceMode's constructor does it.
void set_autograd_state(bool grad_mode, bool forward_grad_mode,
                        bool inference_mode) {
  auto& state = c10::AutogradState::get_tls_state();
  state.set_grad_mode(grad_mode);
  state.set_fw_grad_mode(forward_grad_mode);
  if (state.get_inference_mode() == inference_mode) return;
  state.set_inference_mode(inference_mode);
  auto keys = c10::impl::tls_local_dispatch_key_set();
  constexpr auto kInplace = c10::DispatchKey::ADInplaceOrView;
  keys.included_ = inference_mode ? keys.included_.remove(kInplace)
                                  : keys.included_.add(kInplace);
  keys.excluded_ = inference_mode
                       ? keys.excluded_ | c10::autograd_dispatch_keyset
                       : keys.excluded_ - c10::autograd_dispatch_keyset;
  c10::impl::_force_tls_local_dispatch_key_set(keys);
}

PyObject* set_autograd_state_function(PyObject*, PyObject* args) {
  int grad_mode, forward_grad_mode, inference_mode;
  if (!PyArg_ParseTuple(args, "ppp", &grad_mode, &forward_grad_mode,
                        &inference_mode))
    return nullptr;
  set_autograd_state(grad_mode, forward_grad_mode, inference_mode);
  Py_RETURN_NONE;
}

Ref bool_object(bool value) { return Ref::borrow(value ? Py_True : Py_False); }

Ref device_object(size_t index) {
  Ref text = Ref::steal(PyUnicode_FromString(kDevices[index].name));
  FJ_CHECK(text, "no memory");
  return text;
}

}  // namespace

PyObject* autograd_state_setter() {
  static PyMethodDef method = {
      "set_autograd_state", set_autograd_state_function, METH_VARARGS, nullptr};
  static PyObject* function = made_once([] {
    Ref module = Ref::steal(PyUnicode_FromString("framejit"));
    return PyCFunction_NewEx(&method, nullptr, module.get());
  });
  FJ_CHECK(function, "no memory");
  return function;
}

AmbientState AmbientState::now() {
  AmbientState state;
  const auto& autograd = c10::AutogradState::get_tls_state();
  state.grad_mode = autograd.get_grad_mode();
  state.forward_grad_mode = autograd.get_fw_grad_mode();
  state.inference_mode = autograd.get_inference_mode();
  for (size_t i = 0; i < kDevices; ++i) {
    c10::DeviceType type = graph::kDevices[i].type;
    state.autocast.enabled[i] = autocast::is_autocast_enabled(type);
    state.autocast.dtype[i] = autocast::get_autocast_dtype(type);
  }
  state.autocast.cache = autocast::is_autocast_cache_enabled();
  state.autocast.nesting = autocast_nesting_now();
  for (size_t i = 0; i < kAttention.size(); ++i)
    state.attention[i] = (at::globalContext().*kAttention[i].get)();
  return state;
}

bool AmbientState::casts_any_now() {
  return !c10::impl::tls_local_dispatch_key_set().excluded_.has_all(
      c10::autocast_dispatch_keyset);
}

std::optional<AmbientState::Autocast> AmbientState::casts_now() {
  Autocast casts;
  c10::DispatchKeySet known;
  for (size_t i = 0; i < kDevices; ++i) {
    c10::DeviceType type = graph::kDevices[i].type;
    known =
        known.add(autocast::get_autocast_dispatch_key_from_device_type(type));
    casts.enabled[i] = autocast::is_autocast_enabled(type);
    if (casts.enabled[i]) casts.dtype[i] = autocast::get_autocast_dtype(type);
  }
  const c10::DispatchKeySet others = c10::autocast_dispatch_keyset - known;
  if (!c10::impl::tls_local_dispatch_key_set().excluded_.has_all(others))
    return std::nullopt;
  return casts;
}

CastScope::CastScope(const AmbientState::Autocast& casts)
    : no_casts_(c10::autocast_dispatch_keyset) {
  for (size_t i = 0; i < AmbientState::kDevices; ++i) {
    if (!casts.enabled[i]) continue;
    autocast::set_autocast_enabled(kDevices[i].type, true);
    autocast::set_autocast_dtype(kDevices[i].type, casts.dtype[i]);
  }
  autocast::set_autocast_cache_enabled(false);
}

CastScope::~CastScope() {
  for (size_t i = 0; i < AmbientState::kDevices; ++i) {
    autocast::set_autocast_enabled(kDevices[i].type, false);
    autocast::set_autocast_dtype(kDevices[i].type, before_.autocast.dtype[i]);
  }
  autocast::set_autocast_cache_enabled(before_.autocast.cache);
}

void AmbientState::restore(bool keep_casts) const {
  set_autograd_state(grad_mode, forward_grad_mode, inference_mode);
  for (size_t i = 0; i < kAttention.size(); ++i) {
    at::Context& context = at::globalContext();
    if ((context.*kAttention[i].get)() != attention[i])
      (context.*kAttention[i].set)(attention[i]);
  }
  for (size_t i = 0; i < kDevices; ++i) {
    c10::DeviceType type = graph::kDevices[i].type;
    if (autocast::is_autocast_enabled(type) != autocast.enabled[i])
      autocast::set_autocast_enabled(type, autocast.enabled[i]);
    if (autocast::get_autocast_dtype(type) != autocast.dtype[i])
      autocast::set_autocast_dtype(type, autocast.dtype[i]);
  }
  autocast::set_autocast_cache_enabled(autocast.cache);
  int nesting = autocast_nesting_now();
  for (; nesting < autocast.nesting; ++nesting) autocast::increment_nesting();
  bool left = nesting > autocast.nesting;
  for (; nesting > autocast.nesting; --nesting) autocast::decrement_nesting();
  if (left && nesting == 0 && !keep_casts) autocast::clear_cache();
}

std::vector<std::pair<Ref, std::vector<Ref>>> AmbientState::calls_from(
    const AmbientState& before) const {
  std::vector<std::pair<Ref, std::vector<Ref>>> calls;
  if (inference_mode != before.inference_mode ||
      forward_grad_mode != before.forward_grad_mode)
    calls.emplace_back(
        Ref::borrow(autograd_state_setter()),
        std::vector<Ref>{bool_object(grad_mode), bool_object(forward_grad_mode),
                         bool_object(inference_mode)});
  else if (grad_mode != before.grad_mode)
    calls.emplace_back(torch_function("_set_grad_enabled"),
                       std::vector<Ref>{bool_object(grad_mode)});
  for (size_t i = 0; i < kAttention.size(); ++i)
    if (attention[i] != before.attention[i])
      calls.emplace_back(torch_function(kAttention[i].setter),
                         std::vector<Ref>{bool_object(attention[i])});
  if (autocast == before.autocast) return calls;
  int nesting = before.autocast.nesting;
  for (; nesting < autocast.nesting; ++nesting)
    calls.emplace_back(torch_function("autocast_increment_nesting"),
                       std::vector<Ref>{});
  bool left = nesting > autocast.nesting;
  for (; nesting > autocast.nesting; --nesting)
    calls.emplace_back(torch_function("autocast_decrement_nesting"),
                       std::vector<Ref>{});
  if (left && nesting == 0)
    calls.emplace_back(torch_function("clear_autocast_cache"),
                       std::vector<Ref>{});
  for (size_t i = 0; i < kDevices; ++i) {
    if (autocast.enabled[i] != before.autocast.enabled[i])
      calls.emplace_back(
          torch_function("set_autocast_enabled"),
          std::vector<Ref>{device_object(i), bool_object(autocast.enabled[i])});
    if (autocast.dtype[i] != before.autocast.dtype[i])
      calls.emplace_back(
          torch_function("set_autocast_dtype"),
          std::vector<Ref>{device_object(i),
                           Ref::borrow(reinterpret_cast<PyObject*>(
                               torch::getTHPDtype(autocast.dtype[i])))});
  }
  if (autocast.cache != before.autocast.cache)
    calls.emplace_back(torch_function("set_autocast_cache_enabled"),
                       std::vector<Ref>{bool_object(autocast.cache)});
  return calls;
}

StateAccess state_access(PyObject* callable) {
  const Access* row = find_access(callable);
  return {row ? row->kind : AccessKind::kUnknown};
}

std::string unsupported_access(const StateAccess& access,
                               const std::vector<PyObject*>& args) {
  const Access* row = nullptr;
  for (const Access& candidate : kAccesses)
    if (candidate.kind == access.kind) row = &candidate;
  if (!row) return "a state that is not captured";
  if (args.size() != row->num_args) return "other arguments than torch gives";
  bool has_device = access.kind == AccessKind::kAutocastEnabled ||
                    access.kind == AccessKind::kAutocastDtype ||
                    access.kind == AccessKind::kReadAutocastDtype;
  if (!has_device) return "";
  std::string name = text_of(args[0]);
  for (const Device& device : kDevices)
    if (name == device.name) return "";
  return "autocast for another device";
}

bool writes_more_than_grad_mode(const Graph& graph) {
  for (const auto& node : graph.block().nodes)
    if (node->op == Opcode::kStateEnter &&
        state_access(node->callable.get()).kind != AccessKind::kGradMode)
      return true;
  return false;
}

namespace {

// Consecutive state writes, with no operation between them.
void drop_idle_in_run(const std::vector<Node*>& run, bool last,
                      std::vector<Node*>* idle) {
  std::map<std::string, Node*> cells;
  std::vector<Node*> increments;
  for (Node* node : run) {
    StateAccess access = state_access(node->callable.get());
    if (access.kind == AccessKind::kAutocastClear) continue;
    if (access.kind == AccessKind::kAutocastNesting) {
      bool enters = node->target_name().find("increment") != std::string::npos;
      if (enters) {
        increments.push_back(node);
      } else if (!increments.empty()) {
        idle->push_back(increments.back());
        idle->push_back(node);
        increments.pop_back();
      }
      continue;
    }
    std::string cell = std::to_string(static_cast<int>(access.kind));
    if (node->args.size() > 1 && node->args[0].is<std::string>())
      cell += node->args[0].get<std::string>();
    if (access.kind == AccessKind::kAttention) cell += node->target_name();
    Node*& pending = cells[cell];
    if (pending) idle->push_back(pending);
    pending = node;
    // Executors put the grad mode back themselves.
    if (last && access.kind == AccessKind::kGradMode) {
      idle->push_back(node);
      pending = nullptr;
    }
  }
}

}  // namespace

void drop_idle_state_writes(Graph* graph) {
  std::vector<Node*> idle, run;
  for (auto& node : graph->block().nodes) {
    if (node->op == Opcode::kStateEnter) {
      run.push_back(node.get());
    } else if (node->op != Opcode::kOutput) {
      drop_idle_in_run(run, false, &idle);
      run.clear();
    }
  }
  drop_idle_in_run(run, true, &idle);
  for (Node* node : idle) graph->erase(node);
}

}  // namespace framejit::graph
