// What torch.overrides and __torch_function__ methods call: whether somebody is
// asked, the modes, and switching the asking off.
#include "bytecode/objects/overrides.h"
#include "bytecode/objects/unbuildable.h"
#include "libraries/libraries.h"

namespace framejit::libraries {

using namespace bytecode;

namespace {

Result<Ref> answer(CaptureState& state, const std::vector<PyObject*>& objects) {
  if (objects.empty()) return boolean(false);
  FJ_TRY(bool found, has_override(state, objects));
  return boolean(found);
}

Result<Ref> has_function(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.unknown();
  FJ_TRY(std::vector<Ref> items, call.state.elements(call.args[0]));
  std::vector<PyObject*> objects;
  for (const Ref& item : items) objects.push_back(item.get());
  return answer(call.state, objects);
}

Result<Ref> has_function_variadic(BuiltinCall& call) {
  if (call.has_keywords()) return call.unknown();
  return answer(call.state, call.args);
}

OverrideState& overrides(BuiltinCall& call) {
  return call.state.table<OverrideState>();
}

Result<Ref> is_enabled(BuiltinCall& call) {
  return boolean(overrides(call).level == OverrideState::kAsksAll);
}

Result<Ref> is_all_disabled(BuiltinCall& call) {
  return boolean(overrides(call).level == OverrideState::kAsksNobody);
}

Result<Ref> is_mode_enabled(BuiltinCall& call) {
  return boolean(is_override_mode_active(call.state));
}

Result<Ref> length_of_stack(BuiltinCall& call) {
  return from_api(PyLong_FromSize_t(overrides(call).modes.size()));
}

Result<Ref> mode_at(BuiltinCall& call) {
  auto& modes = overrides(call).modes;
  if (!call.plain(1, 1) || !PyLong_CheckExact(call.args[0])) {
    return call.unknown();
  }
  Py_ssize_t index = PyLong_AsSsize_t(call.args[0]);
  if (index < 0 || index >= static_cast<Py_ssize_t>(modes.size())) {
    PyErr_Clear();
    return call.unknown();
  }
  return modes[index];
}

Result<Ref> push_mode(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.unknown();
  push_override_mode(call.state, call.args[0]);
  return none();
}

Result<Ref> pop_mode(BuiltinCall& call) {
  if (!call.plain(0, 0) || overrides(call).modes.empty()) return call.unknown();
  return pop_override_mode(call.state);
}

Result<Ref> make_switch(BuiltinCall& call) {
  if (!call.plain(0, 0)) return call.native(Reads::kNothing);
  FJ_TRY(Ref made, from_api(PyObject_CallNoArgs(call.callable)));
  // Rebuilt, it would not know what to put back.
  keep_unbuildable(call.state, made.get());
  return made;
}

Result<Ref> switch_off(BuiltinCall& call, OverrideState::Level level) {
  if (!call.plain(1, 1) || call.state.is_input(call.args[0])) {
    return call.unknown();
  }
  switch_overrides_off(call.state, call.args[0], level);
  return none();
}

Result<Ref> switch_classes_off(BuiltinCall& call) {
  return switch_off(call, OverrideState::kAsksModes);
}

Result<Ref> switch_all_off(BuiltinCall& call) {
  return switch_off(call, OverrideState::kAsksNobody);
}

Result<Ref> switch_back(BuiltinCall& call) {
  if (call.args.empty() || !switch_overrides_back(call.state, call.args[0])) {
    return call.unknown();
  }
  return none();
}

// torch._C._disabled_torch_function_impl(func, types, args, kwargs)
Result<Ref> call_without_classes(BuiltinCall& call) {
  if (!call.plain(2, 5)) return call.unknown();
  CaptureState& state = call.state;
  // Called through a class it is a plain function: no self.
  PyObject* args = call.args.size() > 2 ? call.args[2] : nullptr;
  PyObject* kwargs = call.args.size() > 3 ? call.args[3] : nullptr;
  if ((args && !PyTuple_CheckExact(args)) ||
      (kwargs && kwargs != Py_None && !PyDict_CheckExact(kwargs)) ||
      call.args.size() > 4) {
    return call.unknown();
  }
  std::vector<PyObject*> values;
  for (Py_ssize_t i = 0; args && i < PyTuple_GET_SIZE(args); ++i) {
    values.push_back(PyTuple_GET_ITEM(args, i));
  }
  Ref names;
  if (kwargs && kwargs != Py_None && PyDict_GET_SIZE(kwargs) > 0) {
    names = Ref::steal(PySequence_Tuple(kwargs));
    if (!names) return Result<Ref>::raised();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names.get()); ++i) {
      values.push_back(
          PyDict_GetItem(kwargs, PyTuple_GET_ITEM(names.get(), i)));
    }
  }
  WithoutOverridingClasses scope(state);
  return state.caller.call(call.args[0], values, names.get());
}

constexpr CalleeRow kCallees[] = {
    {"torch._C", "_has_torch_function", has_function},
    {"torch._C", "_has_torch_function_unary", has_function_variadic},
    {"torch._C", "_has_torch_function_variadic", has_function_variadic},
    {"torch._C", "_is_torch_function_enabled", is_enabled},
    {"torch._C", "_is_torch_function_all_disabled", is_all_disabled},
    {"torch._C", "_is_torch_function_mode_enabled", is_mode_enabled},
    {"torch._C", "_len_torch_function_stack", length_of_stack},
    {"torch._C", "_get_function_stack_at", mode_at},
    {"torch._C", "_push_on_torch_function_stack", push_mode},
    {"torch._C", "_pop_torch_function_stack", pop_mode},
    {"torch._C", "_disabled_torch_function_impl", call_without_classes},
    {"torch._C", "DisableTorchFunctionSubclass", make_switch},
    {"torch._C", "DisableTorchFunctionSubclass.__enter__", switch_classes_off},
    {"torch._C", "DisableTorchFunctionSubclass.__exit__", switch_back},
    {"torch._C", "DisableTorchFunction", make_switch},
    {"torch._C", "DisableTorchFunction.__enter__", switch_all_off},
    {"torch._C", "DisableTorchFunction.__exit__", switch_back},
};

constexpr OverrideProtocol kProtocol = {"__torch_function__", "torch"};

}  // namespace

const Library& torch_overrides() {
  static constexpr Library kLibrary = {
      .name = "torch.overrides", .callees = kCallees, .overrides = &kProtocol};
  return kLibrary;
}

}  // namespace framejit::libraries
