// What is guarded about an input tensor, and which tensors can be inputs.
#pragma once

#include <cstdint>
#include <string>

#include "graph/tensors/trace_tensor.h"
#include "guards/set/dynamic_dims.h"
#include "guards/set/guard_set.h"

namespace framejit::graph {

// "": it can be captured; otherwise why not ("a tensor subclass").
std::string unsupported_input(PyObject* tensor);

// "": a strided tensor with memory, as torch's operators make them, whose bits
// are all that is special about it. on_meta: it may also be one without memory.
std::string unusual_tensor(const at::Tensor& tensor, bool on_meta = false);
bool is_unusual_tensor(const at::Tensor& tensor);

// Adds the Tensor guard (and symbols with their range for dynamic dims) and
// gives the stand-in's shape. The storage offset is not guarded: stand-ins
// start at offset 0. Sizes and strides of 0 and 1 stay constants.
SymbolicShape guard_input(GuardSet& guards, const Source* source,
                          PyObject* tensor, DynamicDims dynamic);

}  // namespace framejit::graph
