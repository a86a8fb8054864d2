// What a call does, by the kind of callable. Python functions are inlined,
// operations on tensors are the tracer's, C callables are rows of the object
// model.
#include "bytecode/interpreter/calls.h"

#include "bytecode/builtins/builtins.h"
#include "bytecode/interpreter/generators.h"
#include "bytecode/interpreter/handlers.h"
#include "bytecode/library/library.h"
#include "bytecode/objects/breaks.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/exceptions.h"
#include "bytecode/objects/moved_texts.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/overrides.h"
#include "bytecode/objects/remade_functions.h"
#include "bytecode/objects/write_log.h"
#include "bytecode/residual/residual.h"
#include "frame_hook/compiled_function.h"
#include "frame_hook/cpython_internals.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/native_stack.h"
#include "frame_hook/python_text.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {
namespace {

bool is_plain_c_callable(PyObject* callable) {
  return PyCFunction_Check(callable) ||
         Py_IS_TYPE(callable, &PyMethodDescr_Type) ||
         Py_IS_TYPE(callable, &PyWrapperDescr_Type) ||
         Py_IS_TYPE(callable, &PyClassMethodDescr_Type) ||
         is_method_wrapper(callable);
}

// x.__setattr__ and the like, of a tensor and not its class's own: the tensor.
Ref tensor_of_attribute_method(CaptureState& state, PyObject* callable,
                               PyObject** method) {
  if (!is_method_wrapper(callable)) return Ref();
  ErrorGuard keep;
  const std::string name = text_attribute(callable, "__name__");
  Ref self = Ref::steal(PyObject_GetAttrString(callable, "__self__"));
  Ref owner = Ref::steal(PyObject_GetAttrString(callable, "__objclass__"));
  const bool is_one =
      (name == "__getattribute__" || name == "__setattr__" ||
       name == "__delattr__") &&
      owner.get() == reinterpret_cast<PyObject*>(&PyBaseObject_Type) && self &&
      is_stand_in(state, self.get());
  if (!is_one) return Ref();
  *method = raw_lookup(&PyBaseObject_Type, name.c_str());
  return self;
}

}  // namespace

std::string callable_name(PyObject* callable) {
  if (native_stack_low()) return "a callable";
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
  // sys has it from 3.12 on.
  if (PyCFunction_Check(callable) && args.size() == 1 && frame && !kwnames &&
      std::string_view(
          reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name) ==
          "_getframemodulename" &&
      is_function_of_module(callable, "sys")) {
    return frame_module_name(*this, args[0]);
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
  if (!frame->locals || internals::kLocalsAreSnapshots) {
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
    // The namespace of a class has no free variables.
    if (slot >= frame->decoded->first_free() &&
        !(frame->code_object()->co_flags & CO_OPTIMIZED))
      continue;
    FJ_CHECK_OK(read_argument(*this, *frame, slot));
    Ref value = frame->slots[slot];
    if (value && PyCell_Check(value.get()) &&
        (frame->decoded->slot_is_cell(slot) ||
         slot >= frame->decoded->first_free())) {
      FJ_TRY(value, state.cell_get(value.get()));
    }
    if (value) {
      pin_remade(state, value.get());
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

// A sub-block in C that belongs to a module is a step of what stands for one:
// no function of the library, which would ask.
bool is_step_of_substitute(CalleeClass kind, PyObject* callable) {
  return kind == CalleeClass::kSubBlock && PyCFunction_Check(callable) &&
         PyCFunction_GET_SELF(callable) &&
         PyModule_Check(PyCFunction_GET_SELF(callable));
}

// Does what stands for the sub-block call what the library's own body calls? A
// mode that the program has entered then sees the same.
bool shows_its_calls(PyObject* function) {
  PyObject* own =
      PyFunction_Check(function) ? find_substitute(function) : nullptr;
  PyObject* marks = own && PyFunction_Check(own)
                        ? reinterpret_cast<PyFunctionObject*>(own)->func_dict
                        : nullptr;
  return marks && PyDict_GetItemString(marks, "_framejit_shows_its_calls");
}

// Would the library ask somebody that cannot be asked about a sub-block?
Result<bool> asks_about_block(Interpreter& interpreter, PyObject* callable,
                              const Arguments& args) {
  CaptureState& state = interpreter.state;
  if (!is_override_mode_active(state) || !shows_its_calls(callable))
    return asks_override(state, args);
  for (PyObject* arg : args) {
    bool is_sequence = PyTuple_Check(arg) || PyList_Check(arg);
    Py_ssize_t count = is_sequence ? PySequence_Fast_GET_SIZE(arg) : 0;
    FJ_TRY(bool asks, is_overloaded(state, arg));
    for (Py_ssize_t i = 0; !asks && i < count; ++i) {
      FJ_TRY(asks, is_overloaded(state, PySequence_Fast_GET_ITEM(arg, i)));
    }
    if (asks) return true;
  }
  return false;
}

// Overrides of the arguments, before the tracer hears of the call.
Result<Ref> ask_overrides(Interpreter& interpreter, CalleeClass kind,
                          PyObject* callable, const Arguments& args,
                          PyObject* kwnames) {
  CaptureState& state = interpreter.state;
  bool method = PyCFunction_Check(callable) ||
                Py_IS_TYPE(callable, &PyMethodDescr_Type) ||
                Py_IS_TYPE(callable, &PyWrapperDescr_Type);
  bool may_ask =
      kind == CalleeClass::kLeaf || (kind == CalleeClass::kUnknown && method) ||
      (kind == CalleeClass::kStateWrite && is_override_mode_active(state)) ||
      kind == CalleeClass::kSubBlock;
  if (!may_ask || PyType_Check(callable)) return Ref();
  if (is_step_of_substitute(kind, callable)) return Ref();
  if (kind == CalleeClass::kSubBlock) {
    FJ_TRY(bool asks, asks_about_block(interpreter, callable, args));
    if (asks) {
      return state.make_break(BreakReason::kTensorSubclass,
                              callable_name(callable));
    }
    if (is_override_mode_active(state)) return Ref();
  }
  return call_override(state, callable, args, kwnames);
}

// What the library's is_compiling() answers.
Ref is_compiling_here(Frame* frame) {
  const FastPathRow* caller =
      frame ? original_rows(frame->code.get()).fast_path : nullptr;
  return py_bool(!caller || caller->is_compiling);
}

}  // namespace

namespace {

// What C code asks an object for that is to be a number or several. Methods in
// Python would run beside the capture, whose program then knows their answers.
Status check_no_answers(CaptureState& state, PyObject* value) {
  for (const char* method : {"__iter__", "__len__", "__getitem__", "__index__",
                             "__int__", "__float__"}) {
    FJ_TRY(Ref special, state.python_special(value, method));
    if (special) return unguardable(state, value, "the contents");
  }
  return ok_status();
}

// torch.Size
bool is_class_of_tuples(PyObject* callable) {
  return PyType_Check(callable) &&
         PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(callable),
                          &PyTuple_Type);
}

// torch.Size() of a generator, a deque, the keys of a dict: what they give, one
// by one, as a list. Empty: it is none of these.
Result<Ref> listed_argument(CaptureState& state, PyObject* value) {
  if (PyTuple_Check(value) || PyList_Check(value) || PyUnicode_Check(value) ||
      !Py_TYPE(value)->tp_iter ||
      state.tracer.classify(value) != ObjectClass::kPlain)
    return Ref();
  // Of a class in Python C code asks in its own order.
  for (const char* method : {"__iter__", "__len__", "__length_hint__"}) {
    FJ_TRY(Ref special, state.python_special(value, method));
    if (special) return Ref();
  }
  FJ_TRY(std::vector<Ref> items, state.elements(value));
  FJ_TRY(Ref list, from_api(PyList_New(0)));
  for (const Ref& item : items)
    if (PyList_Append(list.get(), item.get()) < 0) return Result<Ref>::raised();
  return list;
}

// Lists and tuples of numbers, texts and what the library has for its own: of
// other objects (a deque, an iterator, an array) the callee would read what
// nothing guards.
Status check_pure_argument(CaptureState& state, PyObject* value, int depth) {
  if (state.tracer.classify(value) != ObjectClass::kPlain) return ok_status();
  FJ_CHECK_OK(check_no_answers(state, value));
  if (PyLong_Check(value) || PyFloat_Check(value) || PyComplex_Check(value) ||
      PyUnicode_Check(value) || is_builtin_constant(value))
    return ok_status();
  if (!PyTuple_Check(value) && !PyList_Check(value))
    return unguardable(state, value, "the contents");
  constexpr int kMaxNesting = 4;
  if (depth >= kMaxNesting) return unguardable(state, value, "the contents");
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value); ++i)
    FJ_CHECK_OK(check_pure_argument(state, PySequence_Fast_GET_ITEM(value, i),
                                    depth + 1));
  return ok_status();
}

}  // namespace

Result<Ref> Interpreter::call_foreign(CalleeClass kind, PyObject* callable,
                                      const Arguments& args,
                                      PyObject* kwnames) {
  switch (kind) {
    case CalleeClass::kConstFalse:
      return Ref::borrow(Py_False);
    case CalleeClass::kConstTrue:
      return is_compiling_here(frame);
    default:
      break;  // kUnknown, too: the tracer says why
  }
  FJ_CHECK_OK(check_given_to_c(state, args));
  pin_all_remade(state, args);
  FJ_TRY(Ref answer, ask_overrides(*this, kind, callable, args, kwnames));
  if (answer) return answer;
  // The tracer sees contents: input containers go as their guarded copies.
  std::vector<Ref> prepared;
  Arguments values;
  // torch.Size keeps what it is given.
  const Scalars as =
      kind == CalleeClass::kPure ? Scalars::kThemselves : Scalars::kPlain;
  for (PyObject* arg : args) {
    Ref listed;
    if (kind == CalleeClass::kPure && is_class_of_tuples(callable)) {
      FJ_TRY(listed, listed_argument(state, arg));
      if (listed) arg = listed.get();
    }
    FJ_TRY(Ref value, prepare_leaf_argument(*this, arg, 0, as));
    values.push_back(value.get());
    prepared.push_back(std::move(value));
  }
  Ref result;
  if (kind == CalleeClass::kPure) {
    for (PyObject* value : values)
      FJ_CHECK_OK(check_pure_argument(state, value, 0));
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
                                  int depth, Scalars scalars) {
  CaptureState& state = interpreter.state;
  if (state.tracer.classify(value) != ObjectClass::kPlain) {
    return Ref::borrow(value);
  }
  // An IntEnum is a number to the library.
  if (PyLong_Check(value) || PyFloat_Check(value) || PyUnicode_Check(value)) {
    FJ_CHECK_OK(check_no_answers(state, value));
    if (scalars == Scalars::kThemselves) return Ref::borrow(value);
    return plain_scalar(value);
  }
  if (state.is_input(value) &&
      (PyList_Check(value) || PyDict_Check(value) || PyAnySet_Check(value))) {
    return state.shadow(value);
  }
  constexpr int kMaxNesting = 4;
  bool is_tuple = PyTuple_CheckExact(value), is_list = PyList_CheckExact(value);
  // The library may read the elements as they lie, or ask for each.
  if (!is_tuple && !is_list && (PyTuple_Check(value) || PyList_Check(value)))
    FJ_CHECK_OK(check_no_answers(state, value));
  if ((!is_tuple && !is_list) || depth >= kMaxNesting) {
    return Ref::borrow(value);
  }
  // A fresh list or tuple that holds input containers.
  Py_ssize_t count = PySequence_Fast_GET_SIZE(value);
  std::vector<Ref> items;
  bool changed = false;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(value, i);
    FJ_TRY(Ref prepared,
           prepare_leaf_argument(interpreter, item, depth + 1, scalars));
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
  FJ_CHECK_OK(check_depth());
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
  size_t before = instructions();
  FJ_TRY(Exit exit, run(*callee));
  if (state.request.leaves_repeated_calls && frame && frame->outermost &&
      repeated_calls.add(
          function,
          args.empty() || is_stand_in(state, args[0]) ? nullptr : args[0],
          instructions() - before)) {
    return make_break(BreakReason::kRepeatedCall, callable_name(function));
  }
  if (exit.flow == Flow::kGenerator) {
    return make_generator(*this, std::move(callee));
  }
  FJ_CHECK(exit.flow == Flow::kReturn, "an inlined function that yielded");
  return std::move(exit.value);
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
      // C code cannot see a number in a symbolic one.
      if (is_symbolic(state, exit.value.get()))
        return state.tracer.concretise(exit.value.get());
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
      FJ_CHECK_OK(ask_overrides(*this, kind, function, args, kwnames));
      HiddenFrames hidden(*this);
      PyObject* own = find_substitute(function);
      if (own) return inline_function(own, args, kwnames);
    }
    if (kind != CalleeClass::kNotForeign && kind != CalleeClass::kInline) {
      return call_foreign(kind, function, args, kwnames);
    }
    FunctionRows rows = find_function(PyFunction_GET_CODE(function));
    PyObject* wrapped =
        rows.wrapper ? wrapped_by(function, *rows.wrapper) : nullptr;
    HiddenFrames hidden(*this);
    if (wrapped) {
      state.pin(function);
      return call_function(wrapped, args, kwnames);
    }
    if (rows.fast_path) {
      pin_all_remade(state, args);
      bool handled = false;
      Result<Ref> result =
          rows.fast_path->run(*this, function, args, kwnames, &handled);
      if (handled || !result.ok()) return result;
    }
    // Rows may replace library functions (copy.deepcopy ...).
    FJ_TRY(Ref row, call_builtin(state, function, args, kwnames));
    if (row) return row;
    FJ_TRY(row, call_dispatch(state, function, args));
    if (row) return row;
  }
  return inline_function(function, args, kwnames);
}

Result<Ref> Interpreter::call(PyObject* callable, std::vector<PyObject*> args,
                              PyObject* kwnames) {
  FJ_CHECK_OK(check_depth());
  FJ_CHECK(callable, "call of NULL");
  // Whoever passes borrowed values may drop them in the callee.
  Ref keep = Ref::borrow(callable);
  Ref keep_names = Ref::borrow(kwnames);
  std::vector<Ref> keep_args;
  keep_args.reserve(args.size());
  for (PyObject* arg : args) keep_args.push_back(Ref::borrow(arg));
  if (PyFunction_Check(callable)) return call_function(callable, args, kwnames);
  if (PyMethod_Check(callable)) return call_method(callable, args, kwnames);
  pin_all_remade(state, args);
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
  PyObject* method = nullptr;
  if (Ref self = tensor_of_attribute_method(state, callable, &method)) {
    args.insert(args.begin(), self.get());
    return call_builtin(state, method, args, kwnames);
  }
  CalleeClass kind = state.tracer.classify_callee(callable);
  if (kind != CalleeClass::kNotForeign && kind != CalleeClass::kInline) {
    // An object that is called: its type was guarded, but it is this one that
    // the graph calls.
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
  FJ_TRY(Ref row, call_builtin(state, callable, args, kwnames));
  if (row) return row;
  if (is_plain_c_callable(callable) || PyType_Check(callable)) {
    return make_break(BreakReason::kUnknownCallee, callable_name(callable));
  }
  return call_object(callable, args, kwnames);
}

}  // namespace framejit::bytecode
