// What a call does, by the kind of callable. Python functions are inlined,
// torch's callables are the tracer's, C callables are rows of the object model.
#include "bytecode/calls.h"

#include "bytecode/builtins.h"
#include "bytecode/generators.h"
#include "bytecode/handlers.h"
#include "bytecode/nn_module.h"
#include "bytecode/torch_functions.h"
#include "frame_hook/compiled_function.h"
#include "frame_hook/frame_eval.h"

namespace framejit::bytecode {
namespace {

bool is_plain_c_callable(PyObject* callable) {
  return PyCFunction_Check(callable) ||
         Py_IS_TYPE(callable, &PyMethodDescr_Type) ||
         Py_IS_TYPE(callable, &PyWrapperDescr_Type) ||
         Py_IS_TYPE(callable, &PyClassMethodDescr_Type) ||
         is_method_wrapper(callable);
}

std::string text_attribute(PyObject* object, const char* name) {
  Ref value = Ref::steal(PyObject_GetAttrString(object, name));
  const char* text = value && PyUnicode_Check(value.get())
                         ? PyUnicode_AsUTF8(value.get())
                         : nullptr;
  if (!text) PyErr_Clear();
  return text ? text : "";
}

// The value of a free variable of the function.
PyObject* free_variable(PyFunctionObject* function, const char* name) {
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  Ref names = Ref::steal(PyCode_GetFreevars(code));
  if (!names || !function->func_closure) {
    PyErr_Clear();
    return nullptr;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names.get()); ++i) {
    PyObject* item = PyTuple_GET_ITEM(names.get(), i);
    if (PyUnicode_CompareWithASCIIString(item, name) == 0)
      return PyCell_GET(PyTuple_GET_ITEM(function->func_closure, i));
  }
  return nullptr;
}

// Wrappers of libraries that run the function they wrap: torch marks functions
// that its own compiler is to leave alone (Optimizer.zero_grad and others) and,
// once that compiler has run, notes which modules were made since; a
// dataclass's __repr__ looks whether it is running already, which here ends as
// a break for too deep a recursion.
PyObject* behind_wrapper(PyObject* function) {
  // Where the wrapped function is: a free variable, or else __wrapped__.
  struct Wrapper {
    const char* name;
    const char* module;
    const char* variable;
  };
  static constexpr Wrapper kWrappers[] = {
      {"_disable_dynamo.<locals>.inner", "torch._compile", nullptr},
      {"_recursive_repr.<locals>.wrapper", "dataclasses", nullptr},
      {"install_generation_tagging_init.<locals>.patched_init",
       "torch._dynamo.mutation_guard", "init"},
      {"install_generation_tagging_init.<locals>.patched_setstate",
       "torch._dynamo.mutation_guard", "setstate"}};
  auto* object = reinterpret_cast<PyFunctionObject*>(function);
  auto* code = reinterpret_cast<PyCodeObject*>(object->func_code);
  for (const auto& [name, module, variable] : kWrappers) {
    if (PyUnicode_CompareWithASCIIString(code->co_qualname, name) != 0)
      continue;
    PyObject* home = PyDict_GetItemString(object->func_globals, "__name__");
    if (!home || !PyUnicode_Check(home) ||
        PyUnicode_CompareWithASCIIString(home, module) != 0)
      continue;
    PyObject* wrapped =
        variable ? free_variable(object, variable)
        : object->func_dict
            ? PyDict_GetItemString(object->func_dict, "__wrapped__")
            : nullptr;
    return wrapped && PyFunction_Check(wrapped) ? wrapped : nullptr;
  }
  return nullptr;
}

// Could calling it change an object that this capture made? Those have no write
// log. Objects are looked at natively: cells of fresh closures are real cells.
bool reaches_fresh_object(CaptureState& state, PyObject* object, int depth) {
  if (!object || state.is_input(object) || PyType_Check(object)) return false;
  if (state.tracer.classify(object) != ObjectClass::kPlain) return false;
  if (object == Py_None || PyBool_Check(object) || PyLong_CheckExact(object) ||
      PyFloat_CheckExact(object) || PyUnicode_CheckExact(object) ||
      PyModule_Check(object)) {
    return false;
  }
  if (depth > 8) return true;
  auto any = [&](PyObject* tuple) {
    for (Py_ssize_t i = 0; tuple && i < PyTuple_GET_SIZE(tuple); ++i) {
      PyObject* item = PyTuple_GET_ITEM(tuple, i);
      if (PyCell_Check(item)) item = PyCell_GET(item);
      if (reaches_fresh_object(state, item, depth + 1)) return true;
    }
    return false;
  };
  if (PyTuple_CheckExact(object)) return any(object);
  if (PyFunction_Check(object)) {
    auto* function = reinterpret_cast<PyFunctionObject*>(object);
    return any(function->func_closure) || any(function->func_defaults) ||
           function->func_kwdefaults;
  }
  if (PyMethod_Check(object)) {
    return reaches_fresh_object(state, PyMethod_GET_SELF(object), depth + 1) ||
           reaches_fresh_object(state, PyMethod_GET_FUNCTION(object),
                                depth + 1);
  }
  return true;
}

// A gradient function runs when the backward does: what it writes meanwhile
// would be written too early. The function of a checkpoint runs a second time
// then.
Result<Ref> call_without_effects(Interpreter& interpreter,
                                 const Arguments& args, PyObject* kwnames) {
  if (reaches_fresh_object(interpreter.state, args.at(0), 0)) {
    return interpreter.make_break(
        BreakReason::kSideEffectCallee,
        "a function run by the backward that may change objects made in this "
        "one");
  }
  size_t writes = interpreter.state.writes().size();
  Arguments rest(args.begin() + 1, args.end());
  FJ_TRY(Ref result, interpreter.call(args.at(0), std::move(rest), kwnames));
  if (interpreter.state.writes().size() == writes) return result;
  return interpreter.make_break(
      BreakReason::kSideEffectCallee,
      "a function run by the backward that writes to objects outside it");
}

// torch.compiler.assume_constant_result: the author of the function promises
// that its answer never changes, so it is asked once.
Result<Ref> call_constant_function(Interpreter& interpreter, PyObject* function,
                                   const Arguments& args, PyObject* kwnames) {
  CaptureState& state = interpreter.state;
  Arguments values;
  for (PyObject* arg : args) {
    if (!state.is_constant(arg) && !PyType_Check(arg) &&
        !(state.is_input(arg) && state.writes().empty())) {
      return interpreter.make_break(
          BreakReason::kUnguardableInput,
          "assume_constant_result: an argument that is no constant");
    }
    values.push_back(arg);
  }
  Ref result;
  {
    PauseHook pause;
    values.push_back(nullptr);
    size_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    FJ_TRY(result,
           state.after_native(PyObject_Vectorcall(
               function, values.data(), args.size() - keywords, kwnames)));
  }
  return state.wrap(result.get(),
                    state.guards.sources().constant(result.get()));
}

// framejit/_regions.py says in Python what some functions of the library mean;
// it is interpreted in their place. Borrowed, or null.
PyObject* replacement_of(PyObject* function) {
  ErrorGuard keep;
  static PyObject* table = [] {
    PauseHook pause;
    Ref module = Ref::steal(PyImport_ImportModule("framejit._regions"));
    Ref found =
        Ref::steal(module ? PyObject_GetAttrString(module.get(), "REPLACEMENTS")
                          : nullptr);
    PyErr_Clear();  // the lower half alone
    return found.release();
  }();
  if (!table) return nullptr;
  return PyDict_GetItemString(table, callable_name(function).c_str());
}

}  // namespace

std::string callable_name(PyObject* callable) {
  ErrorGuard keep;
  if (PyMethod_Check(callable)) {
    return callable_name(PyMethod_GET_FUNCTION(callable));
  }
  if (!PyFunction_Check(callable) && !PyType_Check(callable) &&
      !is_plain_c_callable(callable)) {
    return std::string("object of type ") + Py_TYPE(callable)->tp_name;
  }
  std::string name = text_attribute(callable, "__qualname__");
  if (name.empty()) name = text_attribute(callable, "__name__");
  std::string module = text_attribute(callable, "__module__");
  if (module.empty() || module == "builtins") return name;
  return module + "." + name;
}

const Source* Interpreter::function_source(PyObject* function) {
  if (is_fresh_function(function)) return nullptr;
  if (const Source* source = state.source_of(function)) return source;
  // Reached through something whose identity is guarded.
  state.pin(function);
  return state.source_of(function);
}

void Interpreter::add_fresh_function(PyObject* function) {
  fresh_functions_.insert(function);
}

// The frame's own builtins: super() without arguments, globals().
Result<Ref> Interpreter::call_frame_builtin(PyObject* callable,
                                            const Arguments& args,
                                            PyObject* kwnames, bool* handled) {
  *handled = true;
  if (PyCFunction_Check(callable) &&
      std::string_view(
          reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name) ==
          "__build_class__") {
    return build_class(args, kwnames);
  }
  if (callable == reinterpret_cast<PyObject*>(&PySuper_Type) && args.empty()) {
    return make_super();
  }
  if (PyCFunction_Check(callable) && !args.empty() && args.size() <= 3 &&
      !kwnames) {
    bool is_eval = callable == library_object("builtins", "eval");
    if (is_eval || callable == library_object("builtins", "exec")) {
      return run_code(args, is_eval);
    }
    if (args.size() == 3 && frame &&
        callable == library_object("builtins", "compile")) {
      return compile_text(*this, args);
    }
  }
  if (PyCFunction_Check(callable) && args.empty() && frame) {
    const char* name =
        reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
    PyObject* self = PyCFunction_GET_SELF(callable);
    bool is_builtin = self && PyModule_Check(self) &&
                      std::string_view(PyModule_GetName(self)) == "builtins";
    if (is_builtin && std::string_view(name) == "globals") {
      return Ref::borrow(frame->globals.get());
    }
    if (is_builtin && (std::string_view(name) == "locals" ||
                       std::string_view(name) == "vars")) {
      return frame_locals();
    }
    if (is_builtin && std::string_view(name) == "dir") {
      FJ_TRY(Ref dict, frame_locals());
      FJ_TRY(Ref names, from_api(PyDict_Keys(dict.get())));
      if (PyList_Sort(names.get()) < 0) return Result<Ref>::raised();
      return names;
    }
  }
  *handled = false;
  return Ref();
}

// locals(): until 3.13 one dict a frame, brought up to date by each call.
Result<Ref> Interpreter::frame_locals() {
  if (!frame->locals || PY_VERSION_HEX >= 0x030D0000) {
    FJ_TRY(frame->locals, from_api(PyDict_New()));
  }
  PyObject* dict = frame->locals.get();
  for (int slot = 0; slot < frame->decoded->num_slots(); ++slot) {
    PyObject* name = frame->decoded->slot_name(slot);
    // The stack values of a resume function.
    if (PyUnicode_GET_LENGTH(name) > 1 && PyUnicode_ReadChar(name, 0) == '.' &&
        PyUnicode_ReadChar(name, 1) == 's') {
      continue;
    }
    FJ_CHECK_OK(read_argument(*this, *frame, slot));
    Ref value = frame->slots[slot];
    if (value && PyCell_Check(value.get()) &&
        (frame->decoded->slot_is_cell(slot) ||
         slot >= frame->decoded->first_free())) {
      FJ_TRY(value, state.cell_get(value.get()));
    }
    if (value) {
      if (PyDict_SetItem(dict, name, value.get()) < 0) {
        return Result<Ref>::raised();
      }
    } else if (PyDict_DelItem(dict, name) < 0) {
      PyErr_Clear();
    }
  }
  return frame->locals;
}

Result<Ref> Interpreter::make_super() {
  FJ_CHECK(frame);
  PyCodeObject* code = frame->code_object();
  int first_free = frame->decoded->first_free();
  for (int slot = 0; slot < frame->decoded->num_slots(); ++slot) {
    if (slot == 0 || slot >= first_free) {
      FJ_CHECK_OK(read_argument(*this, *frame, slot));
    }
  }
  PyObject* class_cell = nullptr;
  for (int slot = first_free; slot < frame->decoded->num_slots(); ++slot) {
    if (PyUnicode_CompareWithASCIIString(frame->decoded->slot_name(slot),
                                         "__class__") == 0) {
      class_cell = frame->slots[slot].get();
    }
  }
  // In the order of CPython's own checks.
  const char* missing = nullptr;
  Ref self, type;
  if (code->co_argcount == 0) {
    missing = "no arguments";
  } else {
    self = frame->slots[0];
    if (self && PyCell_Check(self.get()) && frame->decoded->slot_is_cell(0)) {
      FJ_TRY(self, state.cell_get(self.get()));
    }
    if (!self) missing = "arg[0] deleted";
  }
  if (!missing && !class_cell) missing = "__class__ cell not found";
  if (!missing) {
    FJ_TRY(type, state.cell_get(class_cell));
    if (!type) missing = "empty __class__ cell";
  }
  if (missing) {
    return raise_format(PyExc_RuntimeError, "super(): %s", missing)
        .forward<Ref>();
  }
  return from_api(
      PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(&PySuper_Type),
                                   type.get(), self.get(), nullptr));
}

Result<Ref> Interpreter::call_method(PyObject* method, const Arguments& args,
                                     PyObject* kwnames) {
  FJ_TRY(auto parts, state.method_parts(method));
  Arguments all;
  all.reserve(args.size() + 1);
  all.push_back(parts.second.get());
  all.insert(all.end(), args.begin(), args.end());
  return call(parts.first.get(), std::move(all), kwnames);
}

Result<Ref> Interpreter::call_object(PyObject* callable, const Arguments& args,
                                     PyObject* kwnames) {
  FJ_TRY(Ref special, state.python_special(callable, "__call__"));
  if (!special) {
    if (is_heap_type(Py_TYPE(callable))) {
      // `__call__ = some C function`: it does not bind.
      FJ_TRY(Ref raw,
             state.type_lookup(Py_TYPE(callable), interned("__call__")));
      if (raw && PyCFunction_Check(raw.get())) {
        return call(raw.get(), args, kwnames);
      }
    }
    if (!Py_TYPE(callable)->tp_call) {
      return raise_format(PyExc_TypeError, "'%.200s' object is not callable",
                          Py_TYPE(callable)->tp_name)
          .forward<Ref>();
    }
    return make_break(BreakReason::kUnknownCallee, callable_name(callable));
  }
  Arguments all;
  all.reserve(args.size() + 1);
  all.push_back(callable);
  all.insert(all.end(), args.begin(), args.end());
  return call(special.get(), std::move(all), kwnames);
}

namespace {

// __torch_function__ of the arguments, before the tracer hears of the call.
Result<Ref> ask_torch(Interpreter& interpreter, CalleeClass kind,
                      PyObject* callable, const Arguments& args,
                      PyObject* kwnames) {
  CaptureState& state = interpreter.state;
  bool method = PyCFunction_Check(callable) ||
                Py_IS_TYPE(callable, &PyMethodDescr_Type) ||
                Py_IS_TYPE(callable, &PyWrapperDescr_Type);
  bool may_ask =
      kind == CalleeClass::kLeaf || (kind == CalleeClass::kUnknown && method) ||
      (kind == CalleeClass::kStateWrite && is_function_mode_active(state)) ||
      kind == CalleeClass::kSubBlock;
  if (!may_ask || PyType_Check(callable)) return Ref();
  if (kind != CalleeClass::kLeaf) {
    FJ_TRY(bool asks, asks_torch_function(state, args));
    if (asks && kind == CalleeClass::kSubBlock) {
      return state.make_break(BreakReason::kTensorSubclass,
                              callable_name(callable));
    }
  }
  return call_torch_function(state, callable, args, kwnames);
}

}  // namespace

Result<Ref> Interpreter::call_foreign(CalleeClass kind, PyObject* callable,
                                      const Arguments& args,
                                      PyObject* kwnames) {
  switch (kind) {
    case CalleeClass::kConstFalse:
      return Ref::borrow(Py_False);
    case CalleeClass::kConstTrue:
      // nn.Module.__call__ asks whether it may leave out hooks that are to run
      // when forward raises. A capture sees exceptions, so it may not.
      if (frame &&
          module_function(frame->function.get()) == ModuleFunction::kCall) {
        return Ref::borrow(Py_False);
      }
      return Ref::borrow(Py_True);
    default:
      break;  // kUnknown, too: the tracer says why
  }
  FJ_TRY(Ref answer, ask_torch(*this, kind, callable, args, kwnames));
  if (answer) return answer;
  // The tracer sees contents: input containers go as their guarded copies.
  std::vector<Ref> prepared;
  Arguments values;
  for (PyObject* arg : args) {
    FJ_TRY(Ref value, prepare_leaf_argument(*this, arg, 0));
    values.push_back(value.get());
    prepared.push_back(std::move(value));
  }
  Ref result;
  if (kind == CalleeClass::kPure) {
    size_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
    // Python beneath it is the library's own.
    PauseHook pause;
    values.push_back(nullptr);
    FJ_TRY(result,
           after_native(PyObject_Vectorcall(callable, values.data(),
                                            args.size() - keywords, kwnames)));
  } else {
    FJ_TRY(result, state.tracer.call(callable, values, kwnames));
  }
  PyObject* original = state.unshadow(result.get());
  return original ? Ref::borrow(original) : result;
}

Result<Ref> prepare_leaf_argument(Interpreter& interpreter, PyObject* value,
                                  int depth) {
  CaptureState& state = interpreter.state;
  if (state.tracer.classify(value) != ObjectClass::kPlain) {
    return Ref::borrow(value);
  }
  // An IntEnum is a number to torch.
  if (PyLong_Check(value) || PyFloat_Check(value) || PyUnicode_Check(value)) {
    return plain_scalar(value);
  }
  if (state.is_input(value) &&
      (PyList_Check(value) || PyDict_Check(value) || PyAnySet_Check(value))) {
    return state.shadow(value);
  }
  constexpr int kMaxNesting = 4;
  bool is_tuple = PyTuple_CheckExact(value), is_list = PyList_CheckExact(value);
  if ((!is_tuple && !is_list) || depth >= kMaxNesting) {
    return Ref::borrow(value);
  }
  // A fresh list or tuple that holds input containers.
  Py_ssize_t count = PySequence_Fast_GET_SIZE(value);
  std::vector<Ref> items;
  bool changed = false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(value, i);
    FJ_TRY(Ref prepared, prepare_leaf_argument(interpreter, item, depth + 1));
    changed |= prepared.get() != item;
    items.push_back(std::move(prepared));
  }
  if (!changed) return Ref::borrow(value);
  FJ_TRY(Ref copy, from_api(is_tuple ? PyTuple_New(count) : PyList_New(count)));
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (is_tuple) {
      PyTuple_SET_ITEM(copy.get(), i, items[i].release());
    } else {
      PyList_SET_ITEM(copy.get(), i, items[i].release());
    }
  }
  return copy;
}

Result<Ref> Interpreter::inline_function(PyObject* function,
                                         const Arguments& args,
                                         PyObject* kwnames) {
  auto* object = reinterpret_cast<PyFunctionObject*>(function);
  int flags = reinterpret_cast<PyCodeObject*>(object->func_code)->co_flags;
  if (flags & (CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE)) {
    return make_break(BreakReason::kGeneratorFrame, callable_name(function));
  }
  if (!(flags & CO_OPTIMIZED)) {
    return make_break(BreakReason::kGeneratorFrame, "class or module body");
  }
  if (depth >= kMaxInlineDepth) {
    return make_break(BreakReason::kTooLarge, "calls nested too deeply");
  }
  ++inlined_calls;
  auto callee = std::make_unique<Frame>();
  FJ_CHECK_OK(prepare_frame(*callee, function));
  callee->generator = (flags & CO_GENERATOR) != 0;
  if (callee->source) {
    // Functions can be given other code, as reloaders do.
    state.guard(
        GuardKind::kIs,
        state.guards.sources().make(SourceKind::kFunctionCode, callee->source),
        object->func_code);
  }
  FJ_CHECK_OK(bind(*callee, args, kwnames));
  FJ_TRY(Exit exit, run(*callee));
  if (exit.flow == Flow::kGenerator) {
    return make_generator(*this, std::move(callee));
  }
  FJ_CHECK(exit.flow == Flow::kReturn, "an inlined function that yielded");
  return std::move(exit.value);
}

// Functions of the framejit package carry attributes that say what they mean
// inside a capture.
Result<Ref> Interpreter::call_marked_function(PyObject* function,
                                              const Arguments& args,
                                              PyObject* kwnames) {
  PyObject* marks = reinterpret_cast<PyFunctionObject*>(function)->func_dict;
  if (!marks || PyDict_GET_SIZE(marks) == 0) return Ref();
  // Using torch.compile marks parts of torch's optimizers, for it has a way of
  // its own to compile them: here they are code like any other.
  if (callable_name(function).starts_with("torch.optim.") &&
      PyDict_Contains(marks, names()._torchdynamo_disable) == 1) {
    PyObject* original = PyDict_GetItemString(marks, "__wrapped__");
    if (original && PyFunction_Check(original)) {
      state.pin(function);
      return call_function(original, args, kwnames);
    }
  }
  if (PyDict_Contains(marks, names()._framejit_disable) == 1 ||
      PyDict_Contains(marks, names()._torchdynamo_disable) == 1) {
    return make_break(BreakReason::kDisabledCallee, callable_name(function));
  }
  if (PyDict_Contains(marks, names()._framejit_graph_break) == 1) {
    std::string detail;
    if (!args.empty() && PyUnicode_Check(args[0])) {
      const char* text = PyUnicode_AsUTF8(args[0]);
      if (text) detail = text;
    }
    PyErr_Clear();
    return make_break(BreakReason::kUserBreak, std::move(detail));
  }
  if (PyDict_Contains(marks, names()._framejit_is_compiling) == 1) {
    return Ref::borrow(Py_True);
  }
  if (PyDict_Contains(marks, names()._dynamo_marked_constant) == 1) {
    return call_constant_function(*this, function, args, kwnames);
  }
  if (PyDict_GetItemString(marks, "_framejit_without_effects")) {
    return call_without_effects(*this, args, kwnames);
  }
  PyErr_Clear();
  return Ref();
}

bool Interpreter::call_from_native(PyObject* function, PyObject* const* args,
                                   size_t num_args, PyObject** result) {
  *result = nullptr;
  try {
    Result<Ref> value = [&]() -> Result<Ref> {
      auto callee = std::make_unique<Frame>();
      FJ_CHECK_OK(prepare_frame(*callee, function));
      FJ_CHECK(num_args <= callee->slots.size());
      for (size_t i = 0; i < num_args; ++i) {
        callee->slots[i] = Ref::borrow(args[i]);
      }
      ++inlined_calls;
      FJ_TRY(Exit exit, run(*callee));
      FJ_CHECK(exit.flow == Flow::kReturn, "a called function that yielded");
      return std::move(exit.value);
    }();
    if (value.ok()) {
      *result = value.value().release();
    } else if (value.broke()) {
      post_break(value.take_break());
    }
  } catch (const InternalError& error) {
    post_break(Break{BreakReason::kInternal, error.message(), here()});
  } catch (const std::exception& error) {
    post_break(Break{BreakReason::kInternal, error.what(), here()});
  }
  return true;
}

Result<Ref> Interpreter::call_function(PyObject* function,
                                       const Arguments& args,
                                       PyObject* kwnames) {
  Ref own;
  FJ_TRY(own, call_marked_function(function, args, kwnames));
  if (own) return own;
  if (!is_fresh_function(function)) {
    CalleeClass kind = state.tracer.classify_callee(function);
    if (kind == CalleeClass::kSubBlock) {
      FJ_CHECK_OK(ask_torch(*this, kind, function, args, kwnames));
      HiddenFrames hidden(*this);
      PyObject* own = replacement_of(function);
      if (own) return inline_function(own, args, kwnames);
    }
    if (kind != CalleeClass::kNotForeign && kind != CalleeClass::kInline) {
      return call_foreign(kind, function, args, kwnames);
    }
    if (PyObject* wrapped = behind_wrapper(function)) {
      HiddenFrames hidden(*this);
      state.pin(function);
      return call_function(wrapped, args, kwnames);
    }
    HiddenFrames hidden(*this);
    bool handled = false;
    Result<Ref> result =
        call_module_function(*this, function, args, kwnames, &handled);
    if (handled) return result;
    // Rows may replace library functions (copy.deepcopy ...).
    FJ_TRY(Ref row, state.call_builtin(function, args, kwnames));
    if (row) return row;
    FJ_TRY(row, call_dispatch(state, function, args));
    if (row) return row;
  }
  return inline_function(function, args, kwnames);
}

Result<Ref> Interpreter::call(PyObject* callable, std::vector<PyObject*> args,
                              PyObject* kwnames) {
  FJ_CHECK(callable, "call of NULL");
  // Whoever passes borrowed values may drop them in the callee.
  Ref keep = Ref::borrow(callable);
  Ref keep_names = Ref::borrow(kwnames);
  std::vector<Ref> keep_args;
  keep_args.reserve(args.size());
  for (PyObject* arg : args) keep_args.push_back(Ref::borrow(arg));
  if (PyFunction_Check(callable)) return call_function(callable, args, kwnames);
  if (PyMethod_Check(callable)) return call_method(callable, args, kwnames);
  bool handled = false;
  Result<Ref> own = call_frame_builtin(callable, args, kwnames, &handled);
  if (handled) return own;
  if (PyCFunction_Check(callable)) {
    PyObject* self = PyCFunction_GET_SELF(callable);
    if (self && state.is_input(callable) && PyType_Check(self)) {
      // The method is guarded by identity, and with it the class it is of.
      state.pin(self);
    }
    if (self && is_generator(self)) {
      std::vector<PyObject*> values = args;
      return after_native(PyObject_Vectorcall(
          callable, values.data(),
          values.size() - (kwnames ? PyTuple_GET_SIZE(kwnames) : 0), kwnames));
    }
  }
  CalleeClass kind = state.tracer.classify_callee(callable);
  if (kind != CalleeClass::kNotForeign && kind != CalleeClass::kInline) {
    // An object that is called (torch.ops.aten.add): its type was guarded, but
    // it is this one that the graph calls.
    if (!is_plain_c_callable(callable) && !PyType_Check(callable)) {
      state.pin(callable);
    }
    return call_foreign(kind, callable, args, kwnames);
  }
  if (is_compiled_function(callable)) {
    // A compiled function called inside another is part of it.
    state.pin(callable);
    return call(reinterpret_cast<CompiledFunction*>(callable)->function,
                std::move(args), kwnames);
  }
  FJ_TRY(Ref row, state.call_builtin(callable, args, kwnames));
  if (row) return row;
  if (is_plain_c_callable(callable) || PyType_Check(callable)) {
    return make_break(BreakReason::kUnknownCallee, callable_name(callable));
  }
  return call_object(callable, args, kwnames);
}

}  // namespace framejit::bytecode
