// Effects that are kept for after the graph.
#pragma once

#include "bytecode/capture_tables.h"

namespace framejit::bytecode {

// callable(*args), in the order of the write log.
Status defer(CaptureState& state, PyObject* callable,
             const std::vector<PyObject*>& args);
// A C function that such entries call; made once for each method.
PyObject* effect_function(PyMethodDef* method);

}  // namespace framejit::bytecode
