// What rows of the lowering write with: definitions over views of buffers.
//
// A TensorView is a tensor as loops see it: elements of a buffer at an index
// map. Elements is the body of one definition while it is written; finishing it
// (map, reduce, scan, update) gives the views of what it defines.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "backend/lowering/term.h"
#include "codegen/loops/loops.h"

namespace framejit::backend {

// A case that a row does not take: the node becomes an extern.
struct NotLowered {
  std::string reason;
};
inline void require(bool condition, const char* reason) {
  if (!condition) throw NotLowered{reason};
}

// What must be true of the symbols of a call for the loops to be run.
struct Conditions {
  std::vector<Expr> all;
  // Values of the symbols that were seen; a condition that is false of them
  // would be false of most calls, so that no row relies on it.
  std::vector<int64_t> hints;

  bool holds_when_seen(const Expr& condition) const;
};

// View dims -> buffer dims: coefficients are of the view's dims.
struct TensorView {
  codegen::BufferId buffer = codegen::kNoBuffer;
  codegen::DType type = codegen::DType::kF32;
  std::vector<Expr> sizes;
  std::vector<codegen::Index> map;
  // Elements that no scalar program reads (complex): for externs only.
  bool is_opaque = false;

  int rank() const { return static_cast<int>(sizes.size()); }
};

class LoopBuilder;

class Elements {
 public:
  Elements(LoopBuilder& builder, std::vector<Expr> loops);

  LoopBuilder& builder() { return builder_; }
  const std::vector<Expr>& loops() const { return definition_->loops; }
  int rank() const { return static_cast<int>(loops().size()); }

  // Indices: affine in the loops, or data.
  codegen::Index at_loop(int loop, Expr coefficient = 1, Expr offset = 0);
  codegen::Index at(Expr constant);
  codegen::Index at_data(Term i64);
  // Loops first, first + 1, ...: of a view with so many dims.
  std::vector<codegen::Index> at_loops(int first, int count);

  Term load(const TensorView& view, const std::vector<codegen::Index>& indices,
            Term when = {});
  // One for each point of the loops; dims of size 1 are broadcast.
  Term load_broadcast(const TensorView& view);
  Term number(const Expr& value);              // i64, or f64
  Term loop(int loop);                         // i64
  Term value_of(const codegen::Index& index);  // i64
  Term constant(codegen::DType type, double value);
  Term integer(codegen::DType type, int64_t value);

 private:
  friend class LoopBuilder;
  LoopBuilder& builder_;
  // Not within this object: Terms point to its body.
  std::unique_ptr<codegen::Definition> definition_;
};

class LoopBuilder {
 public:
  LoopBuilder(codegen::LoopGraph& graph, Conditions& conditions)
      : graph_(graph), conditions_(conditions) {}
  codegen::LoopGraph& graph() { return graph_; }
  Conditions& conditions() const { return conditions_; }

  // ---- what a row takes for granted of the call
  void ensure(const Expr& condition, const char* reason) const;
  void ensure_equal(const Expr& a, const Expr& b, const char* reason) const;

  // ---- definitions. strides: of the memory; contiguous if not given.
  TensorView map(Elements elements, Term value, codegen::DType type,
                 const std::vector<Expr>* strides = nullptr);
  TensorView map(Elements elements, Term value) {
    return map(std::move(elements), value, value.type());
  }
  std::vector<TensorView> reduce(Elements elements, int reduced,
                                 codegen::Combiner combiner, Term value);
  TensorView scan(Elements elements, codegen::Combiner combiner, Term value,
                  const std::vector<Expr>* strides = nullptr);
  // base without a buffer: nothing is there yet, of base.sizes and base.type,
  // which will lie as these strides say.
  TensorView update(Elements elements, const TensorView& base,
                    const std::vector<codegen::Index>& target, Term value,
                    std::optional<codegen::Combiner> combiner = {},
                    const std::vector<Expr>* strides_of_nothing = nullptr);
  // base with `part` where `seen`, a view of it, sees it: if part is `seen`
  // after some updates, those updates of base. (x[i][j] = y, in functional
  // form, puts y into a copy of x[i], and that into one of x.)
  std::optional<TensorView> put_back(const TensorView& base,
                                     const TensorView& seen,
                                     const TensorView& part);
  TensorView input(codegen::DType type, std::vector<Expr> sizes,
                   std::vector<Expr> strides, std::string name);

  TensorView copy(const TensorView& view, codegen::DType type,
                  const std::vector<Expr>* strides = nullptr);

  // ---- memory
  TensorView whole(codegen::BufferId buffer);
  // The view as a buffer of its own, an alias. It lies in memory where these
  // strides say, if they are given: otherwise, or where it overlaps, it is
  // copied.
  codegen::BufferId buffer_of(const TensorView& view,
                              const std::vector<Expr>* strides = nullptr);
  // The memory that the view sees: where its first element is, from the root's
  // first, and the distance of elements along each dim.
  struct Memory {
    codegen::BufferId root;
    Expr offset;
    std::vector<Expr> strides;
  };
  Memory memory_of(const TensorView& view) const;
  TensorView alias(const TensorView& of, std::vector<Expr> sizes,
                   std::vector<Expr> strides, Expr offset);

  // ---- views
  // dims of the result, as indices over the result's dims, one for each of
  // `view`'s.
  static TensorView reindex(const TensorView& view, std::vector<Expr> sizes,
                            const std::vector<codegen::Index>& indices);

 private:
  friend class Elements;
  codegen::BufferId add_buffer(codegen::DType type, std::vector<Expr> sizes,
                               const std::vector<Expr>* strides);
  codegen::LoopGraph& graph_;
  Conditions& conditions_;
};

// An index over `count` dims.
codegen::Index index_of(int count, Expr offset = 0);
codegen::Index index_along(int count, int dim, Expr coefficient = 1,
                           Expr offset = 0);
// Expressions that are known to be equal: structurally.
bool same_size(const Expr& a, const Expr& b);
Expr product(const std::vector<Expr>& sizes);

}  // namespace framejit::backend
