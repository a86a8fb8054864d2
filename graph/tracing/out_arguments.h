// out=: what may be written into as it is.
//
// A tensor that has another size than the result is resized, one of another
// type is converted to or refused, and each operator has its own way of that.
// A graph takes an `out` only where nothing of it is asked for: the call is
// tried without it, and the result has to have the type and the sizes of `out`.
// Otherwise the call is eager's.
#pragma once

#include <vector>

#include "graph/tracing/recorder.h"

namespace framejit::graph {

// A Break where the call would do more to its `out` than fill it. False: there
// is none. Such a call has to be one operation: one that is made of several may
// resize its `out` in between.
Result<bool> check_out_argument(Recorder& recorder, PyObject* callable,
                                const std::vector<PyObject*>& args,
                                PyObject* kwnames);

// Kernels that know the shape of their result beforehand resize an `out` that
// does not fit, and no other. One without may be made of others, which do.
bool may_resize_out(const c10::OperatorHandle& op);

}  // namespace framejit::graph
