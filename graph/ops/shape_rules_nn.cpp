#include <algorithm>

#include "graph/ops/meta_inference.h"
#include "graph/ops/shape_families.h"
#include "graph/tensors/sym_node.h"

namespace framejit::graph {
namespace {

// A list with one item stands for all spatial dims.
int64_t item(const std::vector<int64_t>& list, size_t i, int64_t otherwise) {
  if (list.empty()) return otherwise;
  return list.size() == 1 ? list[0] : list.at(i);
}

Expr window_count(const Expr& size, int64_t kernel, int64_t stride,
                  int64_t padding, int64_t dilation) {
  Expr room = size + Expr(2 * padding - dilation * (kernel - 1) - 1);
  return floor_div(room, Expr(stride)) + 1;
}

// Results for the gradients asked for: undefined ones are absent in `metas`.
bool gradients_like(ShapeCall& call, const std::vector<bool>& mask,
                    const std::vector<std::vector<Expr>>& sizes) {
  size_t next = 0;
  for (size_t i = 0; i < mask.size(); ++i) {
    if (!mask[i]) continue;
    if (next >= call.metas.size() || !call.fresh(next, sizes[i])) return false;
    next++;
  }
  return next == call.metas.size();
}

std::vector<bool> to_mask(const c10::IValue& value) {
  std::vector<bool> mask;
  for (bool bit : value.toBoolList()) mask.push_back(bit);
  return mask;
}

std::vector<Expr> sizes_or_empty(const ShapeCall& call, size_t i) {
  return call.is_tensor(i) ? call.tensor(i).sizes : std::vector<Expr>();
}

}  // namespace

bool shape_layer_norm(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(0).sizes;
  std::vector<Expr> normalised = call.integers(1);
  if (normalised.size() > sizes.size()) return false;
  size_t outer = sizes.size() - normalised.size();
  for (size_t i = 0; i < normalised.size(); ++i) {
    if (!decide(expr_eq(sizes[outer + i], normalised[i]))) return false;
  }
  std::vector<Expr> statistics = sizes;
  for (size_t i = outer; i < sizes.size(); ++i) statistics[i] = Expr(1);
  return call.fresh(0, sizes) && call.fresh(1, statistics) &&
         call.fresh(2, statistics);
}

bool shape_layer_norm_backward(ShapeCall& call) {
  return gradients_like(
      call, to_mask(call.arguments[7]),
      {call.tensor(1).sizes, sizes_or_empty(call, 5), sizes_or_empty(call, 6)});
}

// Covers the whole family: result 0 is like the input, the statistics belong
// to the channels, which must be static.
bool shape_batch_norm(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(0).sizes;
  if (sizes.size() < 2 || !sizes[1].is_const()) return false;
  if (!call.fresh(0, sizes)) return false;
  for (size_t i = 1; i < call.metas.size(); ++i) {
    std::vector<Expr> statistics;
    for (int64_t size : call.metas[i].sizes()) {
      if (size != 0 && size != sizes[1].constant()) return false;
      statistics.emplace_back(size);
    }
    if (!call.fresh_contiguous(i, statistics)) return false;
  }
  return true;
}

bool shape_group_norm(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(0).sizes;
  Expr groups = call.integer(6);
  return call.fresh(0, sizes) && call.fresh(1, {sizes[0], groups}) &&
         call.fresh(2, {sizes[0], groups});
}

bool shape_convolution(ShapeCall& call) {
  std::vector<Expr> input = call.tensor(0).sizes;
  std::vector<Expr> weight = call.tensor(1).sizes;
  if (call.boolean(6) || input.size() != weight.size() || input.size() < 3) {
    return false;
  }
  std::vector<int64_t> stride = call.constants(3), padding = call.constants(4),
                       dilation = call.constants(5);
  Expr groups = call.integer(8);
  if (!decide(expr_eq(input[1], weight[1] * groups))) return false;
  std::vector<Expr> sizes = {input[0], weight[0]};
  for (size_t i = 2; i < input.size(); ++i) {
    Expr count =
        window_count(input[i], specialise(weight[i]), item(stride, i - 2, 1),
                     item(padding, i - 2, 0), item(dilation, i - 2, 1));
    if (!decide(expr_lt(0, count))) return false;
    sizes.push_back(count);
  }
  return call.fresh(0, sizes);
}

bool shape_convolution_backward(ShapeCall& call) {
  std::vector<Expr> bias = call.has(3) ? call.integers(3) : std::vector<Expr>();
  return gradients_like(call, to_mask(call.arguments[10]),
                        {call.tensor(1).sizes, call.tensor(2).sizes, bias});
}

// max_pool2d_with_indices(self, kernel, stride, padding, dilation, ceil_mode)
// avg_pool2d(self, kernel, stride, padding, ceil_mode, ...)
bool shape_pool(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(0).sizes;
  bool has_dilation = call.facts.name.starts_with("aten::max_pool");
  if (call.boolean(has_dilation ? 5 : 4)) return false;  // ceil_mode
  std::vector<int64_t> kernel = call.constants(1), stride = call.constants(2),
                       padding = call.constants(3), dilation;
  if (has_dilation) dilation = call.constants(4);
  size_t spatial = call.facts.name.find("2d") != std::string::npos ? 2 : 3;
  if (sizes.size() < spatial + 1) return false;
  size_t first = sizes.size() - spatial;
  for (size_t i = 0; i < spatial; ++i) {
    int64_t window = item(kernel, i, 1);
    sizes[first + i] =
        window_count(sizes[first + i], window, item(stride, i, window),
                     item(padding, i, 0), item(dilation, i, 1));
    if (!decide(expr_lt(0, sizes[first + i]))) return false;
  }
  for (size_t i = 0; i < call.metas.size(); ++i) {
    if (!call.fresh(i, sizes)) return false;
  }
  return true;
}

bool shape_adaptive_pool(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(0).sizes, wanted = call.integers(1);
  if (sizes.size() <= wanted.size()) return false;
  std::copy(wanted.begin(), wanted.end(), sizes.end() - wanted.size());
  return call.fresh(0, sizes);
}

bool shape_embedding(ShapeCall& call) {
  std::vector<Expr> weight = call.tensor(0).sizes;
  std::vector<Expr> sizes = call.tensor(1).sizes;
  if (weight.size() != 2) return false;
  sizes.push_back(weight[1]);
  return call.fresh_contiguous(0, sizes);
}

bool shape_embedding_backward(ShapeCall& call) {
  std::vector<Expr> gradient = call.tensor(0).sizes;
  if (gradient.empty()) return false;
  return call.fresh_contiguous(0, {call.integer(2), gradient.back()});
}

// (self, target, weight, reduction, ignore_index)
bool shape_nll_loss(ShapeCall& call) {
  std::vector<Expr> self = call.tensor(0).sizes, target = call.tensor(1).sizes;
  if (self.size() == 2) {
    if (target.size() != 1 || !decide(expr_eq(self[0], target[0]))) {
      return false;
    }
  } else if (self.size() != 1) {
    return false;
  }
  bool none = call.constant(3) == 0 && self.size() == 2;
  std::vector<Expr> sizes;
  if (none) sizes = {self[0]};
  return call.fresh_contiguous(0, sizes) && call.fresh_contiguous(1, {});
}

// Elementwise, then reduced as the argument `reduction` says.
bool shape_loss(ShapeCall& call) {
  const auto& schema = call.facts.op.schema().arguments();
  std::vector<Expr> sizes = call.tensor(0).sizes;
  bool reduced = false;
  for (size_t i = 1; i < call.arguments.size(); ++i) {
    if (call.is_tensor(i) && !broadcast(sizes, call.tensor(i).sizes, &sizes)) {
      return false;
    }
    if (schema[i].name() == "reduction") reduced = call.constant(i) != 0;
  }
  return reduced ? call.fresh_contiguous(0, {}) : call.fresh(0, sizes);
}

bool shape_cat(ShapeCall& call) {
  std::vector<SymbolicShape> all = call.tensors(0), parts;
  // An empty one-dimensional tensor is skipped, whatever the others are.
  for (SymbolicShape& shape : all) {
    bool skip = shape.sizes.size() == 1 && decide(expr_eq(shape.sizes[0], 0));
    if (!skip) parts.push_back(std::move(shape));
  }
  if (parts.empty()) return false;
  std::vector<Expr> sizes = parts[0].sizes;
  if (sizes.empty()) return false;
  size_t dim = wrap_dim(call.constant_or(1, 0), sizes.size());
  for (size_t i = 1; i < parts.size(); ++i) {
    if (parts[i].sizes.size() != sizes.size()) return false;
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (d == dim) {
        sizes[d] = sizes[d] + parts[i].sizes[d];
      } else if (!decide(expr_eq(sizes[d], parts[i].sizes[d]))) {
        return false;
      }
    }
  }
  return call.fresh(0, sizes);
}

bool shape_stack(ShapeCall& call) {
  std::vector<SymbolicShape> parts = call.tensors(0);
  if (parts.empty()) return false;
  std::vector<Expr> sizes = parts[0].sizes;
  for (const SymbolicShape& part : parts) {
    if (part.sizes.size() != sizes.size()) return false;
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (!decide(expr_eq(sizes[d], part.sizes[d]))) return false;
    }
  }
  size_t dim = wrap_dim(call.constant_or(1, 0), sizes.size() + 1);
  sizes.insert(sizes.begin() + dim, Expr(static_cast<int64_t>(parts.size())));
  return call.fresh(0, sizes);
}

bool shape_index_select(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(0).sizes;
  std::vector<Expr> index = call.tensor(2).sizes;
  if (sizes.empty() || index.size() > 1) return false;
  sizes[wrap_dim(call.constant(1), sizes.size())] =
      index.empty() ? Expr(1) : index[0];
  return call.fresh(0, sizes);
}

bool shape_gather(ShapeCall& call) {
  // index.size(d) <= self.size(d) off the gathered dim.
  std::vector<Expr> self = call.tensor(0).sizes, index = call.tensor(2).sizes;
  if (self.size() != index.size() || self.empty()) return false;
  size_t dim = wrap_dim(call.constant(1), self.size());
  for (size_t d = 0; d < self.size(); ++d) {
    if (d != dim && !decide(expr_le(index[d], self[d]))) return false;
  }
  return call.fresh_contiguous(0, index);
}

bool shape_index(ShapeCall& call) {
  std::vector<Expr> self = call.tensor(0).sizes;
  std::vector<Expr> sizes, positions;
  bool any = false, adjacent = true;
  size_t first = 0, last = 0, dim = 0;
  for (std::optional<at::Tensor> index :
       call.arguments[1].toOptionalTensorList()) {
    if (index && index->defined()) {
      // A mask has as many results as it has ones.
      if (index->scalar_type() == at::kBool ||
          index->scalar_type() == at::kByte) {
        return false;
      }
      if (any && dim != last + 1) adjacent = false;
      if (!any) first = dim;
      last = dim;
      std::vector<Expr> other = shape_of(*index).sizes;
      if (!any) {
        positions = other;
      } else if (!broadcast(positions, other, &positions)) {
        return false;
      }
      any = true;
    }
    dim++;
  }
  if (!any || !adjacent || dim > self.size()) return false;
  sizes.assign(self.begin(), self.begin() + first);
  sizes.insert(sizes.end(), positions.begin(), positions.end());
  sizes.insert(sizes.end(), self.begin() + last + 1, self.end());
  return call.fresh(0, sizes);
}

bool shape_sizes_second(ShapeCall& call) {
  return call.fresh_contiguous(0, call.integers(1));
}

bool shape_repeat(ShapeCall& call) {
  std::vector<Expr> self = call.tensor(0).sizes, counts = call.integers(1);
  if (counts.size() < self.size()) return false;
  size_t skip = counts.size() - self.size();
  for (size_t i = 0; i < self.size(); ++i) {
    counts[skip + i] = counts[skip + i] * self[i];
  }
  return call.fresh_contiguous(0, counts);
}

bool shape_pad(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(0).sizes, pad = call.integers(1);
  if (pad.size() > 2 * sizes.size()) return false;
  for (size_t i = 0; i + 1 < pad.size(); i += 2) {
    Expr& size = sizes[sizes.size() - 1 - i / 2];
    size = size + pad[i] + pad[i + 1];
    if (decide(expr_lt(size, 0))) return false;
  }
  return call.fresh(0, sizes);
}

}  // namespace framejit::graph
