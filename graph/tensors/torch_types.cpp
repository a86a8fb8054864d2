#include "graph/tensors/torch_types.h"

namespace framejit::graph {

const LibraryType kScriptFunction("torch._C", "ScriptFunction");

bool is_pybind_record(PyObject* object) {
  static PyTypeObject* const record = made_once([] {
    PyObject* bound = library_object("torch._C", "_get_tracing_state");
    PyObject* self = bound && PyCFunction_Check(bound)
                         ? PyCFunction_GET_SELF(bound)
                         : nullptr;
    PyErr_Clear();
    // Lives as long as the function, which is kept.
    return self && !PyModule_Check(self) ? Py_TYPE(self) : nullptr;
  });
  return record && Py_IS_TYPE(object, record);
}

bool is_legacy_tensor_type(PyObject* object) {
  static PyTypeObject* const metaclass = made_once([] {
    PyObject* type = library_object("torch", "FloatTensor");
    PyErr_Clear();
    return type ? Py_TYPE(type) : nullptr;
  });
  return metaclass && Py_IS_TYPE(object, metaclass);
}

}  // namespace framejit::graph
