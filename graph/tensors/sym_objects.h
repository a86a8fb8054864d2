// torch.SymInt, SymBool and SymFloat objects over our expressions.
#pragma once

#include <c10/core/SymInt.h>
#include <c10/core/SymNodeImpl.h>

#include <optional>

#include "guards/expr/expr.h"
#include "guards/result.h"

namespace framejit::graph {

bool is_symbolic_object(PyObject* object);
// int, bool or float: the type the user sees.
PyTypeObject* plain_type_of(PyObject* symbolic);
// A torch.SymInt, or an int where the value is constant. May throw.
Ref sym_int_object(const c10::SymInt& value);
// A torch.SymInt or SymFloat, or the int or float where it is constant. May
// throw.
Ref sym_number_object(const Expr& expr);
bool is_sym_float(PyObject* object);
// The value of a torch.SymInt object; none for other objects.
std::optional<c10::SymInt> sym_int_of(PyObject* object);
// Null: a constant in symbolic clothes.
c10::SymNode node_of(PyObject* symbolic);
// None: also for an object that is not ours. May throw.
std::optional<Expr> expr_of(PyObject* symbolic);
// The Python int, bool or float, with a guard that keeps it. May throw.
Result<Ref> concrete_value(PyObject* symbolic);

}  // namespace framejit::graph
