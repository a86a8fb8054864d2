// Who takes operations on fake tensors over.
#include <utility>

#include "fake_tensor.h"

namespace framejit::fake {
namespace {

PyObject* method_of(PyTypeObject* type) {
  static PyObject* const name = PyUnicode_InternFromString("__fake_function__");
  return type->tp_flags & Py_TPFLAGS_HEAPTYPE ? _PyType_Lookup(type, name)
                                              : nullptr;
}

Ref tuple_of(const std::vector<PyObject*>& items) {
  Ref tuple = Ref::steal(PyTuple_New(Py_ssize_t(items.size())));
  for (size_t i = 0; tuple && i < items.size(); ++i) {
    PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(items[i]));
  }
  return tuple;
}

PyObject* ask(PyObject* asked, const OverriddenCall& call) {
  return PyObject_CallMethod(asked, "__fake_function__", "OOOO",
                             call.function.get(), call.types.get(),
                             call.args.get(), call.kwargs.get());
}

// 0: everybody is asked, 1: only modes, 2: nobody.
int g_asking = 0;

PyObject* push_mode(PyObject*, PyObject* mode) {
  override_modes().push_back(Ref::borrow(mode));
  Py_RETURN_NONE;
}
PyObject* pop_mode(PyObject*, PyObject*) {
  if (override_modes().empty()) {
    PyErr_SetString(PyExc_RuntimeError, "no mode");
    return nullptr;
  }
  Ref mode = std::move(override_modes().back());
  override_modes().pop_back();
  return mode.release();
}
PyObject* num_modes(PyObject*, PyObject*) {
  return PyLong_FromSize_t(override_modes().size());
}
PyObject* has_override(PyObject*, PyObject* args) {
  bool found = !override_modes().empty() && g_asking < 2;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
    found = found || (g_asking == 0 && overrides(PyTuple_GET_ITEM(args, i)));
  }
  return PyBool_FromLong(found);
}
// set_asking(level) -> the level before
PyObject* set_asking(PyObject*, PyObject* level) {
  return PyLong_FromLong(
      std::exchange(g_asking, static_cast<int>(PyLong_AsLong(level))));
}
PyObject* plainly(PyObject*, PyObject* args) {
  int before = std::exchange(g_asking, 2);
  Ref rest = Ref::steal(PyTuple_GetSlice(args, 1, PyTuple_GET_SIZE(args)));
  PyObject* result =
      rest ? PyObject_Call(PyTuple_GET_ITEM(args, 0), rest.get(), nullptr)
           : nullptr;
  g_asking = before;
  return result;
}

}  // namespace

PyMethodDef g_override_functions[] = {
    {"push_mode", push_mode, METH_O, nullptr},
    {"pop_mode", pop_mode, METH_NOARGS, nullptr},
    {"num_modes", num_modes, METH_NOARGS, nullptr},
    {"has_override", has_override, METH_VARARGS, nullptr},
    {"set_asking", set_asking, METH_O, nullptr},
    {"plainly", plainly, METH_VARARGS, nullptr},
    {}};

bool overrides_are_as_usual() {
  return override_modes().empty() && g_asking == 0;
}

std::vector<Ref>& override_modes() {
  static auto* modes = new std::vector<Ref>;
  return *modes;
}

bool overrides(PyObject* object) {
  return method_of(Py_TYPE(object)) != nullptr;
}

OverriddenCall overridden_call(const Operation& operation,
                               const std::vector<PyObject*>& args,
                               PyObject* kwnames) {
  OverriddenCall call;
  std::vector<PyObject*> types;
  for (PyObject* arg : args) {
    auto* type = reinterpret_cast<PyObject*>(Py_TYPE(arg));
    bool is_new = overrides(arg);
    for (PyObject* known : types) is_new = is_new && known != type;
    if (is_new) types.push_back(type);
  }
  size_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  std::vector<PyObject*> positional(args.begin(), args.end() - keywords);
  call.kwargs = Ref::steal(PyDict_New());
  for (size_t i = 0; call.kwargs && i < keywords; ++i) {
    PyDict_SetItem(call.kwargs.get(), PyTuple_GET_ITEM(kwnames, i),
                   args[positional.size() + i]);
  }
  call.types = tuple_of(types);
  call.args = tuple_of(positional);
  call.function = Ref::steal(
      PyObject_GetAttrString(PyImport_AddModule("fake"), operation.name));
  return call;
}

bool ask_overrides(const Operation& operation,
                   const std::vector<PyObject*>& args, PyObject* kwnames,
                   PyObject** result) {
  bool mode_asks = !override_modes().empty() && g_asking < 2;
  bool any = mode_asks;
  for (PyObject* arg : args) any = any || (g_asking == 0 && overrides(arg));
  if (!any || has_stand_in(args.data(), args.size())) return false;
  OverriddenCall call = overridden_call(operation, args, kwnames);
  *result = nullptr;
  if (!call.function) return true;
  if (g_asking != 0) call.types = Ref::steal(PyTuple_New(0));
  if (mode_asks) {
    // Not asked about what it does itself.
    Ref mode = std::move(override_modes().back());
    override_modes().pop_back();
    *result = ask(mode.get(), call);
    override_modes().push_back(std::move(mode));
    if (*result != Py_NotImplemented) return true;
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(call.types.get()); ++i) {
    *result = ask(PyTuple_GET_ITEM(call.types.get(), i), call);
    if (*result != Py_NotImplemented) return true;
  }
  if (PyTuple_GET_SIZE(call.types.get()) == 0) return false;
  *result = nullptr;
  PyErr_Format(PyExc_TypeError, "%s: nobody knows how", operation.name);
  return true;
}

}  // namespace framejit::fake
