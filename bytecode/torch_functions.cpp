#include "bytecode/torch_functions.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "bytecode/builtins.h"
#include "frame_hook/frame_eval.h"

namespace framejit::bytecode {

namespace {

// The object a method of C is bound to: one of the arguments.
Ref bound_to(PyObject* callable) {
  if (PyCFunction_Check(callable)) {
    PyObject* self = PyCFunction_GET_SELF(callable);
    return self && !PyModule_Check(self) && !PyType_Check(self)
               ? Ref::borrow(self)
               : Ref();
  }
  if (!is_method_wrapper(callable)) return Ref();
  Ref self = Ref::steal(PyObject_GetAttrString(callable, "__self__"));
  if (!self) PyErr_Clear();
  return self;
}

bool is_sequence(PyObject* object) {
  return PyTuple_Check(object) || PyList_Check(object);
}

// The first argument of exactly this class, in sequences, too.
PyObject* argument_of(PyObject* args, PyObject* type, bool nested) {
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(args); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(args, i);
    if (reinterpret_cast<PyObject*>(Py_TYPE(item)) == type) return item;
    if (!nested || !is_sequence(item)) continue;
    if (PyObject* found = argument_of(item, type, false)) return found;
  }
  return nullptr;
}

PyObject* argument_of(const FunctionOverride& call, PyObject* type) {
  if (PyObject* found = argument_of(call.args.get(), type, true)) return found;
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (call.kwargs &&
         PyDict_Next(call.kwargs.get(), &position, &key, &value)) {
    if (reinterpret_cast<PyObject*>(Py_TYPE(value)) == type) return value;
    if (!is_sequence(value)) continue;
    if (PyObject* found = argument_of(value, type, false)) return found;
  }
  return nullptr;
}

Result<Ref> ask(CaptureState& state, PyObject* object,
                const FunctionOverride& call, PyObject* types) {
  FJ_TRY(Ref method, state.get_attr(object, interned("__torch_function__")));
  if (PyMethod_Check(method.get()) &&
      PyMethod_GET_SELF(method.get()) == object) {
    // torch warns that this is deprecated.
    return state.make_break(BreakReason::kSideEffectCallee,
                            "__torch_function__ is no class method");
  }
  std::vector<PyObject*> args{call.function.get(), types, call.args.get()};
  if (call.kwargs) args.push_back(call.kwargs.get());
  return state.caller.call(method.get(), args);
}

Result<Ref> ask_mode(CaptureState& state, const FunctionOverride& call,
                     PyObject* types) {
  auto& modes = state.tables().function_modes;
  Ref mode = std::move(modes.back());
  modes.pop_back();  // not asked about what it does itself
  Result<Ref> answer = [&]() -> Result<Ref> {
    FJ_TRY(Ref method,
           state.get_attr(mode.get(), interned("__torch_function__")));
    if (!PyMethod_Check(method.get()) ||
        PyMethod_GET_SELF(method.get()) != mode.get()) {
      return state.make_break(BreakReason::kThreadState,
                              "a mode whose __torch_function__ is no method");
    }
    std::vector<PyObject*> args{call.function.get(), types, call.args.get()};
    if (call.kwargs) args.push_back(call.kwargs.get());
    return state.caller.call(method.get(), args);
  }();
  modes.push_back(std::move(mode));
  return answer;
}

// x[i] asks x, and x[i] = v asks x and v, but neither asks i first.
bool asks_item(CaptureState& state, PyObject* function,
               const std::vector<PyObject*>& operands) {
  bool get = function == library_object("operator", "getitem");
  bool set = function == library_object("operator", "setitem");
  if (Py_IS_TYPE(function, &PyWrapperDescr_Type) ||
      is_method_wrapper(function)) {
    // Tensor.__getitem__(x, i), x.__getitem__(i)
    Ref name = Ref::steal(PyObject_GetAttrString(function, "__name__"));
    auto is = [&](const char* text) {
      return name && PyUnicode_Check(name.get()) &&
             PyUnicode_CompareWithASCIIString(name.get(), text) == 0;
    };
    get = is("__getitem__");
    set = is("__setitem__");
    if (!name) PyErr_Clear();
  }
  if ((!get && !set) || operands.empty()) return true;
  if (is_function_mode_active(state)) return true;
  if (state.tracer.is_overloaded(operands[0])) return true;
  return set && operands.size() > 2 && state.tracer.is_overloaded(operands[2]);
}

// A break behind it could not bring the thread into this state: it has to be
// before the first change.
void note_change(CaptureState& state) {
  auto& tables = state.tables();
  bool changed = tables.functions_disabled || !tables.function_modes.empty();
  if (!changed) {
    tables.functions_changed_at = 0;
  } else if (tables.functions_changed_at == 0) {
    tables.functions_changed_at = state.caller.place();
  }
}

}  // namespace

bool is_function_mode_active(CaptureState& state) {
  auto& tables = state.tables();
  return !tables.function_modes.empty() && tables.functions_disabled < 2;
}

Result<bool> is_overloaded(CaptureState& state, PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (!is_heap_type(type)) return false;
  if (is_stand_in(state, object)) {
    if (!state.tracer.is_subclass(object)) return false;
    FJ_CHECK_OK(state.type_lookup(type, interned("__torch_function__")));
  }
  return state.tracer.is_overloaded(object);
}

Result<bool> asks_torch_function(CaptureState& state,
                                 const std::vector<PyObject*>& objects) {
  if (state.tables().functions_disabled < 2 &&
      !state.tables().function_modes.empty()) {
    return true;
  }
  if (state.tables().functions_disabled) return false;
  for (PyObject* object : objects) {
    FJ_TRY(bool found, is_overloaded(state, object));
    if (found) return true;
    if (!is_sequence(object)) continue;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
      FJ_TRY(found, is_overloaded(state, PySequence_Fast_GET_ITEM(object, i)));
      if (found) return true;
    }
  }
  return false;
}

Result<Ref> call_torch_function(CaptureState& state, PyObject* callable,
                                const std::vector<PyObject*>& args,
                                PyObject* kwnames) {
  std::vector<PyObject*> objects;
  Ref self = bound_to(callable);
  if (self) objects.push_back(self.get());
  objects.insert(objects.end(), args.begin(), args.end());
  FJ_TRY(bool asks, asks_torch_function(state, objects));
  if (!asks || !asks_item(state, callable, objects)) return Ref();
  FJ_TRY(std::optional<FunctionOverride> call,
         state.tracer.find_override(callable, args, kwnames));
  if (!call) return Ref();
  Ref types = call->types;
  if (state.tables().functions_disabled) {
    types = Ref::steal(PyTuple_New(0));
    if (!types) return Result<Ref>::raised();
  }
  bool mode = is_function_mode_active(state);
  Py_ssize_t count = PyTuple_GET_SIZE(types.get());
  if (!mode && count == 0) return Ref();
  for (Py_ssize_t i = 0; i < count; ++i) {
    state.pin(PyTuple_GET_ITEM(types.get(), i));
  }
  if (mode) {
    FJ_TRY(Ref answer, ask_mode(state, *call, types.get()));
    if (answer.get() != Py_NotImplemented) return answer;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* object = argument_of(*call, PyTuple_GET_ITEM(types.get(), i));
    if (!object) {
      return state.make_break(BreakReason::kTensorSubclass,
                              "an argument torch asks is nested too deeply");
    }
    FJ_TRY(Ref answer, ask(state, object, *call, types.get()));
    if (answer.get() != Py_NotImplemented) return answer;
  }
  if (count == 0) return Ref();  // the mode lets it pass
  return state.make_break(BreakReason::kTensorSubclass,
                          "every __torch_function__ gives NotImplemented");
}

Result<Ref> operate(CaptureState& state, PyObject* function,
                    std::vector<PyObject*> operands) {
  Result<Ref> answer = call_torch_function(state, function, operands);
  if (answer.is_raised() && PyErr_ExceptionMatches(PyExc_TypeError)) {
    // The slot of the operator makes NotImplemented of it.
    PyErr_Clear();
    return state.make_break(BreakReason::kTensorSubclass,
                            "a TypeError of __torch_function__ in an operator");
  }
  if (!answer.ok() || answer.value()) return answer;
  return state.tracer.operate(function, operands);
}

bool is_torchs_attribute(PyTypeObject* type, PyObject* name) {
  PyObject* mro = type->tp_mro;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    Ref dict = own_dict(base);
    if (!dict || !PyDict_GetItem(dict.get(), name)) continue;
    if (!is_heap_type(base)) return true;
    PyObject* module = PyDict_GetItemString(dict.get(), "__module__");
    const char* text =
        module && PyUnicode_Check(module) ? PyUnicode_AsUTF8(module) : nullptr;
    if (!text) PyErr_Clear();
    std::string_view home = text ? text : "";
    return home == "torch" || home.starts_with("torch.");
  }
  return true;
}

Result<Ref> call_tensor_special(CaptureState& state, PyObject* stand_in,
                                const char* name) {
  FJ_TRY(Ref own, state.python_special(stand_in, name));
  if (own) return state.caller.call(own.get(), {stand_in});
  FJ_TRY(bool asks, asks_torch_function(state, {stand_in}));
  if (!asks) return Ref();
  FJ_TRY(Ref raw, state.type_lookup(Py_TYPE(stand_in), interned(name)));
  if (!raw) return Ref();
  return state.caller.call(raw.get(), {stand_in});
}

// ---- rows: what torch.overrides and __torch_function__ methods call

namespace {

Result<Ref> has_function(CaptureState& state,
                         const std::vector<PyObject*>& objects) {
  if (objects.empty()) return boolean(false);
  if (is_function_mode_active(state)) return boolean(true);
  if (state.tables().functions_disabled) return boolean(false);
  for (PyObject* object : objects) {
    FJ_TRY(bool found, is_overloaded(state, object));
    if (found) return boolean(true);
  }
  return boolean(false);
}

}  // namespace

Result<Ref> model_has_torch_function(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.unknown();
  FJ_TRY(std::vector<Ref> items, call.state.elements(call.args[0]));
  std::vector<PyObject*> objects;
  for (const Ref& item : items) objects.push_back(item.get());
  return has_function(call.state, objects);
}

Result<Ref> model_has_torch_function_variadic(BuiltinCall& call) {
  if (call.has_keywords()) return call.unknown();
  return has_function(call.state, call.args);
}

Result<Ref> model_is_torch_function_enabled(BuiltinCall& call) {
  return boolean(call.state.tables().functions_disabled == 0);
}

Result<Ref> model_is_torch_function_all_disabled(BuiltinCall& call) {
  return boolean(call.state.tables().functions_disabled == 2);
}

Result<Ref> model_is_torch_function_mode_enabled(BuiltinCall& call) {
  return boolean(is_function_mode_active(call.state));
}

Result<Ref> model_len_torch_function_stack(BuiltinCall& call) {
  return from_api(PyLong_FromSize_t(call.state.tables().function_modes.size()));
}

Result<Ref> model_get_function_stack_at(BuiltinCall& call) {
  auto& modes = call.state.tables().function_modes;
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

Result<Ref> model_push_torch_function_mode(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.unknown();
  CaptureState& state = call.state;
  state.tables().function_modes.push_back(Ref::borrow(call.args[0]));
  note_change(state);
  return none();
}

Result<Ref> model_pop_torch_function_mode(BuiltinCall& call) {
  auto& modes = call.state.tables().function_modes;
  if (!call.plain(0, 0) || modes.empty()) return call.unknown();
  Ref mode = std::move(modes.back());
  modes.pop_back();
  note_change(call.state);
  return mode;
}

Result<Ref> model_disable_torch_function(BuiltinCall& call) {
  if (!call.plain(0, 0)) return call.native(Reads::kNothing);
  FJ_TRY(Ref made, from_api(PyObject_CallNoArgs(call.callable)));
  // Rebuilt, it would not know what to put back.
  call.state.tables().note_class(made.get(), call.state.caller.place());
  return made;
}

Result<Ref> model_disable_torch_function_enter(BuiltinCall& call) {
  if (!call.plain(1, 1) || call.state.is_input(call.args[0])) {
    return call.unknown();
  }
  auto& tables = call.state.tables();
  tables.functions_before[call.args[0]] = tables.functions_disabled;
  bool all = !std::strcmp(Py_TYPE(call.args[0])->tp_name,
                          "torch._C.DisableTorchFunction");
  tables.functions_disabled = all ? 2 : std::max(tables.functions_disabled, 1);
  note_change(call.state);
  return none();
}

Result<Ref> model_disable_torch_function_exit(BuiltinCall& call) {
  auto& tables = call.state.tables();
  if (call.args.empty()) return call.unknown();
  auto before = tables.functions_before.find(call.args[0]);
  if (before == tables.functions_before.end()) return call.unknown();
  tables.functions_disabled = before->second;
  note_change(call.state);
  return none();
}

// torch._C._disabled_torch_function_impl(func, types, args, kwargs)
Result<Ref> model_disabled_torch_function(BuiltinCall& call) {
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
  auto& tables = state.tables();
  int before = tables.functions_disabled;
  tables.functions_disabled = std::max(before, 1);
  Result<Ref> result = state.caller.call(call.args[0], values, names.get());
  tables.functions_disabled = before;
  return result;
}

Result<Ref> model_make_subclass(BuiltinCall& call) {
  CaptureState& state = call.state;
  if (!call.plain(2, 3)) {
    PyObject* wanted = call.argument(2, "require_grad");
    if (call.positional() != 2 || call.args.size() != 3 || !wanted) {
      return call.unknown();
    }
  }
  PyObject* wanted = call.args.size() > 2 ? call.args[2] : Py_False;
  if (!PyType_Check(call.args[0]) || !is_stand_in(state, call.args[1]) ||
      !PyBool_Check(wanted)) {
    return call.unknown();
  }
  FJ_TRY(Ref made, state.tracer.make_subclass(call.args[0], call.args[1],
                                              wanted == Py_True));
  return made ? Result<Ref>(made) : Result<Ref>(call.unknown());
}

// torch.Tensor.__new__(cls, ...), as super().__new__() reaches it.
Result<Ref> model_tensor_new(BuiltinCall& call) {
  if (call.args.empty() || !PyType_Check(call.args[0])) return call.unknown();
  std::vector<PyObject*> rest(call.args.begin() + 1, call.args.end());
  FJ_TRY(Ref made,
         call.state.tracer.make_instance(call.args[0], rest, call.kwnames));
  return made ? Result<Ref>(made) : Result<Ref>(call.unknown());
}

namespace {

// A getter or setter of C that Tensor has under this name.
bool is_tensor_getset(CaptureState& state, const BuiltinCall& call) {
  if (call.args.size() < 2 || call.has_keywords()) return false;
  PyObject* descriptor = call.args[0];
  if (!Py_IS_TYPE(descriptor, &PyGetSetDescr_Type)) return false;
  return is_stand_in(state, call.args[1]) &&
         _PyType_Lookup(Py_TYPE(call.args[1]), PyDescr_NAME(descriptor)) ==
             descriptor;
}

}  // namespace

// type(descriptor).__get__(descriptor, x), as Tensor.shape.__get__ reaches it.
Result<Ref> model_getset_get(BuiltinCall& call) {
  if (is_tensor_getset(call.state, call)) {
    return call.state.get_attr(call.args[1], PyDescr_NAME(call.args[0]));
  }
  if (!call.plain(2, 3) || !Py_IS_TYPE(call.args[0], &PyGetSetDescr_Type)) {
    return call.unknown();
  }
  return bind_descriptor(call.state, call.args[0], call.args[1],
                         Py_TYPE(call.args[1]), PyDescr_NAME(call.args[0]));
}

Result<Ref> model_getset_set(BuiltinCall& call) {
  if (!is_tensor_getset(call.state, call) || !call.plain(2, 3)) {
    return call.unknown();
  }
  PyObject* name = PyDescr_NAME(call.args[0]);
  if (call.args.size() == 2) {
    FJ_CHECK_OK(call.state.del_attr(call.args[1], name));
  } else {
    FJ_CHECK_OK(call.state.set_attr(call.args[1], name, call.args[2]));
  }
  return none();
}

// class F(torch.autograd.Function) inside a frame: gives the class the class of
// its backward nodes, and that one a number that no other has.
Result<Ref> model_function_meta_init(BuiltinCall& call) {
  if (!call.plain(4, 4) || !is_fresh_class(call.state, call.args[0])) {
    return call.unknown();
  }
  PauseHook pause;  // the classes' own code does not run
  std::vector<PyObject*> args = call.args;
  return call.state.after_native(
      PyObject_Vectorcall(call.callable, args.data(), args.size(), nullptr));
}

}  // namespace framejit::bytecode
