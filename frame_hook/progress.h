// How far a compilation is, for whoever waits for it. Layers say so where they
// count anyway; without a listener that is one look at a thread's variable.
#pragma once

#include <cstddef>
#include <cstdint>

namespace framejit {

// FJ_PHASE(name, text, what is counted)
#define FJ_PHASES(X)                         \
  X(Capture, "capture", "instructions")      \
  X(JointGraph, "joint graph", "operations") \
  X(Kernels, "machine code", "kernels")

enum class CompilePhase : uint8_t {
#define X(name, ...) k##name,
  FJ_PHASES(X)
#undef X
};

class ProgressListener {
 public:
  virtual ~ProgressListener() = default;
  // total 0: not known. Runs no Python code.
  virtual void note(CompilePhase phase, size_t done, size_t total) = 0;
};

namespace detail {
inline thread_local ProgressListener* progress_listener = nullptr;
}

inline void note_progress(CompilePhase phase, size_t done, size_t total = 0) {
  if (detail::progress_listener) [[unlikely]]
    detail::progress_listener->note(phase, done, total);
}

}  // namespace framejit
