// Is an object a tensor? By its type alone: THPVariable_Check asks
// isinstance(), which reads __class__ and so may run the user's code.
#pragma once

#include "graph/tensors/python_tensor.h"

namespace framejit::graph {

inline bool is_tensor_object(PyObject* object) {
  return PyObject_TypeCheck(object,
                            reinterpret_cast<PyTypeObject*>(THPVariableClass));
}

}  // namespace framejit::graph
