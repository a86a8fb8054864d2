// Decompositions, solvers, distances and transforms: batches of matrices.
#include <algorithm>
#include <map>

#include "graph/ops/meta_inference.h"
#include "graph/ops/shape_families.h"
#include "graph/ops/shape_parts.h"
#include "graph/tensors/sym_node.h"

namespace framejit::graph {
namespace {

// What has no elements is contiguous however its strides are.
bool fresh_matrix(ShapeCall& call, size_t result,
                  const std::vector<Expr>& sizes) {
  return (call.metas[result].is_contiguous() &&
          call.fresh_contiguous(result, sizes)) ||
         fresh_nested(call, result, sizes);
}

// The sizes of an operator's tensors, written like "*mn,*nk->*mk": a letter is
// a size, the same one wherever it stands; * are the dims before, which are
// broadcast; s is the smaller one of m and n.
class Letters {
 public:
  explicit Letters(ShapeCall& call) : call_(call) {}

  // tensors: the arguments that `pattern` is about.
  bool apply(std::string_view pattern, std::initializer_list<size_t> tensors) {
    size_t arrow = pattern.find("->");
    std::string_view inputs = pattern.substr(0, arrow);
    for (size_t i : tensors) {
      if (!call_.is_tensor(i) || !bind(next(&inputs), call_.tensor(i).sizes))
        return false;
    }
    if (pattern.find('s') != std::string_view::npos) {
      Expr m = sizes_.at('m'), n = sizes_.at('n');
      sizes_['s'] = m == n || decide(expr_le(m, n)) ? m : n;
    }
    std::string_view results = pattern.substr(arrow + 2);
    for (size_t i = 0; i < call_.metas.size(); ++i) {
      if (results.empty()) return false;
      std::vector<Expr> sizes = sizes_of(next(&results));
      if (!fresh_matrix(call_, i, sizes)) return false;
    }
    return results.empty();
  }

 private:
  static std::string_view next(std::string_view* list) {
    size_t end = std::min(list->find(','), list->size());
    std::string_view item = list->substr(0, end);
    list->remove_prefix(std::min(end + 1, list->size()));
    return item;
  }

  bool bind(std::string_view letters, const std::vector<Expr>& sizes) {
    letters.remove_prefix(1);
    if (sizes.size() < letters.size()) return false;
    size_t before = sizes.size() - letters.size();
    for (size_t i = 0; i < letters.size(); ++i) {
      const Expr& size = sizes[before + i];
      auto [known, fresh] = sizes_.emplace(letters[i], size);
      if (!fresh && !decide(expr_eq(known->second, size))) return false;
    }
    std::vector<Expr> batch(sizes.begin(), sizes.begin() + before);
    return broadcast(batch_, batch, &batch_);
  }

  std::vector<Expr> sizes_of(std::string_view letters) const {
    if (letters == "0") return {Expr(0)};
    letters.remove_prefix(1);
    std::vector<Expr> sizes = batch_;
    for (char letter : letters) sizes.push_back(sizes_.at(letter));
    return sizes;
  }

  ShapeCall& call_;
  std::map<char, Expr> sizes_;
  std::vector<Expr> batch_;
};

bool matrices(ShapeCall& call, std::string_view pattern,
              std::initializer_list<size_t> tensors = {0}) {
  return Letters(call).apply(pattern, tensors);
}

}  // namespace

bool shape_square(ShapeCall& call) { return matrices(call, "*nn->*nn"); }
bool shape_square_and_info(ShapeCall& call) {
  return matrices(call, "*nn->*nn,*");
}
bool shape_determinant(ShapeCall& call) {
  return matrices(call, "*nn->*,*nn,*n");
}
bool shape_log_determinant(ShapeCall& call) {
  return matrices(call, "*nn->*,*,*nn,*n");
}
bool shape_eig(ShapeCall& call) { return matrices(call, "*nn->*n,*nn"); }

// (self, which triangle, with vectors)
bool shape_eigh(ShapeCall& call) {
  return matrices(call, call.boolean(2, true) ? "*nn->*n,*nn" : "*nn->*n,0");
}

bool shape_lu_factor(ShapeCall& call) {
  return matrices(call, "*mn->*mn,*s,*");
}

// (self, pivot)
bool shape_lu(ShapeCall& call) {
  return matrices(
      call, call.boolean(1, true) ? "*mn->*mm,*ms,*sn" : "*mn->0,*ms,*sn");
}

// (LU, pivots, with data, with pivots)
bool shape_lu_unpack(ShapeCall& call) {
  bool data = call.boolean(2, true), pivots = call.boolean(3, true);
  return matrices(call, data ? (pivots ? "*mn->*mm,*ms,*sn" : "*mn->0,*ms,*sn")
                             : (pivots ? "*mn->*mm,0,0" : "*mn->0,0,0"));
}

bool shape_qr(ShapeCall& call) {
  std::string mode(call.arguments[1].toStringRef());
  if (mode == "reduced") return matrices(call, "*mn->*ms,*sn");
  if (mode == "complete") return matrices(call, "*mn->*mm,*mn");
  return matrices(call, "*mn->0,*sn");
}

bool shape_geqrf(ShapeCall& call) { return matrices(call, "*mn->*mn,*s"); }

// (self, full_matrices, with vectors)
bool shape_svd(ShapeCall& call) {
  if (!call.boolean(2, true)) return matrices(call, "*mn->0,*s,0");
  return matrices(call,
                  call.boolean(1) ? "*mn->*mm,*s,*nn" : "*mn->*ms,*s,*sn");
}

bool shape_pinv(ShapeCall& call) { return matrices(call, "*mn->*nm"); }

// (A, B, left): B of one dim less is a batch of vectors, where it has as many
// as there are matrices.
bool shape_solve(ShapeCall& call) {
  std::vector<Expr> a = call.tensor(0).sizes, b = call.tensor(1).sizes;
  if (!call.boolean(2, true) || b.empty()) return false;
  const bool vectors = b.size() == 1 || (b.size() + 1 == a.size() &&
                                         decide_same(a, b, b.size()));
  if (vectors) return matrices(call, "*nn,*n->*n,*nn,*n,*", {0, 1});
  return matrices(call, "*nn,*nk->*nk,*nn,*n,*", {0, 1});
}

// (A, B, upper, left)
bool shape_solve_triangular(ShapeCall& call) {
  return matrices(call, call.boolean(3, true) ? "*nn,*nk->*nk" : "*nn,*kn->*kn",
                  {0, 1});
}

// (B, factor)
bool shape_cholesky_solve(ShapeCall& call) {
  return matrices(call, "*nk,*nn->*nk", {0, 1});
}

// (LU, pivots, B, left)
bool shape_lu_solve(ShapeCall& call) {
  return matrices(call,
                  call.boolean(3, true) ? "*nn,*n,*nk->*nk" : "*nn,*n,*kn->*kn",
                  {0, 1, 2});
}

// (LD, pivots, B)
bool shape_ldl_solve(ShapeCall& call) {
  return matrices(call, "*nn,*n,*nk->*nk", {0, 1, 2});
}

// (B, A, which triangle, ...): the solution and a copy of A
bool shape_triangular_solve(ShapeCall& call) {
  return matrices(call, "*nk,*nn->*nk,*nn", {0, 1});
}

// (columns, tau): as many reflections as tau has, of as many rows or fewer
bool shape_householder_product(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(0).sizes, tau = call.tensor(1).sizes;
  if (sizes.size() < 2 || tau.size() + 1 != sizes.size()) return false;
  const Expr &rows = sizes[tau.size() - 1], &columns = sizes[tau.size()];
  return decide(expr_le(columns, rows)) &&
         decide(expr_le(tau.back(), columns)) &&
         matrices(call, "*mn,*k->*mn", {0, 1});
}

// (columns, tau, other, left, transpose)
bool shape_ormqr(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(0).sizes, tau = call.tensor(1).sizes;
  if (sizes.size() < 2 || tau.empty()) return false;
  bool left = call.boolean(3, true);
  return decide(expr_le(tau.back(), sizes.back())) &&
         decide(expr_le(tau.back(), sizes[sizes.size() - 2])) &&
         matrices(call, left ? "*mk,*t,*mn->*mn" : "*mk,*t,*nm->*nm",
                  {0, 1, 2});
}

bool shape_cdist(ShapeCall& call) {
  return matrices(call, "*pm,*rm->*pr", {0, 1});
}

// The pairs of rows.
bool shape_pdist(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(0).sizes;
  if (sizes.size() != 2) return false;
  Expr pairs = floor_div(sizes[0] * (sizes[0] - 1), 2);
  return call.fresh_contiguous(0, {pairs});
}

// (a, b, c, expand_a, expand_b, expand_c, sum_dims): the product of all three,
// each with new dims of size 1, summed.
bool shape_trilinear(ShapeCall& call) {
  std::vector<Expr> sizes;
  for (size_t i = 0; i < 3; ++i) {
    std::vector<Expr> other = call.tensor(i).sizes;
    for (int64_t dim : call.constants(3 + i)) {
      if (dim < 0 || static_cast<size_t>(dim) > other.size()) return false;
      other.insert(other.begin() + dim, Expr(1));
    }
    if (i == 0) {
      sizes = std::move(other);
    } else if (!broadcast(sizes, other, &sizes)) {
      return false;
    }
  }
  std::vector<int64_t> summed = call.constants(6);
  std::vector<Expr> result;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (std::ranges::find(summed, static_cast<int64_t>(i)) == summed.end())
      result.push_back(sizes[i]);
  }
  return call.fresh_contiguous(0, result);
}

// _fft_r2c(self, dims, normalization, onesided)
// _fft_c2r(self, dims, normalization, last_dim_size)
// _fft_c2c(self, dims, normalization, forward)
bool shape_fft(ShapeCall& call) {
  std::vector<Expr> sizes = call.tensor(0).sizes;
  std::vector<int64_t> dims = call.constants(1);
  if (dims.empty() || sizes.empty()) return false;
  Expr& last = sizes[wrap_dim(dims.back(), sizes.size())];
  if (call.facts.name == "aten::_fft_c2r") {
    last = call.integer(3);
  } else if (call.facts.name == "aten::_fft_r2c" && call.boolean(3)) {
    last = floor_div(last, 2) + 1;
  }
  return fresh_matrix(call, 0, sizes);
}

}  // namespace framejit::graph
