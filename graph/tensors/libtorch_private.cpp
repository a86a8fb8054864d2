#include "graph/tensors/libtorch_private.h"

#include <ATen/Context.h>
#include <c10/core/TensorImpl.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/autograd/python_function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/csrc/utils/python_symnode.h>

#include <cstring>
#include <typeinfo>

#include "frame_hook/frame_eval.h"
#include "graph/tensors/python_tensor.h"

// Declared in a header of TorchScript's executor, which includes most of it.
namespace torch::jit {
TORCH_API void setGraphExecutorOptimize(bool on);
TORCH_API bool getGraphExecutorOptimize();
}  // namespace torch::jit

namespace framejit::graph {

static_assert(sizeof(PythonTensor) <= sizeof(THPVariable) &&
              offsetof(PythonTensor, value) == offsetof(THPVariable, cdata));

namespace {

// Explicit instantiation may name private members (C++ [temp.explicit]): each
// tag gets a friend function that returns the member pointer.
template <class Tag, auto Member>
struct Expose {
  friend constexpr auto member(Tag) { return Member; }
};
#define FJ_EXPOSE(tag, ...)            \
  struct tag {                         \
    friend constexpr auto member(tag); \
  };                                   \
  template struct Expose<tag, &__VA_ARGS__>

FJ_EXPOSE(OperatorDef, c10::OperatorHandle::operatorDef_);
FJ_EXPOSE(NodeMutex, torch::autograd::Node::mutex_);
FJ_EXPOSE(Kernels, c10::impl::OperatorEntry::kernels_);
FJ_EXPOSE(ImplStorage, c10::TensorImpl::storage_);
FJ_EXPOSE(ImplAutogradMeta, c10::TensorImpl::autograd_meta_);
FJ_EXPOSE(ImplSizes, c10::TensorImpl::sizes_and_strides_);
FJ_EXPOSE(ImplOffset, c10::TensorImpl::storage_offset_);
FJ_EXPOSE(ImplType, c10::TensorImpl::data_type_);
FJ_EXPOSE(ImplDevice, c10::TensorImpl::device_opt_);
FJ_EXPOSE(ImplKeys, c10::TensorImpl::key_set_);
FJ_EXPOSE(FunctionModeStack, at::impl::PythonTorchFunctionTLS::stack_);
FJ_EXPOSE(FunctionDisabled, at::impl::PythonTorchFunctionTLS::disabled_state_);

// The global flags that change what a torch call means. The precision of
// float32 matrix products is not here: kernels read it when they run, and a
// captured program that asks for it breaks.
#define FJ_CONTEXT_FLAGS(X)                   \
  X(_deterministic_algorithms)                \
  X(_deterministic_algorithms_warn_only)      \
  X(_deterministic_fill_uninitialized_memory) \
  X(deterministic_mkldnn)                     \
  X(enabled_cudnn)                            \
  X(deterministic_cudnn)                      \
  X(benchmark_cudnn)                          \
  X(enabled_mkldnn)                           \
  X(enabled_nnpack)                           \
  X(enabled_flashSDP)                         \
  X(enabled_mem_efficientSDP)                 \
  X(enabled_mathSDP)                          \
  X(enabled_cudnnSDP)                         \
  X(enabled_overrideable)                     \
  X(allow_fp16_bf16_reduction_mathSDP)
#define X(name) FJ_EXPOSE(Flag_##name, at::Context::name);
FJ_CONTEXT_FLAGS(X)
#undef X
#undef FJ_EXPOSE

bool from_python(const c10::impl::AnnotatedKernel& kernel) {
  return kernel.debug.find(".py:") != std::string::npos;
}

// offsetof for a member pointer of a class that is not standard layout.
template <class Class, class Field>
int offset_of(Field Class::* field) {
  alignas(Class) static char memory[sizeof(Class)];
  const Class* object = reinterpret_cast<const Class*>(memory);
  return static_cast<int>(reinterpret_cast<const char*>(&(object->*field)) -
                          memory);
}

}  // namespace

MetaKernel find_meta_kernel(const c10::OperatorHandle& op) {
  using Kind = MetaKernel::Kind;
  auto& kernels = (op.*member(OperatorDef{}))->op.*member(Kernels{});
  bool python_meta = false;
  auto in_cpp = [&](c10::DispatchKey key) -> const c10::KernelFunction* {
    auto found = kernels.find(key);
    if (found == kernels.end()) return nullptr;
    for (const auto& kernel : found->second) {
      if (from_python(kernel)) {
        python_meta |= key == c10::DispatchKey::Meta;
      } else if (kernel.kernel.isValid() && !kernel.kernel.isFallthrough()) {
        return &kernel.kernel;
      }
    }
    return nullptr;
  };
  if (const auto* kernel = in_cpp(c10::DispatchKey::Meta))
    return {Kind::kMeta, *kernel};
  bool is_torchs = op.schema().name().starts_with("aten::");
  if (!is_torchs || !in_cpp(c10::DispatchKey::CPU)) {
    for (c10::DispatchKey key :
         {c10::DispatchKey::CompositeExplicitAutogradNonFunctional,
          c10::DispatchKey::CompositeExplicitAutograd}) {
      if (const auto* kernel = in_cpp(key))
        return {Kind::kCompositeExplicit, *kernel};
    }
    if (const auto* kernel =
            in_cpp(c10::DispatchKey::CompositeImplicitAutograd))
      return {Kind::kCompositeImplicit, *kernel};
  }
  if (!is_torchs && kernels.count(c10::DispatchKey::CompositeImplicitAutograd))
    return {Kind::kCompositeImplicit, {}};
  if (python_meta) return {Kind::kPython, {}};
  return {};
}

uint64_t context_flags() {
  static const at::Context& context = at::globalContext();
  uint64_t flags = 0;
#define X(name) flags = flags * 2 + (context.*member(Flag_##name{}));
  FJ_CONTEXT_FLAGS(X)
#undef X
  return flags;
}

namespace {

// torch.set_default_device("cpu"), or `with torch.device("cpu")`.
bool is_cpu_context(PyObject* mode) {
  // Kept alive: never destroyed.
  static PyObject* type = made_once([] {
    PauseHook pause;
    Ref module = Ref::steal(PyImport_ImportModule("torch.utils._device"));
    Ref found = Ref::steal(
        module ? PyObject_GetAttrString(module.get(), "DeviceContext")
               : nullptr);
    PyErr_Clear();
    return found.release();
  });
  static PyObject* name = PyUnicode_InternFromString("device");
  if (reinterpret_cast<PyObject*>(Py_TYPE(mode)) != type || !name) return false;
  Ref device = Ref::steal(PyObject_GenericGetAttr(mode, name));
  if (!device) PyErr_Clear();
  if (!device || !THPDevice_Check(device.get())) return false;
  c10::Device found = reinterpret_cast<THPDevice*>(device.get())->device;
  return found.is_cpu() && !found.has_index();
}

}  // namespace

FunctionModes function_modes(const at::impl::PythonTorchFunctionTLS& state) {
  const auto& stack = state.*member(FunctionModeStack{});
  if (stack.empty()) return FunctionModes::kNone;
  if (stack.size() > 1) return FunctionModes::kOther;
  PyObject* mode = stack[0]->ptr(getPyInterpreter());
  return is_cpu_context(mode) ? FunctionModes::kDefaultDeviceCpu
                              : FunctionModes::kOther;
}

int function_disabled_state(const at::impl::PythonTorchFunctionTLS& state) {
  return state.*member(FunctionDisabled{});
}

TensorLayout native_tensor_offsets() {
  TensorLayout layout{};
  layout.tensor_impl = offset_of(&THPVariable::cdata);
  layout.storage = offset_of(member(ImplStorage{}));
  layout.autograd_meta = offset_of(member(ImplAutogradMeta{}));
  layout.sizes_and_strides = offset_of(member(ImplSizes{}));
  layout.storage_offset = offset_of(member(ImplOffset{}));
  layout.data_type = offset_of(member(ImplType{}));
  layout.device = offset_of(member(ImplDevice{}));
  layout.key_set = offset_of(member(ImplKeys{}));
  layout.requires_grad =
      offset_of(&torch::autograd::AutogradMeta::requires_grad_);
  layout.grad_fn = offset_of(&torch::autograd::AutogradMeta::grad_fn_);
  layout.forward_grad = offset_of(&torch::autograd::AutogradMeta::fw_grad_);
  layout.is_view = offset_of(&torch::autograd::AutogradMeta::is_view_);
  layout.storage_inline_dims = C10_SIZES_AND_STRIDES_MAX_INLINE_SIZE;
  return layout;
}

bool script_optimization() { return torch::jit::getGraphExecutorOptimize(); }

void set_script_optimization(bool on) {
  torch::jit::setGraphExecutorOptimize(on);
}

c10::SymNode symbolic_wrapped_number(const at::Tensor& tensor) {
  auto* impl = tensor.unsafeGetTensorImpl();
  if (!impl->is_wrapped_number()) return {};
  // The argument parser sets the attribute on the tensor's Python object; a
  // number made in C++ has no Python object.
  PyObject* object = impl->pyobj_slot()->load_pyobj();
  if (!object) return {};
  Ref value = Ref::steal(PyObject_GetAttrString(object, "_wrapped_number"));
  if (!value) {
    PyErr_Clear();
    return {};
  }
  py::handle handle(value.get());
  if (torch::is_symint(handle)) {
    auto sym = handle.cast<c10::SymInt>();
    return sym.is_symbolic() ? sym.toSymNode() : c10::SymNode();
  }
  if (torch::is_symfloat(handle))
    return handle.cast<c10::SymFloat>().toSymNodeImpl();
  if (torch::is_symbool(handle))
    return handle.cast<c10::SymBool>().toSymNodeImpl();
  return {};
}

std::mutex& mutex_of(torch::autograd::Node& node) {
  return node.*member(NodeMutex());
}

bool share_versions(const at::Tensor& a, const at::Tensor& b) {
  // One pointer to the counter.
  static_assert(sizeof(c10::VariableVersion) == sizeof(void*));
  auto counter = [](const at::Tensor& tensor) {
    const void* found = nullptr;
    std::memcpy(&found, &tensor.unsafeGetTensorImpl()->version_counter(),
                sizeof found);
    return found;
  };
  return counter(a) && counter(a) == counter(b);
}

bool is_python_node(const torch::autograd::Node& node) {
  return !std::strcmp(typeid(node).name(), "N5torch8autograd6PyNodeE");
}

PyObject* object_of_node(torch::autograd::Node& node) {
#if FJ_TORCH_213
  return node.pyobj_slot()->load_pyobj();
#else
  return is_python_node(node) ? static_cast<torch::autograd::PyNode&>(node).obj
                              : node.pyobj();
#endif
}

}  // namespace framejit::graph
