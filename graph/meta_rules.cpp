// Our own meta rules: operators whose C++ meta kernel does not exist, so that
// inference would go through a Python function. A rule answers only for the
// case it is exact about (strides included) and leaves the rest.
#include <ATen/EmptyTensor.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/result_type.h>

#include <algorithm>
#include <unordered_map>

#include "graph/meta_inference.h"

namespace framejit::graph {
namespace {

using Sizes = std::vector<int64_t>;

at::Tensor make(at::IntArrayRef sizes, c10::ScalarType dtype) {
  return at::Tensor(at::detail::empty_meta(sizes, dtype));
}

at::Tensor make(at::IntArrayRef sizes, at::IntArrayRef strides,
                c10::ScalarType dtype) {
  return at::Tensor(at::detail::empty_strided_meta(sizes, strides, dtype));
}

bool finish(Stack* stack, std::initializer_list<at::Tensor> results) {
  stack->clear();
  for (const at::Tensor& result : results) stack->emplace_back(result);
  return true;
}

bool is_plain_float(const at::Tensor& t) {
  return t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble;
}

bool is_tensor(const c10::IValue& value) {
  return value.isTensor() && value.toTensor().defined();
}

Sizes ints(const c10::IValue& value) {
  if (value.isNone()) return {};
  if (value.isInt()) return {value.toInt()};
  return value.toIntVector();
}

// The result of an elementwise operation, laid out as TensorIterator does.
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

// ---- elementwise

bool same_type_unary(Stack* stack) {
  at::Tensor x = (*stack)[0].toTensor();
  return finish(stack, {elementwise(x.scalar_type(), {x})});
}

bool absolute(Stack* stack) {
  if ((*stack)[0].toTensor().is_complex()) return false;
  return same_type_unary(stack);
}

bool in_place(Stack* stack) { return finish(stack, {(*stack)[0].toTensor()}); }

// Lists that are written to, no result: also where the kernel reads scalars
// from a tensor.
bool in_place_lists(Stack* stack) { return finish(stack, {}); }

// self + t1 / t2 * scalars[i] of lists, the scalars in a tensor.
bool scaled_lists(Stack* stack) {
  std::vector<at::Tensor> self = (*stack)[0].toTensorVector();
  std::vector<at::Tensor> first = (*stack)[1].toTensorVector();
  std::vector<at::Tensor> second = (*stack)[2].toTensorVector();
  c10::List<at::Tensor> results;
  for (size_t i = 0; i < self.size(); ++i) {
    c10::ScalarType dtype = self[i].scalar_type();
    if (first.at(i).scalar_type() != dtype ||
        second.at(i).scalar_type() != dtype)
      return false;
    results.push_back(elementwise(dtype, {self[i], first[i], second[i]}));
  }
  stack->clear();
  stack->emplace_back(std::move(results));
  return true;
}

// The sizes are known where the lengths are numbers.
bool ctc_loss(Stack* stack) {
  at::Tensor log_probs = (*stack)[0].toTensor();
  if (!(*stack)[3].isIntList() || !is_plain_float(log_probs)) return false;
  Sizes lengths = ints((*stack)[3]);
  int64_t longest =
      lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  bool batched = log_probs.dim() == 3;
  int64_t batch = batched ? log_probs.size(1) : 1;
  at::Tensor losses = batched
                          ? make({batch}, log_probs.scalar_type())
                          : make(at::IntArrayRef(), log_probs.scalar_type());
  return finish(stack,
                {losses, make({batch, log_probs.size(0), 2 * longest + 1},
                              log_probs.scalar_type())});
}

// A gradient made from nothing in the sizes of argument 1.
bool contiguous_like_second(Stack* stack) {
  at::Tensor self = (*stack)[1].toTensor();
  return finish(stack, {make(self.sizes(), self.scalar_type())});
}

bool to_bool(Stack* stack) {
  at::Tensor x = (*stack)[0].toTensor();
  if (stack->size() == 1) return finish(stack, {elementwise(at::kBool, {x})});
  at::Tensor y = (*stack)[1].toTensor();
  return finish(stack, {elementwise(at::kBool, {x, y})});
}

bool where(Stack* stack) {
  at::Tensor condition = (*stack)[0].toTensor();
  at::Tensor a = (*stack)[1].toTensor(), b = (*stack)[2].toTensor();
  if (condition.scalar_type() != at::kBool) return false;
  return finish(stack, {elementwise(at::result_type(a, b), {condition, a, b})});
}

bool rsub_tensor(Stack* stack) {
  at::Tensor a = (*stack)[0].toTensor(), b = (*stack)[1].toTensor();
  if (a.scalar_type() == at::kBool || b.scalar_type() == at::kBool) {
    return false;
  }
  return finish(stack, {elementwise(at::result_type(a, b), {a, b})});
}

// The kernel refuses what the meta functions let pass.
bool rsub_scalar(Stack* stack) {
  bool refused = (*stack)[0].toTensor().scalar_type() == at::kBool ||
                 ((*stack)[1].isScalar() && (*stack)[1].toScalar().isBoolean());
  TORCH_CHECK(!refused, "subtraction with a bool");
  return false;
}

bool contiguous_unary(Stack* stack) {
  at::Tensor x = (*stack)[0].toTensor();
  return finish(stack, {make(x.sizes(), x.scalar_type())});
}

bool float_unary(Stack* stack) {
  if (!(*stack)[0].toTensor().is_floating_point()) return false;
  return same_type_unary(stack);
}

bool gradient_and_self(Stack* stack) {
  at::Tensor gradient = (*stack)[0].toTensor(), self = (*stack)[1].toTensor();
  if (gradient.scalar_type() != self.scalar_type()) return false;
  return finish(stack, {elementwise(gradient.scalar_type(), {gradient, self})});
}

bool native_dropout(Stack* stack) {
  at::Tensor x = (*stack)[0].toTensor();
  if (!is_plain_float(x) || !x.is_contiguous() || (*stack)[2].isNone() ||
      !(*stack)[2].toBool()) {
    return false;
  }
  return finish(stack,
                {make(x.sizes(), x.scalar_type()), make(x.sizes(), at::kBool)});
}

// ---- normalisation

bool layer_norm(Stack* stack) {
  at::Tensor x = (*stack)[0].toTensor();
  size_t inner = ints((*stack)[1]).size();
  if (!is_plain_float(x) || inner > static_cast<size_t>(x.dim())) return false;
  Sizes statistics = x.sizes().vec();
  std::fill(statistics.end() - inner, statistics.end(), 1);
  return finish(stack, {make(x.sizes(), x.scalar_type()),
                        make(statistics, x.scalar_type()),
                        make(statistics, x.scalar_type())});
}

at::Tensor like_if(bool wanted, const c10::IValue& value) {
  if (!wanted || !is_tensor(value)) return {};
  at::Tensor t = value.toTensor();
  return make(t.sizes(), t.scalar_type());
}

bool layer_norm_backward(Stack* stack) {
  at::Tensor x = (*stack)[1].toTensor();
  if (!is_plain_float(x)) return false;
  auto mask = (*stack)[7].toBoolList();
  return finish(stack,
                {like_if(mask[0], (*stack)[1]), like_if(mask[1], (*stack)[5]),
                 like_if(mask[2], (*stack)[6])});
}

struct BatchNormShapes {
  at::Tensor output, statistic;
};

bool plain_batch(const at::Tensor& x) {
  return is_plain_float(x) && x.dim() >= 2 &&
         x.suggest_memory_format() == at::MemoryFormat::Contiguous;
}

bool batch_norm(Stack* stack, size_t training_index, bool functional) {
  at::Tensor x = (*stack)[0].toTensor();
  if (!plain_batch(x)) return false;
  bool training = (*stack)[training_index].toBool();
  Sizes statistics = {training ? x.size(1) : 0};
  at::Tensor output = make(x.sizes(), x.scalar_type());
  at::Tensor mean = make(statistics, x.scalar_type());
  at::Tensor deviation = make(statistics, x.scalar_type());
  if (!functional) return finish(stack, {output, mean, deviation});
  at::Tensor running_mean = make({x.size(1)}, x.scalar_type());
  at::Tensor running_var = make({x.size(1)}, x.scalar_type());
  return finish(stack, {output, mean, deviation, running_mean, running_var});
}

bool native_batch_norm(Stack* stack) { return batch_norm(stack, 5, false); }
bool functional_batch_norm(Stack* stack) { return batch_norm(stack, 5, true); }

bool batch_norm_backward(Stack* stack) {
  at::Tensor x = (*stack)[1].toTensor();
  if (!plain_batch(x) || !(*stack)[0].toTensor().is_contiguous()) return false;
  auto mask = (*stack)[9].toBoolList();
  auto channels = [&](bool wanted) {
    return wanted ? make({x.size(1)}, x.scalar_type()) : at::Tensor();
  };
  return finish(stack, {like_if(mask[0], (*stack)[1]), channels(mask[1]),
                        channels(mask[2])});
}

// ---- convolution and pooling

bool plain_layout(const at::Tensor& t) {
  return t.is_contiguous() &&
         t.suggest_memory_format() == at::MemoryFormat::Contiguous;
}

// Both kernels of the CPU choose this way.
at::MemoryFormat convolution_format(const at::Tensor& x, const at::Tensor& w) {
  using at::MemoryFormat;
  MemoryFormat last =
      x.dim() == 5 ? MemoryFormat::ChannelsLast3d : MemoryFormat::ChannelsLast;
  bool wanted = x.dim() >= 4 && (x.suggest_memory_format() == last ||
                                 w.suggest_memory_format() == last);
  return wanted ? last : MemoryFormat::Contiguous;
}

at::Tensor make(at::IntArrayRef sizes, c10::ScalarType dtype,
                at::MemoryFormat format) {
  return at::Tensor(at::detail::empty_meta(sizes, dtype, std::nullopt,
                                           std::nullopt, std::nullopt, format));
}

int64_t item(const Sizes& list, size_t i) {
  return list.size() == 1 ? list[0] : list.at(i);
}

bool transposed_convolution(Stack* stack) {
  at::Tensor x = (*stack)[0].toTensor(), w = (*stack)[1].toTensor();
  Sizes stride = ints((*stack)[3]), padding = ints((*stack)[4]),
        dilation = ints((*stack)[5]), more = ints((*stack)[7]);
  if (x.size(1) != w.size(0)) return false;
  Sizes sizes = {x.size(0), w.size(1) * (*stack)[8].toInt()};
  for (int64_t d = 2; d < x.dim(); ++d) {
    int64_t i = d - 2;
    int64_t size = (x.size(d) - 1) * item(stride, i) - 2 * item(padding, i) +
                   item(dilation, i) * (w.size(d) - 1) + item(more, i) + 1;
    if (size < 1 || item(stride, i) < 1 || item(more, i) < 0) return false;
    sizes.push_back(size);
  }
  return finish(stack,
                {make(sizes, x.scalar_type(), convolution_format(x, w))});
}

bool convolution(Stack* stack) {
  at::Tensor x = (*stack)[0].toTensor(), w = (*stack)[1].toTensor();
  if (x.dim() != w.dim() || x.dim() < 3 || !is_plain_float(x) ||
      x.scalar_type() != w.scalar_type()) {
    return false;
  }
  if ((*stack)[6].toBool()) return transposed_convolution(stack);
  Sizes stride = ints((*stack)[3]), padding = ints((*stack)[4]),
        dilation = ints((*stack)[5]);
  if (x.size(1) != w.size(1) * (*stack)[8].toInt()) return false;
  Sizes sizes = {x.size(0), w.size(0)};
  for (int64_t d = 2; d < x.dim(); ++d) {
    int64_t room = x.size(d) + 2 * item(padding, d - 2) -
                   item(dilation, d - 2) * (w.size(d) - 1) - 1;
    if (room < 0 || item(stride, d - 2) < 1) return false;
    sizes.push_back(room / item(stride, d - 2) + 1);
  }
  return finish(stack,
                {make(sizes, x.scalar_type(), convolution_format(x, w))});
}

bool convolution_backward(Stack* stack) {
  at::Tensor x = (*stack)[1].toTensor(), w = (*stack)[2].toTensor();
  if (!is_plain_float(x) || x.dim() != w.dim()) return false;
  at::MemoryFormat format = convolution_format(x, w);
  auto mask = (*stack)[10].toBoolList();
  at::Tensor bias;
  if (mask[2]) {
    if ((*stack)[3].isNone()) return false;
    bias = make(ints((*stack)[3]), x.scalar_type());
  }
  auto gradient = [&](bool wanted, const at::Tensor& t) {
    return wanted ? make(t.sizes(), t.scalar_type(), format) : at::Tensor();
  };
  return finish(stack, {gradient(mask[0], x), gradient(mask[1], w), bias});
}

bool adaptive_pool(Stack* stack) {
  at::Tensor x = (*stack)[0].toTensor();
  Sizes wanted = ints((*stack)[1]);
  if (!plain_layout(x) || x.dim() < 3 || wanted.size() != 2) return false;
  Sizes sizes = x.sizes().vec();
  std::copy(wanted.begin(), wanted.end(), sizes.end() - 2);
  return finish(stack, {make(sizes, x.scalar_type())});
}

bool adaptive_pool_backward(Stack* stack) {
  at::Tensor x = (*stack)[1].toTensor();
  if (!plain_layout(x)) return false;
  return finish(stack, {make(x.sizes(), x.scalar_type())});
}

// input and grid of grid_sampler_2d and _3d
bool is_plain_grid(const at::Tensor& x, const at::Tensor& grid) {
  int64_t dims = x.dim();
  return (dims == 4 || dims == 5) && grid.dim() == dims && is_plain_float(x) &&
         x.scalar_type() == grid.scalar_type() && x.is_contiguous() &&
         x.size(0) == grid.size(0) && grid.size(-1) == dims - 2 &&
         x.numel() > 0;
}

bool grid_sampler(Stack* stack) {
  at::Tensor x = (*stack)[0].toTensor(), grid = (*stack)[1].toTensor();
  if (!is_plain_grid(x, grid)) return false;
  Sizes sizes = {x.size(0), x.size(1)};
  for (int64_t d = 1; d + 1 < grid.dim(); ++d) sizes.push_back(grid.size(d));
  return finish(stack, {make(sizes, x.scalar_type())});
}

bool grid_sampler_backward(Stack* stack) {
  at::Tensor x = (*stack)[1].toTensor(), grid = (*stack)[2].toTensor();
  auto mask = (*stack)[6].toBoolList();
  if (!is_plain_grid(x, grid) || !grid.is_contiguous() || !mask[0] ||
      !mask[1]) {
    return false;
  }
  return finish(stack, {make(x.sizes(), x.scalar_type()),
                        make(grid.sizes(), x.scalar_type())});
}

// ---- indexing, reductions

bool dot(Stack* stack) {
  at::Tensor a = (*stack)[0].toTensor(), b = (*stack)[1].toTensor();
  if (a.dim() != 1 || b.dim() != 1 || a.size(0) != b.size(0) ||
      a.scalar_type() != b.scalar_type()) {
    return false;
  }
  return finish(stack, {make({}, a.scalar_type())});
}

bool embedding_backward(Stack* stack) {
  at::Tensor gradient = (*stack)[0].toTensor();
  if (gradient.dim() < 1) return false;
  int64_t rows = (*stack)[2].toInt();
  return finish(stack,
                {make({rows, gradient.size(-1)}, gradient.scalar_type())});
}

bool index_select(Stack* stack) {
  at::Tensor x = (*stack)[0].toTensor(), index = (*stack)[2].toTensor();
  if (x.dim() < 1 || index.dim() != 1 || !x.is_contiguous()) return false;
  Sizes sizes = x.sizes().vec();
  int64_t dim = (*stack)[1].toInt();
  if (dim < 0) dim += x.dim();
  if (dim < 0 || dim >= x.dim()) return false;
  sizes[dim] = index.size(0);
  return finish(stack, {make(sizes, x.scalar_type())});
}

bool flip(Stack* stack) {
  at::Tensor x = (*stack)[0].toTensor();
  if (!x.is_contiguous()) return false;
  return finish(stack, {make(x.sizes(), x.scalar_type())});
}

bool reduced_sizes(const at::Tensor& x, const Sizes& dims, bool keep,
                   Sizes* sizes) {
  std::vector<bool> reduced(x.dim(), dims.empty());
  for (int64_t dim : dims) {
    if (dim < 0) dim += x.dim();
    if (dim < 0 || dim >= x.dim()) return false;
    reduced[dim] = true;
  }
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (!reduced[d]) {
      sizes->push_back(x.size(d));
    } else if (keep) {
      sizes->push_back(1);
    }
  }
  return true;
}

// (self, dim, correction, keepdim)
bool variance(Stack* stack, bool with_mean) {
  at::Tensor x = (*stack)[0].toTensor();
  Sizes sizes;
  if (!is_plain_float(x) || x.dim() == 0 ||
      !reduced_sizes(x, ints((*stack)[1]), (*stack)[3].toBool(), &sizes)) {
    return false;
  }
  at::Tensor result = make(sizes, x.scalar_type());
  if (!with_mean) return finish(stack, {result});
  return finish(stack, {result, make(sizes, x.scalar_type())});
}
bool var_only(Stack* stack) { return variance(stack, false); }
bool var_and_mean(Stack* stack) { return variance(stack, true); }

bool full_extremum(Stack* stack) {
  at::Tensor x = (*stack)[0].toTensor();
  if (x.numel() == 0) return false;
  return finish(stack, {make({}, x.scalar_type())});
}

// ---- attention

at::Tensor heads_inside(const at::Tensor& t) {
  int64_t batch = t.size(0), heads = t.size(1), length = t.size(2),
          depth = t.size(3);
  return make({batch, heads, length, depth},
              {length * heads * depth, depth, heads * depth, 1},
              t.scalar_type());
}

bool attention_cpu(Stack* stack) {
  at::Tensor query = (*stack)[0].toTensor();
  if (query.dim() != 4 || !query.is_floating_point()) return false;
  int64_t batch = query.size(0), heads = query.size(1), length = query.size(2);
  auto type = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  at::Tensor result =
      query.is_non_overlapping_and_dense()
          ? make(query.sizes(), query.strides(), query.scalar_type())
          : elementwise(query.scalar_type(), {query});
  return finish(stack, {result, make({batch, heads, length},
                                     {length * heads, 1, heads}, type)});
}

bool attention_cpu_backward(Stack* stack) {
  at::Tensor query = (*stack)[1].toTensor(), key = (*stack)[2].toTensor(),
             value = (*stack)[3].toTensor();
  if (query.dim() != 4) return false;
  return finish(stack,
                {heads_inside(query), heads_inside(key), heads_inside(value)});
}

// ---- x[mask] = value: the mask decides what is written, not the size. The
// meta function would look for the true elements.

bool has_mask(const c10::IValue& indices) {
  for (const c10::IValue& item : indices.toListRef()) {
    if (!item.isTensor() || !item.toTensor().defined()) continue;
    c10::ScalarType type = item.toTensor().scalar_type();
    if (type == at::kBool || type == at::kByte) return true;
  }
  return false;
}

bool masked_put_in_place(Stack* stack) {
  if (!has_mask((*stack)[1])) return false;
  return in_place(stack);
}

bool masked_put(Stack* stack) {
  if (!has_mask((*stack)[1])) return false;
  at::Tensor x = (*stack)[0].toTensor();
  // A clone that preserves the layout.
  return finish(stack, {elementwise(x.scalar_type(), {x})});
}

}  // namespace

MetaRule find_meta_rule(const std::string& name) {
  static const auto* rules = new std::unordered_map<std::string, MetaRule>{
      {"aten::relu", same_type_unary},
      {"aten::relu_", in_place},
      {"aten::abs", absolute},
      {"aten::_foreach_addcdiv.Tensor", scaled_lists},
      {"aten::_foreach_addcdiv_.Tensor", in_place_lists},
      {"aten::_foreach_addcmul.Tensor", scaled_lists},
      {"aten::_foreach_addcmul_.Tensor", in_place_lists},
      {"aten::_ctc_loss", ctc_loss},
      {"aten::_ctc_loss_backward", contiguous_like_second},
      {"aten::_fused_sgd_", in_place_lists},
      {"aten::_fused_sgd_.tensor_lr", in_place_lists},
      {"aten::_fused_adagrad_", in_place_lists},
      {"aten::_fused_adagrad_.tensor_lr", in_place_lists},
      {"aten::hardtanh", float_unary},
      {"aten::hardswish", float_unary},
      {"aten::hardtanh_backward", gradient_and_self},
      {"aten::hardswish_backward", gradient_and_self},
      {"aten::logical_not", to_bool},
      {"aten::logical_and", to_bool},
      {"aten::logical_or", to_bool},
      {"aten::logical_xor", to_bool},
      {"aten::where.self", where},
      {"aten::rsub.Tensor", rsub_tensor},
      {"aten::rsub.Scalar", rsub_scalar},
      {"aten::bernoulli.p", contiguous_unary},
      {"aten::native_dropout", native_dropout},
      {"aten::native_layer_norm", layer_norm},
      {"aten::native_layer_norm_backward", layer_norm_backward},
      {"aten::native_batch_norm", native_batch_norm},
      {"aten::_native_batch_norm_legit_functional", functional_batch_norm},
      {"aten::native_batch_norm_backward", batch_norm_backward},
      {"aten::convolution", convolution},
      {"aten::convolution_backward", convolution_backward},
      {"aten::_adaptive_avg_pool2d", adaptive_pool},
      {"aten::_adaptive_avg_pool2d_backward", adaptive_pool_backward},
      {"aten::grid_sampler_2d", grid_sampler},
      {"aten::grid_sampler_3d", grid_sampler},
      {"aten::grid_sampler_2d_backward", grid_sampler_backward},
      {"aten::grid_sampler_3d_backward", grid_sampler_backward},
      {"aten::dot", dot},
      {"aten::embedding_dense_backward", embedding_backward},
      {"aten::index_select", index_select},
      {"aten::flip", flip},
      {"aten::index_put_", masked_put_in_place},
      {"aten::_index_put_impl_", masked_put_in_place},
      {"aten::index_put", masked_put},
      {"aten::index_fill.int_Scalar", same_type_unary},
      {"aten::index_fill_.int_Scalar", in_place},
      {"aten::index_fill.int_Tensor", same_type_unary},
      {"aten::index_fill_.int_Tensor", in_place},
      {"aten::mish_backward", gradient_and_self},
      {"aten::multi_margin_loss_backward", contiguous_like_second},
      {"aten::multilabel_margin_loss_backward", contiguous_like_second},
      {"aten::var.correction", var_only},
      {"aten::std.correction", var_only},
      {"aten::var_mean.correction", var_and_mean},
      {"aten::std_mean.correction", var_and_mean},
      {"aten::max", full_extremum},
      {"aten::min", full_extremum},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", attention_cpu},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward",
       attention_cpu_backward},
  };
  auto found = rules->find(name);
  return found == rules->end() ? nullptr : found->second;
}

}  // namespace framejit::graph
