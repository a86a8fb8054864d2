#include "backend/output_views.h"

#include <c10/core/GradMode.h>
#include <c10/util/SmallVector.h>

namespace framejit::backend {

using graph::OutputInfo;

Result<OutputView> OutputView::build(const OutputInfo& info) {
  OutputView view;
  view.info_ = info;
  for (const graph::ViewStep& step : info.views) {
    FJ_TRY(std::vector<AtenArg> args,
           make_aten_args(step.op.schema(), step.args, {}));
    view.steps_.push_back({step.op, std::move(args), step.result});
  }
  return view;
}

at::Tensor OutputView::make(const at::Tensor& base,
                            const int64_t* symbols) const {
  c10::AutoGradMode mode(info_.grad_mode.value_or(c10::GradMode::is_enabled()));
  if (steps_.empty()) return make_strided(base, symbols);
  at::Tensor tensor = base;
  torch::jit::Stack stack;
  for (const Step& step : steps_) {
    stack.clear();
    stack.emplace_back(std::move(tensor));
    for (size_t i = 1; i < step.args.size(); ++i)
      stack.push_back(build_aten_arg(step.args[i], nullptr, symbols));
    step.op.callBoxed(stack);
    tensor = step.result < 0 ? std::move(stack[0]).toTensor()
                             : stack[0].toTensorVector().at(step.result);
  }
  return tensor;
}

at::Tensor OutputView::make_strided(const at::Tensor& base,
                                    const int64_t* symbols) const {
  c10::SmallVector<int64_t, 6> sizes, strides;
  for (const Expr& size : info_.sizes) sizes.push_back(size.evaluate(symbols));
  for (const Expr& stride : info_.strides)
    strides.push_back(stride.evaluate(symbols));
  at::Tensor source = info_.detached ? base.detach() : base;
  return source.as_strided(
      sizes, strides, base.storage_offset() + info_.offset.evaluate(symbols));
}

void set_idle_strides(const at::Tensor& tensor,
                      const std::vector<Expr>& strides,
                      const int64_t* symbols) {
  if (strides.size() != static_cast<size_t>(tensor.dim())) return;
  c10::SmallVector<int64_t, 6> wanted;
  bool same = true;
  for (size_t i = 0; i < strides.size(); ++i) {
    bool idle = tensor.size(i) == 1 || tensor.numel() == 0;
    wanted.push_back(idle ? strides[i].evaluate(symbols) : tensor.stride(i));
    same &= wanted.back() == tensor.stride(i);
  }
  if (!same)
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), wanted);
}

}  // namespace framejit::backend
