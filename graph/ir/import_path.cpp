// Names for Python callables: import paths that lead back to the object.
#include <array>
#include <set>

#include "frame_hook/python_text.h"
#include "graph/ir/graph_text.h"
#include "graph/tensors/python_tensor.h"

namespace framejit::graph {

namespace {

Ref attribute(PyObject* object, const std::string& name) {
  Ref value = Ref::steal(PyObject_GetAttrString(object, name.c_str()));
  if (!value) PyErr_Clear();
  return value;
}

// Follows a dotted path from the longest prefix that is a loaded module. Never
// imports: a name must not run code.
Ref follow(const std::string& path) {
  PyObject* modules = PyImport_GetModuleDict();
  size_t end = path.size();
  while (end != std::string::npos && end > 0) {
    PyObject* module =
        PyDict_GetItemString(modules, path.substr(0, end).c_str());
    if (module && PyModule_Check(module)) {
      Ref object = Ref::borrow(module);
      size_t at = end;
      while (object && at < path.size()) {
        size_t next = path.find('.', at + 1);
        if (next == std::string::npos) next = path.size();
        object = attribute(object.get(), path.substr(at + 1, next - at - 1));
        at = next;
      }
      return object;
    }
    end = path.rfind('.', end - 1);
  }
  return {};
}

}  // namespace

GuardSet::Cause cause_of_call(PyObject* callable) {
  auto name = [](const void* what) -> const char* {
    HoldGil gil;
    auto* object = const_cast<PyObject*>(static_cast<const PyObject*>(what));
    std::string path = import_path(object);
    // Some have another object at each look.
    if (path.empty()) path = text_attribute(object, "__name__");
    if (path.empty()) return nullptr;
    // Each once, for good: entries name them.
    static auto* names = new std::set<std::string>;
    return names->insert(std::move(path)).first->c_str();
  };
  return {name, callable};
}

Ref resolve_import_path(const std::string& path) {
  ErrorGuard keep_error;
  return follow(path);
}

std::string import_path(PyObject* object) {
  ErrorGuard keep_error;
  auto leads_back = [&](const std::string& path) {
    return follow(path).get() == object;
  };
  std::string name = text_attribute(object, "__name__");
  if (name.empty()) return "";
  // The short names people know come first.
  static const std::array<const char*, 10> homes = {"torch",
                                                    "torch.Tensor",
                                                    "_operator",
                                                    "torch._C._nn",
                                                    "torch._C._linalg",
                                                    "torch._C._fft",
                                                    "torch._C._special",
                                                    "torch._C",
                                                    "torch.nn.functional",
                                                    "builtins"};
  for (const char* home : homes) {
    std::string path = std::string(home) + "." + name;
    if (leads_back(path)) return path;
  }
  std::string module = text_attribute(object, "__module__");
  std::string qualified = text_attribute(object, "__qualname__");
  if (!module.empty() && !qualified.empty()) {
    std::string path = module + "." + qualified;
    if (leads_back(path)) return path;
  }
  return "";
}

}  // namespace framejit::graph
