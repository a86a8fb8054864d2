#include "graph/ops/meta_results.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/TensorIterator.h>

namespace framejit::graph {

bool is_tensor(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined();
}

Sizes ints(const c10::IValue& value) {
  if (value.isNone()) return {};
  if (value.isInt()) return {value.toInt()};
  return value.toIntVector();
}

bool is_plain_float(const at::Tensor& t) {
  return t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble;
}

bool is_mixed(const at::Tensor& input,
              std::initializer_list<const c10::IValue*> parameters) {
  for (const c10::IValue* parameter : parameters) {
    if (is_tensor(*parameter))
      return parameter->toTensor().scalar_type() != input.scalar_type();
  }
  return false;
}

at::Tensor make(at::IntArrayRef sizes, c10::ScalarType dtype) {
  return at::Tensor(at::detail::empty_meta(sizes, dtype));
}

at::Tensor make(at::IntArrayRef sizes, c10::ScalarType dtype,
                at::MemoryFormat format) {
  return at::Tensor(at::detail::empty_meta(sizes, dtype, std::nullopt,
                                           std::nullopt, std::nullopt, format));
}

at::Tensor make_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                        c10::ScalarType dtype) {
  return at::Tensor(at::detail::empty_strided_meta(sizes, strides, dtype));
}

at::Tensor like(const at::Tensor& x) { return like(x, x.scalar_type()); }

at::Tensor like(const at::Tensor& x, c10::ScalarType dtype) {
  if (x.is_non_overlapping_and_dense())
    return make_strided(x.sizes(), x.strides(), dtype);
  return make_strided(x.sizes(),
                      at::infer_dense_strides(x.sizes(), x.strides()), dtype);
}

at::Tensor elementwise(c10::ScalarType dtype,
                       std::initializer_list<at::Tensor> inputs) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false)
      .check_all_same_dtype(false)
      .check_all_same_device(false)
      .declare_static_dtype_and_device(dtype, at::kMeta)
      .add_owned_output(at::Tensor());
  for (const at::Tensor& input : inputs) config.add_owned_const_input(input);
  return config.build().output();
}

bool finish(Stack* stack, std::initializer_list<at::Tensor> results) {
  stack->clear();
  for (const at::Tensor& result : results) stack->emplace_back(result);
  return true;
}

}  // namespace framejit::graph
