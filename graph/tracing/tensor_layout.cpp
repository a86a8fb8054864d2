// The TensorLayout that guards read tensors with, checked against live tensors
// before it is trusted.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/Device.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/Layout.h>
#include <torch/csrc/MemoryFormat.h>
#include <torch/csrc/QScheme.h>
#include <torch/csrc/Size.h>
#include <torch/csrc/autograd/forward_grad.h>

#include <cstring>

#include "frame_hook/cpython_internals.h"
#include "graph/ops/fake_fallback.h"
#include "graph/tensors/held_by_tensors.h"
#include "graph/tensors/libtorch_private.h"
#include "graph/tensors/python_tensor.h"
#include "graph/tensors/tensor_check.h"
#include "graph/tensors/thread_state.h"
#include "graph/tensors/torch_types.h"
#include "graph/tracing/tracer.h"
#include "guards/set/object_text.h"
#include "guards/set/storage_memory.h"

namespace framejit::graph {

namespace {

bool is_tensor(PyObject* object) { return is_tensor_object(object); }

bool same_thread_state(const void* state) {
  return static_cast<const ThreadState*>(state)->same_as_now();
}

bool in_forward_mode() {
  // There is one level at most.
  return torch::autograd::ForwardADLevel::try_get_by_idx(0) != nullptr;
}

bool view_requires_grad(const void* impl) {
  return static_cast<const c10::TensorImpl*>(impl)->requires_grad();
}

std::string explain_thread_state(const void* state) {
  return static_cast<const ThreadState*>(state)->difference();
}

// A member of an enumeration that pybind11 made
// (torch.nn.attention.SDPBackend).
bool is_native_enum(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (!is_pybind_class(as_object(type))) return false;
  static PyObject* const entries = PyUnicode_InternFromString("__entries");
  Ref dict = internals::own_dict(type);
  return entries && dict && PyDict_GetItem(dict.get(), entries) != nullptr;
}

bool is_torch_constant(PyObject* object) {
  if (THPSize_Check(object)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
      if (!PyLong_CheckExact(PyTuple_GET_ITEM(object, i))) return false;
    return true;
  }
  return THPDtype_Check(object) || THPDevice_Check(object) ||
         THPLayout_Check(object) || THPMemoryFormat_Check(object) ||
         THPQScheme_Check(object) || is_native_enum(object);
}

// Tensor.__hash__, a Python function; kept forever.
PyObject* hash_of_tensors() {
  static PyObject* const name = PyUnicode_InternFromString("__hash__");
  PyObject* found =
      _PyType_Lookup(reinterpret_cast<PyTypeObject*>(THPVariableClass), name);
  return found && PyFunction_Check(found) ? Py_NewRef(found) : nullptr;
}

PyObject* gradient(PyObject* tensor) {
  // The TensorImpl's own getter: Tensor::grad() warns on non-leaf tensors.
  const at::Tensor& grad = unpack_tensor(tensor).unsafeGetTensorImpl()->grad();
  if (!grad.defined()) Py_RETURN_NONE;
  return THPVariable_Wrap(grad);
}

template <class T>
T read(const void* base, int offset) {
  T value;
  std::memcpy(&value, static_cast<const char*>(base) + offset, sizeof value);
  return value;
}

// Reads a tensor as the emitted code does and compares with its API.
bool reads_right(const TensorLayout& layout, int64_t dims) {
  std::vector<int64_t> sizes, strides;
  for (int64_t i = 0; i < dims; ++i) {
    sizes.push_back(i + 2);
    strides.push_back(1000 + i);
  }
  at::Tensor tensor = at::empty_strided({64}, {1}, at::kInt);
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(sizes, strides, 3);
  Ref object = wrap_tensor(tensor);
  if (!object) {
    PyErr_Clear();
    return false;
  }
  if (read<const void*>(object.get(), layout.tensor_impl) != impl) return false;
  if (read<const void*>(impl, layout.storage) !=
      impl->unsafe_storage().unsafeGetStorageImpl())
    return false;
  if (read<uint64_t>(impl, layout.key_set) != impl->key_set().raw_repr() ||
      read<int64_t>(impl, layout.storage_offset) != 3 ||
      read<uint16_t>(impl, layout.data_type) !=
          static_cast<uint16_t>(at::kInt) ||
      read<int8_t>(impl, layout.device) != 0)
    return false;
  int base = layout.sizes_and_strides;
  if (read<uint64_t>(impl, base) != static_cast<uint64_t>(dims)) return false;
  const char* data = reinterpret_cast<const char*>(impl) + base + 8;
  int capacity = layout.storage_inline_dims;
  if (dims > layout.storage_inline_dims) {
    data = read<const char*>(impl, base + 8);
    capacity = static_cast<int>(dims);
  }
  for (int64_t i = 0; i < dims; ++i) {
    if (read<int64_t>(data, 8 * i) != sizes[i] ||
        read<int64_t>(data, 8 * (capacity + i)) != strides[i])
      return false;
  }
  if (read<const void*>(impl, layout.autograd_meta) != nullptr) return false;
  at::Tensor real = at::empty_strided({2}, {1}, at::kFloat);
  real.set_requires_grad(true);
  auto* meta =
      read<const void*>(real.unsafeGetTensorImpl(), layout.autograd_meta);
  at::Tensor view = at::empty_strided({2}, {1}, at::kFloat).view({2});
  auto* of_view =
      read<const void*>(view.unsafeGetTensorImpl(), layout.autograd_meta);
  return meta && read<bool>(meta, layout.requires_grad) &&
         read<const void*>(meta, layout.grad_fn) == nullptr && of_view &&
         !read<bool>(of_view, layout.requires_grad) &&
         !read<bool>(meta, layout.is_view) &&
         read<bool>(of_view, layout.is_view);
}

const void* address_of(c10::DeleterFnPtr deleter) {
  return reinterpret_cast<const void*>(deleter);
}

const c10::StorageImpl* storage_at(const void* storage) {
  return static_cast<const c10::StorageImpl*>(storage);
}

// Torch's plain allocator gives memory behind one that has taken its place (as
// ours does for large blocks), and has given it before.
const void* own_deleter(const void* storage) {
  const c10::StorageImpl* impl = storage_at(storage);
  if (impl->device_type() == c10::DeviceType::CPU) {
    static const void* const plain =
        address_of(c10::GetDefaultCPUAllocator()->raw_deleter());
    if (plain && address_of(impl->data_ptr().get_deleter()) == plain)
      return plain;
  }
  c10::Allocator* allocator = c10::GetAllocator(impl->device_type());
  return allocator ? address_of(allocator->raw_deleter()) : nullptr;
}

std::pair<uintptr_t, uintptr_t> storage_bytes(const void* storage) {
  auto* impl = const_cast<c10::StorageImpl*>(storage_at(storage));
  auto begin =
      reinterpret_cast<uintptr_t>(impl->_mutable_data_ptr_no_checks().get());
  c10::SymInt size = impl->sym_nbytes();
  // Of unknown size: it may reach everywhere.
  if (size.is_heap_allocated()) return {0, UINTPTR_MAX};
  if (!begin) return {0, 0};
  return {begin, begin + static_cast<uintptr_t>(size.expect_int())};
}

// Where a storage keeps what frees its memory: found in a storage that has
// memory of its own and in one that has not.
StorageMemory find_storage_memory() {
  at::Tensor own = at::empty_strided({2}, {1}, at::kFloat);
  at::Tensor lent = at::from_blob(own.data_ptr(), {2}, at::kFloat);
  auto word = [&](const at::Tensor& tensor, size_t at) {
    return read<const void*>(tensor.storage().unsafeGetStorageImpl(),
                             static_cast<int>(at));
  };
  auto deleter = [](const at::Tensor& tensor) {
    return address_of(tensor.storage().data_ptr().get_deleter());
  };
  FJ_CHECK(deleter(own) != deleter(lent));
  for (size_t at = 0; at < sizeof(c10::StorageImpl); at += sizeof(void*)) {
    if (word(own, at) == deleter(own) && word(lent, at) == deleter(lent)) {
      return {static_cast<int>(at), &own_deleter, &storage_bytes};
    }
  }
  throw InternalError(__FILE__, __LINE__, "a storage without a deleter");
}

std::string dtype_name(int scalar_type) {
  return std::string(
      c10::getDtypeNames(static_cast<c10::ScalarType>(scalar_type)).first);
}

std::string device_name(int type, int index) {
  return c10::Device(static_cast<c10::DeviceType>(type),
                     static_cast<c10::DeviceIndex>(index))
      .str();
}

std::string keys_difference(const std::string& name, uint64_t expected,
                            uint64_t actual) {
  using c10::DispatchKey;
  c10::DispatchKeySet before(c10::DispatchKeySet::RAW, expected);
  c10::DispatchKeySet now(c10::DispatchKeySet::RAW, actual);
  auto layout = [](c10::DispatchKeySet keys) -> const char* {
    return keys.has(DispatchKey::Sparse)      ? "torch.sparse_coo"
           : keys.has(DispatchKey::SparseCsr) ? "a compressed sparse one"
           : keys.has(DispatchKey::MkldnnCPU) ? "torch._mkldnn"
                                              : "torch.strided";
  };
  auto text = [&](const char* what, const char* was, const char* is) {
    return name + what + ": expected " + was + ", got " + is;
  };
  if (std::strcmp(layout(before), layout(now)) != 0)
    return text(".layout", layout(before), layout(now));
  struct Row {
    const char* what;
    DispatchKey key;
    bool with_key;  // True where the key is there
  };
  constexpr Row kRows[] = {
      {".is_conj()", DispatchKey::Conjugate, true},
      {".is_neg()", DispatchKey::Negative, true},
      {".is_inference()", DispatchKey::ADInplaceOrView, false}};
  for (const Row& row : kRows) {
    bool was = before.has(row.key) == row.with_key;
    bool is = now.has(row.key) == row.with_key;
    if (was != is)
      return text(row.what, was ? "True" : "False", is ? "True" : "False");
  }
  return "";
}

}  // namespace

bool install_torch(std::string* error) {
  static bool installed = false;
  if (installed) return true;
  try {
    TensorLayout layout = native_tensor_offsets();
    layout.is_tensor = &is_tensor;
    layout.in_forward_mode = &in_forward_mode;
    layout.view_requires_grad = &view_requires_grad;
    layout.same_thread_state = &same_thread_state;
    layout.explain_thread_state = &explain_thread_state;
    layout.is_foreign_constant = &is_torch_constant;
    layout.gradient = &gradient;
    layout.grad_object = &grad_object;
    layout.visit_beneath = &visit_beneath;
    set_storage_memory(find_storage_memory());
    layout.hash_function = hash_of_tensors();
    if (!reads_right(layout, 2) || !reads_right(layout, 5) ||
        !reads_right(layout, 7)) {
      *error =
          "the memory layout of this torch's tensors is not the one "
          "FrameJIT knows";
      return false;
    }
    if (!register_fake_fallback(error)) return false;
    set_tensor_layout(layout);
    set_tensor_words({&dtype_name, &device_name, &keys_difference});
    installed = true;
    return true;
  } catch (const std::exception& exception) {
    *error = exception.what();
    return false;
  }
}

bool initialize_tracing() {
  std::string error;
  if (install_torch(&error)) return true;
  PyErr_SetString(PyExc_RuntimeError, error.c_str());
  return false;
}

}  // namespace framejit::graph
