#include "backend/aot_node.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/functions/basic_ops.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>

namespace framejit::backend {

using torch::autograd::variable_list;

namespace {

constexpr char kDoubleBackward[] =
    "double backward is not captured; use framejit.compile(..., "
    "backend='eager')";

bool same_strides(const at::Tensor& tensor, at::IntArrayRef strides) {
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.size(dim) != 1 && tensor.stride(dim) != strides[dim]) {
      return false;
    }
  }
  return true;
}

// The gradient of sum() is one number, expanded: the usual first tangent.
bool is_expanded_float(const at::Tensor& tensor) {
  if (tensor.scalar_type() != at::kFloat || !tensor.device().is_cpu() ||
      tensor.numel() == 0 || tensor.is_neg()) {
    return false;
  }
  auto strides = tensor.strides();
  return std::all_of(strides.begin(), strides.end(),
                     [](int64_t stride) { return stride == 0; });
}

}  // namespace

// The tangent in the layout the backward was traced with.
at::Tensor AotNode::tangent(size_t index, at::Tensor grad) const {
  const BackwardCode::Tangent& expected = code_->tangents[index];
  if (grad.layout() != at::kStrided) grad = grad.to_dense();
  if (grad.is_neg() || grad.is_conj()) grad = grad.resolve_neg().resolve_conj();
  if (expected.contiguous) {
    if (grad.is_contiguous()) return grad;
    if (is_expanded_float(grad)) {
      at::Tensor full(at::detail::empty_cpu(grad.sizes(), at::kFloat));
      float* data = full.mutable_data_ptr<float>();
      std::fill(data, data + full.numel(), *grad.const_data_ptr<float>());
      return full;
    }
    return grad.contiguous();
  }
  std::vector<int64_t> strides;
  for (const Expr& stride : expected.strides) {
    strides.push_back(stride.evaluate(symbols_.data()));
  }
  if (strides.size() != static_cast<size_t>(grad.dim()) ||
      same_strides(grad, strides)) {
    return grad;
  }
  at::Tensor result = at::empty_strided(grad.sizes(), strides, grad.options());
  return result.copy_(grad);
}

variable_list AotNode::apply(variable_list&& grads) {
  std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(!released_, torch::autograd::ERR_BACKWARD_TWICE);
  const BackwardCode& code = *code_;
  variable_list results(code.gradients.size());
  if (std::none_of(grads.begin(), grads.end(),
                   [](const at::Tensor& grad) { return grad.defined(); })) {
    return results;
  }
  const bool create_graph = c10::GradMode::is_enabled();
  std::vector<at::Tensor> values;
  values.reserve(code.tensor_inputs.size());
  for (const auto& watched : watched_) watched.unpack(getptr());
  for (const auto& saved : saved_) values.push_back(saved.unpack(getptr()));
  c10::AutoGradMode no_grad(false);
  for (size_t i = 0; i < code.tangents.size(); ++i) {
    at::Tensor grad =
        grads[i].defined() ? grads[i] : input_metadata(i).zeros_like();
    values.push_back(tangent(i, std::move(grad)));
  }
  std::vector<const at::Tensor*> inputs(code.program->num_inputs(), nullptr);
  for (size_t i = 0; i < values.size(); ++i) {
    inputs[code.tensor_inputs[i]] = &values[i];
  }
  std::vector<at::Tensor> outputs(code.program->num_outputs());
  code.program->run(inputs.data(), symbols_.data(), outputs.data(), nullptr);
  c10::intrusive_ptr<Node> error;
  for (size_t i = 0; i < code.gradients.size(); ++i) {
    at::Tensor& result = outputs[code.gradients[i].output];
    if (!result.defined() || !should_compute_output(i)) continue;
    const std::vector<int>& sources = code.gradients[i].tangents;
    if (!sources.empty() &&
        std::none_of(sources.begin(), sources.end(),
                     [&](int tangent) { return grads[tangent].defined(); })) {
      continue;
    }
    results[i] = code.gradients[i].copy ? result.clone() : result;
    if (!create_graph) continue;
    // Detached first: the tangent itself may be a result.
    results[i] = results[i].detach();
    if (!error) {
      torch::autograd::edge_list edges = next_edges();
      error = c10::make_intrusive<torch::autograd::Error>(kDoubleBackward,
                                                          std::move(edges));
    }
    torch::autograd::set_history(results[i], error);
  }
  return results;
}

void AotNode::release_variables() {
  std::lock_guard<std::mutex> lock(mutex_);
  // A node that saved nothing can run again, as in eager.
  released_ = !saved_.empty();
  saved_.clear();
  watched_.clear();
}

}  // namespace framejit::backend
