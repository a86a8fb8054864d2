// One node while it is lowered: its arguments as rows want them, and its
// results. What a row does not take raises NotLowered.
//
// A row does what eager's kernel does, refusals included. What the kernel
// refuses for its arguments' types and sizes, the row does not take (require(),
// of(), ensure()); what depends on numbers of the call is a condition of the
// run; what depends on data is a Check of the body.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "backend/lowering/builder.h"
#include "graph/ir/ir.h"

namespace framejit::backend {

using ViewIndex = std::unordered_map<const graph::Value*, TensorView>;

class NodeLowering : public LoopBuilder {
 public:
  NodeLowering(const graph::Node& node, const ViewIndex& views,
               codegen::LoopGraph& graph, Conditions& conditions)
      : LoopBuilder(graph, conditions), node_(node), views_(views) {
    results_.resize(node.outputs.size());
  }
  // A call that a node is made of.
  NodeLowering(const graph::Node& node, NodeLowering& whole)
      : NodeLowering(node, whole.views_, whole.graph(), whole.conditions()) {}

  const graph::Node& node() const { return node_; }
  // ---- arguments; missing ones are the schema's defaults
  graph::Arg arg(size_t i) const;
  bool has(size_t i) const;  // is given, and not None
  bool is_tensor(size_t i) const;
  TensorView tensor(size_t i) const;
  std::vector<TensorView> tensors(size_t i) const;
  TensorView view_of(const graph::Value* value) const;
  std::optional<TensorView> optional_tensor(size_t i) const;
  const graph::TensorMeta& meta_of(size_t i) const;
  c10::ScalarType dtype_of(size_t i) const { return meta_of(i).dtype; }
  Expr integer(size_t i) const;  // an int, a symbol
  int64_t known_integer(size_t i) const;
  std::vector<Expr> integers(size_t i) const;
  bool flag(size_t i) const;
  std::string text(size_t i) const;
  // An int, a float or a bool, also one of the call; converted to the type.
  // Where that is wider than the result's, eager refuses what the result's does
  // not hold: wide_number() is for what eager takes as it is.
  Term number(Elements& elements, size_t i, codegen::DType type) const;
  Term wide_number(Elements& elements, size_t i, codegen::DType type) const;
  Expr number(size_t i) const;  // as it is; a bool is 0 or 1
  // A tensor's element as the value of a number argument: eager refuses one
  // that the type does not hold.
  Term number(Elements& elements, const TensorView& view,
              codegen::DType type) const;
  // A dim argument counted from the front.
  int dim(size_t i, int rank) const;
  std::vector<int> dims(size_t i, int rank) const;  // empty or None: all

  // ---- what eager's kernel asks of them
  void ensure_in_range(const Expr& value, codegen::DType type) const;
  // Eager subtracts by adding the negative of the number, which must be one.
  void ensure_has_negative(size_t i) const;
  void ensure_sizes(const std::vector<Expr>& a, const std::vector<Expr>& b,
                    const char* reason) const;
  // The given ones of these tensors have one type.
  void require_one_type(std::initializer_list<size_t> arguments) const;
  // An index is of int64, or of int32 too.
  void require_index(const TensorView& view, bool or_int32 = true) const;

  // ---- results
  const graph::TensorMeta& out(size_t i = 0) const {
    return node_.outputs[i]->meta;
  }
  codegen::DType out_type(size_t i = 0) const;
  void set(size_t i, TensorView view);
  // map() into memory that lies as eager's result i does.
  void set_map(size_t i, Elements elements, Term value);
  const std::vector<std::optional<TensorView>>& results() const {
    return results_;
  }

 private:
  const graph::Node& node_;
  const ViewIndex& views_;
  std::vector<std::optional<TensorView>> results_;
};

// The type that scalars of `type` are computed in: f32 for small floats.
codegen::DType compute_type(codegen::DType type);
codegen::DType known_type(c10::ScalarType type);  // NotLowered if there is none
// Of ints or floats: true or false. Not true of NaN.
Expr less(const Expr& a, const Expr& b);
Expr at_most(const Expr& a, const Expr& b);

using LowerFunction = void (*)(NodeLowering&);

}  // namespace framejit::backend
