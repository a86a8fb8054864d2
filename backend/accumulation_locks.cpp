#include "backend/accumulation_locks.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "graph/tensors/libtorch_private.h"
#include "graph/tensors/python_tensor.h"

namespace framejit::backend {

namespace {

class AccumulationLocks {
 public:
  void add(const at::Tensor& leaf) {
    if (!leaf.requires_grad() || !leaf.is_leaf()) return;
    auto node = torch::autograd::impl::grad_accumulator(leaf);
    if (!node || std::ranges::find(nodes_, node) != nodes_.end()) return;
    locks_.emplace_back(graph::mutex_of(*node), std::defer_lock);
    nodes_.push_back(std::move(node));
  }

  // With the GIL, which others get while this waits: who holds a mutex may wait
  // for the GIL. And nobody is waited for while another mutex is held.
  void lock() {
    while (auto* busy = first_refused()) {
      for (auto& lock : locks_)
        if (lock.owns_lock()) lock.unlock();
      graph::ReleaseGil released;
      busy->lock();
    }
  }

 private:
  std::unique_lock<std::mutex>* first_refused() {
    for (auto& lock : locks_)
      if (!lock.owns_lock() && !lock.try_lock()) return &lock;
    return nullptr;
  }

  std::vector<graph::NodePtr<torch::autograd::Node>> nodes_;
  std::vector<std::unique_lock<std::mutex>> locks_;  // go before their owners
};

// A custom operator may wait for another thread that adds to the same .grad.
bool calls_custom_operators(const graph::TorchGraph& graph) {
  for (const auto& node : graph.graph->block().nodes)
    for (const c10::OperatorHandle& op : node->operators)
      if (!op.schema().name().starts_with("aten::")) return true;
  return false;
}

class LockedExecutor final : public Executor {
 public:
  LockedExecutor(std::unique_ptr<Executor> executor,
                 std::shared_ptr<const graph::TorchGraph> graph)
      : executor_(std::move(executor)), graph_(std::move(graph)) {}

  RunStatus run(PyObject* const* inputs, const int64_t* symbols,
                PyObject** outputs) override {
    executor_->keeps_gil = keeps_gil;
    AccumulationLocks locks;
    for (int input : graph_->accumulating_inputs)
      locks.add(graph::unpack_tensor(inputs[graph_->input_objects[input]]));
    locks.lock();
    return executor_->run(inputs, symbols, outputs);
  }

 private:
  std::unique_ptr<Executor> executor_;
  std::shared_ptr<const graph::TorchGraph> graph_;
};

}  // namespace

std::unique_ptr<Executor> with_accumulation_locks(
    std::unique_ptr<Executor> executor,
    std::shared_ptr<const graph::TorchGraph> graph) {
  if (graph->accumulating_inputs.empty() || calls_custom_operators(*graph))
    return executor;
  return std::make_unique<LockedExecutor>(std::move(executor),
                                          std::move(graph));
}

}  // namespace framejit::backend
