// AmbientState: the part of torch's thread state that a captured program may
// write (grad mode, inference mode, autocast, which kernels attention may use).
//
// A write is a node of the torch-level graph that calls torch's own setter. The
// tracer runs it natively, so that what follows means the same as in eager, and
// puts the state back when the capture ends; so does every executor when its
// graph ends. What is still different then is set again by calls that the
// residual code makes (`calls_from`): a break inside `with torch.autocast`
// leaves the region open for the resume function, whose capture guards on it.
#pragma once

#include <c10/core/AutogradState.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "guards/result.h"

namespace framejit::graph {

class Graph;
class Node;

struct AmbientState {
  // Devices whose autocast can be captured: CPU, CUDA, XPU, HPU.
  static constexpr size_t kDevices = 4;
  struct Autocast {
    std::array<bool, kDevices> enabled{};
    std::array<c10::ScalarType, kDevices> dtype{};
    bool cache = true;
    int nesting = 0;
    bool operator==(const Autocast&) const = default;
  };

  bool grad_mode = true;
  bool forward_grad_mode = true;
  bool inference_mode = false;
  Autocast autocast;
  // flash, mem_efficient, math, cudnn, overrideable (of the process)
  std::array<bool, 5> attention{};
  bool operator==(const AmbientState&) const = default;

  static AmbientState now();
  // All of it that operators look at: the dtypes of the devices it is on for.
  // Nothing: it is on for a device that is none of these.
  static std::optional<Autocast> casts_now();
  // Is autocast on for any device? Some nanoseconds.
  static bool casts_any_now();
  bool any_autocast() const {
    for (bool on : autocast.enabled)
      if (on) return true;
    return false;
  }
  // Natively, also after an exception. Leaving the outermost autocast region
  // drops the cached casts of weights, as torch does; keep_casts: the region is
  // only interrupted.
  void restore(bool keep_casts = false) const;
  // Python calls that bring `before` to this state; throws py errors.
  std::vector<std::pair<Ref, std::vector<Ref>>> calls_from(
      const AmbientState& before) const;
};

// Operators cast by these rules alone, for a scope, and keep no casts.
class CastScope {
 public:
  explicit CastScope(const AmbientState::Autocast& casts);
  ~CastScope();
  CastScope(const CastScope&) = delete;
  CastScope& operator=(const CastScope&) = delete;

 private:
  AmbientState before_ = AmbientState::now();
  c10::impl::ExcludeDispatchKeyGuard no_casts_;
};

// The thread state that a graph may write is put back behind it: grad mode and
// its like always, the rest of an AmbientState where the graph writes it. (A
// backend that traces the module runs its state writes, too.)
class StateScope {
 public:
  explicit StateScope(bool writes_state, bool keep_casts = false)
      : place_(&c10::AutogradState::get_tls_state()),
        before_(*place_),
        keep_casts_(keep_casts) {
    if (writes_state) written_ = AmbientState::now();
  }
  ~StateScope() { restore(keep_casts_); }
  StateScope(const StateScope&) = delete;
  StateScope& operator=(const StateScope&) = delete;
  void restore(bool keep_casts = false) const {
    // First: it looks at what is set to know which dispatch keys to put back.
    if (written_) written_->restore(keep_casts);
    *place_ = before_;
  }

 private:
  c10::AutogradState* place_;  // of this thread
  c10::AutogradState before_;
  bool keep_casts_;
  std::optional<AmbientState> written_;
};

// What a callable of class StateWrite does to the state.
struct StateAccess {
  enum class Kind : uint8_t {
    kGradMode,
    kAutogradState,
    kAutocastEnabled,
    kAutocastDtype,
    kAutocastCache,
    kAutocastNesting,
    kAutocastClear,
    kReadAutocastDtype,
    kReadAutocastCache,
    kAttention,
    kUnknown
  };
  Kind kind = Kind::kUnknown;
  bool is_read() const {
    return kind == Kind::kReadAutocastDtype || kind == Kind::kReadAutocastCache;
  }
  bool is_autocast() const {
    return kind != Kind::kGradMode && kind != Kind::kAutogradState &&
           kind != Kind::kAttention;
  }
};
StateAccess state_access(PyObject* callable);
// "": the arguments are ones a capture can handle.
std::string unsupported_access(const StateAccess& access,
                               const std::vector<PyObject*>& args);
bool writes_more_than_grad_mode(const Graph& graph);
// framejit.set_autograd_state(grad_mode, forward_grad_mode, inference_mode):
// what torch.inference_mode does, without an object that has to be kept.
PyObject* autograd_state_setter();

// A write that another one replaces before anything ran is dropped.
void drop_idle_state_writes(Graph* graph);

}  // namespace framejit::graph
