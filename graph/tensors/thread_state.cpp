#include "graph/tensors/thread_state.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/SavedTensorHooks.h>
#include <ATen/autocast_mode.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <string_view>

namespace framejit::graph {

namespace {

// Where this thread keeps its state: the places never move, and asking for each
// of them on every call would be most of what the check costs.
struct Places {
  const c10::impl::PODLocalDispatchKeySet* keys;
  const c10::AutogradState* autograd;
  const at::impl::PythonTorchFunctionTLS* functions;
  const at::impl::SavedTensorDefaultHooksTLS* saved_hooks;
};
constinit thread_local Places places_of_thread = {};

[[gnu::noinline]] void find_places() {
  places_of_thread = {&c10::impl::raw_local_dispatch_key_set,
                      &c10::AutogradState::get_tls_state(),
                      &at::impl::PythonTorchFunctionTLS::get_state(),
                      &at::SavedTensorDefaultHooks::get_tls_state()};
}

const Places& places() {
  Places& found = places_of_thread;
  if (!found.keys) [[unlikely]]
    find_places();
  return found;
}

constexpr std::array<c10::DeviceType, 4> kAutocastDevices = {
    c10::kCPU, c10::kCUDA, c10::DeviceType::XPU, c10::DeviceType::HPU};

bool any_autocast() {
  constexpr auto keys = c10::autocast_dispatch_keyset;
  return (keys - places().keys->excluded()) != c10::DispatchKeySet();
}

void read_autocast(ThreadState* state) {
  state->autocast_cache = ::at::autocast::is_autocast_cache_enabled();
  for (size_t i = 0; i < kAutocastDevices.size(); ++i) {
    state->autocast_dtypes[i] = static_cast<int8_t>(
        ::at::autocast::get_autocast_dtype(kAutocastDevices[i]));
  }
}

}  // namespace

int autocast_nesting_now() {
  at::autocast::increment_nesting();
  return at::autocast::decrement_nesting();
}

ThreadState ThreadState::now() {
  ThreadState state;
  const Places& at = places();
#define X(name, type, read, text) state.name = read;
  FJ_THREAD_STATE(X)
#undef X
  state.autocast = any_autocast();
  read_autocast(&state);
  return state;
}

bool ThreadState::same_as_now() const {
  const Places at = places();  // a copy: their address is asked for once
#define X(name, type, read, text) \
  if (name != static_cast<type>(read)) return false;
  FJ_THREAD_STATE(X)
#undef X
  if (num_threads >= 0 && num_threads != ::at::get_num_threads()) [[unlikely]]
    return false;
  if (autocast) [[unlikely]] {
    ThreadState current;
    read_autocast(&current);
    return current.autocast_cache == autocast_cache &&
           current.autocast_dtypes == autocast_dtypes &&
           (autocast_nesting < 0 || autocast_nesting == autocast_nesting_now());
  }
  return true;
}

namespace {

// ---- values in words
std::string words(bool on) { return on ? "on" : "off"; }
std::string words(int number) { return std::to_string(number); }
std::string words(uint64_t) { return ""; }
std::string words(FunctionModes modes) {
  return modes == FunctionModes::kNone               ? "none"
         : modes == FunctionModes::kDefaultDeviceCpu ? "a default device"
                                                     : "other modes";
}
std::string dtype_words(int8_t dtype) {
  return c10::toString(static_cast<c10::ScalarType>(dtype));
}

bool is_key_set(std::string_view row) { return row.ends_with("_keys"); }

template <class T>
std::string state_words(std::string_view row, T value) {
  if (row == "default_dtype") return dtype_words(static_cast<int8_t>(value));
  return words(value);
}

std::string changed(const std::string& what, const std::string& was,
                    const std::string& is) {
  if (was == is) return what + " changed";
  return what + " changed: was " + was + ", is " + is;
}

}  // namespace

std::string ThreadState::difference() const {
  const ThreadState is = now();
  std::string text;
  auto add = [&](const std::string& what) {
    text += (text.empty() ? "" : "; ") + what;
  };
  // What has a name of its own changes dispatch keys, too.
  bool named = inference_mode != is.inference_mode || autocast != is.autocast;
  if (autocast != is.autocast)
    add(changed("autocast", words(autocast), words(is.autocast)));
#define X(name, type, read, what)                                  \
  if (name != is.name && !(named && is_key_set(#name)))            \
    add(changed(what, state_words(#name, static_cast<type>(name)), \
                state_words(#name, static_cast<type>(is.name))));
  FJ_THREAD_STATE(X)
#undef X
  if (num_threads >= 0 && num_threads != ::at::get_num_threads())
    add(changed("number of threads", words(num_threads),
                words(::at::get_num_threads())));
  if (!autocast || !is.autocast) return text;
  if (autocast_cache != is.autocast_cache)
    add(changed("autocast's cache", words(autocast_cache),
                words(is.autocast_cache)));
  for (size_t i = 0; i < autocast_dtypes.size(); ++i) {
    if (autocast_dtypes[i] != is.autocast_dtypes[i])
      add(changed("autocast's dtype", dtype_words(autocast_dtypes[i]),
                  dtype_words(is.autocast_dtypes[i])));
  }
  if (autocast_nesting >= 0 && autocast_nesting != autocast_nesting_now())
    add(changed("nesting of autocast", words(autocast_nesting),
                words(autocast_nesting_now())));
  return text;
}

std::string ThreadState::unsupported() const {
  using c10::DispatchKey;
  c10::DispatchKeySet included(c10::DispatchKeySet::RAW, included_keys);
  if (function_modes == FunctionModes::kOther)
    return "a torch function mode (or torch.set_default_device)";
  if (function_disabled != 0) return "torch function is disabled";
  if (included.has(DispatchKey::Python) ||
      included.has(DispatchKey::PythonTLSSnapshot))
    return "a torch dispatch mode";
  if (included.has_any(
          c10::DispatchKeySet({DispatchKey::FuncTorchDynamicLayerFrontMode,
                               DispatchKey::FuncTorchDynamicLayerBackMode,
                               DispatchKey::FuncTorchVmapMode})))
    return "a functorch transform";
  if (included.has(DispatchKey::Tracer)) return "torch.jit.trace";
  if (included.has(DispatchKey::Fake) ||
      included.has(DispatchKey::Functionalize))
    return "another tracer of this process";
  if (saved_tensor_hooks) return "saved tensor hooks";
  return "";
}

}  // namespace framejit::graph
