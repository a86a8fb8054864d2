#include <algorithm>

#include "graph/ops/meta_inference.h"
#include "graph/ops/shape_families.h"
#include "graph/ops/shape_parts.h"
#include "graph/tensors/sym_node.h"

namespace framejit::graph {
namespace {

// [n, k] x [k, m], or with a batch in front: the inner sizes are equal.
bool multiply(ShapeCall& call, size_t a, size_t b, size_t rank) {
  std::vector<Expr> x = call.tensor(a).sizes, y = call.tensor(b).sizes;
  if (x.size() != rank || y.size() != rank) return false;
  if (!decide(expr_eq(x[rank - 1], y[rank - 2]))) return false;
  std::vector<Expr> sizes = x;
  sizes[rank - 1] = y[rank - 1];
  if (rank == 3 && !decide(expr_eq(x[0], y[0]))) return false;
  return call.fresh_contiguous(0, sizes);
}

// The added tensor broadcasts to the product.
bool multiply_and_add(ShapeCall& call, size_t rank) {
  if (!multiply(call, 1, 2, rank)) return false;
  std::vector<Expr> sizes = call.shapes[0].sizes, result;
  return broadcast(sizes, call.tensor(0).sizes, &result) && result == sizes;
}

// batch x heads x length x depth results whose memory is batch x length x
// heads x depth.
void heads_inside(ShapeCall& call, size_t result, std::vector<Expr> sizes) {
  const Expr &heads = sizes[1], &length = sizes[2], &depth = sizes[3];
  call.view(result, {sizes,
                     {length * heads * depth, depth, heads * depth, Expr(1)},
                     Expr(0)});
}

}  // namespace

bool shape_mm(ShapeCall& call) { return multiply(call, 0, 1, 2); }
bool shape_bmm(ShapeCall& call) { return multiply(call, 0, 1, 3); }
bool shape_addmm(ShapeCall& call) { return multiply_and_add(call, 2); }
bool shape_baddbmm(ShapeCall& call) { return multiply_and_add(call, 3); }

bool shape_mv(ShapeCall& call) {
  std::vector<Expr> matrix = call.tensor(0).sizes;
  std::vector<Expr> vector = call.tensor(1).sizes;
  if (matrix.size() != 2 || vector.size() != 1) return false;
  return decide(expr_eq(matrix[1], vector[0])) &&
         call.fresh_contiguous(0, {matrix[0]});
}

// (self, matrix, vector)
bool shape_addmv(ShapeCall& call) {
  std::vector<Expr> matrix = call.tensor(1).sizes;
  std::vector<Expr> vector = call.tensor(2).sizes;
  if (matrix.size() != 2 || vector.size() != 1) return false;
  std::vector<Expr> result;
  return decide(expr_eq(matrix[1], vector[0])) &&
         broadcast({matrix[0]}, call.tensor(0).sizes, &result) &&
         result.size() == 1 && result[0] == matrix[0] &&
         call.fresh_contiguous(0, result);
}

// (self, vector, vector)
bool shape_addr(ShapeCall& call) {
  std::vector<Expr> a = call.tensor(1).sizes, b = call.tensor(2).sizes;
  if (a.size() != 1 || b.size() != 1) return false;
  std::vector<Expr> sizes = {a[0], b[0]}, result;
  return broadcast(sizes, call.tensor(0).sizes, &result) && result == sizes &&
         fresh_nested(call, 0, result);
}

// (self, batch, batch)
bool shape_addbmm(ShapeCall& call) {
  std::vector<Expr> a = call.tensor(1).sizes, b = call.tensor(2).sizes;
  if (a.size() != 3 || b.size() != 3 || !decide(expr_eq(a[0], b[0])) ||
      !decide(expr_eq(a[2], b[1])))
    return false;
  std::vector<Expr> sizes = {a[1], b[2]}, result;
  return broadcast(sizes, call.tensor(0).sizes, &result) && result == sizes &&
         call.fresh_contiguous(0, result);
}

bool shape_dot(ShapeCall& call) {
  std::vector<Expr> a = call.tensor(0).sizes, b = call.tensor(1).sizes;
  if (a.size() != 1 || b.size() != 1) return false;
  return decide(expr_eq(a[0], b[0])) && call.fresh_contiguous(0, {});
}

namespace {

// Each head of keys and values serves as many of the queries.
bool shares_heads(const Expr& queries, const Expr& keys) {
  return decide(expr_eq(queries, keys)) ||
         (decide(expr_lt(0, keys)) && decide(expr_eq(mod(queries, keys), 0)));
}

}  // namespace

bool shape_attention_cpu(ShapeCall& call) {
  std::vector<Expr> query = call.tensor(0).sizes, key = call.tensor(1).sizes,
                    value = call.tensor(2).sizes;
  if (query.size() != 4 || call.metas.size() != 2) return false;
  if (!decide(expr_eq(query[0], key[0])) || !shares_heads(query[1], key[1]) ||
      !decide(expr_eq(key[1], value[1])) ||
      !decide(expr_eq(query[3], key[3])) ||
      !decide(expr_eq(key[2], value[2]))) {
    return false;
  }
  if (!call.fresh(0, query)) return false;
  call.view(1, {{query[0], query[1], query[2]},
                {query[2] * query[1], Expr(1), query[1]},
                Expr(0)});
  return true;
}

bool shape_attention_cpu_backward(ShapeCall& call) {
  if (call.metas.size() != 3) return false;
  for (size_t i = 0; i < 3; ++i) {
    heads_inside(call, i, call.tensor(1 + i).sizes);
  }
  return true;
}

}  // namespace framejit::graph
