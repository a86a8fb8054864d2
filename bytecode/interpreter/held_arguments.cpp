#include "bytecode/interpreter/held_arguments.h"

#include <algorithm>

#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/origins.h"
#include "bytecode/residual/residual.h"
#include "frame_hook/follower.h"
#include "guards/set/let_go.h"

namespace framejit::bytecode {

HeldArguments::HeldArguments(CaptureState& state, const CaptureRequest& request)
    : state_(state) {
  for (size_t i = 0; i < request.num_args; ++i) {
    PyObject* object = request.args[i];
    if (!object || is_builtin_constant(object)) continue;
    if (object == unbound_marker()) continue;
    // Who calls a function with a tensor has it still, but for resume
    // functions.
    if (!request.is_resume &&
        state.tracer.classify(object) == ObjectClass::kTensor) {
      continue;
    }
    arguments_.push_back({object, state.guards.sources().arg(i), i});
  }
}

// In a capture tensors have stand-ins, and tuples with tensors are copied.
bool HeldArguments::is(const Argument& argument, PyObject* value) const {
  if (!value) return false;
  if (value == argument.object) return true;
  const Origins& tables = state_.table<Origins>();
  auto stand_in = tables.stand_ins.find(argument.object);
  if (stand_in != tables.stand_ins.end() && stand_in->second == value)
    return true;
  auto copy = tables.rebuilt.find(argument.object);
  if (copy != tables.rebuilt.end() && copy->second == value) return true;
  return follower_original(argument.object) == value ||
         state_.unshadow(value) == argument.object;
}

bool HeldArguments::holds(const Frame& frame, Argument& argument) const {
  if (argument.slot < frame.slots.size() &&
      is(argument, frame.slots[argument.slot].get())) {
    return true;
  }
  for (size_t i = 0; i < frame.slots.size(); ++i) {
    PyObject* value = frame.slots[i].get();
    bool in_cell = value && PyCell_Check(value) && !state_.is_input(value);
    if (!is(argument, in_cell ? PyCell_GET(value) : value)) continue;
    argument.slot = i;
    return true;
  }
  return std::any_of(
      frame.stack.begin(), frame.stack.end(),
      [&](const Ref& value) { return is(argument, value.get()); });
}

Status HeldArguments::check(const Frame& frame) {
  for (size_t i = 0; i < arguments_.size();) {
    Argument& argument = arguments_[i];
    if (holds(frame, argument)) {
      ++i;
      continue;
    }
    if (!lets_go_quietly(LetGo::kObject, argument.object, nullptr)) {
      return state_.make_break(
          BreakReason::kFinalizerObject,
          std::string("lets go of a ") + Py_TYPE(argument.object)->tp_name);
    }
    state_.guard(GuardKind::kLetsGoQuietly, argument.source, nullptr,
                 int64_t(LetGo::kObject));
    argument = arguments_.back();
    arguments_.pop_back();
  }
  return ok_status();
}

}  // namespace framejit::bytecode
