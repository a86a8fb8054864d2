// What an operation returns, computed on meta tensors.
//
// Order of preference: our own rule (meta_rules.cpp; exact, well under a
// microsecond), the C++ meta kernel that Python registrations hide, a kernel
// made for every backend, and last the Python meta function (50-100 us). A
// kernel that calls other operators gets the same order for those: Fake stays
// among the thread's dispatch keys, with a flag that says we are inferring.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <string_view>
#include <vector>

#include "graph/libtorch_private.h"
#include "graph/shape_rules.h"

namespace framejit::graph {

using Stack = std::vector<c10::IValue>;
// Replaces exactly the operator's arguments by its results. False: this case
// is not the rule's, and the arguments are unchanged.
using MetaRule = bool (*)(Stack* arguments);

// Facts about an operator, looked up once.
struct OpFacts {
  explicit OpFacts(const c10::OperatorHandle& op);

  c10::OperatorHandle op;
  std::string name;  // "aten::add.Tensor"; no trailing dot
  size_t num_arguments = 0;
  size_t num_results = 0;
  int device_argument = -1;
  int pin_memory_argument = -1;
  bool has_tensor_arguments = false;
  std::vector<int> written_arguments;
  std::vector<int> result_alias;  // the written argument returned, or -1
  bool only_in_place = false;     // every result is a written argument
  bool changes_metadata = false;  // tag inplace_view
  bool keeps_sizes = false;       // in place: add_, not add.out
  bool ignores_floats = false;    // the metadata of the results does not
                                  // depend on the value of a float argument
  bool is_custom = false;         // registered by a package
  enum class Special : uint8_t {
    kNone,
    kReadsData,           // the answer is tensor data: item(), equal()
    kDataDependentShape,  // nonzero, unique...
    kMaskedShape,         // the same, with a boolean mask as an index
    kLiftFresh,           // makes a tensor of torch.tensor()
  } special = Special::kNone;
  MetaKernel kernel;
  bool kernel_unusable = false;  // found to be unsafe on meta tensors
  MetaRule meta_rule = nullptr;
  const ShapeRule* shape_rule = nullptr;
};

// Not of torch itself: what it does is known from its schema alone.
inline bool is_custom_operator(std::string_view name) {
  return !name.starts_with("aten::") && !name.starts_with("prims::");
}

OpFacts& facts_of(const c10::OperatorHandle& op);  // needs the GIL
MetaRule find_meta_rule(const std::string& name);  // meta_rules.cpp

// Replaces the arguments on top of the stack (meta tensors, concrete sizes) by
// the results. Throws what the kernels throw.
void infer_meta(OpFacts& facts, Stack* stack);
// An operator called by a kernel that is inferring.
void infer_nested(OpFacts& facts, Stack* stack);
// True on this thread while a kernel infers: Python frames that run now are
// meta functions of torch, not the user's program.
bool is_inferring();

struct InferenceCounts {
  int64_t by_rule = 0, by_kernel = 0, by_python = 0;
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
