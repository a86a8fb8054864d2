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

bool wrap_outputs(const std::vector<UserOutput>& user_outputs, size_t count,
                  const RanCall& call, const int64_t* symbols,
                  PyObject** outputs) {
  using Kind = UserOutput::Kind;
  for (size_t i = 0; i < user_outputs.size(); ++i) {
    if (!user_outputs[i].idle_strides.empty())
      set_idle_strides(call.results[i], user_outputs[i].idle_strides, symbols);
  }
  ViewLists lists;
  std::vector<at::Tensor> views;
  // What the caller gets of what the graph computes.
  auto given = [&](size_t i) -> const at::Tensor& {
    const UserOutput& output = user_outputs[i];
    const at::Tensor& result = call.results[i];
    if (!output.is_view) return result;
    views.resize(user_outputs.size());
    if (!views[i].defined())
      views[i] = output.view.make(result, /*counted=*/true, symbols, &lists);
    return views[i];
  };
  for (size_t i = 0; i < count; ++i) {
    const UserOutput& output = user_outputs[i];
    switch (output.kind) {
      case Kind::kTensor:
        outputs[i] = THPVariable_Wrap(given(i));
        break;
      case Kind::kInt:
        outputs[i] = number_object(output.expr, symbols);
        break;
      case Kind::kInputObject:
        outputs[i] = Py_NewRef(call.inputs[output.object]);
        break;
      case Kind::kViewOfInput:
        outputs[i] = THPVariable_Wrap(output.view.make(
            *call.tensors[output.base], /*counted=*/false, symbols, &lists));
        break;
      case Kind::kViewOfOutput: {
        const at::Tensor& base =
            output.passes_base ? given(output.base) : call.results[output.base];
        outputs[i] = THPVariable_Wrap(
            output.view.make(base, /*counted=*/true, symbols, &lists));
        break;
      }
    }
    if (outputs[i]) continue;
    while (i > 0) Py_CLEAR(outputs[--i]);
    return false;
  }
  return true;
}

}  // namespace framejit::backend
