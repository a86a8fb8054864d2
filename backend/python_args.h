// Argument templates of the torch-level executor.
//
// An Arg tree becomes a PyArg once, when the executor is made: constant
// subtrees are Python objects ready to pass, tensors are register numbers,
// sizes are expressions over the call's symbols. Mutable containers are built
// anew for every call, because the callee may keep or change them.
#pragma once

#include <unordered_map>
#include <vector>

#include "graph/ir/ir.h"

namespace framejit::backend {

struct PyArg {
  enum class Kind : uint8_t {
    kConstant,
    kRegister,
    kExpr,
    kList,
    kTuple,
    kDict,
    kSlice,
  };
  Kind kind = Kind::kConstant;
  Ref constant;              // kConstant
  int reg = -1;              // kRegister
  Expr expr;                 // kExpr
  std::vector<PyArg> items;  // containers; kDict: key, value, key, value...
};

using RegisterMap = std::unordered_map<const graph::Value*, int>;

// A value without a register must be a symbolic int.
Result<PyArg> make_py_arg(const graph::Arg& arg, const RegisterMap& registers);

// New reference, or null with an error set.
PyObject* build_py_arg(const PyArg& arg, PyObject* const* registers,
                       const int64_t* symbols);

}  // namespace framejit::backend
