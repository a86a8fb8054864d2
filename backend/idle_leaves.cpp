#include "backend/idle_leaves.h"

#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

namespace framejit::backend {

using torch::autograd::AccumulateGrad;
using torch::autograd::variable_list;

namespace {

// The hooks of a leaf while its node runs without a gradient. Where something
// raised meanwhile, the node's next run finds them here.
class HeldHooks {
 public:
  explicit HeldHooks(AccumulateGrad* leaf) : leaf_(leaf) {}
  void take() {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& hooks = leaf_->tensor_post_acc_grad_hooks();
    if (hooks) held_ = std::move(hooks);
  }
  void give_back() {
    std::lock_guard<std::mutex> lock(mutex_);
    auto& hooks = leaf_->tensor_post_acc_grad_hooks();
    if (held_ && !hooks) hooks = std::move(held_);
  }

 private:
  AccumulateGrad* leaf_;  // which owns what owns this
  std::mutex mutex_;
  std::unique_ptr<torch::autograd::PostAccumulateGradHook> held_;
};

class TakeHooks final : public torch::autograd::FunctionPreHook {
 public:
  explicit TakeHooks(std::shared_ptr<HeldHooks> held)
      : held_(std::move(held)) {}
  variable_list operator()(const variable_list& gradients) override {
    if (gradients.at(0).defined())
      held_->give_back();
    else
      held_->take();
    return gradients;
  }

 private:
  std::shared_ptr<HeldHooks> held_;
};

class GiveHooksBack final : public torch::autograd::FunctionPostHook {
 public:
  explicit GiveHooksBack(std::shared_ptr<HeldHooks> held)
      : held_(std::move(held)) {}
  variable_list operator()(const variable_list& outputs,
                           const variable_list& /*inputs*/) override {
    held_->give_back();
    return outputs;
  }

 private:
  std::shared_ptr<HeldHooks> held_;
};

}  // namespace

void leave_idle(const torch::autograd::Edge& edge) {
  auto* leaf = dynamic_cast<AccumulateGrad*>(edge.function.get());
  if (!leaf || !leaf->tensor_post_acc_grad_hooks()) return;
  const auto& hooks = leaf->pre_hooks();
  if (std::any_of(hooks.begin(), hooks.end(), [](const auto& hook) {
        return dynamic_cast<TakeHooks*>(hook.get());
      }))
    return;
  auto held = std::make_shared<HeldHooks>(leaf);
  leaf->add_pre_hook(std::make_unique<TakeHooks>(held));
  leaf->add_post_hook(std::make_unique<GiveHooksBack>(held));
}

}  // namespace framejit::backend
