// What a program does to a tensor besides operations: it reads where the tensor
// stands in autograd (is_leaf, grad_fn, grad), and it writes .data,
// requires_grad and .grad.
//
// .data and requires_grad become nodes of the torch-level graph (the joint
// stage refuses them), because the operations around them depend on them. .grad
// is written after the graph, by the write log; reads look here first.
#pragma once

#include "graph/tracing/recorder.h"

namespace framejit::graph {

// is_leaf and grad_fn. A stand-in of an input is a leaf, the input need not be.
Result<Ref> read_is_leaf(Recorder& recorder, PyObject* stand_in);
Result<Ref> read_grad_fn(Recorder& recorder, PyObject* stand_in);

// The .grad that the program wrote in this capture; empty: none written.
Ref written_grad(Recorder& recorder, PyObject* stand_in);

// tensor.name = value; null value: del tensor.name. Gives what
// Tracer::set_attribute does.
Result<Ref> write_attribute(Recorder& recorder, PyObject* stand_in,
                            PyObject* name, PyObject* value);

// x[i] with tensors of one integer in the index selects, whichever they are:
// the index with 0 in their places. Empty: there are none.
Result<Ref> index_without_tensors(PyObject* index);

// Methods that are no operations: requires_grad_, retain_grad, new, new_tensor,
// item of a constant ... `callable` is a method of Tensor or a descriptor. An
// empty Ref: none of these.
Result<Ref> call_special_method(Recorder& recorder, PyObject* callable,
                                const std::vector<PyObject*>& args,
                                PyObject* kwnames);

}  // namespace framejit::graph
