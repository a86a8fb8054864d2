#include "bytecode/objects/itertools_state.h"

#include <cstring>

#include "frame_hook/cpython_internals.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/python_text.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {
namespace {

// DeprecationWarning is ignored for a scope that runs no code of the program.
class IgnoreDeprecations {
 public:
  IgnoreDeprecations() {
    Ref module = Ref::steal(PyImport_ImportModule("warnings"));
    if (module)
      filters_ = Ref::steal(PyObject_GetAttrString(module.get(), "filters"));
    entry_ = Ref::steal(Py_BuildValue("(sOOOi)", "ignore", Py_None,
                                      PyExc_DeprecationWarning, Py_None, 0));
    if (!filters_ || !entry_ || !PyList_Check(filters_.get()) ||
        PyList_Insert(filters_.get(), 0, entry_.get()) < 0) {
      PyErr_Clear();
      filters_ = {};
    }
  }
  ~IgnoreDeprecations() {
    if (!filters_) return;
    ErrorGuard keep_error;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(filters_.get()); ++i) {
      if (PyList_GET_ITEM(filters_.get(), i) != entry_.get()) continue;
      if (PyList_SetSlice(filters_.get(), i, i + 1, nullptr) < 0) PyErr_Clear();
      break;
    }
  }
  IgnoreDeprecations(const IgnoreDeprecations&) = delete;
  IgnoreDeprecations& operator=(const IgnoreDeprecations&) = delete;

 private:
  Ref filters_, entry_;
};

// The method, called from a Python function with globals of its own: a warning
// leaves a registry in the globals of the frame it is raised from.
PyObject* caller() {
  static PyObject* const function = made_once([] {
    Ref code = Ref::steal(
        Py_CompileString("lambda method, arguments: method(*arguments)",
                         "<framejit>", Py_eval_input));
    Ref globals = Ref::steal(PyDict_New());
    if (!code || !globals ||
        PyDict_SetItemString(globals.get(), "__builtins__",
                             PyEval_GetBuiltins()) < 0)
      return static_cast<PyObject*>(nullptr);
    return PyEval_EvalCode(code.get(), globals.get(), globals.get());
  });
  return function;
}

Ref call_quietly(PyObject* iterator, const char* name, PyObject* argument) {
  Ref method = Ref::steal(PyObject_GetAttrString(iterator, name));
  Ref arguments =
      Ref::steal(argument ? PyTuple_Pack(1, argument) : PyTuple_New(0));
  if (!method || !arguments) return nullptr;
  if (!internals::kItertoolsWarn)
    return Ref::steal(PyObject_CallObject(method.get(), arguments.get()));
  PyObject* function = caller();
  if (!function) {
    if (!PyErr_Occurred()) PyErr_NoMemory();
    return nullptr;
  }
  PauseHook pause;
  IgnoreDeprecations ignore;
  return Ref::steal(PyObject_CallFunctionObjArgs(function, method.get(),
                                                 arguments.get(), nullptr));
}

}  // namespace

bool is_itertool(PyTypeObject* type) {
  const char* dot = std::strrchr(type->tp_name, '.');
  if (!dot || dot[1] == '_' || !is_type_of_module(type, "itertools"))
    return false;
  Ref dict = internals::own_dict(type);
  return dict && PyDict_GetItemString(dict.get(), "__reduce__");
}

Ref reduce_itertool(PyObject* iterator) {
  return call_quietly(iterator, "__reduce__", nullptr);
}

bool restore_itertool(PyObject* iterator, PyObject* state) {
  return bool(call_quietly(iterator, "__setstate__", state));
}

}  // namespace framejit::bytecode
