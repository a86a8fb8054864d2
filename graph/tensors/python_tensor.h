// Tensors as Python objects. torch's own header for this brings pybind11 with
// it and costs every file that includes it five seconds of compilation; here
// are the few declarations the project needs. libtorch_private.cpp includes
// both and checks that they agree.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/Export.h>
#include <torch/csrc/autograd/variable.h>

#include <exception>

#include "frame_hook/py_ref.h"

TORCH_PYTHON_API extern PyObject* THPVariableClass;
TORCH_PYTHON_API extern PyObject* ParameterClass;
TORCH_PYTHON_API PyObject* THPVariable_Wrap(const at::TensorBase& tensor);

namespace torch {
TORCH_PYTHON_API void translate_exception_to_python(
    const std::exception_ptr& exception);
}

namespace framejit::graph {

// The beginning of a torch.Tensor object.
struct PythonTensor {
  PyObject_HEAD at::Tensor value;
};

// `object` is a tensor (tensor_check.h).
inline const at::Tensor& unpack_tensor(PyObject* object) {
  return reinterpret_cast<PythonTensor*>(object)->value;
}

// The Python object of a tensor, the same one each time; null with an error
// set.
inline Ref wrap_tensor(const at::TensorBase& tensor) {
  return Ref::steal(THPVariable_Wrap(tensor));
}

// Lets other Python threads run; the engine takes the GIL itself.
class ReleaseGil {
 public:
  ReleaseGil() : state_(PyEval_SaveThread()) {}
  ~ReleaseGil() { PyEval_RestoreThread(state_); }
  ReleaseGil(const ReleaseGil&) = delete;
  ReleaseGil& operator=(const ReleaseGil&) = delete;

 private:
  PyThreadState* state_;
};

// Holds the GIL, whoever has it before.
class HoldGil {
 public:
  HoldGil() : state_(PyGILState_Ensure()) {}
  ~HoldGil() { PyGILState_Release(state_); }
  HoldGil(const HoldGil&) = delete;
  HoldGil& operator=(const HoldGil&) = delete;

 private:
  PyGILState_STATE state_;
};

// Has the program said which type the gradients of this tensor are of?
inline bool has_own_grad_dtype(const at::Tensor& tensor) {
  const auto* meta = torch::autograd::impl::get_autograd_meta(tensor);
  return meta &&
         ((meta->grad_dtype_ && *meta->grad_dtype_ != tensor.scalar_type()) ||
          meta->allow_grad_dtype_mismatch_);
}

}  // namespace framejit::graph
