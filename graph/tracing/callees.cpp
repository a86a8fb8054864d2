#include "graph/tracing/callees.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "frame_hook/cpython_internals.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/python_text.h"
#include "graph/ir/graph_text.h"
#include "graph/tensors/libtorch_private.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/tensor_check.h"
#include "graph/tensors/torch_types.h"
#include "graph/tracing/region_calls.h"

namespace framejit::graph {

namespace {

struct TableRow {
  enum class Scope : uint8_t { kCallee, kModule, kMethod };
  Scope scope;
  const char* name;
  CalleeClass kind;
  BreakReason reason;
};

constexpr TableRow kTable[] = {
#define FJ_ROW_(scope, name, kind, reason) \
  {TableRow::Scope::scope, name, CalleeClass::k##kind, BreakReason::k##reason},
#define FJ_CALLEE(...) FJ_ROW_(kCallee, __VA_ARGS__)
#define FJ_MODULE(...) FJ_ROW_(kModule, __VA_ARGS__)
#define FJ_METHOD(...) FJ_ROW_(kMethod, __VA_ARGS__)
#include "graph/tracing/callees.def"
#undef FJ_CALLEE
#undef FJ_MODULE
#undef FJ_METHOD
#undef FJ_ROW_
};

struct Table {
  std::unordered_map<std::string_view, const TableRow*> callees, modules,
      methods;
  Table() {
    for (const TableRow& row : kTable) {
      auto& map = row.scope == TableRow::Scope::kCallee   ? callees
                  : row.scope == TableRow::Scope::kModule ? modules
                                                          : methods;
      map.emplace(row.name, &row);
    }
  }
};

const Table& table() {
  static const Table instance;
  return instance;
}

CalleeRow from(const TableRow& row) { return {row.kind, row.reason, true}; }

bool is_torch(std::string_view module) {
  return module == "torch" || module.starts_with("torch.");
}

bool is_descriptor(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  return type == &PyMethodDescr_Type || type == &PyWrapperDescr_Type ||
         type == &PyClassMethodDescr_Type;
}

// The longest module prefix with a row.
const TableRow* module_row(std::string_view module) {
  for (;;) {
    auto found = table().modules.find(module);
    if (found != table().modules.end()) return found->second;
    size_t dot = module.rfind('.');
    if (dot == std::string_view::npos) return nullptr;
    module = module.substr(0, dot);
  }
}

CalleeRow method_row(std::string_view name, CalleeClass fallback) {
  auto found = table().methods.find(name);
  if (found != table().methods.end()) return from(*found->second);
  return {fallback};
}

const char* const kLeafModules[] = {"torch._C._nn", "torch._C._fft",
                                    "torch._C._linalg", "torch._C._special",
                                    "torch._C._VariableFunctions"};

// Names can be copied (functools.wraps does) and set. Torch's are its own where
// they lead back to the object, or where the code itself says the same.
bool leads_back(std::string_view module, std::string_view qualified,
                PyObject* object) {
  PauseHook pause;  // a module may have a __getattr__
  std::string path = std::string(module) + "." + std::string(qualified);
  return resolve_import_path(path).get() == object;
}

// The name of the module whose globals the function has; "": of none loaded.
std::string home_of(PyFunctionObject* function) {
  std::string name =
      text_of(PyDict_GetItemString(function->func_globals, "__name__"));
  PyObject* module =
      PyDict_GetItemString(PyImport_GetModuleDict(), name.c_str());
  bool own = module && PyModule_Check(module) &&
             PyModule_GetDict(module) == function->func_globals;
  return own ? name : "";
}

// A class written in C++ has no Python body to interpret.
bool is_native_class(PyObject* type) {
  return !(reinterpret_cast<PyTypeObject*>(type)->tp_flags &
           Py_TPFLAGS_HEAPTYPE) ||
         is_pybind_class(type);
}

// A method every class has from `type` (mro, __instancecheck__), bound to one.
bool is_type_method(PyCFunctionObject* function) {
  if (!function->m_self || !PyType_Check(function->m_self)) return false;
  Ref methods = internals::own_dict(&PyType_Type);
  if (!methods) return false;
  PyObject* own = PyDict_GetItemString(methods.get(), function->m_ml->ml_name);
  return own && is_descriptor(own) && Py_TYPE(own) == &PyMethodDescr_Type &&
         reinterpret_cast<PyMethodDescrObject*>(own)->d_method ==
             function->m_ml;
}

std::string builtin_name(PyCFunctionObject* function) {
  const char* name = function->m_ml->ml_name;
  PyObject* self = function->m_self;
  if (self && PyModule_Check(self)) {
    const char* module = PyModule_GetName(self);
    if (!module) PyErr_Clear();
    return std::string(module ? module : "?") + "." + name;
  }
  if (self && is_tensor_object(self))
    return std::string("torch.Tensor.") + name;
  if (self && PyType_Check(self)) {
    std::string module = text_attribute(self, "__module__");
    std::string owner = text_attribute(self, "__qualname__");
    if (owner == "_VariableFunctionsClass") return std::string("torch.") + name;
    return module + "." + owner + "." + name;
  }
  std::string qualified =
      text_attribute(reinterpret_cast<PyObject*>(function), "__qualname__");
  if (!self && qualified.starts_with("_VariableFunctionsClass."))
    return std::string("torch.") + name;
  // A function bound with pybind11 has its record for a self.
  if (!self || is_pybind_record(self)) {
    std::string module =
        text_attribute(reinterpret_cast<PyObject*>(function), "__module__");
    return module.empty() ? name : module + "." + name;
  }
  // Of the class in C, not one that the program derived from it.
  PyTypeObject* owner = Py_TYPE(self);
  while (owner->tp_base && (owner->tp_flags & Py_TPFLAGS_HEAPTYPE) &&
         !(owner->tp_flags & Py_TPFLAGS_IMMUTABLETYPE)) {
    owner = owner->tp_base;
  }
  return std::string(owner->tp_name) + "." + name;
}

CalleeRow find_builtin(PyCFunctionObject* function) {
  PyObject* self = function->m_self;
  const char* name = function->m_ml->ml_name;
  if (self && is_tensor_object(self))
    return method_row(name, CalleeClass::kLeaf);
  if (is_region_call(reinterpret_cast<PyObject*>(function)))
    return {CalleeClass::kSubBlock};
  if (is_type_method(function)) return {CalleeClass::kNotForeign};
  std::string full = canonical_name(reinterpret_cast<PyObject*>(function));
  auto found = table().callees.find(full);
  if (found != table().callees.end()) return from(*found->second);
  if (!is_torch(full)) return {CalleeClass::kNotForeign};
  size_t dot = full.rfind('.');
  std::string_view home = std::string_view(full).substr(0, dot);
  std::string qualified =
      text_attribute(reinterpret_cast<PyObject*>(function), "__qualname__");
  if (qualified.starts_with("_VariableFunctionsClass."))
    return {CalleeClass::kLeaf};
  for (const char* module : kLeafModules)
    if (home == module) return {CalleeClass::kLeaf};
  return {CalleeClass::kUnknown};
}

// Is the id of the function in this set of Dynamo's?
bool is_in_dynamo_set(PyFunctionObject* function, const char* set) {
  PyObject* rules = PyDict_GetItemString(PyImport_GetModuleDict(),
                                         "torch._dynamo.trace_rules");
  Ref object = Ref::steal(rules ? PyObject_GetAttrString(rules, set) : nullptr);
  Ref ids = Ref::steal(
      object ? PyObject_GetAttrString(object.get(), "function_ids") : nullptr);
  Ref id = Ref::steal(PyLong_FromVoidPtr(function));
  const bool found = ids && id && PyAnySet_Check(ids.get()) &&
                     PySet_Contains(ids.get(), id.get()) == 1;
  PyErr_Clear();
  return found;
}

// framejit.allow_in_graph, torch.compiler.allow_in_graph: one node, whatever is
// in it. Not what torch marks in the same set and runs in a way of its own, nor
// functions of torch itself, which the table knows better.
bool is_one_node(PyFunctionObject* function, bool of_torch) {
  PyObject* marks = function->func_dict;
  if (marks && PyDict_GetItemString(marks, "_framejit_allow_in_graph"))
    return true;
  return !of_torch && is_in_dynamo_set(function, "_allowed_callable_ids") &&
         !is_in_dynamo_set(function, "_nonstrict_trace_callable_ids") &&
         !is_in_dynamo_set(function, "_leaf_function_ids");
}

CalleeRow find_python_function(PyObject* function) {
  auto* raw = reinterpret_cast<PyFunctionObject*>(function);
  std::string module = text_of(raw->func_module);
  if (is_one_node(raw, is_torch(module))) return {CalleeClass::kLeaf};
  if (!is_torch(module)) return {CalleeClass::kNotForeign};
  std::string qualified = text_of(raw->func_qualname);
  std::string home = home_of(raw);
  auto* code = reinterpret_cast<PyCodeObject*>(raw->func_code);
  bool named = (home == module && text_of(code->co_qualname) == qualified) ||
               leads_back(module, qualified, function);
  if (!named && !is_torch(home)) return {CalleeClass::kNotForeign};
  auto found = table().callees.find(module + "." + qualified);
  if (named && found != table().callees.end()) return from(*found->second);
  if (named && module == "torch._tensor" && qualified.starts_with("Tensor."))
    return method_row(qualified.substr(7), CalleeClass::kInline);
  if (const TableRow* row = module_row(module)) return from(*row);
  return {CalleeClass::kInline};
}

CalleeRow find_type(PyObject* type) {
  std::string module = text_attribute(type, "__module__");
  if (!is_torch(module)) return {CalleeClass::kNotForeign};
  std::string qualified = text_attribute(type, "__qualname__");
  bool native = is_native_class(type);
  if (!native && !leads_back(module, qualified, type))
    return {CalleeClass::kNotForeign};
  auto found = table().callees.find(module + "." + qualified);
  if (found != table().callees.end()) return from(*found->second);
  if (const TableRow* row = module_row(module)) {
    if (row->kind == CalleeClass::kInline) return {CalleeClass::kNotForeign};
    return from(*row);
  }
  // The tuples that max() and sort() return.
  if (module == "torch.return_types") return {CalleeClass::kNotForeign};
  if (native || module == "torch._C" || module.starts_with("torch._C."))
    return {CalleeClass::kUnknown};
  return {CalleeClass::kNotForeign};
}

// Operators that a package registered are recorded like torch's own: their
// schemas say what they write, their fake implementations what they return.
// Not those whose effect no schema tells.
bool is_recorded_namespace(std::string_view name) {
  static const char* const kEffects[] = {
      "c10d",        "_c10d_functional", "_c10d_functional_autograd",
      "symm_mem",    "profiler",         "prim",
      "debugprims",  "rngprims",         "streams",
      "inductor",    "_inductor_test",   "export",
      "higher_order"};
  if (name.empty()) return false;
  return std::none_of(std::begin(kEffects), std::end(kEffects),
                      [&](const char* row) { return name == row; });
}

// A function of TorchScript is one node, as long as running it does nothing
// but compute: it runs once more, on stand-ins.
bool is_pure_script(PyObject* function) {
  PauseHook pause;
  Ref graph = Ref::steal(PyObject_GetAttrString(function, "inlined_graph"));
  Ref shown = Ref::steal(graph ? PyObject_Str(graph.get()) : nullptr);
  if (!shown) PyErr_Clear();
  std::string code = text_of(shown.get());
  for (const char* effect :
       {"prim::Print", "aten::warn", "prim::fork", "^", "prim::SetAttr",
        "prim::CallFunction", "prim::CallMethod", "aten::manual_seed"})
    if (code.find(effect) != std::string::npos) return false;
  return !code.empty();
}

CalleeRow find_instance(PyObject* object) {
  if (kScriptFunction.is_base_of(Py_TYPE(object)))
    return {is_pure_script(object) ? CalleeClass::kLeaf
                                   : CalleeClass::kUnknown};
  PyObject* type = as_object(Py_TYPE(object));
  std::string module = text_attribute(type, "__module__");
  if (!is_torch(module) ||
      (!is_native_class(type) &&
       !leads_back(module, text_attribute(type, "__qualname__"), type)))
    return {CalleeClass::kNotForeign};
  if (module == "torch._ops") {
    std::string name = text_attribute(object, "_qualified_op_name");
    if (name.empty()) name = text_attribute(object, "_name");
    return {is_recorded_namespace(name.substr(0, name.find("::")))
                ? CalleeClass::kLeaf
                : CalleeClass::kUnknown};
  }
  if (module == "torch._C" || module.starts_with("torch.jit"))
    return {CalleeClass::kUnknown};
  return {CalleeClass::kNotForeign};
}

CalleeRow find_uncached(PyObject* callable) {
  if (PyFunction_Check(callable)) return find_python_function(callable);
  if (PyCFunction_Check(callable))
    return find_builtin(reinterpret_cast<PyCFunctionObject*>(callable));
  if (is_descriptor(callable)) {
    PyTypeObject* owner = PyDescr_TYPE(callable);
    if (!PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(THPVariableClass),
                          owner) ||
        owner == &PyBaseObject_Type)
      return {CalleeClass::kNotForeign};
    return method_row(text_of(PyDescr_NAME(callable)), CalleeClass::kLeaf);
  }
  if (Py_IS_TYPE(callable, internals::method_wrapper_type())) {
    Ref self = Ref::steal(PyObject_GetAttrString(callable, "__self__"));
    if (!self) PyErr_Clear();
    if (!self || !is_tensor_object(self.get()))
      return {CalleeClass::kNotForeign};
    return method_row(text_attribute(callable, "__name__"), CalleeClass::kLeaf);
  }
  if (PyType_Check(callable)) return find_type(callable);
  return find_instance(callable);
}

// Worth a cache: names of things that live as long as torch itself.
bool is_permanent(PyObject* callable, const CalleeRow& row) {
  if (row.kind == CalleeClass::kNotForeign) return false;
  if (PyCFunction_Check(callable)) {
    PyObject* self = PyCFunction_GET_SELF(callable);
    return !self || PyModule_Check(self) || PyType_Check(self);
  }
  return is_descriptor(callable) || PyType_Check(callable);
}

}  // namespace

std::string canonical_name(PyObject* callable) {
  ErrorGuard keep_error;
  while (PyMethod_Check(callable)) callable = PyMethod_GET_FUNCTION(callable);
  if (PyFunction_Check(callable)) {
    auto* raw = reinterpret_cast<PyFunctionObject*>(callable);
    return text_of(raw->func_module) + "." + text_of(raw->func_qualname);
  }
  if (PyCFunction_Check(callable))
    return builtin_name(reinterpret_cast<PyCFunctionObject*>(callable));
  if (is_descriptor(callable)) {
    PyTypeObject* owner = PyDescr_TYPE(callable);
    bool tensor =
        owner == reinterpret_cast<PyTypeObject*>(THPVariableClass)->tp_base;
    return (tensor ? "torch.Tensor" : std::string(owner->tp_name)) + "." +
           text_of(PyDescr_NAME(callable));
  }
  std::string module = text_attribute(callable, "__module__");
  if (module.starts_with("torch._ops."))  // torch.ops.namespace.name
    return "torch.ops." + module.substr(11) + "." +
           text_attribute(callable, "__name__");
  std::string qualified = text_attribute(callable, "__qualname__");
  if (qualified.empty()) qualified = text_attribute(callable, "__name__");
  if (qualified.empty()) {  // a ScriptModule: its type stands for it
    PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(callable));
    qualified = text_attribute(type, "__qualname__");
  }
  return module.empty() ? qualified : module + "." + qualified;
}

CalleeRow find_callee(PyObject* callable) {
  ErrorGuard keep_error;
  while (PyMethod_Check(callable)) callable = PyMethod_GET_FUNCTION(callable);
  // Never destroyed: it may outlive the interpreter.
  static auto* cache = new std::unordered_map<PyObject*, CalleeRow>;
  auto found = cache->find(callable);
  if (found != cache->end()) return found->second;
  CalleeRow row = find_uncached(callable);
  if (is_permanent(callable, row)) {
    Py_INCREF(callable);  // the address must not be used again
    cache->emplace(callable, row);
  }
  return row;
}

std::vector<std::string> callee_table_names() {
  std::vector<std::string> names;
  for (const TableRow& row : kTable) {
    std::string name = row.name;
    if (row.scope == TableRow::Scope::kMethod) name = "torch.Tensor." + name;
    names.push_back(name);
  }
  return names;
}

}  // namespace framejit::graph
