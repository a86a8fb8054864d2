#include <algorithm>

#include "graph/ops/meta_inference.h"
#include "graph/ops/shape_families.h"
#include "graph/ops/shape_parts.h"
#include "graph/tensors/sym_node.h"

namespace framejit::graph {
namespace {

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

// Covers the whole family: result 0 is like the input; the others are
// statistics, one for each channel, or empty.
bool shape_batch_norm(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(0).sizes;
  if (sizes.size() < 2) return false;
  const Expr channels = sizes[1];
  if (!call.fresh(0, sizes)) return false;
  for (size_t i = 1; i < call.metas.size(); ++i) {
    const at::Tensor& meta = call.metas[i];
    if (meta.dim() != 1) return false;
    Expr count = meta.size(0) == 0 ? Expr(0) : channels;
    if (!call.fresh_contiguous(i, {count})) return false;
  }
  return true;
}

// The mask of the gradients is argument 9 in each of these.
constexpr size_t kNormMask = 9;

bool shape_batch_norm_backward(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(1).sizes;
  if (sizes.size() < 2) return false;
  return gradients_like(call, to_mask(call.arguments[kNormMask]),
                        {sizes, {sizes[1]}, {sizes[1]}});
}

bool shape_group_norm_backward(ShapeCall& call) {
  std::vector<Expr> channels = {call.integer(6)};
  return gradients_like(call, to_mask(call.arguments[kNormMask]),
                        {call.tensor(1).sizes, channels, channels});
}

bool shape_group_norm(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(0).sizes;
  Expr groups = call.integer(6);
  return call.fresh(0, sizes) && call.fresh(1, {sizes[0], groups}) &&
         call.fresh(2, {sizes[0], groups});
}

// (input, weight, bias, stride, padding, dilation, transposed, output_padding,
// groups)
bool shape_convolution(ShapeCall& call) {
  std::vector<Expr> input = call.tensor(0).sizes;
  std::vector<Expr> weight = call.tensor(1).sizes;
  if (input.size() != weight.size() || input.size() < 3) return false;
  bool transposed = call.boolean(6);
  std::vector<Expr> stride = call.integers(3), padding = call.integers(4),
                    dilation = call.integers(5), more = call.integers(7);
  Expr groups = call.integer(8);
  Expr taken = transposed ? weight[0] : weight[1] * groups;
  if (!decide(expr_eq(input[1], taken))) return false;
  std::vector<Expr> sizes = {input[0],
                             transposed ? weight[1] * groups : weight[0]};
  for (size_t i = 2; i < input.size(); ++i) {
    const Expr &kernel = weight[i], step = list_item(stride, i - 2, 1),
               pad = list_item(padding, i - 2, 0),
               spread = list_item(dilation, i - 2, 1);
    if (!decide(expr_lt(0, step)) || !decide(expr_lt(0, spread)) ||
        !decide(expr_le(0, pad)))
      return false;
    Expr count = transposed ? (input[i] - 1) * step + spread * (kernel - 1) -
                                  pad * 2 + list_item(more, i - 2, 0) + 1
                            : window_count(input[i], kernel, step, pad, spread);
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
  bool ceil = call.boolean(has_dilation ? 5 : 4);
  std::vector<int64_t> kernel = call.constants(1), stride = call.constants(2),
                       padding = call.constants(3), dilation;
  if (has_dilation) dilation = call.constants(4);
  size_t spatial = call.facts.name.find("2d") != std::string::npos ? 2 : 3;
  if (sizes.size() < spatial + 1) return false;
  size_t first = sizes.size() - spatial;
  for (size_t i = 0; i < spatial; ++i) {
    const Expr size = sizes[first + i];
    int64_t window = list_item(kernel, i, 1),
            step = list_item(stride, i, window), pad = list_item(padding, i, 0),
            spread = list_item(dilation, i, 1);
    if (step < 1) return false;
    Expr count = window_count(ceil ? size + Expr(step - 1) : size, window, step,
                              pad, spread);
    if (ceil && step > 1) {
      // The last window starts in the input or the padding before it.
      Expr starts = floor_div(size + Expr(pad - 1), Expr(step)) + 1;
      count = simplified(Expr::make(ExprOp::kMin, {count, starts}));
    }
    if (!decide(expr_lt(0, count))) return false;
    sizes[first + i] = count;
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
  for (size_t i = 0; i < call.metas.size(); ++i) {
    if (!call.fresh(i, sizes)) return false;
  }
  return true;
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

// [output, *states, history] and [a gradient each] (graph/ops/recurrent.h).
bool shape_recurrent(ShapeCall& call) {
  std::vector<Expr> input = call.tensor(0).sizes;
  std::vector<SymbolicShape> states = call.tensors(1);
  const Expr directions(call.boolean(8) ? 2 : 1);
  if (!call.fresh_contiguous(
          0, {input[0], input[1], states[0].sizes[2] * directions}))
    return false;
  for (size_t i = 0; i < states.size(); ++i)
    if (!call.fresh_contiguous(i + 1, states[i].sizes)) return false;
  return call.fresh_contiguous(states.size() + 1, {Expr(1)});
}

bool shape_recurrent_backward(ShapeCall& call) {
  std::vector<Expr> sizes = call.integers(3);
  size_t result = 0;
  auto next = sizes.begin();
  for (int64_t rank : call.constants(4)) {
    if (!call.fresh_contiguous(result++, {next, next + rank})) return false;
    next += rank;
  }
  return true;
}

// (weight, indices, offsets, ...) -> the bags and three tables. Which of them
// are filled follows from the mode; a size is one of those known here.
bool shape_embedding_bag(ShapeCall& call) {
  std::vector<Expr> weight = call.tensor(0).sizes;
  std::vector<Expr> indices = call.tensor(1).sizes;
  std::vector<Expr> offsets = call.tensor(2).sizes;
  if (weight.size() != 2 || indices.size() != 1 || offsets.size() != 1)
    return false;
  Expr bags = offsets[0];
  if (call.boolean(7)) bags = bags - 1;
  auto known_size = [&](int64_t size) -> std::optional<Expr> {
    if (size == 0) return Expr(0);
    std::optional<Expr> found;
    for (const Expr& each : {bags, offsets[0], indices[0]}) {
      if (hint_of(each) != size || (found && *found == each)) continue;
      // Two that are equal now: whichever is meant, it stays so.
      if (found && !decide(expr_eq(*found, each))) return std::nullopt;
      if (!found) found = each;
    }
    return found;
  };
  if (!call.fresh_contiguous(0, {bags, weight[1]})) return false;
  for (size_t i = 1; i < call.metas.size(); ++i) {
    std::vector<Expr> sizes = {bags, weight[1]};
    if (call.metas[i].dim() == 1) {
      std::optional<Expr> known = known_size(call.metas[i].size(0));
      if (!known) return false;
      sizes = {*known};
    }
    if (!call.fresh_contiguous(i, sizes)) return false;
  }
  return true;
}

// (query, key, ...) -> what is attended to, and the weights: of each head,
// their mean, or nothing.
bool shape_native_attention(ShapeCall& call) {
  std::vector<Expr> query = call.tensor(0).sizes, key = call.tensor(1).sizes;
  if (query.size() != 3 || key.size() != 3 || !call.fresh(0, query))
    return false;
  if (call.metas.size() < 2) return true;
  if (call.metas[1].dim() == 3)
    return call.fresh(1, {query[0], query[1], key[1]});
  return call.metas[1].dim() == 4 &&
         call.fresh(1, {query[0], call.integer(4), query[1], key[1]});
}

// (gradient, ..., num_weights, ...): of the table, unless it is sparse.
bool shape_embedding_bag_backward(ShapeCall& call) {
  std::vector<Expr> gradient = call.tensor(0).sizes;
  const int rows = argument_index(call, "num_weights");
  const int sparse = argument_index(call, "sparse");
  if (gradient.size() != 2 || rows < 0 || (sparse >= 0 && call.boolean(sparse)))
    return false;
  return call.fresh_contiguous(0, {call.integer(rows), gradient[1]});
}

// (v, g, dim): the weight, and a norm for each of `g`
bool shape_weight_norm(ShapeCall& call) {
  return call.fresh(0, call.tensor(0).sizes) &&
         call.fresh(1, call.tensor(1).sizes);
}

// (gradient, v, g, norms, dim)
bool shape_weight_norm_backward(ShapeCall& call) {
  return call.fresh(0, call.tensor(1).sizes) &&
         call.fresh(1, call.tensor(2).sizes);
}

// (self, dim): one half gates the other.
bool shape_glu(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(0).sizes;
  if (sizes.empty()) return false;
  Expr& size = sizes[wrap_dim(call.constant_or(1, -1), sizes.size())];
  if (!decide(expr_eq(mod(size, 2), 0))) return false;
  size = floor_div(size, 2);
  return call.fresh(0, sizes);
}

// (self, target, weight, reduction, ignore_index), a class for each place
bool shape_nll_loss2d(ShapeCall& call) {
  std::vector<Expr> target = call.tensor(1).sizes;
  if (call.constant(3) != 0) target.clear();
  return call.fresh_contiguous(0, target) && call.fresh_contiguous(1, {});
}

// (self, target, p, margin, weight, reduction): a loss for each row
bool shape_margin_loss(ShapeCall& call) {
  std::vector<Expr> self = call.tensor(0).sizes, sizes;
  if (self.size() == 2 && call.constant(5) == 0) sizes = {self[0]};
  return call.fresh_contiguous(0, sizes);
}

// (self, target, reduction): a loss for each row, and which of the classes of
// each are in its target
bool shape_multilabel_margin_loss(ShapeCall& call) {
  std::vector<Expr> self = call.tensor(0).sizes, target = call.tensor(1).sizes;
  if (self.size() != target.size() || self.size() > 2 ||
      !decide_same(self, target, self.size()))
    return false;
  std::vector<Expr> sizes;
  if (self.size() == 2 && call.constant(2) == 0) sizes = {self[0]};
  return call.fresh_contiguous(0, sizes) && call.fresh_contiguous(1, target);
}

// (data, ..., axis, ...): `lengths` or `offsets` say where along the axis, in
// each place of the dims before it, a segment ends
bool shape_segment_reduce(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(0).sizes;
  int lengths = argument_index(call, "lengths"),
      offsets = argument_index(call, "offsets"),
      axis = argument_index(call, "axis");
  if (lengths < 0 || offsets < 0 || axis < 0) return false;
  bool has_lengths = call.is_tensor(lengths);
  if (!has_lengths && !call.is_tensor(offsets)) return false;
  std::vector<Expr> ends = call.tensor(has_lengths ? lengths : offsets).sizes;
  size_t dim = wrap_dim(call.constant(axis), sizes.size());
  if (ends.size() != dim + 1 || sizes.size() <= dim ||
      !decide_same(sizes, ends, dim))
    return false;
  if (!has_lengths && !decide(expr_lt(1, ends[dim]))) return false;
  sizes[dim] = has_lengths ? ends[dim] : ends[dim] - 1;
  return call.fresh_contiguous(0, sizes);
}

// (gradient, output, data, ...)
bool shape_segment_reduce_backward(ShapeCall& call) {
  return call.fresh_contiguous(0, call.tensor(2).sizes);
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

// (tensors, dim, number of chunks): of each tensor so many chunks, the last one
// padded, side by side with those of the others
bool shape_chunk_cat(ShapeCall& call) {
  std::vector<SymbolicShape> parts = call.tensors(0);
  if (parts.empty() || parts[0].sizes.empty()) return false;
  const size_t dim = wrap_dim(call.constant(1), parts[0].sizes.size());
  const Expr count = call.integer(2);
  if (!decide(expr_lt(0, count))) return false;
  std::vector<Expr> sizes(parts[0].sizes.begin(), parts[0].sizes.begin() + dim);
  Expr width(0);
  for (const SymbolicShape& part : parts) {
    if (part.sizes.size() <= dim || !decide_same(part.sizes, sizes, dim))
      return false;
    std::vector<Expr> rest(part.sizes.begin() + dim + 1, part.sizes.end());
    width =
        width + floor_div(part.sizes[dim] + count - 1, count) * product(rest);
  }
  sizes.push_back(count);
  sizes.push_back(width);
  return call.fresh_contiguous(0, sizes);
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
  // No index at all fits whatever there is.
  for (const Expr& size : index) {
    if (size.is_const(0)) return call.fresh_contiguous(0, index);
  }
  if (self.size() != index.size() || self.empty()) return false;
  size_t dim = wrap_dim(call.constant(1), self.size());
  for (size_t d = 0; d < self.size(); ++d) {
    if (d != dim && !decide(expr_le(index[d], self[d]))) return false;
  }
  return call.fresh_contiguous(0, index);
}

namespace {

// Of self[indices]: the positions stand where the first index is, or first of
// all where there are dims between the indices.
std::optional<std::vector<Expr>> indexed_sizes(const ShapeCall& call,
                                               size_t indices) {
  std::vector<Expr> self = call.tensor(0).sizes, positions, before, after;
  bool any = false, adjacent = true;
  size_t last = 0, dim = 0;
  for (std::optional<at::Tensor> index :
       call.arguments[indices].toOptionalTensorList()) {
    if (dim >= self.size()) return std::nullopt;
    if (index && index->defined()) {
      // A mask has as many results as it has ones.
      if (index->scalar_type() == at::kBool ||
          index->scalar_type() == at::kByte) {
        return std::nullopt;
      }
      if (any && dim != last + 1) adjacent = false;
      last = dim;
      if (!broadcast(positions, shape_of(*index).sizes, &positions))
        return std::nullopt;
      any = true;
    } else {
      (any ? after : before).push_back(self[dim]);
    }
    dim++;
  }
  if (!any) return std::nullopt;
  after.insert(after.end(), self.begin() + dim, self.end());
  std::vector<Expr> sizes = adjacent ? before : positions;
  const std::vector<Expr>& next = adjacent ? positions : before;
  sizes.insert(sizes.end(), next.begin(), next.end());
  sizes.insert(sizes.end(), after.begin(), after.end());
  return sizes;
}

}  // namespace

bool shape_index(ShapeCall& call) {
  auto sizes = indexed_sizes(call, 1);
  return sizes && call.fresh(0, *sizes);
}

// (self, mask, indices, fill): what the mask says is filled
bool shape_masked_index(ShapeCall& call) {
  auto sizes = indexed_sizes(call, 2);
  if (!sizes || !broadcast(*sizes, call.tensor(1).sizes, &*sizes)) return false;
  return call.metas[0].is_contiguous() && call.fresh(0, *sizes);
}

// (self, mask, source)
bool shape_masked_scatter(ShapeCall& call) {
  std::vector<Expr> sizes;
  return broadcast(call.tensor(0).sizes, call.tensor(1).sizes, &sizes) &&
         call.fresh_contiguous(0, sizes);
}

bool shape_sizes_second(ShapeCall& call) {
  return call.fresh_contiguous(0, call.integers(1));
}

bool shape_sizes_third(ShapeCall& call) {
  return call.fresh_contiguous(0, call.integers(2));
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

// (self, offset, dim1, dim2): the last dim becomes a diagonal.
bool shape_diag_embed(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(0).sizes;
  if (sizes.empty()) return false;
  Expr size = sizes.back() + Expr(std::abs(call.constant_or(1, 0)));
  size_t rank = sizes.size() + 1;
  size_t a = wrap_dim(call.constant_or(2, -2), rank);
  size_t b = wrap_dim(call.constant_or(3, -1), rank);
  if (a == b) return false;
  sizes.pop_back();
  sizes.insert(sizes.begin() + std::min(a, b), size);
  sizes.insert(sizes.begin() + std::max(a, b), size);
  return call.fresh_contiguous(0, sizes);
}

bool shape_block_diag(ShapeCall& call) {
  Expr rows(0), columns(0);
  for (const SymbolicShape& block : call.tensors(0)) {
    size_t rank = block.sizes.size();
    if (rank > 2) return false;
    rows = rows + (rank == 2 ? block.sizes[0] : Expr(1));
    columns = columns + (rank > 0 ? block.sizes.back() : Expr(1));
  }
  return call.fresh_contiguous(0, {rows, columns});
}

// (self, k, dims)
bool shape_rot90(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(0).sizes;
  std::vector<int64_t> dims = call.constants(2);
  if (dims.size() != 2) return false;
  size_t a = wrap_dim(dims[0], sizes.size());
  size_t b = wrap_dim(dims[1], sizes.size());
  if (call.constant(1) % 2 != 0) std::swap(sizes[a], sizes[b]);
  return fresh_nested(call, 0, sizes);
}

}  // namespace framejit::graph
