// Fast paths for the Python code of torch.nn.Module.
//
// 94 % of the instructions of a model are the library's own; three functions
// make up most of them: Module.__getattr__, _call_impl and _wrapped_call_impl.
// They are run here, reading exactly what their Python code reads through
// CaptureState, so that the guards are the same. Only a fast path: without it
// the functions are inlined like any other.
#include "bytecode/interpreter/interpreter.h"
#include "libraries/libraries.h"

namespace framejit::libraries {

using namespace bytecode;

namespace {

struct ModuleNames {
  PyObject* dict = PyUnicode_InternFromString("__dict__");
  PyObject* compiled = PyUnicode_InternFromString("_compiled_call_impl");
  PyObject* call = PyUnicode_InternFromString("_call_impl");
  PyObject* torch = PyUnicode_InternFromString("torch");
  PyObject* c = PyUnicode_InternFromString("_C");
  PyObject* tracing = PyUnicode_InternFromString("_get_tracing_state");
  PyObject* forward = PyUnicode_InternFromString("forward");
  PyObject* members[3] = {PyUnicode_InternFromString("_parameters"),
                          PyUnicode_InternFromString("_buffers"),
                          PyUnicode_InternFromString("_modules")};
  PyObject* hooks[4] = {PyUnicode_InternFromString("_backward_hooks"),
                        PyUnicode_InternFromString("_backward_pre_hooks"),
                        PyUnicode_InternFromString("_forward_hooks"),
                        PyUnicode_InternFromString("_forward_pre_hooks")};
  PyObject* global_hooks[4] = {
      PyUnicode_InternFromString("_global_backward_pre_hooks"),
      PyUnicode_InternFromString("_global_backward_hooks"),
      PyUnicode_InternFromString("_global_forward_hooks"),
      PyUnicode_InternFromString("_global_forward_pre_hooks")};
};
const ModuleNames& module_names() {
  static const ModuleNames kNames;
  return kNames;
}

// Empty: not one of the three plain dicts holds it (or one is no plain dict).
Result<Ref> find_member(CaptureState& state, PyObject* module, PyObject* name) {
  const ModuleNames& text = module_names();
  FJ_TRY(Ref dict, state.get_attr(module, text.dict));
  if (!PyDict_CheckExact(dict.get())) return Ref();
  for (PyObject* member : text.members) {
    FJ_TRY(Ref members, state.dict_get(dict.get(), member));
    if (!members) continue;
    if (!PyDict_CheckExact(members.get())) return Ref();
    FJ_TRY(Ref value, state.dict_get(members.get(), name));
    if (value) return value;
  }
  return Ref();
}

bool has_positional(const Arguments& args, PyObject* kwnames) {
  size_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  return args.size() > keywords;
}

Arguments without_self(const Arguments& args) {
  return Arguments(args.begin() + 1, args.end());
}

// The callable that `self.name` gives, if every hook table is empty.
Result<Ref> forward_without_hooks(CaptureState& state, Interpreter& interpreter,
                                  PyFunctionObject* function,
                                  PyObject* module) {
  const ModuleNames& text = module_names();
  PyObject* globals = function->func_globals;
  FJ_TRY(Ref torch, state.dict_get(globals, text.torch));
  if (!torch) return Ref();
  FJ_TRY(Ref c, state.get_attr(torch.get(), text.c));
  FJ_TRY(Ref get_state, state.get_attr(c.get(), text.tracing));
  FJ_TRY(Ref tracing, interpreter.call(get_state.get(), {}));
  FJ_TRY(bool is_tracing, state.truth(tracing.get()));
  if (is_tracing) return Ref();
  for (PyObject* name : text.hooks) {
    FJ_TRY(Ref hooks, state.get_attr(module, name));
    FJ_TRY(bool any, state.truth(hooks.get()));
    if (any) return Ref();
  }
  for (PyObject* name : text.global_hooks) {
    FJ_TRY(Ref hooks, state.dict_get(globals, name));
    if (!hooks) return Ref();
    FJ_TRY(bool any, state.truth(hooks.get()));
    if (any) return Ref();
  }
  return state.get_attr(module, text.forward);
}

// As inlining would: the function's globals are an input.
void register_globals(Interpreter& interpreter, PyObject* function) {
  CaptureState& state = interpreter.state;
  PyObject* globals =
      reinterpret_cast<PyFunctionObject*>(function)->func_globals;
  const Source* source = interpreter.function_source(function);
  if (source && !state.is_input(globals)) {
    state.register_input(
        globals, state.guards.sources().make(SourceKind::kGlobals, source));
  }
}

Result<Ref> run_getattr(Interpreter& interpreter, PyObject* function,
                        const Arguments& args, PyObject* kwnames,
                        bool* handled) {
  if (args.size() != 2 || kwnames) return Ref();
  FJ_TRY(Ref value, find_member(interpreter.state, args[0], args[1]));
  *handled = static_cast<bool>(value);
  return value;
}

Result<Ref> run_wrapped_call(Interpreter& interpreter, PyObject* function,
                             const Arguments& args, PyObject* kwnames,
                             bool* handled) {
  if (!has_positional(args, kwnames)) return Ref();
  *handled = true;
  CaptureState& state = interpreter.state;
  FJ_TRY(Ref callable, state.get_attr(args[0], module_names().compiled));
  if (callable.get() == Py_None) {
    FJ_TRY(callable, state.get_attr(args[0], module_names().call));
  }
  return interpreter.call(callable.get(), without_self(args), kwnames);
}

Result<Ref> run_call(Interpreter& interpreter, PyObject* function,
                     const Arguments& args, PyObject* kwnames, bool* handled) {
  if (!has_positional(args, kwnames)) return Ref();
  *handled = true;
  register_globals(interpreter, function);
  FJ_TRY(Ref callable,
         forward_without_hooks(interpreter.state, interpreter,
                               reinterpret_cast<PyFunctionObject*>(function),
                               args[0]));
  if (callable) {
    return interpreter.call(callable.get(), without_self(args), kwnames);
  }
  *handled = false;
  return Ref();
}

constexpr const char* kGetAttrNames[] = {"__dict__", "AttributeError", "type",
                                         "__name__"};
constexpr const char* kWrappedCallNames[] = {"_compiled_call_impl",
                                             "_call_impl"};
constexpr const char* kCallNames[] = {"torch",
                                      "_C",
                                      "_get_tracing_state",
                                      "_slow_forward",
                                      "forward",
                                      "_backward_hooks",
                                      "_backward_pre_hooks",
                                      "_forward_hooks",
                                      "_forward_pre_hooks",
                                      "_global_backward_pre_hooks",
                                      "_global_backward_hooks",
                                      "_global_forward_hooks",
                                      "_global_forward_pre_hooks",
                                      "set",
                                      "compiler",
                                      "is_compiling",
                                      "Exception",
                                      "items",
                                      "_global_forward_hooks_always_called",
                                      "warnings",
                                      "warn",
                                      "str",
                                      "_forward_hooks_always_called",
                                      "_forward_hooks_with_kwargs"};

constexpr const char* kModule = "torch.nn.modules.module";
constexpr FastPathRow kFastPaths[] = {
    {kModule, "Module.__getattr__", kGetAttrNames, run_getattr},
    {kModule, "Module._wrapped_call_impl", kWrappedCallNames, run_wrapped_call},
    // It asks whether it may leave out hooks that are to run when forward
    // raises. A capture sees exceptions, so it may not.
    {kModule, "Module._call_impl", kCallNames, run_call, false},
};

}  // namespace

const Library& torch_modules() {
  static constexpr Library kLibrary = {.name = "torch.nn",
                                       .fast_paths = kFastPaths};
  return kLibrary;
}

}  // namespace framejit::libraries
