// What framejit/_regions.py asks the tracer for. That module says in Python
// what a call such as `Function.apply` or `loss.backward()` means; the
// interpreter runs it in the place of torch's own code, and these functions are
// the steps that only the recorder can do. Outside a capture they raise.
#pragma once

#include "graph/tracing/recorder.h"

namespace framejit::graph {

// A new reference to the module object of the functions.
Ref region_module();
bool is_region_call(PyObject* callable);
Result<Ref> call_region(Recorder& recorder, PyObject* callable,
                        const std::vector<PyObject*>& args);

}  // namespace framejit::graph
