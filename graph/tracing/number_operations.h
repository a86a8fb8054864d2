// Operators and functions of the math module on numbers alone: symbolic ones
// stay expressions, or their values are taken where there is no expression for
// the result. No node is recorded. May throw.
#pragma once

#include <vector>

#include "graph/tracing/recorder.h"

namespace framejit::graph {

Result<Ref> operate_on_numbers(Recorder& recorder, PyObject* function,
                               std::vector<PyObject*> operands);

}  // namespace framejit::graph
