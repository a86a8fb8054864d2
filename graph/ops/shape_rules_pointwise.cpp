#include <c10/core/MemoryFormat.h>

#include <algorithm>

#include "graph/ops/meta_inference.h"
#include "graph/ops/shape_families.h"
#include "graph/ops/shape_parts.h"
#include "graph/tensors/sym_node.h"

namespace framejit::graph {
namespace {

bool all_fresh(ShapeCall& call, const std::vector<Expr>& sizes) {
  for (size_t i = 0; i < call.metas.size(); ++i) {
    if (!call.fresh(i, sizes)) return false;
  }
  return true;
}

}  // namespace

bool shape_pointwise(ShapeCall& call) {
  std::vector<Expr> sizes;
  bool first = true;
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    if (!call.is_tensor(i)) continue;
    std::vector<Expr> other = call.tensor(i).sizes;
    if (first) {
      sizes = std::move(other);
    } else if (!broadcast(sizes, other, &sizes)) {
      return false;
    }
    first = false;
  }
  return !first && all_fresh(call, sizes);
}

bool shape_like_first(ShapeCall& call) {
  int format = argument_index(call, "memory_format");
  if (format >= 0 && call.has(format)) {
    auto value = static_cast<c10::MemoryFormat>(call.arguments[format].toInt());
    if (value != c10::MemoryFormat::Contiguous &&
        value != c10::MemoryFormat::Preserve) {
      return false;
    }
  }
  return all_fresh(call, call.tensor(0).sizes);
}

bool shape_like_second(ShapeCall& call) {
  return all_fresh(call, call.tensor(1).sizes);
}

bool shape_reduction(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(0).sizes;
  int dim_argument = argument_index(call, "dim");
  int keep_argument = argument_index(call, "keepdim");
  bool keep = keep_argument >= 0 && call.boolean(keep_argument);
  std::vector<int64_t> dims;
  if (dim_argument >= 0) dims = call.constants(dim_argument);
  std::vector<bool> reduced(sizes.size(), dims.empty());
  for (int64_t dim : dims) {
    if (!sizes.empty()) reduced[wrap_dim(dim, sizes.size())] = true;
  }
  std::vector<Expr> result;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (!reduced[i]) {
      result.push_back(sizes[i]);
    } else if (keep) {
      result.emplace_back(1);
    }
  }
  return all_fresh(call, result);
}

bool shape_scalar(ShapeCall& call) { return all_fresh(call, {}); }

bool shape_topk(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(0).sizes;
  if (sizes.empty()) return false;
  Expr count = call.integer(1);
  size_t dim = wrap_dim(call.constant_or(2, -1), sizes.size());
  if (!decide(expr_le(count, sizes[dim]))) return false;
  sizes[dim] = count;
  return all_fresh(call, sizes);
}

// (self, count)
bool shape_multinomial(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(0).sizes;
  if (sizes.empty()) return false;
  sizes.back() = call.integer(1);
  return call.fresh_contiguous(0, sizes);
}

}  // namespace framejit::graph
