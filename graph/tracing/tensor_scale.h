// Tensors in the place of numbers: `p.add_(g, alpha=-lr)` with lr a tensor.
//
// torch reads the number out of the tensor, which a capture cannot. The same
// can be said with tensors alone:
//
//   x.addcdiv_(a, b, value=t)   ->   x.add_(a.div(b).mul(t))
//
// Optimizers written for capture come to this.
#pragma once

#include "graph/tracing/recorder.h"

namespace framejit::graph {

// args: self first, the keyword's value last. Empty: not such a call.
Result<Ref> record_with_tensor_scale(Recorder& recorder, const char* method,
                                     const std::vector<PyObject*>& args,
                                     PyObject* kwnames);

}  // namespace framejit::graph
