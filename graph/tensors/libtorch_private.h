// The one place that depends on LibTorch internals that are not API: private
// members, field offsets, kernels hidden by Python registrations. What differs
// between the supported versions ends here, too. A new torch version is checked
// here first.
#pragma once

#include <ATen/PythonTorchFunctionTLS.h>
#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/autograd/function.h>
#include <torch/version.h>

#include <mutex>
#include <optional>

#include "guards/set/guard_set.h"

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR < 11 || \
    TORCH_VERSION_MINOR > 13
#error "FrameJIT supports torch 2.11, 2.12 and 2.13: docs/versions.md"
#endif
#define FJ_TORCH_212 (TORCH_VERSION_MINOR >= 12)
#define FJ_TORCH_213 (TORCH_VERSION_MINOR >= 13)

namespace framejit::graph {

// The dispatch keys of a thread whose operations are part of a capture. Before
// 2.13, one above autograd is among them, for composite kernels that ask for
// sizes as numbers (graph/ops/symbolic_products.h).
#if FJ_TORCH_213
inline constexpr c10::DispatchKeySet kTracingKeys(c10::DispatchKey::Fake);
#else
inline constexpr c10::DispatchKey kCompositesKey =
    c10::DispatchKey::DeferredInit;
inline constexpr c10::DispatchKeySet kTracingKeys =
    c10::DispatchKeySet(c10::DispatchKey::Fake) |
    c10::DispatchKeySet(kCompositesKey);
#endif

// Owners of autograd's nodes: intrusive since 2.13, shared_ptr before.
#if FJ_TORCH_213
template <class Node>
using NodePtr = c10::intrusive_ptr<Node>;
template <class Node>
using WeakNodePtr = c10::weak_intrusive_ptr<Node>;
template <class Node, class... Args>
NodePtr<Node> make_node(Args&&... args) {
  return c10::make_intrusive<Node>(std::forward<Args>(args)...);
}
#else
template <class Node>
using NodePtr = std::shared_ptr<Node>;
template <class Node>
using WeakNodePtr = std::weak_ptr<Node>;
template <class Node, class... Args>
NodePtr<Node> make_node(Args&&... args) {
  return NodePtr<Node>(new Node(std::forward<Args>(args)...),
                       torch::autograd::deleteNode);
}
#endif

// The C++ kernel that computes an operator on meta tensors. Importing torch
// puts Python meta functions in front of about a thousand of them; they are
// still in the operator's list of kernels. A composite kernel does not count
// where eager has another one, which need not return the same.
struct MetaKernel {
  enum class Kind : uint8_t {
    kNone,
    kMeta,               // registered for Meta in C++
    kCompositeExplicit,  // one kernel for every backend: may suit Meta
    kCompositeImplicit,  // decomposes
    kPython,             // a Python meta function only
  };
  Kind kind = Kind::kNone;
  c10::KernelFunction kernel;  // not of kNone and kPython
  bool unusable = false;       // found to be unsafe on meta tensors
};
MetaKernel find_meta_kernel(const c10::OperatorHandle& op);

// Field offsets of TensorImpl, AutogradMeta and the Python tensor object; the
// function pointers are left empty.
TensorLayout native_tensor_offsets();

// What AccumulateGrad holds while it adds to a .grad.
std::mutex& mutex_of(torch::autograd::Node& node);

// Do the two count their writes together (a view and its base, what was
// detached and what it was detached from)?
bool share_versions(const at::Tensor& a, const at::Tensor& b);

// Is it torch::autograd::PyNode, a type that not every torch exports?
bool is_python_node(const torch::autograd::Node& node);
// The Python object of a gradient function, borrowed; null: it has none.
PyObject* object_of_node(torch::autograd::Node& node);

// Parts of torch's ambient state whose API costs more than reading them.
uint64_t context_flags();
// The modes that see torch calls. The default device is one; where it is the
// CPU it changes nothing.
enum class FunctionModes : uint8_t { kNone, kDefaultDeviceCpu, kOther };
FunctionModes function_modes(const at::impl::PythonTorchFunctionTLS& state);
int function_disabled_state(const at::impl::PythonTorchFunctionTLS& state);

// Whether TorchScript profiles and rewrites the functions this thread runs.
bool script_optimization();
void set_script_optimization(bool on);

// Is PyObject* `tensor` the Python object of an at::Tensor wrapped number made
// from a SymInt? Then its node (a new reference), else null.
c10::SymNode symbolic_wrapped_number(const at::Tensor& tensor);

}  // namespace framejit::graph
