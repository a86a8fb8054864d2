#include "frame_hook/compiled_function.h"

#include <structmember.h>

#include <cstddef>

#include "frame_hook/argument_binding.h"
#include "frame_hook/cpython_internals.h"
#include "frame_hook/dispatcher.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/native_stack.h"
#include "frame_hook/notices.h"
#include "frame_hook/program_code.h"

namespace framejit {
namespace {

PyTypeObject type_object = {PyVarObject_HEAD_INIT(nullptr, 0)};

CompiledFunction* self_of(PyObject* object) {
  return reinterpret_cast<CompiledFunction*>(object);
}

PyFunctionObject* function_of(const CompiledFunction* self) {
  return reinterpret_cast<PyFunctionObject*>(self->function);
}

// Follows the function to the code it has now. False: no cache to be had.
bool refresh_cache(CompiledFunction* self) {
  PyObject* code = function_of(self)->func_code;
  auto* code_object = reinterpret_cast<PyCodeObject*>(code);
  self->plain_arguments = plain_parameters(code_object);
  self->native_only = internals::is_generator_like(code_object) ||
                      code_kind(code) != CodeKind::kUser;
  self->cache = self->native_only ? nullptr : code_cache(code, self->options);
  if (self->cache) self->cache->is_asked_for = true;
  bool is_new = self->code != code;
  PyObject* old = std::exchange(self->code, Py_NewRef(code));
  Py_XDECREF(old);
  if (is_new && internals::is_generator_like(code_object) && compiler()) {
    compiler()->pass_over(self->function, self->options);
  }
  return self->cache != nullptr;
}

PyObject* run_original(CompiledFunction* self, PyObject* const* args,
                       size_t nargsf, PyObject* kwnames) {
  if (self->cache && self->cache->hook_callees && !must_run_original()) {
    HookExtent extent(self->options);
    return call_original(self->function, args, nargsf, kwnames);
  }
  return call_original(self->function, args, nargsf, kwnames);
}

// A call went from break to break, and none of its operations was compiled.
void note_no_graph(PyObject* function, PyObject* code) {
  if (was_noticed(Notice::kNotCompiled, code)) return;
  log_notice(Notice::kNotCompiled, code,
             "no graph ran in a call of " + describe_function(function) +
                 ": what it does with tensors, if anything, is where it "
                 "breaks (FRAMEJIT_LOG=graph_breaks says why)");
}

PyObject* call_bound(CompiledFunction* self, PyObject* const* slots,
                     PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  PyObject* result = nullptr;
  size_t runs_before = num_graph_runs();
  CallEnd end;
  if (dispatch(self->function, self->cache, slots, &result, &end) ==
      DispatchOutcome::kRunOriginal) [[unlikely]] {
    result = run_original(self, args, nargsf, kwnames);
    end.end(result);
    return result;
  }
  if (!is_token(result)) return result;
  result = run_tokens(result, self->options, std::move(end));
  if (result && num_graph_runs() == runs_before) [[unlikely]] {
    note_no_graph(self->function, self->code);
  }
  return result;
}

[[gnu::noinline]] PyObject* call_with_binding(CompiledFunction* self,
                                              PyObject* const* args,
                                              size_t nargsf,
                                              PyObject* kwnames) {
  size_t nargs = PyVectorcall_NARGS(nargsf);
  if (static_cast<Py_ssize_t>(nargs) == self->plain_arguments &&
      (!kwnames || PyTuple_GET_SIZE(kwnames) == 0)) {
    return call_bound(self, args, args, nargsf, kwnames);
  }
  BoundArguments bound;
  bool binds = false;
  try {
    binds = bound.bind(function_of(self), args, nargs, kwnames);
  } catch (const std::bad_alloc&) {
  }
  if (!binds) return run_original(self, args, nargsf, kwnames);
  return call_bound(self, bound.slots(), args, nargsf, kwnames);
}

// A graph and the rest of a function behind a break take more of the native
// stack than the original does, and a function that calls itself by its
// compiled name nests there.
[[gnu::noinline]] PyObject* call_where_low(CompiledFunction* self,
                                           PyObject* const* args, size_t nargsf,
                                           PyObject* kwnames) {
  if (native_stack_low()) {
    PyErr_SetString(PyExc_RecursionError, "maximum recursion depth exceeded");
    return nullptr;
  }
  return call_original(self->function, args, nargsf, kwnames);
}

PyObject* vectorcall(PyObject* callable, PyObject* const* args, size_t nargsf,
                     PyObject* kwnames) {
  CompiledFunction* self = self_of(callable);
  if (low_for_hook()) [[unlikely]]
    return call_where_low(self, args, nargsf, kwnames);
  if (must_run_original()) [[unlikely]] {
    return call_original(self->function, args, nargsf, kwnames);
  }
  if (function_of(self)->func_code != self->code || !self->cache) [[unlikely]] {
    if (!refresh_cache(self)) {
      return call_original(self->function, args, nargsf, kwnames);
    }
  }
  if (kwnames || static_cast<Py_ssize_t>(PyVectorcall_NARGS(nargsf)) !=
                     self->plain_arguments) {
    return call_with_binding(self, args, nargsf, kwnames);
  }
  return call_bound(self, args, args, nargsf, nullptr);
}

// ---- lifetime

int traverse(PyObject* object, visitproc visit, void* arg) {
  CompiledFunction* self = self_of(object);
  Py_VISIT(self->function);
  Py_VISIT(self->code);
  Py_VISIT(self->options_owner);
  Py_VISIT(self->dict);
  return 0;
}

int clear(PyObject* object) {
  // The function stays until the end: a call from a finalizer still works.
  Py_CLEAR(self_of(object)->dict);
  return 0;
}

void deallocate(PyObject* object) {
  CompiledFunction* self = self_of(object);
  PyObject_GC_UnTrack(object);
  if (self->weak_references) PyObject_ClearWeakRefs(object);
  self->cache = nullptr;
  Py_CLEAR(self->dict);
  Py_CLEAR(self->function);
  Py_CLEAR(self->code);
  Py_CLEAR(self->options_owner);
  Py_TYPE(object)->tp_free(object);
}

// ---- being like the function

PyObject* descriptor_get(PyObject* self, PyObject* instance, PyObject*) {
  if (!instance || instance == Py_None) return Py_NewRef(self);
  return PyMethod_New(self, instance);
}

// Written here, these belong to the function: they change what a call does.
bool belongs_to_function(PyObject* name) {
  for (const char* word : {"__code__", "__defaults__", "__kwdefaults__",
                           "__annotations__", "__type_params__"}) {
    if (PyUnicode_CompareWithASCIIString(name, word) == 0) return true;
  }
  return false;
}

PyObject* get_attribute(PyObject* object, PyObject* name) {
  PyObject* value = PyObject_GenericGetAttr(object, name);
  if (value || !PyErr_ExceptionMatches(PyExc_AttributeError)) return value;
  PyErr_Clear();
  return PyObject_GetAttr(self_of(object)->function, name);
}

int set_attribute(PyObject* object, PyObject* name, PyObject* value) {
  if (PyUnicode_Check(name) && belongs_to_function(name)) {
    return PyObject_SetAttr(self_of(object)->function, name, value);
  }
  return PyObject_GenericSetAttr(object, name, value);
}

// __name__ and its like: our own value when one was assigned, else the
// function's. (The type has attributes of these names, so the fallback of
// get_attribute never sees them.)
PyObject* get_own_or_function(PyObject* object, void* name) {
  CompiledFunction* self = self_of(object);
  const char* text = static_cast<const char*>(name);
  if (self->dict) {
    if (PyObject* own = PyDict_GetItemString(self->dict, text)) {
      return Py_NewRef(own);
    }
  }
  return PyObject_GetAttrString(self->function, text);
}

int set_own(PyObject* object, PyObject* value, void* name) {
  CompiledFunction* self = self_of(object);
  if (!self->dict && !(self->dict = PyDict_New())) return -1;
  const char* text = static_cast<const char*>(name);
  if (value) return PyDict_SetItemString(self->dict, text, value);
  return PyDict_DelItemString(self->dict, text);
}

PyObject* get_wrapped(PyObject* object, void*) {
  CompiledFunction* self = self_of(object);
  if (self->dict) {
    if (PyObject* own = PyDict_GetItemString(self->dict, "__wrapped__")) {
      return Py_NewRef(own);
    }
  }
  return Py_NewRef(self->function);
}

PyObject* get_function(PyObject* object, void*) {
  return Py_NewRef(self_of(object)->function);
}

// isinstance(f, types.FunctionType), and with it inspect, torch.fx, TorchScript
// and Dynamo, which go on with the attributes of a function: those of ours.
PyObject* get_class(PyObject*, void*) {
  return Py_NewRef(reinterpret_cast<PyObject*>(&PyFunction_Type));
}

PyObject* represent(PyObject* object) {
  PyObject* name =
      get_own_or_function(object, const_cast<char*>("__qualname__"));
  if (!name) return nullptr;
  PyObject* text = PyUnicode_FromFormat("<compiled function %S at %p>", name,
                                        static_cast<void*>(object));
  Py_DECREF(name);
  return text;
}

// Like a function: pickled and copied by name.
PyObject* reduce(PyObject* object, PyObject*) {
  return get_own_or_function(object, const_cast<char*>("__qualname__"));
}

// What type.__new__ makes of functions of some names; null: it leaves them.
using MethodMaker = PyObject* (*)(PyObject*);
MethodMaker method_maker(PyObject* name) {
  if (PyUnicode_CompareWithASCIIString(name, "__new__") == 0)
    return PyStaticMethod_New;
  for (const char* of_class : {"__init_subclass__", "__class_getitem__"}) {
    if (PyUnicode_CompareWithASCIIString(name, of_class) == 0)
      return PyClassMethod_New;
  }
  return nullptr;
}

// The same for us, who are no function to it. As there, nobody is asked: it is
// written into the dict of the class, past what the metaclass has to say.
PyObject* set_name(PyObject* object, PyObject* const* args, Py_ssize_t count) {
  if (count != 2 || !PyUnicode_Check(args[1])) {
    PyErr_SetString(PyExc_TypeError, "__set_name__() takes a class and a name");
    return nullptr;
  }
  MethodMaker make = PyType_Check(args[0]) ? method_maker(args[1]) : nullptr;
  if (!make) return Py_NewRef(Py_None);
  auto* type = reinterpret_cast<PyTypeObject*>(args[0]);
  const bool is_in_class =
      PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) &&
      PyDict_GetItemWithError(type->tp_dict, args[1]) == object;
  if (!is_in_class) return PyErr_Occurred() ? nullptr : Py_NewRef(Py_None);
  Ref method = Ref::steal(make(object));
  if (!method || PyDict_SetItem(type->tp_dict, args[1], method.get()) < 0)
    return nullptr;
  // (The slots stay: what they call looks the name up.)
  PyType_Modified(type);
  return Py_NewRef(Py_None);
}

#define FJ_NAMED(name)                          \
  {name, get_own_or_function, set_own, nullptr, \
   const_cast<void*>(static_cast<const void*>(name))}
PyGetSetDef getset[] = {
    FJ_NAMED("__name__"),
    FJ_NAMED("__qualname__"),
    FJ_NAMED("__module__"),
    FJ_NAMED("__doc__"),
    {"__wrapped__", get_wrapped, set_own, "the original function",
     const_cast<char*>("__wrapped__")},
    {"__framejit_function__", get_function, nullptr, nullptr, nullptr},
    {"__class__", get_class, nullptr, nullptr, nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr,
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};
#undef FJ_NAMED

PyMemberDef members[] = {
    {"__dictoffset__", T_PYSSIZET, offsetof(CompiledFunction, dict), READONLY,
     nullptr},
    {"__weaklistoffset__", T_PYSSIZET,
     offsetof(CompiledFunction, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyMethodDef methods[] = {
    {"__reduce__", reduce, METH_NOARGS, nullptr},
    {"__set_name__",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(set_name)),
     METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

PyTypeObject* compiled_function_type() {
  if (type_object.tp_flags & Py_TPFLAGS_READY) return &type_object;
  type_object.tp_name = "framejit.CompiledFunction";
  type_object.tp_basicsize = sizeof(CompiledFunction);
  type_object.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                         Py_TPFLAGS_HAVE_VECTORCALL |
                         Py_TPFLAGS_METHOD_DESCRIPTOR;
  type_object.tp_vectorcall_offset = offsetof(CompiledFunction, vectorcall);
  type_object.tp_dictoffset = offsetof(CompiledFunction, dict);
  type_object.tp_weaklistoffset = offsetof(CompiledFunction, weak_references);
  type_object.tp_call = PyVectorcall_Call;
  type_object.tp_dealloc = deallocate;
  type_object.tp_traverse = traverse;
  type_object.tp_clear = clear;
  type_object.tp_descr_get = descriptor_get;
  type_object.tp_getattro = get_attribute;
  type_object.tp_setattro = set_attribute;
  type_object.tp_repr = represent;
  type_object.tp_getset = getset;
  type_object.tp_members = members;
  type_object.tp_methods = methods;
  return PyType_Ready(&type_object) < 0 ? nullptr : &type_object;
}

bool is_compiled_function(PyObject* object) {
  return Py_TYPE(object) == &type_object;
}

PyObject* make_compiled_function(PyObject* function, const void* options,
                                 PyObject* options_owner) {
  PyTypeObject* type = compiled_function_type();
  if (!type) return nullptr;
  if (!PyFunction_Check(function)) {
    PyErr_Format(PyExc_TypeError, "expected a Python function, got %.200s",
                 Py_TYPE(function)->tp_name);
    return nullptr;
  }
  PyObject* object = type->tp_alloc(type, 0);
  if (!object) return nullptr;
  CompiledFunction* self = self_of(object);
  self->vectorcall = vectorcall;
  self->function = Py_NewRef(function);
  self->options = options;
  self->options_owner = Py_XNewRef(options_owner);
  self->plain_arguments = -1;
  PyObject* attributes = function_of(self)->func_dict;
  if (attributes && PyDict_GET_SIZE(attributes) != 0 &&
      !(self->dict = PyDict_Copy(attributes))) {
    Py_DECREF(object);
    return nullptr;
  }
  // The copy says what the function wraps; we wrap the function.
  if (self->dict && PyDict_GetItemString(self->dict, "__wrapped__") &&
      PyDict_DelItemString(self->dict, "__wrapped__") < 0) {
    Py_DECREF(object);
    return nullptr;
  }
  return object;
}

}  // namespace framejit
