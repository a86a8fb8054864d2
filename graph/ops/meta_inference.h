// What an operation returns, computed on meta tensors.
//
// The op table says how (op_table.h): by our own rule (exact, well under a
// microsecond), by the C++ kernel for meta tensors that Python registrations
// hide, by the operators a composite kernel calls, each of which is asked in
// the same way, or by a rehearsal of eager's own kernel (rehearsal.h). Python
// is only asked for operators that packages registered there. In every case
// what the result is said to be is what eager's kernel makes; where nobody
// knows, inference throws and capture breaks.
//
// Fake stays among the thread's dispatch keys while a kernel infers, with a
// flag that says we are inferring: so the operators it calls come back here.
#pragma once

#include <ATen/core/ivalue.h>

#include "graph/ops/op_facts.h"

namespace framejit::graph {

// Replaces the arguments on top of the stack (meta tensors, concrete sizes) by
// the results. Throws what the kernels throw. device: where eager would run it.
void infer_meta(OpFacts& facts, Stack* stack, c10::Device device = c10::kCPU);
// An operator called by a kernel that is inferring.
void infer_nested(OpFacts& facts, Stack* stack);
// True on this thread while a kernel infers: Python frames that run now are
// meta functions of torch, not the user's program.
bool is_inferring();
// Where eager would run what is being inferred.
c10::DeviceType inference_device_type();

// Of results of the last infer_meta(): the device, where it is not the one that
// was given (attention on a GPU gives states of generators on the CPU).
void note_result_device(const at::Tensor& meta, c10::Device device);
c10::Device result_device(const at::Tensor& meta, c10::Device otherwise);

struct InferenceCounts {
  int64_t by_rule = 0, by_kernel = 0, by_rehearsal = 0, by_python = 0;
};
const InferenceCounts& inference_counts();

// Applies f to every defined tensor inside a value, keeping its structure.
template <class F>
c10::IValue map_tensors(const c10::IValue& value, F&& f) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() ? c10::IValue(f(tensor)) : value;
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> result;
    for (const at::Tensor& tensor : value.toTensorVector()) {
      result.push_back(tensor.defined() ? f(tensor) : tensor);
    }
    return result;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> result;
    for (std::optional<at::Tensor> tensor : value.toOptionalTensorList()) {
      if (tensor && tensor->defined()) {
        result.push_back(f(*tensor));
      } else {
        result.push_back(std::nullopt);
      }
    }
    return result;
  }
  return value;
}

template <class F>
void visit_tensors(const c10::IValue& value, F&& f) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) f(value.toTensor());
  } else if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) {
      if (tensor.defined()) f(tensor);
    }
  } else if (value.isOptionalTensorList()) {
    for (std::optional<at::Tensor> tensor : value.toOptionalTensorList()) {
      if (tensor && tensor->defined()) f(*tensor);
    }
  }
}

}  // namespace framejit::graph
