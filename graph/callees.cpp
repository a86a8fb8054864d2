#include "graph/callees.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "frame_hook/cpython_internals.h"
#include "frame_hook/frame_eval.h"
#include "graph/python_tensor.h"
#include "graph/region_calls.h"
#include "graph/tensor_check.h"

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
#include "graph/callees.def"
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

std::string text(PyObject* object) {
  if (!object || !PyUnicode_Check(object)) return "";
  const char* chars = PyUnicode_AsUTF8(object);
  if (!chars) PyErr_Clear();
  return chars ? chars : "";
}

std::string text_attribute(PyObject* object, const char* name) {
  Ref value = Ref::steal(PyObject_GetAttrString(object, name));
  if (!value) PyErr_Clear();
  return text(value.get());
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

// A method every class has from `type` (mro, __instancecheck__), bound to one.
bool is_type_method(PyCFunctionObject* function) {
  if (!function->m_self || !PyType_Check(function->m_self)) return false;
  PyObject* own =
      PyDict_GetItemString(PyType_Type.tp_dict, function->m_ml->ml_name);
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
  bool pybind = self && std::string_view(Py_TYPE(self)->tp_name)
                                .find("pybind11_detail_function_record") !=
                            std::string_view::npos;
  if (!self || pybind) {
    std::string module =
        text_attribute(reinterpret_cast<PyObject*>(function), "__module__");
    return module.empty() ? name : module + "." + name;
  }
  return std::string(Py_TYPE(self)->tp_name) + "." + name;
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

CalleeRow find_python_function(PyObject* function) {
  auto* raw = reinterpret_cast<PyFunctionObject*>(function);
  // framejit.allow_in_graph: one node, whatever is in it.
  if (raw->func_dict &&
      PyDict_GetItemString(raw->func_dict, "_framejit_allow_in_graph")) {
    return {CalleeClass::kLeaf};
  }
  std::string module = text(raw->func_module);
  if (!is_torch(module)) return {CalleeClass::kNotForeign};
  std::string qualified = text(raw->func_qualname);
  auto found = table().callees.find(module + "." + qualified);
  if (found != table().callees.end()) return from(*found->second);
  if (module == "torch._tensor" && qualified.starts_with("Tensor."))
    return method_row(qualified.substr(7), CalleeClass::kInline);
  if (const TableRow* row = module_row(module)) return from(*row);
  return {CalleeClass::kInline};
}

CalleeRow find_type(PyObject* type) {
  std::string module = text_attribute(type, "__module__");
  if (!is_torch(module)) return {CalleeClass::kNotForeign};
  auto found =
      table().callees.find(module + "." + text_attribute(type, "__qualname__"));
  if (found != table().callees.end()) return from(*found->second);
  if (const TableRow* row = module_row(module)) {
    if (row->kind == CalleeClass::kInline) return {CalleeClass::kNotForeign};
    return from(*row);
  }
  // The tuples that max() and sort() return.
  if (module == "torch.return_types") return {CalleeClass::kNotForeign};
  // A class written in C++ has no Python body to interpret.
  bool native = !(reinterpret_cast<PyTypeObject*>(type)->tp_flags &
                  Py_TPFLAGS_HEAPTYPE) ||
                std::string_view(Py_TYPE(type)->tp_name) == "pybind11_type";
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
  std::string code = text(shown.get());
  for (const char* effect :
       {"prim::Print", "aten::warn", "prim::fork", "^", "prim::SetAttr",
        "prim::CallFunction", "prim::CallMethod", "aten::manual_seed"})
    if (code.find(effect) != std::string::npos) return false;
  return !code.empty();
}

CalleeRow find_instance(PyObject* object) {
  std::string module = text_attribute(
      reinterpret_cast<PyObject*>(Py_TYPE(object)), "__module__");
  if (module == "torch._ops") {
    std::string name = text_attribute(object, "_qualified_op_name");
    if (name.empty()) name = text_attribute(object, "_name");
    return {is_recorded_namespace(name.substr(0, name.find("::")))
                ? CalleeClass::kLeaf
                : CalleeClass::kUnknown};
  }
  if (std::string_view(Py_TYPE(object)->tp_name).ends_with("ScriptFunction"))
    return {is_pure_script(object) ? CalleeClass::kLeaf
                                   : CalleeClass::kUnknown};
  if (module == "torch._C" || module.starts_with("torch.jit"))
    return {CalleeClass::kUnknown};
  return {CalleeClass::kNotForeign};
}

CalleeRow find_uncached(PyObject* callable) {
  if (PyMethod_Check(callable))
    return find_callee(PyMethod_GET_FUNCTION(callable));
  if (PyFunction_Check(callable)) return find_python_function(callable);
  if (PyCFunction_Check(callable))
    return find_builtin(reinterpret_cast<PyCFunctionObject*>(callable));
  if (is_descriptor(callable)) {
    PyTypeObject* owner = PyDescr_TYPE(callable);
    if (!PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(THPVariableClass),
                          owner) ||
        owner == &PyBaseObject_Type)
      return {CalleeClass::kNotForeign};
    return method_row(text(PyDescr_NAME(callable)), CalleeClass::kLeaf);
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
  if (PyMethod_Check(callable))
    return canonical_name(PyMethod_GET_FUNCTION(callable));
  if (PyFunction_Check(callable)) {
    auto* raw = reinterpret_cast<PyFunctionObject*>(callable);
    return text(raw->func_module) + "." + text(raw->func_qualname);
  }
  if (PyCFunction_Check(callable))
    return builtin_name(reinterpret_cast<PyCFunctionObject*>(callable));
  if (is_descriptor(callable)) {
    PyTypeObject* owner = PyDescr_TYPE(callable);
    bool tensor = std::string_view(owner->tp_name).find("TensorBase") !=
                  std::string_view::npos;
    return (tensor ? "torch.Tensor" : std::string(owner->tp_name)) + "." +
           text(PyDescr_NAME(callable));
  }
  std::string module = text_attribute(callable, "__module__");
  if (module.starts_with("torch._ops."))  // torch.ops.namespace.name
    return "torch.ops." + module.substr(11) + "." +
           text_attribute(callable, "__name__");
  std::string qualified = text_attribute(callable, "__qualname__");
  if (qualified.empty()) qualified = text_attribute(callable, "__name__");
  return module.empty() ? qualified : module + "." + qualified;
}

CalleeRow find_callee(PyObject* callable) {
  ErrorGuard keep_error;
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
