// What meta rules are written with: results on the meta device, laid out the
// way eager's kernels lay theirs out.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/MemoryFormat.h>

#include <initializer_list>
#include <vector>

#include "graph/ops/meta_rule.h"

namespace framejit::graph {

using Sizes = std::vector<int64_t>;

// ---- arguments
bool is_tensor(const c10::IValue& value);  // a defined tensor
Sizes ints(const c10::IValue& value);      // a list, one int, or None: {}
bool is_plain_float(const at::Tensor& t);  // float32 or float64
// The type of the first parameter that is there, if it is not the input's: what
// kernels that accept bfloat16 data with float32 parameters look at.
bool is_mixed(const at::Tensor& input,
              std::initializer_list<const c10::IValue*> parameters);

// ---- results: contiguous, in a memory format, or in given strides
at::Tensor make(at::IntArrayRef sizes, c10::ScalarType dtype);
at::Tensor make(at::IntArrayRef sizes, c10::ScalarType dtype,
                at::MemoryFormat format);
at::Tensor make_strided(at::IntArrayRef sizes, at::IntArrayRef strides,
                        c10::ScalarType dtype);
// empty_like: dense, in the order of the dims of x.
at::Tensor like(const at::Tensor& x);
at::Tensor like(const at::Tensor& x, c10::ScalarType dtype);
// The result of an elementwise operation, broadcast and laid out as
// TensorIterator does.
at::Tensor elementwise(c10::ScalarType dtype,
                       std::initializer_list<at::Tensor> inputs);

bool finish(Stack* stack, std::initializer_list<at::Tensor> results);

}  // namespace framejit::graph
