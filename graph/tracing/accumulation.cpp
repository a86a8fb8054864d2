#include "graph/tracing/accumulation.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>
#include <torch/csrc/autograd/variable.h>

#include <mutex>

#include "graph/tensors/libtorch_private.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/tensor_check.h"

namespace framejit::graph {

namespace {

using torch::autograd::AccumulateGrad;

void accumulate(const at::Tensor& leaf, const at::Tensor& gradient) {
  const auto node = torch::autograd::impl::grad_accumulator(leaf);
  std::unique_lock<std::mutex> lock;
  if (node) {
    lock = std::unique_lock(mutex_of(*node), std::try_to_lock);
    // Who holds it may wait for the GIL.
    if (!lock.owns_lock()) {
      ReleaseGil released;
      lock.lock();
    }
  }
  at::Tensor& grad = leaf.mutable_grad();
  if (!grad.defined()) {
    grad = gradient;
    return;
  }
  ReleaseGil released;
  c10::AutoGradMode no_grad(false);
  AccumulateGrad::accumulateGrad(
      leaf, grad, gradient, /*num_expected_refs=*/1,
      [&](at::Tensor&& sum) { grad = std::move(sum); });
}

PyObject* accumulate_gradient(PyObject*, PyObject* const* args,
                              Py_ssize_t count) {
  HANDLE_TH_ERRORS
  TORCH_CHECK(
      count == 2 && is_tensor_object(args[0]) && is_tensor_object(args[1]),
      "a leaf and a gradient are needed");
  accumulate(unpack_tensor(args[0]), unpack_tensor(args[1]));
  Py_RETURN_NONE;
  END_HANDLE_TH_ERRORS
}

PyMethodDef kAccumulate = {
    "accumulate_gradient",
    reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(accumulate_gradient)),
    METH_FASTCALL, nullptr};

}  // namespace

Result<Ref> gradient_accumulator() {
  return from_api(PyCFunction_New(&kAccumulate, nullptr));
}

}  // namespace framejit::graph
