// What the tracer knows about a callable: a row of callees.def, or the default
// of its kind.
#pragma once

#include <string>
#include <vector>

#include "guards/foreign.h"

namespace framejit::graph {

struct CalleeRow {
  CalleeClass kind = CalleeClass::kNotForeign;
  BreakReason reason = BreakReason::kUnknownOperation;  // for breaks
  bool from_table = false;
};

// "torch.cos", "torch.Tensor.view", "torch._C._nn.gelu",
// "torch.nn.functional.softmax"; "" when it has no name. No error set.
std::string canonical_name(PyObject* callable);
CalleeRow find_callee(PyObject* callable);

// The names in callees.def, for the test that looks for dead rows.
std::vector<std::string> callee_table_names();

}  // namespace framejit::graph
