#include "bytecode/nn_module.h"

namespace framejit::bytecode {
namespace {

// What a function of torch.nn.modules.module is. `names` is its co_names: code
// that mentions other things is another version's, and is inlined.
struct KnownFunction {
  ModuleFunction kind;
  const char* qualified_name;
  std::vector<const char*> names;
};

const std::vector<KnownFunction>& known_functions() {
  static const std::vector<KnownFunction> kFunctions = {
      {ModuleFunction::kGetAttr,
       "Module.__getattr__",
       {"__dict__", "AttributeError", "type", "__name__"}},
      {ModuleFunction::kWrappedCall,
       "Module._wrapped_call_impl",
       {"_compiled_call_impl", "_call_impl"}},
      {ModuleFunction::kCall,
       "Module._call_impl",
       {"torch",
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
        "_forward_hooks_with_kwargs"}},
  };
  return kFunctions;
}

bool is_text(PyObject* object, const char* text) {
  return object && PyUnicode_Check(object) &&
         PyUnicode_CompareWithASCIIString(object, text) == 0;
}

ModuleFunction identify(PyFunctionObject* function) {
  if (!is_text(function->func_module, "torch.nn.modules.module")) {
    return ModuleFunction::kNone;
  }
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  for (const KnownFunction& known : known_functions()) {
    if (!is_text(function->func_qualname, known.qualified_name)) continue;
    if (PyTuple_GET_SIZE(code->co_names) != Py_ssize_t(known.names.size())) {
      return ModuleFunction::kNone;
    }
    for (size_t i = 0; i < known.names.size(); ++i) {
      if (!is_text(PyTuple_GET_ITEM(code->co_names, i), known.names[i])) {
        return ModuleFunction::kNone;
      }
    }
    return known.kind;
  }
  return ModuleFunction::kNone;
}

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

}  // namespace

ModuleFunction Interpreter::module_function(PyObject* function) {
  auto* object = reinterpret_cast<PyFunctionObject*>(function);
  auto [at, is_new] = module_functions_.try_emplace(object->func_code);
  if (is_new) at->second = identify(object);
  return at->second;
}

Result<Ref> call_module_function(Interpreter& interpreter, PyObject* function,
                                 const Arguments& args, PyObject* kwnames,
                                 bool* handled) {
  *handled = false;
  ModuleFunction kind = interpreter.module_function(function);
  size_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  if (kind == ModuleFunction::kNone || args.size() - keywords == 0) {
    return Ref();
  }
  CaptureState& state = interpreter.state;
  PyObject* module = args[0];
  Ref callable;
  *handled = true;
  switch (kind) {
    case ModuleFunction::kGetAttr: {
      if (args.size() != 2 || keywords) break;
      FJ_TRY(Ref value, find_member(state, module, args[1]));
      if (value) return value;
      break;
    }
    case ModuleFunction::kWrappedCall: {
      FJ_TRY(callable, state.get_attr(module, module_names().compiled));
      if (callable.get() == Py_None) {
        FJ_TRY(callable, state.get_attr(module, module_names().call));
      }
      return interpreter.call(callable.get(), without_self(args), kwnames);
    }
    case ModuleFunction::kCall: {
      register_globals(interpreter, function);
      FJ_TRY(callable,
             forward_without_hooks(
                 state, interpreter,
                 reinterpret_cast<PyFunctionObject*>(function), module));
      if (!callable) break;
      return interpreter.call(callable.get(), without_self(args), kwnames);
    }
    case ModuleFunction::kNone:
      break;
  }
  *handled = false;
  return Ref();
}

}  // namespace framejit::bytecode
