#include "graph/tensors/held_by_tensors.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <vector>

#include "graph/tensors/libtorch_private.h"
#include "graph/tensors/python_tensor.h"

namespace framejit::graph {

namespace {

// A history that is longer is not looked through: it counts as one that says
// when it goes.
constexpr size_t kMaxNodes = 4096;

PyObject* object_of(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->pyobj_slot()->load_pyobj();
}

// Visits the nodes that go when `first` lets go of its history.
class History {
 public:
  History(int (*visit)(PyObject*, void*), void* argument)
      : visit_(visit), argument_(argument) {}

  int walk(const NodePtr<torch::autograd::Node>& first) {
    add(first);
    while (!waiting_.empty()) {
      torch::autograd::Node* node = waiting_.back();
      waiting_.pop_back();
      if (++seen_ > kMaxNodes) return 1;
      if (has_hooks(*node)) return 1;
      PyObject* object = object_of_node(*node);
      if (object && visit_(object, argument_) != 0) return 1;
      for (const torch::autograd::Edge& edge : node->next_edges())
        add(edge.function);
    }
    return 0;
  }

 private:
  // Others have it as well: it stays. (Its Python object is no other.)
  void add(const NodePtr<torch::autograd::Node>& node) {
    if (!node) return;
    const size_t own = object_of_node(*node) ? 2 : 1;
    if (static_cast<size_t>(node.use_count()) <= own)
      waiting_.push_back(node.get());
  }
  static bool has_hooks(torch::autograd::Node& node) {
    return !node.tensor_pre_hooks().empty() || !node.pre_hooks().empty() ||
           !node.post_hooks().empty() || !node.retains_grad_hooks().empty();
  }

  int (*visit_)(PyObject*, void*);
  void* argument_;
  std::vector<torch::autograd::Node*> waiting_;
  size_t seen_ = 0;
};

}  // namespace

PyObject* grad_object(PyObject* tensor) {
  // The TensorImpl's own getter: Tensor::grad() warns on non-leaf tensors.
  const at::Tensor& grad = unpack_tensor(tensor).unsafeGetTensorImpl()->grad();
  return grad.defined() ? object_of(grad) : nullptr;
}

int visit_beneath(PyObject* tensor, int (*visit)(PyObject*, void*),
                  void* argument) {
  const at::Tensor& value = unpack_tensor(tensor);
  auto* meta = torch::autograd::impl::get_autograd_meta(value);
  // What C++ code has as well stays.
  if (!meta || value.use_count() != 1) return 0;
  PyObject* grad = grad_object(tensor);
  if (grad && visit(grad, argument) != 0) return 1;
  if (!meta->grad_fn_) return 0;
  return History(visit, argument).walk(meta->grad_fn_);
}

}  // namespace framejit::graph
