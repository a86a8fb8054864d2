#include "bytecode/objects/step_functions.h"

#include "bytecode/objects/containers.h"

#include "bytecode/objects/exceptions.h"
#include "bytecode/objects/itertools_state.h"
#include "frame_hook/cpython_internals.h"
#include "guards/known_objects.h"
#include "guards/set/set_table.h"

namespace framejit::bytecode {

namespace {

PyObject* set_instance_attribute(PyObject*, PyObject* const* args,
                                 Py_ssize_t count) {
  PyObject *object = args[0], *name = args[1];
  PyObject* value = count > 2 ? args[2] : nullptr;
  PyObject* raw = _PyType_Lookup(Py_TYPE(object), name);
  int failed;
  if (PyModule_Check(object)) {
    PyObject* dict = PyModule_GetDict(object);
    failed =
        value ? PyDict_SetItem(dict, name, value) : PyDict_DelItem(dict, name);
  } else if (raw && !Py_IS_TYPE(raw, &PyMemberDescr_Type) &&
             Py_TYPE(raw)->tp_descr_set) {
    // A property hides the instance dict from setattr.
    Ref dict = Ref::steal(PyObject_GenericGetDict(object, nullptr));
    if (!dict) return nullptr;
    failed = value ? PyDict_SetItem(dict.get(), name, value)
                   : PyDict_DelItem(dict.get(), name);
  } else {
    failed = PyObject_GenericSetAttr(object, name, value);
  }
  if (failed < 0) return nullptr;
  Py_RETURN_NONE;
}

PyObject* instance_dict(PyObject*, PyObject* const* args, Py_ssize_t) {
  return PyObject_GenericGetDict(args[0], nullptr);
}

PyObject* set_instance_dict(PyObject*, PyObject* const* args, Py_ssize_t) {
  if (!internals::set_instance_dict(args[0], args[1])) return nullptr;
  Py_RETURN_NONE;
}

PyObject* set_cell(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (PyCell_Set(args[0], count > 1 ? args[1] : nullptr) < 0) return nullptr;
  Py_RETURN_NONE;
}

PyObject* replace_content(PyObject*, PyObject* const* args, Py_ssize_t) {
  PyObject *container = args[0], *content = args[1];
  int failed = 0;
  if (PyList_Check(container)) {
    failed = PyList_SetSlice(container, 0, PY_SSIZE_T_MAX, content);
    auto* list = reinterpret_cast<PyListObject*>(container);
    if (!failed && list->allocated == kNoListStorage) list->allocated = 0;
  } else {
    Ref done = Ref::steal(PyObject_CallMethod(container, "clear", nullptr));
    if (!done) return nullptr;
    const char* method =
        PyDict_Check(container) || PySet_Check(container) ? "update" : "extend";
    done = Ref::steal(PyObject_CallMethod(container, method, "O", content));
    failed = done ? 0 : -1;
  }
  if (failed < 0) return nullptr;
  Py_RETURN_NONE;
}

PyObject* copy_set(PyObject*, PyObject* const* args, Py_ssize_t) {
  return copy_set_table(args[0]).release();
}

PyObject* take_set(PyObject*, PyObject* const* args, Py_ssize_t) {
  if (!take_set_table(args[0], args[1])) return nullptr;
  Py_RETURN_NONE;
}

PyObject* restore_state(PyObject*, PyObject* const* args, Py_ssize_t) {
  if (!restore_itertool(args[0], args[1])) return nullptr;
  Py_RETURN_NONE;
}

PyObject* set_handled_exception(PyObject*, PyObject* const* args, Py_ssize_t) {
  PyErr_SetHandledException(args[0]);
  Py_RETURN_NONE;
}

// (exception, ((file, function, line), ...)), innermost first: the lines that
// the capture's exception had.
PyObject* add_traceback(PyObject*, PyObject* const* args, Py_ssize_t) {
  if (PyException_SetTraceback(args[0], Py_None) < 0) return nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args[1]); ++i) {
    const char *file, *function;
    int line;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(args[1], i), "ssi", &file, &function,
                          &line) ||
        !add_traceback_line(args[0], file, function, line).ok()) {
      return nullptr;
    }
  }
  Py_RETURN_NONE;
}

// What the graph returns is a plain tensor, and nobody else's.
PyObject* set_class(PyObject*, PyObject* const* args, Py_ssize_t) {
  if (reinterpret_cast<PyObject*>(Py_TYPE(args[0])) != args[1] &&
      PyObject_SetAttr(args[0], interned("__class__"), args[1]) < 0) {
    return nullptr;
  }
  return Py_NewRef(args[0]);
}

}  // namespace

#define FJ_STEP_FUNCTION(name, function)                                  \
  PyObject* name##_function() {                                           \
    static PyMethodDef method = {#name,                                   \
                                 reinterpret_cast<PyCFunction>(function), \
                                 METH_FASTCALL, nullptr};                 \
    static PyObject* made = PyCFunction_New(&method, nullptr);            \
    return made;                                                          \
  }
FJ_STEP_FUNCTIONS(FJ_STEP_FUNCTION)
#undef FJ_STEP_FUNCTION

}  // namespace framejit::bytecode
