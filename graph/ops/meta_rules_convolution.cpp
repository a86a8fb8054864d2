// Convolutions: the sizes are arithmetic, the layout is what the library that
// torch chooses for these arguments makes. torch is asked which one that is,
// with tensors that have everything but memory.
#include <ATen/core/Tensor.h>
#include <ATen/native/ConvUtils.h>
#include <c10/core/CPUAllocator.h>

#include "graph/ops/meta_families.h"
#include "graph/ops/meta_inference.h"
#include "graph/ops/meta_results.h"

namespace framejit::graph {
namespace {

using at::MemoryFormat;
using at::native::ConvBackend;

int64_t item(const Sizes& list, size_t i) {
  return list.size() == 1 ? list[0] : list.at(i);
}

// On the CPU, without memory.
at::Tensor hollow(at::IntArrayRef sizes, at::IntArrayRef strides,
                  c10::ScalarType dtype) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0,
                       c10::GetCPUAllocator(), /*resizable=*/false);
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::CPU),
      c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return tensor;
}

at::Tensor hollow(const at::Tensor& meta) {
  return hollow(meta.sizes(), meta.strides(), meta.scalar_type());
}

at::Tensor hollow_contiguous(const at::Tensor& t, MemoryFormat format) {
  return hollow(make(t.sizes(), t.scalar_type(), format));
}

// One spatial dim is run as two, the first of size 1.
at::Tensor with_two_dims(const at::Tensor& t) {
  Sizes sizes = t.sizes().vec(), strides = t.strides().vec();
  strides.insert(strides.begin() + 2, sizes[2] * strides[2]);
  sizes.insert(sizes.begin() + 2, 1);
  return make_strided(sizes, strides, t.scalar_type());
}

at::Tensor with_one_dim(const at::Tensor& t) {
  Sizes sizes = t.sizes().vec(), strides = t.strides().vec();
  sizes.erase(sizes.begin() + 2);
  strides.erase(strides.begin() + 2);
  return make_strided(sizes, strides, t.scalar_type());
}

// What a call is for its library, and what that makes of it.
struct Plan {
  at::Tensor input, weight;
  ConvBackend backend;
  MemoryFormat format = MemoryFormat::Contiguous;
};

struct Arguments {
  at::Tensor input, weight, bias;
  Sizes bias_sizes, stride, padding, dilation, output_padding;
  bool has_bias = false, transposed = false;
  int64_t groups = 1;

  int64_t spatial() const { return weight.dim() - 2; }
};

void expand(Sizes* list, size_t count, bool two_dims, int64_t neutral) {
  if (list->size() == 1) list->assign(count, list->front());
  if (two_dims) list->insert(list->begin(), neutral);
}

bool uses_channels_last(const at::Tensor& input, const at::Tensor& weight,
                        ConvBackend backend) {
  switch (backend) {
    case ConvBackend::Mkldnn:
    case ConvBackend::MkldnnTranspose:
      return at::native::mkldnn_conv_use_channels_last(input, weight);
    case ConvBackend::Slow2d:
    case ConvBackend::SlowDilated2d:
    case ConvBackend::SlowTranspose2d:
      return at::native::thnn_conv_use_channels_last(input, weight);
    default:
      return false;
  }
}

bool is_known(ConvBackend backend) {
  switch (backend) {
    case ConvBackend::Mkldnn:
    case ConvBackend::MkldnnTranspose:
    case ConvBackend::Slow2d:
    case ConvBackend::Slow3d:
    case ConvBackend::SlowDilated2d:
    case ConvBackend::SlowDilated3d:
    case ConvBackend::SlowTranspose2d:
    case ConvBackend::SlowTranspose3d:
    case ConvBackend::Winograd3x3Depthwise:
      return true;
    default:
      return false;
  }
}

bool make_plan(Arguments a, Plan* plan) {
  bool two_dims = a.spatial() == 1;
  at::Tensor input = a.input, weight = a.weight;
  if (two_dims) {
    if (!input.is_contiguous())
      input = make(input.sizes(), input.scalar_type());
    input = with_two_dims(input);
    weight = with_two_dims(weight);
  }
  size_t count = static_cast<size_t>(a.spatial());
  expand(&a.stride, count, two_dims, 1);
  expand(&a.padding, count, two_dims, 0);
  expand(&a.dilation, count, two_dims, 1);
  expand(&a.output_padding, count, two_dims, 0);
  plan->input = hollow(input);
  plan->weight = hollow(weight);
  std::optional<at::Tensor> bias;
  if (a.bias.defined()) bias = hollow(a.bias);
  at::OptionalSymIntArrayRef bias_sizes;
  std::vector<c10::SymInt> sizes(a.bias_sizes.begin(), a.bias_sizes.end());
  if (a.has_bias) bias_sizes = sizes;
  auto symbols = [](const Sizes& list) {
    return std::vector<c10::SymInt>(list.begin(), list.end());
  };
  auto stride = symbols(a.stride), padding = symbols(a.padding),
       dilation = symbols(a.dilation), more = symbols(a.output_padding);
  plan->backend = at::native::select_conv_backend(
      plan->input, plan->weight, bias, stride, padding, dilation, a.transposed,
      more, a.groups, bias_sizes);
  if (!is_known(plan->backend)) return false;
  plan->format = at::native::_determine_backend_memory_format(
      plan->input, plan->weight, plan->backend);
  return true;
}

// The layout of what a library makes of arguments in the plan's format.
MemoryFormat result_format(const Plan& plan) {
  bool last = uses_channels_last(hollow_contiguous(plan.input, plan.format),
                                 hollow_contiguous(plan.weight, plan.format),
                                 plan.backend);
  if (!last) return MemoryFormat::Contiguous;
  return plan.input.dim() == 5 ? MemoryFormat::ChannelsLast3d
                               : MemoryFormat::ChannelsLast;
}

bool output_sizes(const Arguments& a, Sizes* sizes) {
  const at::Tensor &x = a.input, &w = a.weight;
  if (x.size(1) != (a.transposed ? w.size(0) : w.size(1) * a.groups))
    return false;
  *sizes = {x.size(0), a.transposed ? w.size(1) * a.groups : w.size(0)};
  for (int64_t d = 2; d < x.dim(); ++d) {
    int64_t i = d - 2, stride = item(a.stride, i), pad = item(a.padding, i),
            reach = item(a.dilation, i) * (w.size(d) - 1);
    if (stride < 1) return false;
    if (a.transposed) {
      int64_t more = item(a.output_padding, i);
      if (more < 0) return false;
      sizes->push_back((x.size(d) - 1) * stride - 2 * pad + reach + more + 1);
      if (sizes->back() < 1) return false;
    } else {
      int64_t room = x.size(d) + 2 * pad - reach - 1;
      if (room < 0) return false;
      sizes->push_back(room / stride + 1);
    }
  }
  return true;
}

bool is_ordinary(const Arguments& a) {
  return a.input.dim() == a.weight.dim() && a.input.dim() >= 3 &&
         a.input.dim() <= 5 && a.input.is_floating_point() &&
         a.input.scalar_type() == a.weight.scalar_type() &&
         a.input.numel() > 0 && a.weight.numel() > 0 &&
         inference_device_type() == c10::DeviceType::CPU;
}

// The arguments from `first` on: stride, padding, dilation, transposed,
// output_padding, groups.
Arguments arguments_from(Stack* stack, size_t first) {
  Arguments a;
  a.stride = ints((*stack)[first]);
  a.padding = ints((*stack)[first + 1]);
  a.dilation = ints((*stack)[first + 2]);
  a.transposed = (*stack)[first + 3].toBool();
  a.output_padding = ints((*stack)[first + 4]);
  a.groups = (*stack)[first + 5].toInt();
  return a;
}

}  // namespace

// convolution(input, weight, bias, stride, ...)
bool meta_convolution(Stack* stack) {
  Arguments a = arguments_from(stack, 3);
  a.input = (*stack)[0].toTensor();
  a.weight = (*stack)[1].toTensor();
  if (is_tensor((*stack)[2])) {
    a.bias = (*stack)[2].toTensor();
    a.bias_sizes = a.bias.sizes().vec();
    a.has_bias = true;
  }
  Sizes sizes;
  Plan plan;
  if (!is_ordinary(a) || !output_sizes(a, &sizes) || !make_plan(a, &plan))
    return false;
  c10::ScalarType dtype = a.input.scalar_type();
  bool two_dims = a.spatial() == 1;
  if (two_dims) sizes.insert(sizes.begin() + 2, 1);
  at::Tensor result = make(sizes, dtype, result_format(plan));
  return finish(stack, {two_dims ? with_one_dim(result) : result});
}

// convolution_backward(gradient, input, weight, bias_sizes, stride, ..., mask)
bool meta_convolution_backward(Stack* stack) {
  Arguments a = arguments_from(stack, 4);
  a.input = (*stack)[1].toTensor();
  a.weight = (*stack)[2].toTensor();
  if (!(*stack)[3].isNone()) {
    a.bias_sizes = ints((*stack)[3]);
    a.has_bias = true;
  }
  auto mask = (*stack)[10].toBoolList();
  Plan plan;
  if (!is_ordinary(a) || (mask[2] && !a.has_bias) || !make_plan(a, &plan))
    return false;
  MemoryFormat format = result_format(plan);
  c10::ScalarType dtype = a.input.scalar_type();
  auto gradient = [&](bool wanted, const at::Tensor& t) {
    if (!wanted) return at::Tensor();
    at::Tensor result = make(t.sizes(), dtype, format);
    return a.spatial() == 1 ? with_one_dim(result) : result;
  };
  at::Tensor bias;
  if (mask[2]) bias = make(a.bias_sizes, dtype);
  return finish(stack, {gradient(mask[0], plan.input),
                        gradient(mask[1], plan.weight), bias});
}

}  // namespace framejit::graph
