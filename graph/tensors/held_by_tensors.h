// What goes with a tensor, beside what its Python object says that it holds:
// the object of its gradient, and Python's gradient functions in its history
// (torch.autograd.Function), with what those hold.
#pragma once

#include "frame_hook/py_ref.h"

namespace framejit::graph {

// As TensorLayout's (guards/set/guard_set.h).
PyObject* grad_object(PyObject* tensor);
int visit_beneath(PyObject* tensor, int (*visit)(PyObject*, void*),
                  void* argument);

}  // namespace framejit::graph
