#include "guards/set/quiet_callbacks.h"

#include <algorithm>
#include <string>
#include <vector>

#include "guards/set/object_layout.h"

namespace framejit {

namespace {

struct QuietCallbacks {
  std::vector<PyCFunction> functions;
  std::vector<std::string> modules;
};
QuietCallbacks& quiet_callbacks() {
  static auto* callbacks = new QuietCallbacks;
  return *callbacks;
}

// self: (entries, key)
PyObject* forget_entry(PyObject* self, PyObject*) {
  PyObject *entries = PyTuple_GET_ITEM(self, 0),
           *key = PyTuple_GET_ITEM(self, 1);
  const int found = PyDict_Contains(entries, key);
  if (found < 0 || (found && PyDict_DelItem(entries, key) < 0)) return nullptr;
  Py_RETURN_NONE;
}

}  // namespace

void add_quiet_callback(PyCFunction function) {
  auto& functions = quiet_callbacks().functions;
  if (std::ranges::find(functions, function) == functions.end())
    functions.push_back(function);
}

void add_quiet_callbacks_of(const char* module) {
  auto& modules = quiet_callbacks().modules;
  if (std::ranges::find(modules, module) == modules.end())
    modules.emplace_back(module);
}

bool is_quiet_callback(PyObject* callback) {
  const QuietCallbacks& known = quiet_callbacks();
  if (PyCFunction_Check(callback)) {
    return std::ranges::find(known.functions,
                             PyCFunction_GET_FUNCTION(callback)) !=
           known.functions.end();
  }
  if (!PyFunction_Check(callback)) return false;
  // Not its __module__, which functools.wraps copies.
  static PyObject* const name = PyUnicode_InternFromString("__name__");
  PyObject* module = nullptr;
  const Lookup found =
      name ? dict_find(PyFunction_GET_GLOBALS(callback), name, &module)
           : Lookup::kAbsent;
  return found == Lookup::kFound && PyUnicode_Check(module) &&
         std::ranges::any_of(known.modules, [&](const std::string& name) {
           return PyUnicode_CompareWithASCIIString(module, name.c_str()) == 0;
         });
}

Ref forgetting_callback(PyObject* entries, PyObject* key) {
  static PyMethodDef method = {"forget_entry", forget_entry, METH_O, nullptr};
  add_quiet_callback(forget_entry);
  Ref self = Ref::steal(PyTuple_Pack(2, entries, key));
  return self ? Ref::steal(PyCFunction_New(&method, self.get())) : Ref();
}

}  // namespace framejit
