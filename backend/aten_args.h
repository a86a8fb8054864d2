// Argument templates of ATen calls: an Arg of the graph, converted once to what
// the operator's schema asks for.
//
// Constants become IValues of the schema's type when the program is built, and
// missing trailing arguments get the schema's defaults. What depends on the
// call (registers, sizes) is filled in when the instruction runs. A number in
// the place of a tensor becomes a "wrapped number", so that type promotion is
// that of `tensor * 2`.
#pragma once

#include <ATen/core/ivalue.h>

#include <unordered_map>
#include <vector>

#include "graph/ir/ir.h"

namespace framejit::backend {

using RegisterIndex = std::unordered_map<const graph::Value*, int>;

struct AtenArg {
  enum class Kind : uint8_t {
    kConstant,
    kRegister,      // copy of a register
    kMoveRegister,  // its last use: the register is emptied
    kExpr,          // int or float
    kExprAsTensor,  // as a wrapped number tensor
    kList,
  };
  Kind kind = Kind::kConstant;
  c10::IValue constant;
  int reg = -1;
  Expr expr;
  c10::TypePtr element_type;  // kList
  std::vector<AtenArg> items;
};

// A Break when the graph's argument does not fit the schema.
Result<std::vector<AtenArg>> make_aten_args(const c10::FunctionSchema& schema,
                                            const std::vector<graph::Arg>& args,
                                            const RegisterIndex& registers);

// Pushes the argument's value of this call.
c10::IValue build_aten_arg(const AtenArg& arg, c10::IValue* registers,
                           const int64_t* symbols);

void collect_registers(const AtenArg& arg, std::vector<int>* out);

}  // namespace framejit::backend
