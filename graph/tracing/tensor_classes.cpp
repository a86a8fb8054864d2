#include "graph/tracing/tensor_classes.h"

#include <ATen/PythonTorchFunctionTLS.h>

#include <cstring>
#include <string_view>

#include "frame_hook/cpython_internals.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/python_text.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/tensor_check.h"
#include "graph/tracing/callees.h"
#include "graph/tracing/tensor_writes.h"

namespace framejit::graph {

namespace {

PyObject* torch_object(const char* module, const char* name) {
  Ref found = Ref::steal(PyImport_ImportModule(module));
  return found ? PyObject_GetAttrString(found.get(), name) : nullptr;
}

// torch._C.<name>, looked up once.
PyObject* torch_c(const char* name, PyObject** cache) {
  if (!*cache) *cache = torch_object("torch._C", name);
  return *cache;
}

Break subclass_break(Recorder& recorder, std::string text) {
  return Break{BreakReason::kTensorSubclass, std::move(text), recorder.span()};
}

// ---- the mode that listens

struct Listener {
  PyObject_HEAD FunctionOverride* heard;
};

PyObject* listener_done() {
  static PyObject* type = made_once([] {
    return PyErr_NewException("framejit._C.OverrideFound", PyExc_BaseException,
                              nullptr);
  });
  return type;
}

// __torch_function__(func, types, args[, kwargs])
PyObject* listen(PyObject* self, PyObject* args) {
  PyObject *function, *types, *call_args, *kwargs = nullptr;
  if (!PyArg_ParseTuple(args, "OOO|O", &function, &types, &call_args, &kwargs))
    return nullptr;
  FunctionOverride* heard = reinterpret_cast<Listener*>(self)->heard;
  if (heard) {
    heard->function = Ref::borrow(function);
    heard->types = Ref::borrow(types);
    heard->args = Ref::borrow(call_args);
    heard->kwargs = Ref::borrow(kwargs);
  }
  PyErr_SetNone(listener_done());
  return nullptr;
}

PyMethodDef kListenerMethods[] = {
    {"__torch_function__", listen, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyType_Slot kListenerSlots[] = {{Py_tp_methods, kListenerMethods},
                                {0, nullptr}};
PyType_Spec kListenerSpec = {"framejit._C.OverrideListener", sizeof(Listener),
                             0, Py_TPFLAGS_DEFAULT, kListenerSlots};

// One for all: captures do not nest, and it is asked within listen_to() only.
Listener* listener() {
  static PyObject* instance = made_once([] {
    PyObject* type = PyType_FromSpec(&kListenerSpec);
    return type ? PyObject_CallNoArgs(type) : nullptr;
  });
  return reinterpret_cast<Listener*>(instance);
}

class AskEverybody {
 public:
  AskEverybody() { Functions::set_disabled_state(at::impl::ENABLED); }
  ~AskEverybody() { Functions::set_disabled_state(before_); }

 private:
  using Functions = at::impl::PythonTorchFunctionTLS;
  at::impl::TorchFunctionDisabledState before_ =
      Functions::get_disabled_state();
};

// False with an error: the mode stack could not be changed.
bool listen_to(PyObject* callable, const std::vector<PyObject*>& args,
               PyObject* kwnames, FunctionOverride* heard) {
  static PyObject *push, *pop;
  Listener* mode = listener();
  if (!mode || !listener_done() ||
      !torch_c("_push_on_torch_function_stack", &push) ||
      !torch_c("_pop_torch_function_stack", &pop))
    return false;
  AskEverybody ask;
  mode->heard = heard;
  Ref pushed =
      Ref::steal(PyObject_CallOneArg(push, reinterpret_cast<PyObject*>(mode)));
  if (!pushed) return false;
  size_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  Ref result = Ref::steal(PyObject_Vectorcall(callable, args.data(),
                                              args.size() - keywords, kwnames));
  PyErr_Clear();
  mode->heard = nullptr;
  Ref popped = Ref::steal(PyObject_CallNoArgs(pop));
  return static_cast<bool>(popped);
}

bool is_ordinary_class(PyTypeObject* type) {
  PyObject* object = reinterpret_cast<PyObject*>(type);
  return object == THPVariableClass || object == ParameterClass;
}

// Callables that ask before they do anything: what else runs natively might
// have an effect.
bool asks_first(PyObject* callable) {
  PyTypeObject* type = Py_TYPE(callable);
  if (type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type ||
      type == internals::method_wrapper_type())
    return true;
  if (PyFunction_Check(callable) || PyMethod_Check(callable))
    return find_callee(callable).kind == CalleeClass::kLeaf;
  if (!PyCFunction_Check(callable)) return false;
  PyObject* self = PyCFunction_GET_SELF(callable);
  if (self && is_tensor_object(self)) return true;
  const char* name =
      reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
  if (self && PyModule_Check(self)) {
    const char* module = PyModule_GetName(self);
    if (!module) PyErr_Clear();
    std::string_view home = module ? module : "";
    if (home == "_operator") return true;
    if (home == "builtins") return true;  // getattr, setattr, len
  }
  if (!std::strcmp(name, "_set_grad_enabled")) return true;
  if (find_callee(callable).kind == CalleeClass::kLeaf) return true;
  return canonical_name(callable).starts_with("torch.") &&
         find_callee(callable).reason == BreakReason::kDataDependentValue;
}

}  // namespace

bool is_of_subclass(PyObject* tensor) {
  return !is_ordinary_class(Py_TYPE(tensor));
}

bool has_torch_function(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (is_ordinary_class(type) || !(type->tp_flags & Py_TPFLAGS_HEAPTYPE))
    return false;
  static PyObject* name = PyUnicode_InternFromString("__torch_function__");
  static PyObject* disabled;
  PyObject* found = _PyType_Lookup(type, name);
  return found && found != torch_c("_disabled_torch_function_impl", &disabled);
}

std::string unsupported_class(PyTypeObject* type) {
  if (is_ordinary_class(type)) return "";
  std::string text = std::string("a tensor of class ") + type->tp_name;
  std::string name =
      text_attribute(reinterpret_cast<PyObject*>(type), "__module__");
  // Classes of torch itself mean more than their Python code says.
  if (name == "torch" || name.starts_with("torch.")) return text;
  auto* base = reinterpret_cast<PyTypeObject*>(THPVariableClass);
  if (!PyType_IsSubtype(type, base) ||
      type->tp_basicsize != base->tp_basicsize ||
      type->tp_dealloc !=
          reinterpret_cast<PyTypeObject*>(ParameterClass)->tp_dealloc)
    return text + ", whose layout is its own";
  static PyObject* dispatch = PyUnicode_InternFromString("__torch_dispatch__");
  if (_PyType_Lookup(type, dispatch) != _PyType_Lookup(base, dispatch))
    return text + ", which has a __torch_dispatch__";
  static PyObject* del = PyUnicode_InternFromString("__del__");
  if (_PyType_Lookup(type, del)) return text + ", which has a __del__";
  return "";
}

Result<std::optional<FunctionOverride>> find_function_override(
    Recorder& recorder, PyObject* callable, const std::vector<PyObject*>& args,
    PyObject* kwnames) {
  using Answer = std::optional<FunctionOverride>;
  PauseHook pause;
  if (!asks_first(callable)) return Answer();
  FunctionOverride heard;
  if (!listen_to(callable, args, kwnames, &heard)) {
    PyErr_Clear();
    return subclass_break(recorder, "torch's stack of modes");
  }
  // What ran without asking was stopped by the recorder.
  if (recorder.has_break()) recorder.take_break();
  if (!heard.function) return Answer();
  bool python = PyFunction_Check(callable) &&
                find_callee(callable).kind == CalleeClass::kLeaf;
  if (python && heard.function.get() != callable)
    return subclass_break(recorder, canonical_name(callable));
  return Answer(std::move(heard));
}

Status set_tensor_class(Recorder& recorder, PyObject* stand_in,
                        PyObject* type) {
  if (reinterpret_cast<PyObject*>(Py_TYPE(stand_in)) == type)
    return ok_status();
  std::string reason = unsupported_class(reinterpret_cast<PyTypeObject*>(type));
  if (!reason.empty()) return subclass_break(recorder, reason);
  // What the default __torch_function__ asks first, so that the first capture
  // finds its cache filled.
  static bool asked = false;
  if (!asked) {
    asked = true;
    PauseHook pause;
    Ref functions = Ref::steal(
        torch_object("torch.overrides", "get_default_nowrap_functions"));
    Ref result =
        Ref::steal(functions ? PyObject_CallNoArgs(functions.get()) : nullptr);
    PyErr_Clear();
  }
  if (PyObject_SetAttrString(stand_in, "__class__", type) < 0) {
    PyErr_Clear();
    return subclass_break(recorder,
                          std::string("a tensor of class ") +
                              reinterpret_cast<PyTypeObject*>(type)->tp_name);
  }
  return ok_status();
}

Result<Ref> make_view_of_class(Recorder& recorder, PyObject* tensor,
                               PyObject* type) {
  if (!PyType_Check(type) || !is_tensor_object(tensor))
    return subclass_break(recorder, "as_subclass of something else");
  static PyObject* alias;
  if (!alias) {
    Ref ops = Ref::steal(torch_object("torch", "ops"));
    Ref aten =
        Ref::steal(ops ? PyObject_GetAttrString(ops.get(), "aten") : nullptr);
    Ref packet = Ref::steal(aten ? PyObject_GetAttrString(aten.get(), "alias")
                                 : nullptr);
    alias = packet ? PyObject_GetAttrString(packet.get(), "default") : nullptr;
    if (!alias) return Result<Ref>::raised();
  }
  FJ_TRY(Ref made, recorder.record_call(alias, {tensor}, nullptr));
  FJ_CHECK_OK(set_tensor_class(recorder, made.get(), type));
  return made;
}

Result<Ref> make_detached_of_class(Recorder& recorder, PyObject* type,
                                   PyObject* data, bool requires_grad) {
  auto method = [](const char* name) {
    return from_api(PyObject_GetAttrString(THPVariableClass, name));
  };
  FJ_TRY(Ref detach, method("detach"));
  FJ_TRY(Ref made,
         recorder.record_call(detach.get(), {data}, nullptr, "detach"));
  if (requires_grad) {
    FJ_TRY(Ref setter, method("requires_grad_"));
    FJ_TRY(Ref same, recorder.record_effect(setter.get(), {made.get()}, nullptr,
                                            "requires_grad_"));
    recorder.note_written(made.get());
  }
  FJ_CHECK_OK(set_tensor_class(recorder, made.get(), type));
  return made;
}

}  // namespace framejit::graph
