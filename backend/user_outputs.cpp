#include "backend/user_outputs.h"

#include "backend/program.h"
#include "graph/tensors/python_tensor.h"
#include "guards/set/number_expr.h"

namespace framejit::backend {

using graph::Arg;
using graph::OutputInfo;
using graph::Value;

Result<UserOutput> UserOutput::build(const Arg& arg, const OutputInfo& info,
                                     const std::vector<int>& input_objects) {
  UserOutput output;
  if (info.alias == OutputInfo::Alias::kInput) {
    output.kind = Kind::kInputObject;
    output.object = input_objects.at(info.base);
    FJ_CHECK(output.object >= 0);
    return output;
  }
  if (info.remade) {
    output.kind = info.alias == OutputInfo::Alias::kOutput ? Kind::kViewOfOutput
                                                           : Kind::kViewOfInput;
    output.base = info.base;
    output.passes_base = info.passes_base;
    FJ_TRY(output.view, OutputView::build(info));
    return output;
  }
  output.idle_strides = info.idle_strides;
  output.is_view = info.is_view;
  if (info.is_view) output.view = OutputView::of_all(info);
  if (tensor_of(arg)) return output;
  output.kind = Kind::kInt;
  if (arg.is<Expr>()) {
    output.expr = arg.get<Expr>();
  } else if (arg.is<int64_t>()) {
    output.expr = arg.get<int64_t>();
  } else if (arg.is<Value*>()) {
    output.expr = arg.get<Value*>()->expr;
  } else {
    return Break{BreakReason::kBackendFailed, "constant graph output", {}};
  }
  return output;
}

CallOutputs::CallOutputs(const std::vector<UserOutput>& user_outputs,
                         const RanCall& call)
    : user_outputs_(user_outputs), call_(call) {
  for (size_t i = 0; i < user_outputs.size(); ++i) {
    if (!user_outputs[i].idle_strides.empty())
      set_idle_strides(call.results[i], user_outputs[i].idle_strides,
                       call.symbols);
  }
}

const at::Tensor& CallOutputs::view(size_t output) {
  using Kind = UserOutput::Kind;
  views_.resize(user_outputs_.size());
  at::Tensor& made = views_[output];
  if (made.defined()) return made;
  const UserOutput& row = user_outputs_[output];
  const bool of_input = row.kind == Kind::kViewOfInput;
  const at::Tensor* base = nullptr;
  if (row.kind == Kind::kTensor)
    base = &call_.results[output];
  else if (of_input)
    base = call_.tensors[row.base];
  else if (row.passes_base && user_outputs_[row.base].is_view)
    base = &view(row.base);
  else
    base = &call_.results[row.base];
  made = row.view.make(*base, /*counted=*/!of_input, call_.symbols, &lists_);
  return made;
}

bool CallOutputs::wrap(size_t count, PyObject** outputs) {
  using Kind = UserOutput::Kind;
  for (size_t i = 0; i < count; ++i) {
    const UserOutput& output = user_outputs_[i];
    switch (output.kind) {
      case Kind::kTensor:
        outputs[i] =
            THPVariable_Wrap(output.is_view ? view(i) : call_.results[i]);
        break;
      case Kind::kInt:
        outputs[i] = number_object(output.expr, call_.symbols);
        break;
      case Kind::kInputObject:
        outputs[i] = Py_NewRef(call_.inputs[output.object]);
        break;
      case Kind::kViewOfInput:
      case Kind::kViewOfOutput:
        outputs[i] = THPVariable_Wrap(view(i));
        break;
    }
    if (outputs[i]) continue;
    while (i > 0) Py_CLEAR(outputs[--i]);
    return false;
  }
  return true;
}

}  // namespace framejit::backend
