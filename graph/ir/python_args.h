// Python arguments <-> graph arguments.
//
// to_arg copies lists, dicts and slices deeply (the program may change them
// after the call) and turns stand-ins into Values through a callback. to_python
// is its inverse for replay: Values through a callback, symbolic ints from the
// predicate's symbols.
#pragma once

#include <functional>

#include "graph/ir/ir.h"

namespace framejit::graph {

// How to_arg treats a tensor: the Value, or why not.
using TensorToValue = std::function<Result<Value*>(PyObject* tensor)>;
// Other objects that stand for values (fx nodes): null when it is not one.
using ObjectToValue = std::function<Value*(PyObject* object)>;
Result<Arg> to_arg(PyObject* object, const TensorToValue& tensor,
                   const ObjectToValue& other = nullptr);

// New reference, or empty with a Python error set. A value callback returns a
// borrowed reference, null with an error set on failure.
using ValueToPython = std::function<PyObject*(Value* value)>;
Ref to_python(const Arg& arg, const ValueToPython& value,
              const int64_t* symbols);
// The same where a symbolic int becomes some object (an fx node).
using ExprToPython = std::function<Ref(const Expr& expr)>;
Ref to_python(const Arg& arg, const ValueToPython& value,
              const ExprToPython& expr);

}  // namespace framejit::graph
