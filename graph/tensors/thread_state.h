// Torch's ambient state: everything outside the arguments that changes what a
// torch call means (grad mode, autocast, modes, default dtype, global flags).
//
// A capture records it once; the predicate compares it natively on every call
// (`same_as`, some nanoseconds). States that capture does not support at all
// (functorch levels, modes, saved-tensor hooks, tracing) are
// refused when a capture begins, so an entry never exists for them.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "graph/tensors/libtorch_private.h"

namespace framejit::graph {

// One row per item: X(name, type, read, what), what it is called in messages
// (thread_state.cpp has the words for its values).
#define FJ_THREAD_STATE(X)                                                     \
  X(included_keys, uint64_t, at.keys->included().raw_repr(),                   \
    "functorch, a mode or tracing")                                            \
  X(excluded_keys, uint64_t, at.keys->excluded().raw_repr(), "dispatch keys")  \
  X(grad_mode, bool, at.autograd->get_grad_mode(), "grad mode")                \
  X(forward_grad_mode, bool, at.autograd->get_fw_grad_mode(),                  \
    "forward grad mode")                                                       \
  X(inference_mode, bool, at.autograd->get_inference_mode(), "inference mode") \
  X(function_modes, FunctionModes, graph::function_modes(*at.functions),       \
    "torch function modes")                                                    \
  X(function_disabled, int, function_disabled_state(*at.functions),            \
    "DisableTorchFunction")                                                    \
  X(saved_tensor_hooks, bool, !at.saved_hooks->stack.empty(),                  \
    "saved tensor hooks")                                                      \
  X(default_dtype, int,                                                        \
    static_cast<int>(c10::get_default_dtype_as_scalartype()), "default dtype") \
  X(flags, uint64_t, context_flags(),                                          \
    "deterministic, cudnn, mkldnn or scaled dot product attention flags")

struct ThreadState {
#define X(name, type, ...) type name;
  FJ_THREAD_STATE(X)
#undef X
  // The number of threads, where the program asked for it; else -1 (kernels
  // look when they run).
  int num_threads = -1;
  // Autocast matters only where some device has it on, which excluded_keys
  // says; then the dtypes are compared too.
  bool autocast = false;
  bool autocast_cache = false;
  std::array<int8_t, 4> autocast_dtypes{};  // CPU, CUDA, XPU, HPU
  int autocast_nesting = -1;                // -1: does not matter

  // The captured program enters or leaves an autocast region of its own.
  void watch_autocast(int nesting) {
    autocast = true;
    autocast_nesting = nesting;
  }

  static ThreadState now();
  bool same_as_now() const;
  std::string difference() const;  // what is different now, in words
  // Why a capture may not begin in this state; "": it may.
  std::string unsupported() const;
};

// How many autocast regions are open; torch has no reader of its own.
int autocast_nesting_now();

}  // namespace framejit::graph
