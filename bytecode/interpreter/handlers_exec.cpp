// exec and eval of code that is known: it is interpreted like a class body, in
// the namespaces it is given. namedtuple and dataclass are made of this.
//
// sys._getframe gives an opaque value that knows the parts of a frame which do
// not change while it runs.
#include "bytecode/builtins/builtins.h"
#include "bytecode/interpreter/calls.h"
#include "bytecode/interpreter/compiled_texts.h"
#include "bytecode/interpreter/handlers.h"
#include "bytecode/objects/opaque_value.h"
#include "frame_hook/frame_eval.h"
#include "guards/known_objects.h"

#include <cstring>

namespace framejit::bytecode {

namespace {

// A code object, or the text of one.
Result<Ref> code_of(CaptureState& state, PyCodeObject* around, PyObject* source,
                    bool is_eval) {
  if (PyCode_Check(source)) return Ref::borrow(source);
  if (!PyUnicode_CheckExact(source)) {
    return state.make_break(BreakReason::kUnknownCallee,
                            is_eval ? "eval" : "exec");
  }
  Ref text = Ref::borrow(source);
  if (is_eval) {
    // eval() ignores blanks in front.
    PauseHook pause;
    FJ_TRY(text, from_api(PyObject_CallMethod(source, "lstrip", "s", " \t")));
  }
  // `from __future__ import` of the code around holds for the text, too.
  int flags = around ? around->co_flags & PyCF_MASK : 0;
  FJ_TRY(Ref arguments,
         from_api(Py_BuildValue("(OssiO)", text.get(), "<string>",
                                is_eval ? "eval" : "exec", flags, Py_True)));
  return compile_without_warnings(state, arguments.get());
}

}  // namespace

Result<Ref> Interpreter::run_code(const Arguments& args, bool is_eval) {
  Ref globals = Ref::borrow(args.size() > 1 ? args[1] : Py_None);
  Ref locals = Ref::borrow(args.size() > 2 ? args[2] : Py_None);
  if (globals.get() == Py_None) {
    if (locals.get() != Py_None || !frame) {
      return make_break(BreakReason::kUnknownCallee, is_eval ? "eval" : "exec");
    }
    globals = frame->globals;
    if (frame->code_object()->co_flags & CO_OPTIMIZED) {
      FJ_TRY(locals, frame_locals());
    } else {
      locals = frame->locals;
    }
  } else if (locals.get() == Py_None) {
    locals = globals;
  }
  if (!PyDict_CheckExact(globals.get()) || !PyDict_CheckExact(locals.get())) {
    return make_break(BreakReason::kUnknownCallee, is_eval ? "eval" : "exec");
  }
  FJ_TRY(Ref code, code_of(state, frame ? frame->code_object() : nullptr,
                           args[0], is_eval));
  auto* object = reinterpret_cast<PyCodeObject*>(code.get());
  constexpr int kNotPlain =
      CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR | CO_OPTIMIZED;
  if (object->co_flags & kNotPlain) {
    return make_break(BreakReason::kUnknownCallee, is_eval ? "eval" : "exec");
  }
  PyObject* builtins_name = interned("__builtins__");
  FJ_TRY(Ref builtins, state.dict_get(globals.get(), builtins_name));
  if (!builtins) {
    if (!frame) return make_break(BreakReason::kUnknownCallee, "exec");
    builtins = frame->builtins;
    FJ_CHECK_OK(state.dict_set(globals.get(), builtins_name, builtins.get()));
  } else if (PyModule_Check(builtins.get())) {
    FJ_TRY(builtins, state.instance_dict(builtins.get()));
  }
  if (!builtins || !PyDict_Check(builtins.get())) {
    return make_break(BreakReason::kUnknownCallee, is_eval ? "eval" : "exec");
  }
  FJ_TRY(Ref function, from_api(PyFunction_New(code.get(), globals.get())));
  // What exec and eval run belongs to no module.
  Py_CLEAR(reinterpret_cast<PyFunctionObject*>(function.get())->func_module);
  add_fresh_function(function.get());
  auto body = std::make_unique<Frame>();
  FJ_CHECK_OK(prepare_frame(*body, function.get()));
  body->builtins = builtins;
  body->locals = locals;
  ++inlined_calls;
  FJ_TRY(Exit exit, run(*body));
  FJ_CHECK(exit.flow == Flow::kReturn, "a code object that yielded");
  if (is_eval) return std::move(exit.value);
  return Ref::borrow(Py_None);
}

// compile(text, file, mode) with the flags of the code around.
Result<Ref> compile_text(Interpreter& interpreter, const Arguments& args) {
  for (PyObject* arg : args) {
    if (!PyUnicode_CheckExact(arg)) {
      return interpreter.make_break(BreakReason::kUnknownCallee, "compile");
    }
  }
  FJ_TRY(Ref arguments,
         from_api(Py_BuildValue(
             "(OOOiO)", args[0], args[1], args[2],
             interpreter.frame->code_object()->co_flags & PyCF_MASK, Py_True)));
  return compile_without_warnings(interpreter.state, arguments.get());
}

// sys._getframemodulename(depth): the __module__ of the function whose frame is
// `depth` callers up.
Result<Ref> frame_module_name(Interpreter& interpreter, PyObject* depth) {
  CaptureState& state = interpreter.state;
  long up = PyLong_CheckExact(depth) ? PyLong_AsLong(depth) : -1;
  if (up == -1) PyErr_Clear();
  PythonFrame place;
  if (up >= 0 && up <= 1000) place = interpreter.python_frame(int(up));
  if (!place.known || place.beyond) {
    return interpreter.make_break(BreakReason::kUnknownCallee,
                                  "sys._getframemodulename");
  }
  const Frame* at = interpreter.frame;
  for (; up > 0; --up) at = at->caller;
  PyObject* function = at->function.get();
  if (at->source && !state.is_input(function)) {
    state.register_input(function, at->source);
  }
  return state.get_attr(function, interned("__module__"));
}

// The frame `depth` callers up.
Result<Ref> model_getframe(BuiltinCall& call) {
  CaptureState& state = call.state;
  long depth = 0;
  if (!call.plain(0, 1)) return call.unknown();
  if (call.args.size() == 1) {
    if (!PyLong_CheckExact(call.args[0])) return call.unknown();
    depth = PyLong_AsLong(call.args[0]);
    if (depth < 0 || depth > 1000) {
      PyErr_Clear();
      return call.unknown();
    }
  }
  PythonFrame place = state.caller.python_frame(int(depth));
  if (!place.known || place.beyond) return call.unknown();
  return make_opaque(state, OpaqueKind::kFrame, place.globals,
                     reinterpret_cast<PyObject*>(place.code));
}

}  // namespace framejit::bytecode
