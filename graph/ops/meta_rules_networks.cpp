#include <algorithm>

#include "graph/ops/meta_families.h"
#include "graph/ops/meta_inference.h"
#include "graph/ops/meta_results.h"

namespace framejit::graph {
namespace {

at::Tensor tensor_at(Stack* stack, size_t i) { return (*stack)[i].toTensor(); }

// The type of statistics: float32 where parameters are not of the data's type.
// (On other devices than the CPU, those of small floats are never small.)
c10::ScalarType statistics_type(const at::Tensor& x, bool mixed) {
  const bool is_wide = inference_device_type() != c10::DeviceType::CPU &&
                       c10::isReducedFloatingType(x.scalar_type());
  return mixed || is_wide ? at::kFloat : x.scalar_type();
}

at::Tensor contiguous_if(bool wanted, const c10::IValue& value) {
  if (!wanted || !is_tensor(value)) return {};
  at::Tensor t = value.toTensor();
  return make(t.sizes(), t.scalar_type());
}

bool plain_layout(const at::Tensor& t) {
  return t.is_contiguous() &&
         t.suggest_memory_format() == at::MemoryFormat::Contiguous;
}

}  // namespace

// native_dropout(input, p, train)
bool meta_dropout(Stack* stack) {
  at::Tensor x = tensor_at(stack, 0);
  bool train = (*stack)[2].isNone() || (*stack)[2].toBool();
  if (!train || x.numel() == 0 || !x.is_floating_point()) return false;
  at::Tensor mask = like(x, at::kBool);
  return finish(stack, {elementwise(x.scalar_type(), {x, mask}), mask});
}

// ---- normalisation

// native_layer_norm(input, normalized_shape, weight, bias, eps)
bool meta_layer_norm(Stack* stack) {
  at::Tensor x = tensor_at(stack, 0);
  size_t inner = ints((*stack)[1]).size();
  if (inner > static_cast<size_t>(x.dim()) || !x.is_floating_point())
    return false;
  Sizes statistics = x.sizes().vec();
  std::fill(statistics.end() - inner, statistics.end(), 1);
  bool mixed = is_mixed(x, {&(*stack)[2], &(*stack)[3]});
  c10::ScalarType type = statistics_type(x, mixed);
  return finish(stack, {make(x.sizes(), x.scalar_type()),
                        make(statistics, type), make(statistics, type)});
}

// (gradient, input, normalized_shape, mean, rstd, weight, bias, mask)
bool meta_layer_norm_backward(Stack* stack) {
  if (!tensor_at(stack, 1).is_floating_point()) return false;
  auto mask = (*stack)[7].toBoolList();
  return finish(stack, {contiguous_if(mask[0], (*stack)[1]),
                        contiguous_if(mask[1], (*stack)[5]),
                        contiguous_if(mask[2], (*stack)[6])});
}

// native_group_norm(input, weight, bias, N, C, HxW, group, eps)
bool meta_group_norm(Stack* stack) {
  at::Tensor x = tensor_at(stack, 0);
  if (!x.is_floating_point() || x.numel() == 0) return false;
  bool mixed = is_mixed(x, {&(*stack)[1], &(*stack)[2]});
  c10::ScalarType type = statistics_type(x, mixed);
  Sizes statistics = {(*stack)[3].toInt(), (*stack)[6].toInt()};
  return finish(stack,
                {make(x.sizes(), x.scalar_type(), x.suggest_memory_format()),
                 make(statistics, type), make(statistics, type)});
}

// (gradient, input, mean, rstd, weight, N, C, HxW, group, mask)
bool meta_group_norm_backward(Stack* stack) {
  at::Tensor x = tensor_at(stack, 1);
  auto mask = (*stack)[9].toBoolList();
  if (!x.is_floating_point() || x.numel() == 0) return false;
  if ((mask[1] || mask[2]) && !is_tensor((*stack)[4])) return false;
  at::Tensor gradient =
      mask[0] ? make(x.sizes(), x.scalar_type(), x.suggest_memory_format())
              : at::Tensor();
  return finish(stack, {gradient, contiguous_if(mask[1], (*stack)[4]),
                        contiguous_if(mask[2], (*stack)[4])});
}

namespace {

bool plain_batch(const at::Tensor& x) {
  return is_plain_float(x) && x.dim() >= 2 && plain_layout(x);
}

// The types of all parameters and statistics from `first` on are the data's.
bool same_types(Stack* stack, const at::Tensor& x, size_t first, size_t last) {
  for (size_t i = first; i <= last; ++i) {
    if (is_tensor((*stack)[i]) &&
        tensor_at(stack, i).scalar_type() != x.scalar_type())
      return false;
  }
  return true;
}

// (input, weight, bias, running_mean, running_var, training, momentum, eps)
bool batch_norm(Stack* stack, bool functional) {
  at::Tensor x = tensor_at(stack, 0);
  if (!plain_batch(x) || !same_types(stack, x, 1, 4)) return false;
  c10::ScalarType type = x.scalar_type();
  const bool training = (*stack)[5].toBool();
  // (Others give statistics that mean nothing.)
  if (!training && inference_device_type() != c10::DeviceType::CPU)
    return false;
  Sizes statistics = {training ? x.size(1) : 0};
  const c10::ScalarType kept = statistics_type(x, false);
  at::Tensor output = make(x.sizes(), type), mean = make(statistics, kept),
             deviation = make(statistics, kept);
  if (!functional) return finish(stack, {output, mean, deviation});
  return finish(stack, {output, mean, deviation, make({x.size(1)}, type),
                        make({x.size(1)}, type)});
}

}  // namespace

bool meta_batch_norm(Stack* stack) { return batch_norm(stack, false); }
bool meta_batch_norm_functional(Stack* stack) {
  return batch_norm(stack, true);
}

// (gradient, input, weight, running_mean, running_var, mean, invstd, train,
// eps, mask)
bool meta_batch_norm_backward(Stack* stack) {
  at::Tensor x = tensor_at(stack, 1);
  if (!plain_batch(x) || !plain_layout(tensor_at(stack, 0)) ||
      !same_types(stack, x, 2, 6))
    return false;
  auto mask = (*stack)[9].toBoolList();
  auto channels = [&](bool wanted) {
    return wanted ? make({x.size(1)}, x.scalar_type()) : at::Tensor();
  };
  return finish(stack, {contiguous_if(mask[0], (*stack)[1]), channels(mask[1]),
                        channels(mask[2])});
}

// ---- pooling, sampling

bool meta_adaptive_pool(Stack* stack) {
  at::Tensor x = tensor_at(stack, 0);
  Sizes wanted = ints((*stack)[1]);
  if (!plain_layout(x) || x.dim() < 3 || wanted.size() != 2) return false;
  Sizes sizes = x.sizes().vec();
  std::copy(wanted.begin(), wanted.end(), sizes.end() - 2);
  return finish(stack, {make(sizes, x.scalar_type())});
}

bool meta_adaptive_pool_backward(Stack* stack) {
  at::Tensor x = tensor_at(stack, 1);
  if (!plain_layout(x)) return false;
  return finish(stack, {make(x.sizes(), x.scalar_type())});
}

// replication_pad2d (input, padding)
bool meta_pad_images(Stack* stack) {
  at::Tensor x = tensor_at(stack, 0);
  Sizes padding = ints((*stack)[1]), sizes = x.sizes().vec();
  if (x.dim() < 3 || x.dim() > 4 || padding.size() != 4 || x.numel() == 0)
    return false;
  sizes.end()[-1] += padding[0] + padding[1];
  sizes.end()[-2] += padding[2] + padding[3];
  if (sizes.end()[-1] < 1 || sizes.end()[-2] < 1) return false;
  return finish(stack,
                {make(sizes, x.scalar_type(), x.suggest_memory_format())});
}

// reflection_pad2d (input, padding). Only what the kernel takes: the one of the
// backward does not look, and would read beyond its memory.
bool meta_reflect_images(Stack* stack) {
  at::Tensor x = tensor_at(stack, 0);
  Sizes padding = ints((*stack)[1]);
  if (x.dim() < 3 || padding.size() != 4) return false;
  for (int side = 0; side < 4; ++side) {
    if (padding[side] >= x.size(side < 2 ? -1 : -2)) return false;
  }
  return meta_pad_images(stack);
}

// (gradient, input, ...): a gradient of the input's sizes, laid out as images.
bool meta_like_second_image(Stack* stack) {
  at::Tensor x = tensor_at(stack, 1);
  return finish(stack, {make(x.sizes().vec(), x.scalar_type(),
                             x.suggest_memory_format())});
}

// The same, dense.
bool meta_like_second_dense(Stack* stack) {
  at::Tensor x = tensor_at(stack, 1);
  return finish(stack, {make(x.sizes().vec(), x.scalar_type())});
}

namespace {

// input and grid of grid_sampler_2d and _3d
bool is_plain_grid(const at::Tensor& x, const at::Tensor& grid) {
  int64_t dims = x.dim();
  return (dims == 4 || dims == 5) && grid.dim() == dims && is_plain_float(x) &&
         x.scalar_type() == grid.scalar_type() && x.is_contiguous() &&
         x.size(0) == grid.size(0) && grid.size(-1) == dims - 2 &&
         x.numel() > 0;
}

}  // namespace

bool meta_grid_sampler(Stack* stack) {
  at::Tensor x = tensor_at(stack, 0), grid = tensor_at(stack, 1);
  if (!is_plain_grid(x, grid)) return false;
  Sizes sizes = {x.size(0), x.size(1)};
  for (int64_t d = 1; d + 1 < grid.dim(); ++d) sizes.push_back(grid.size(d));
  return finish(stack, {make(sizes, x.scalar_type())});
}

bool meta_grid_sampler_backward(Stack* stack) {
  at::Tensor x = tensor_at(stack, 1), grid = tensor_at(stack, 2);
  auto mask = (*stack)[6].toBoolList();
  if (!is_plain_grid(x, grid) || !grid.is_contiguous() || !mask[0] ||
      !mask[1]) {
    return false;
  }
  return finish(stack, {make(x.sizes(), x.scalar_type()),
                        make(grid.sizes(), x.scalar_type())});
}

// ---- losses

namespace {

// All tensors have the sizes and the type of the first two.
bool all_alike(Stack* stack) {
  at::Tensor x = tensor_at(stack, 0);
  for (const c10::IValue& value : *stack) {
    if (!is_tensor(value)) continue;
    at::Tensor other = value.toTensor();
    if (other.sizes() != x.sizes() || other.scalar_type() != x.scalar_type())
      return false;
  }
  return true;
}

}  // namespace

// huber_loss(self, target, reduction, delta),
// binary_cross_entropy(self, target, weight, reduction)
bool meta_loss(Stack* stack) {
  if (!all_alike(stack)) return false;
  at::Tensor x = tensor_at(stack, 0);
  int64_t reduction =
      (*stack)[2].isInt() ? (*stack)[2].toInt() : (*stack)[3].toInt();
  if (reduction == 0) return finish(stack, {like(x)});
  return finish(stack, {make({}, x.scalar_type())});
}

// mse_loss_backward(gradient, self, target, reduction)
bool meta_loss_backward(Stack* stack) {
  at::Tensor gradient = tensor_at(stack, 0), x = tensor_at(stack, 1),
             target = tensor_at(stack, 2);
  bool alike = x.sizes() == target.sizes() &&
               x.scalar_type() == target.scalar_type() &&
               x.scalar_type() == gradient.scalar_type() &&
               (gradient.dim() == 0 || gradient.sizes() == x.sizes());
  if (!alike) return false;
  return finish(stack, {make(x.sizes(), x.scalar_type())});
}

// The sizes are known where the lengths are numbers.
bool meta_ctc_loss(Stack* stack) {
  at::Tensor log_probs = tensor_at(stack, 0);
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

// ---- attention

namespace {

at::Tensor heads_inside(const at::Tensor& t) {
  int64_t batch = t.size(0), heads = t.size(1), length = t.size(2),
          depth = t.size(3);
  return make_strided({batch, heads, length, depth},
                      {length * heads * depth, depth, heads * depth, 1},
                      t.scalar_type());
}

}  // namespace

bool meta_attention_cpu(Stack* stack) {
  at::Tensor query = tensor_at(stack, 0);
  if (query.dim() != 4 || !query.is_floating_point()) return false;
  int64_t batch = query.size(0), heads = query.size(1), length = query.size(2);
  auto type = query.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return finish(stack,
                {like(query), make_strided({batch, heads, length},
                                           {length * heads, 1, heads}, type)});
}

bool meta_attention_cpu_backward(Stack* stack) {
  at::Tensor query = tensor_at(stack, 1), key = tensor_at(stack, 2),
             value = tensor_at(stack, 3);
  if (query.dim() != 4) return false;
  return finish(stack,
                {heads_inside(query), heads_inside(key), heads_inside(value)});
}

}  // namespace framejit::graph
