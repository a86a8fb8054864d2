// Classes derived from torch.Tensor, and __torch_function__.
//
// A stand-in of such a class has the class for its own; the graph knows plain
// tensors only, and what leaves it gets its class back at the end. During a
// capture torch itself never asks a __torch_function__: the interpreter does
// (bytecode/objects/torch_functions.h). What torch would ask is found by
// running the call under a mode of ours, which notes what it is told and ends
// the call.
#pragma once

#include <optional>
#include <vector>

#include "graph/tracing/recorder.h"
#include "guards/foreign.h"

namespace framejit::graph {

// Of a class that is neither Tensor nor Parameter.
bool is_of_subclass(PyObject* tensor);
// Has the class of the object a __torch_function__ that is not switched off?
bool has_torch_function(PyObject* object);
// Why a class cannot be that of a stand-in; "": it can.
std::string unsupported_class(PyTypeObject* type);

Result<std::optional<FunctionOverride>> find_function_override(
    Recorder& recorder, PyObject* callable, const std::vector<PyObject*>& args,
    PyObject* kwnames);

// x.as_subclass(type): another object for the same memory.
Result<Ref> make_view_of_class(Recorder& recorder, PyObject* tensor,
                               PyObject* type);
// Tensor._make_subclass(type, data, requires_grad)
Result<Ref> make_detached_of_class(Recorder& recorder, PyObject* type,
                                   PyObject* data, bool requires_grad);
// Gives a stand-in made by the recorder its class.
Status set_tensor_class(Recorder& recorder, PyObject* stand_in, PyObject* type);

}  // namespace framejit::graph
