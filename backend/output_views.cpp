#include "backend/output_views.h"

#include <c10/core/GradMode.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace framejit::backend {

using graph::OutputInfo;

Result<OutputView> OutputView::build(const OutputInfo& info) {
  OutputView view;
  view.info_ = info;
  for (const graph::ViewStep& step : info.views) {
    FJ_TRY(std::vector<AtenArg> args,
           make_aten_args(step.op.schema(), step.args, {}));
    view.steps_.push_back({step.op, std::move(args), step.result, step.list});
  }
  auto is_detach = [](const graph::ViewStep& step) {
    return step.op.schema().name() == "aten::detach";
  };
  view.detaches_ = info.detached && std::none_of(info.views.begin(),
                                                 info.views.end(), is_detach);
  view.ends_detached_ = info.detached && !info.grad_mode &&
                        (info.views.empty() || !is_detach(info.views.back()));
  return view;
}

OutputView OutputView::of_all(const OutputInfo& info) {
  OutputView view;
  view.info_ = info;
  view.of_all_ = true;
  return view;
}

const std::vector<at::Tensor>* ViewLists::find(int list,
                                               const at::Tensor& base) const {
  for (const Row& row : rows_)
    if (row.list == list && row.base == base.unsafeGetTensorImpl())
      return &row.tensors;
  return nullptr;
}

const std::vector<at::Tensor>& ViewLists::add(int list, const at::Tensor& base,
                                              std::vector<at::Tensor> tensors) {
  rows_.push_back({list, base.unsafeGetTensorImpl(), std::move(tensors)});
  return rows_.back().tensors;
}

at::Tensor OutputView::make(const at::Tensor& base, bool counted,
                            const int64_t* symbols, ViewLists* lists) const {
  c10::AutoGradMode mode(info_.grad_mode.value_or(c10::GradMode::is_enabled()));
  at::Tensor view = make_of(base, symbols, lists);
  if (ends_detached_) view = view.detach();
  auto* meta = torch::autograd::impl::get_view_autograd_meta(view);
  if (meta && meta->has_bw_view() && !view.is_inference()) {
    const uint32_t before = view._version() - (counted ? info_.writes : 0);
    meta->set_attr_version(before + info_.writes_before);
    if (of_all_ && info_.is_one_of_several)
      meta->set_creation_meta(torch::autograd::CreationMeta::MULTI_OUTPUT_NODE);
  }
  return view;
}

at::Tensor OutputView::make_of(const at::Tensor& base, const int64_t* symbols,
                               ViewLists* lists) const {
  if (of_all_) return base.alias();
  if (steps_.empty()) return make_strided(base, symbols);
  at::Tensor tensor = detaches_ ? base.detach() : base;
  size_t done = 0;
  for (size_t i = steps_.size(); i > 0 && done == 0; --i) {
    const Step& step = steps_[i - 1];
    const auto* made = step.list < 0 ? nullptr : lists->find(step.list, base);
    if (!made) continue;
    tensor = made->at(step.result);
    done = i;
  }
  torch::jit::Stack stack;
  for (size_t at = done; at < steps_.size(); ++at) {
    const Step& step = steps_[at];
    stack.clear();
    stack.emplace_back(std::move(tensor));
    for (size_t i = 1; i < step.args.size(); ++i)
      stack.push_back(build_aten_arg(step.args[i], nullptr, symbols));
    step.op.callBoxed(stack);
    tensor = step.list < 0
                 ? std::move(stack[0]).toTensor()
                 : lists->add(step.list, base, stack[0].toTensorVector())
                       .at(step.result);
  }
  return tensor;
}

at::Tensor OutputView::make_strided(const at::Tensor& base,
                                    const int64_t* symbols) const {
  c10::SmallVector<int64_t, 6> sizes, strides;
  for (const Expr& size : info_.sizes) sizes.push_back(size.evaluate(symbols));
  for (const Expr& stride : info_.strides)
    strides.push_back(stride.evaluate(symbols));
  at::Tensor source = detaches_ ? base.detach() : base;
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
