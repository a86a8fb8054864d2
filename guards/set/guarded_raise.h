// GuardedRaise: a call that raised while it was captured, and those like it.
//
// The guards up to the exception say which calls take the same way; for these
// the original code runs at once. Nothing relies on it: what it covers too much
// is not compiled, and right all the same. Keeps no class, function or module
// alive, and covers nothing when one of them has died.
#pragma once

#include <memory>

#include "frame_hook/dispatch.h"
#include "guards/set/guard_set.h"
#include "guards/set/weak_objects.h"

namespace framejit {

class GuardedRaise final : public RaisingCalls {
 public:
  explicit GuardedRaise(std::unique_ptr<GuardSet> guards)
      : guards_(std::move(guards)), weak_(*guards_, [] {}) {}
  bool covers(PyObject* const* args, PyObject* function) override;

 private:
  std::unique_ptr<GuardSet> guards_;
  WeakObjects weak_;  // goes before the set
};

}  // namespace framejit
