// Late state: what a gradient function depends on of the thread's state.
//
// A gradient function is captured in the state that a backward mostly has: no
// grad mode, no autocast, the default dtype of the forward. Its calls run in
// the state of the backward (gradient_link.h), so what they do themselves is as
// in eager. What was decided when it was captured is not. So the capture ends
// where the function
//
//   reads the state      torch.is_grad_enabled(), torch.get_default_dtype()
//   asks for a dtype that autocast may change     (g @ w).dtype, .float()
//   or that is the default one                    torch.zeros(2).dtype
//   calls what autocast casts behind an autocast region of its own, which has
//     put back the state that it was captured in
//   asks whether what it made requires grad       (recorder.h)
#pragma once

#include <c10/core/DeviceType.h>

#include <string>
#include <unordered_set>

#include "graph/ir/ir.h"

namespace framejit::graph {

// Does it say what may differ in a backward? Not where one of torch's context
// managers reads what it puts back: `code` is the function that asks.
bool reads_late_state(PyObject* callable, PyObject* code);

// Of one gradient function.
class LateState {
 public:
  // nesting: of autocast regions, when it began.
  explicit LateState(int nesting) : nesting_(nesting) {}

  // An autocast region for this device, in the function.
  void set_casts(c10::DeviceType device) { casts_set_.insert(device); }
  // A call that made the outputs of its node. "", or why it is none that can be
  // captured.
  std::string note_call(const Node& node);
  // A call that did nothing.
  std::string check_idle_call(const Node& node) const;
  // Is the dtype of the value autocast's, or the default one's?
  bool may_be_cast(const Value* value) const { return cast_.contains(value); }

 private:
  bool is_cast(const Node& node, bool* behind_region) const;

  int nesting_;
  std::unordered_set<c10::DeviceType> casts_set_;
  std::unordered_set<const Value*> cast_;
};

}  // namespace framejit::graph
