// Exact symbolic sizes of an operation's results.
//
// Inference runs on concrete hints and so cannot say how a size depends on a
// symbol, nor which comparisons it made. A shape rule does: it computes sizes
// and strides as expressions, and decides (sym_node.h) whatever the operation
// compares, so that broadcasting, clamping and the like become guards. One
// function per family (shape_families.h), named by the rows of the op table. An
// operation without a rule specialises: every symbol it saw is pinned to its
// hint.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <string>
#include <vector>

#include "graph/tensors/trace_tensor.h"

namespace framejit::graph {

struct OpFacts;

// One call, as a rule sees it.
class ShapeCall {
 public:
  ShapeCall(const OpFacts& facts, c10::ArrayRef<c10::IValue> arguments,
            std::vector<at::Tensor> results);

  // ---- arguments, by position
  bool has(size_t i) const { return !arguments[i].isNone(); }
  bool is_tensor(size_t i) const;  // a defined tensor
  SymbolicShape tensor(size_t i) const;
  std::vector<SymbolicShape> tensors(size_t i) const;  // a tensor list
  Expr integer(size_t i) const;  // int, SymInt, integral Scalar
  Expr integer_or(size_t i, int64_t value) const;
  int64_t constant(size_t i) const;  // specialises
  int64_t constant_or(size_t i, int64_t value) const;
  bool boolean(size_t i, bool otherwise = false) const;
  std::vector<Expr> integers(size_t i) const;  // a list, or one int
  std::vector<int64_t> constants(size_t i) const;

  // ---- results. `metas` are the companions; a rule fills `shapes`.
  void view(size_t result, SymbolicShape shape);
  // A new tensor: strides follow the companion's layout. False: the layout
  // cannot be told at other sizes.
  bool fresh(size_t result, std::vector<Expr> sizes);
  bool fresh_contiguous(size_t result, std::vector<Expr> sizes);

  const OpFacts& facts;
  c10::ArrayRef<c10::IValue> arguments;
  std::vector<at::Tensor> metas;
  std::vector<SymbolicShape> shapes;

 private:
  bool inputs_are_contiguous() const;
};

// False: the rule does not cover this call.
using ShapeRuleFunction = bool (*)(ShapeCall& call);
// Any symbolic size or integer among the arguments?
bool is_symbolic_call(c10::ArrayRef<c10::IValue> arguments);
// Fills the shapes of all results: by the rule, or by pinning every symbol.
void infer_shapes(ShapeCall& call);

// How often a rule disagreed with the companion (and was overruled): tests
// expect none.
int64_t shape_rule_mismatches();

// ---- shared by the families
Expr normalised_dim(const Expr& index, const Expr& size);  // Python's negative
int64_t wrap_dim(int64_t dim, size_t rank);
// The first `count` sizes are the same in both, or a guard says that they are
// not.
bool decide_same(const std::vector<Expr>& a, const std::vector<Expr>& b,
                 size_t count);
// Broadcast of two size lists, with the guards that the result needs.
bool broadcast(const std::vector<Expr>& a, const std::vector<Expr>& b,
               std::vector<Expr>* result);
Expr product(const std::vector<Expr>& sizes);

}  // namespace framejit::graph
