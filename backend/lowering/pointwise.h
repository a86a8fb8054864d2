// Elementwise operators: the rows of pointwise.def.
#pragma once

#include "backend/lowering/node.h"

namespace framejit::backend {

enum class PointwiseTypes : uint8_t { kPromote, kFloat };

struct PointwiseRow {
  const char* name;
  PointwiseTypes types;
  const char* takes;
  const char* arguments;
};

// The operands of an elementwise node, read at the loops of its result.
class PointwiseOperands {
 public:
  PointwiseOperands(NodeLowering& node, const PointwiseRow& row);
  Term operand(size_t i);
  Term optional(size_t i) { return node_.has(i) ? operand(i) : Term(); }
  // What a value is kept above or below; empty: nothing. What a number that is
  // NaN does differs between versions of torch, so it is ATen's.
  Term bound(size_t i);
  Term number(size_t i);
  Elements take() { return std::move(elements_); }

 private:
  NodeLowering& node_;
  const PointwiseRow& row_;
  Elements elements_;
  codegen::DType common_, type_;
};

// What these arguments promote to (tensors with dims, without, numbers).
c10::ScalarType promoted_type(const NodeLowering& node,
                              const std::vector<size_t>& arguments);

}  // namespace framejit::backend
