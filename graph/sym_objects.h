// torch.SymInt, SymBool and SymFloat objects over our expressions.
#pragma once

#include <c10/core/SymNodeImpl.h>

#include "guards/result.h"

namespace framejit::graph {

bool is_symbolic_object(PyObject* object);
// Null: a constant in symbolic clothes.
c10::SymNode node_of(PyObject* symbolic);
// The Python int, bool or float, with a guard that keeps it. May throw.
Result<Ref> concrete_value(PyObject* symbolic);

}  // namespace framejit::graph
