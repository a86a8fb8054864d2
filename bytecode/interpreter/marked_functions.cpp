// Functions whose attributes say what they mean inside a capture (MarkRow).
#include "bytecode/interpreter/interpreter.h"
#include "bytecode/library/library.h"
#include "bytecode/objects/late_reads.h"
#include "bytecode/objects/remade_functions.h"
#include "bytecode/objects/unbuildable.h"
#include "bytecode/objects/write_log.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/python_text.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {
namespace {

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
  if (kPartial.is_type_of(object)) {
    // What it was made of cannot be replaced, but for its keywords.
    auto part = [&](const char* name) {
      return Ref::steal(PyObject_GetAttrString(object, name));
    };
    Ref keywords = part("keywords");
    if (keywords && PyDict_GET_SIZE(keywords.get()) == 0 &&
        !reaches_fresh_object(state, part("func").get(), depth + 1) &&
        !reaches_fresh_object(state, part("args").get(), depth + 1)) {
      return false;
    }
    PyErr_Clear();
    return true;
  }
  if (PyFunction_Check(object)) {
    auto* function = reinterpret_cast<PyFunctionObject*>(object);
    // Its attributes can be written to.
    if (function->func_dict && PyDict_GET_SIZE(function->func_dict) > 0)
      return true;
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
  size_t writes = interpreter.state.table<WriteLog>().entries.size();
  Arguments rest(args.begin() + 1, args.end());
  FJ_TRY(Ref result, interpreter.call(args.at(0), std::move(rest), kwnames));
  if (interpreter.state.table<WriteLog>().entries.size() == writes)
    return result;
  return interpreter.make_break(
      BreakReason::kSideEffectCallee,
      "a function run by the backward that writes to objects outside it");
}

// Does the mark of the function say so?
bool runs_later(PyObject* function) {
  PyObject* marks = reinterpret_cast<PyFunctionObject*>(function)->func_dict;
  PyObject* mark = PyDict_GetItemString(marks, "_framejit_without_effects");
  return mark && PyUnicode_Check(mark) &&
         PyUnicode_CompareWithASCIIString(mark, "until the backward") == 0;
}

Break late_read(Interpreter& interpreter, const std::string& what) {
  return interpreter.make_break(
      BreakReason::kUnguardableInput,
      "a gradient function reads " + what +
          ", which may change before the backward runs: read it when the "
          "function is made (a default argument, functools.partial, a number "
          "on ctx, ctx.save_for_backward)");
}

// A gradient function, called with what it gets in the backward.
Result<Ref> call_later(Interpreter& interpreter, const Arguments& args,
                       PyObject* kwnames) {
  CaptureState& state = interpreter.state;
  for (size_t i = 1; i < args.size(); ++i) {
    // Its context: what the program hung on it.
    if (state.is_input(args[i]) ||
        state.tracer.classify(args[i]) != ObjectClass::kPlain) {
      continue;
    }
    Ref dict = Ref::steal(PyObject_GenericGetDict(args[i], nullptr));
    if (!dict) PyErr_Clear();
    if (!dict || !PyDict_CheckExact(dict.get())) continue;
    PyObject *key, *value;
    Py_ssize_t place = 0;
    while (PyDict_Next(dict.get(), &place, &key, &value)) {
      if (is_settled(state, value)) continue;
      const char* name = PyUnicode_AsUTF8(key);
      if (!name) PyErr_Clear();
      return late_read(interpreter, std::string("ctx.") + (name ? name : "?"));
    }
  }
  std::string& found = state.table<LateReads>().found;
  found.clear();
  Result<Ref> result = Ref();
  {
    LateScope scope(state);
    result = call_without_effects(interpreter, args, kwnames);
  }
  if (!result.ok() || found.empty()) return result;
  return late_read(interpreter, found);
}

// The author of the function promises that its answer never changes, so it is
// asked once.
Result<Ref> call_constant_function(Interpreter& interpreter, PyObject* function,
                                   const Arguments& args, PyObject* kwnames) {
  CaptureState& state = interpreter.state;
  Arguments values;
  for (PyObject* arg : args) {
    if (!state.is_constant(arg) && !PyType_Check(arg) &&
        !(state.is_input(arg) && state.table<WriteLog>().entries.empty())) {
      return interpreter.make_break(BreakReason::kUnguardableInput,
                                    "a function promised to be constant: an "
                                    "argument that is no constant");
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

Break user_break(Interpreter& interpreter, const Arguments& args) {
  return interpreter.make_break(BreakReason::kUserBreak,
                                text_of(args.empty() ? nullptr : args[0]));
}

// The instruction that `caller` was called by is a `with`, of this manager.
bool is_entered_by_with(const Frame* caller, PyObject* manager) {
  const Frame* outer = caller ? caller->caller : nullptr;
  return outer && !outer->stack.empty() &&
         outer->decoded->op(outer->current).op == MicroOpKind::kBeforeWith &&
         outer->stack.back().get() == manager;
}

}  // namespace

Result<Ref> Interpreter::call_marked_function(PyObject* function,
                                              const Arguments& args,
                                              PyObject* kwnames) {
  const Mark mark = find_mark(function);
  if (mark != Mark::kNone && mark != Mark::kWrapper)
    pin_all_remade(state, args);
  switch (mark) {
    case Mark::kNone:
      return Ref();
    case Mark::kWrapper: {
      PyObject* marks =
          reinterpret_cast<PyFunctionObject*>(function)->func_dict;
      Ref original = Ref::borrow(PyDict_GetItemString(marks, "__wrapped__"));
      state.pin(function);
      return call_function(original.get(), args, kwnames);
    }
    case Mark::kDisabled:
      return make_break(BreakReason::kDisabledCallee, callable_name(function));
    case Mark::kOtherCompiler:
      return make_break(BreakReason::kOtherCompiler, callable_name(function));
    case Mark::kGraphBreak:
      return user_break(*this, args);
    case Mark::kIsCompiling:
      return Ref::borrow(Py_True);
    case Mark::kConstantResult:
      return call_constant_function(*this, function, args, kwnames);
    case Mark::kWithoutEffects:
      return runs_later(function) ? call_later(*this, args, kwnames)
                                  : call_without_effects(*this, args, kwnames);
    case Mark::kHandleWithoutWith: {
      if (is_entered_by_with(frame, args.at(0))) return Ref::borrow(Py_None);
      static char place;
      FJ_TRY(Ref handle,
             from_api(PyCapsule_New(&place, "framejit.handle", nullptr)));
      keep_unbuildable(state, handle.get());
      return handle;
    }
  }
  return Ref();
}

}  // namespace framejit::bytecode
