#include "bytecode/objects/overrides.h"

#include <algorithm>

#include "bytecode/library/library.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/object_kinds.h"
#include "frame_hook/frame_eval.h"
#include "guards/known_objects.h"

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

PyObject* method_name() { return interned(override_protocol()->method); }

Result<Ref> ask(CaptureState& state, PyObject* object,
                const FunctionOverride& call, PyObject* types) {
  FJ_TRY(Ref method, state.get_attr(object, method_name()));
  if (PyMethod_Check(method.get()) &&
      PyMethod_GET_SELF(method.get()) == object) {
    // Libraries warn that this is deprecated.
    return state.make_break(
        BreakReason::kSideEffectCallee,
        std::string(override_protocol()->method) + " is no class method");
  }
  std::vector<PyObject*> args{call.function.get(), types, call.args.get()};
  if (call.kwargs) args.push_back(call.kwargs.get());
  return state.caller.call(method.get(), args);
}

Result<Ref> ask_mode(CaptureState& state, const FunctionOverride& call,
                     PyObject* types) {
  OverrideState& overrides = state.table<OverrideState>();
  auto& modes = overrides.modes;
  Ref mode = std::move(modes.back());
  modes.pop_back();  // not asked about what it does itself
  // What it does may be to switch classes off and on, without it as at first.
  const size_t changed_at = overrides.changed_at;
  Result<Ref> answer = [&]() -> Result<Ref> {
    FJ_TRY(Ref method, state.get_attr(mode.get(), method_name()));
    if (!PyMethod_Check(method.get()) ||
        PyMethod_GET_SELF(method.get()) != mode.get()) {
      return state.make_break(BreakReason::kThreadState,
                              std::string("a mode whose ") +
                                  override_protocol()->method +
                                  " is no method");
    }
    std::vector<PyObject*> args{call.function.get(), types, call.args.get()};
    if (call.kwargs) args.push_back(call.kwargs.get());
    return state.caller.call(method.get(), args);
  }();
  modes.push_back(std::move(mode));
  overrides.changed_at = changed_at;
  return answer;
}

// A tensor of a class that is asked, as an index or in one.
bool has_asked_tensor(CaptureState& state, PyObject* index, int depth = 0) {
  if (is_stand_in(state, index)) return state.tracer.is_overloaded(index);
  if (!is_sequence(index) || depth > 2) return false;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(index); ++i) {
    if (has_asked_tensor(state, PySequence_Fast_GET_ITEM(index, i), depth + 1))
      return true;
  }
  return false;
}

// x[i] asks x, and x[i] = v asks x and v; of i only tensors are asked.
bool asks_item(CaptureState& state, PyObject* function,
               const std::vector<PyObject*>& operands) {
  bool get = function == library_object("operator", "getitem");
  bool set = function == library_object("operator", "setitem");
  if (Py_IS_TYPE(function, &PyWrapperDescr_Type) ||
      is_method_wrapper(function)) {
    // type(x).__getitem__(x, i), x.__getitem__(i)
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
  if (is_override_mode_active(state)) return true;
  if (state.tracer.is_overloaded(operands[0])) return true;
  if (operands.size() > 1 && has_asked_tensor(state, operands[1])) return true;
  return set && operands.size() > 2 && state.tracer.is_overloaded(operands[2]);
}

// A break behind it could not bring the thread into this state: it has to be
// before the first change.
void note_change(CaptureState& state) {
  OverrideState& overrides = state.table<OverrideState>();
  if (overrides.level == OverrideState::kAsksAll && overrides.modes.empty()) {
    overrides.changed_at = 0;
  } else if (overrides.changed_at == 0) {
    overrides.changed_at = state.caller.place();
  }
}

Result<bool> asks_one_of(CaptureState& state,
                         const std::vector<PyObject*>& objects, bool elements) {
  if (is_override_mode_active(state)) return true;
  if (state.table<OverrideState>().level != OverrideState::kAsksAll)
    return false;
  for (PyObject* object : objects) {
    FJ_TRY(bool found, is_overloaded(state, object));
    if (found) return true;
    if (!elements || !is_sequence(object)) continue;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(object); ++i) {
      FJ_TRY(found, is_overloaded(state, PySequence_Fast_GET_ITEM(object, i)));
      if (found) return true;
    }
  }
  return false;
}

}  // namespace

bool is_override_mode_active(CaptureState& state) {
  const OverrideState& overrides = state.table<OverrideState>();
  return !overrides.modes.empty() &&
         overrides.level < OverrideState::kAsksNobody;
}

bool asks_own_class(PyTypeObject* type) {
  return override_protocol() && !is_library_attribute(type, method_name());
}

Status guard_overriding_class(CaptureState& state, PyTypeObject* type) {
  if (!override_protocol()) return ok_status();
  FJ_CHECK_OK(state.type_lookup(type, method_name()));
  return ok_status();
}

Result<bool> is_overloaded(CaptureState& state, PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (!override_protocol() || !is_heap_type(type)) return false;
  if (is_stand_in(state, object) && !state.tracer.is_subclass(object))
    return false;
  FJ_CHECK_OK(guard_overriding_class(state, type));
  return state.tracer.is_overloaded(object);
}

Status check_answers_itself(CaptureState& state, PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (!override_protocol() || !is_heap_type(type) || is_stand_in(state, object))
    return ok_status();
  FJ_TRY(Ref getter, state.type_lookup(type, interned("__getattribute__")));
  FJ_TRY(Ref hook, state.type_lookup(type, interned("__getattr__")));
  bool answers = hook || (getter && PyFunction_Check(getter.get()));
  if (!answers) {
    FJ_TRY(Ref dict, state.instance_dict(object));
    if (dict) {
      FJ_TRY(Ref own, state.dict_get(dict.get(), method_name()));
      answers = static_cast<bool>(own);
    }
  }
  if (!answers) return ok_status();
  return state.make_break(BreakReason::kUnsupportedAttribute,
                          std::string(override_protocol()->method) +
                              " of an object of " + type->tp_name);
}

Result<bool> asks_override(CaptureState& state,
                           const std::vector<PyObject*>& objects) {
  return asks_one_of(state, objects, true);
}

Result<bool> has_override(CaptureState& state,
                          const std::vector<PyObject*>& objects) {
  return asks_one_of(state, objects, false);
}

Result<Ref> call_override(CaptureState& state, PyObject* callable,
                          const std::vector<PyObject*>& args,
                          PyObject* kwnames) {
  std::vector<PyObject*> objects;
  Ref self = bound_to(callable);
  if (self) objects.push_back(self.get());
  objects.insert(objects.end(), args.begin(), args.end());
  FJ_TRY(bool asks, asks_override(state, objects));
  if (!asks || !asks_item(state, callable, objects)) return Ref();
  FJ_TRY(std::optional<FunctionOverride> call,
         state.tracer.find_override(callable, args, kwnames));
  if (!call) return Ref();
  Ref types = call->types;
  if (state.table<OverrideState>().level != OverrideState::kAsksAll) {
    types = Ref::steal(PyTuple_New(0));
    if (!types) return Result<Ref>::raised();
  }
  bool mode = is_override_mode_active(state);
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
                              "an argument that is asked is nested too deeply");
    }
    FJ_TRY(Ref answer, ask(state, object, *call, types.get()));
    if (answer.get() != Py_NotImplemented) return answer;
  }
  if (count == 0) return Ref();  // the mode lets it pass
  return state.make_break(BreakReason::kTensorSubclass,
                          std::string("every ") + override_protocol()->method +
                              " gives NotImplemented");
}

Result<Ref> operate(CaptureState& state, PyObject* function,
                    std::vector<PyObject*> operands) {
  // Operators of Python's numbers ask nobody; symbols that stand for them would
  // let a mode see what they are made of.
  bool numbers =
      std::all_of(operands.begin(), operands.end(), [&](PyObject* operand) {
        return is_symbolic(state, operand) || is_builtin_constant(operand);
      });
  if (numbers) return state.tracer.operate(function, operands);
  Result<Ref> answer = call_override(state, function, operands);
  if (answer.is_raised() && PyErr_ExceptionMatches(PyExc_TypeError)) {
    // The slot of the operator makes NotImplemented of it.
    PyErr_Clear();
    return state.make_break(BreakReason::kTensorSubclass,
                            std::string("a TypeError of ") +
                                override_protocol()->method +
                                " in an operator");
  }
  if (!answer.ok() || answer.value()) return answer;
  return state.tracer.operate(function, operands);
}

bool is_library_attribute(PyTypeObject* type, PyObject* name) {
  PyObject* mro = type->tp_mro;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    Ref dict = own_dict(base);
    if (!dict || !PyDict_GetItem(dict.get(), name)) continue;
    if (!is_heap_type(base)) return true;
    const OverrideProtocol* protocol = override_protocol();
    return protocol &&
           is_in_package(PyDict_GetItemString(dict.get(), "__module__"),
                         protocol->package);
  }
  return true;
}

Result<Ref> call_tensor_special(CaptureState& state, PyObject* stand_in,
                                const char* name) {
  FJ_TRY(Ref own, state.python_special(stand_in, name));
  if (own) return state.caller.call(own.get(), {stand_in});
  FJ_TRY(bool asks, asks_override(state, {stand_in}));
  if (!asks) return Ref();
  FJ_TRY(Ref raw, state.type_lookup(Py_TYPE(stand_in), interned(name)));
  if (!raw) return Ref();
  return state.caller.call(raw.get(), {stand_in});
}

void push_override_mode(CaptureState& state, PyObject* mode) {
  state.table<OverrideState>().modes.push_back(Ref::borrow(mode));
  note_change(state);
}

Ref pop_override_mode(CaptureState& state) {
  auto& modes = state.table<OverrideState>().modes;
  Ref mode = std::move(modes.back());
  modes.pop_back();
  note_change(state);
  return mode;
}

void switch_overrides_off(CaptureState& state, PyObject* by,
                          OverrideState::Level level) {
  OverrideState& overrides = state.table<OverrideState>();
  overrides.before[by] = overrides.level;
  overrides.level = std::max<int>(overrides.level, level);
  note_change(state);
}

bool switch_overrides_back(CaptureState& state, PyObject* by) {
  OverrideState& overrides = state.table<OverrideState>();
  auto before = overrides.before.find(by);
  if (before == overrides.before.end()) return false;
  overrides.level = before->second;
  note_change(state);
  return true;
}

WithoutOverridingClasses::WithoutOverridingClasses(CaptureState& state)
    : overrides_(state.table<OverrideState>()), before_(overrides_.level) {
  overrides_.level = std::max<int>(before_, OverrideState::kAsksModes);
}
WithoutOverridingClasses::~WithoutOverridingClasses() {
  overrides_.level = before_;
}

}  // namespace framejit::bytecode
