#include "codegen/schedule/cost.h"

#include <algorithm>

namespace framejit::codegen {

int64_t TargetInfo::hint(const Expr& e) const {
  if (e.is_const()) return e.constant();
  std::vector<int> symbols;
  e.collect_symbols(&symbols);
  std::vector<int64_t> values = hints;
  if (!symbols.empty() && symbols.back() >= static_cast<int>(values.size()))
    values.resize(symbols.back() + 1, kUnknownSize);
  int64_t out;
  return e.try_evaluate(values.data(), &out) ? out : kUnknownSize;
}

int64_t TargetInfo::hint(const std::vector<Expr>& sizes) const {
  int64_t out = 1;
  for (const Expr& size : sizes) {
    int64_t factor = std::max<int64_t>(hint(size), 0);
    if (__builtin_mul_overflow(out, factor, &out)) return INT64_MAX;
  }
  return out;
}

int TargetInfo::size(const Body& body) const {
  int out = 0;
  for (const ScalarNode& node : body.nodes()) {
    const ScalarId first = node.in[0];
    out += node_size && first != kNoScalar
               ? node_size(node.op, body.type(first))
               : 1;
  }
  return out;
}

int op_cost(ScalarOp op, DType type) {
  switch (op) {
    case ScalarOp::kConst:
    case ScalarOp::kIndex:
    case ScalarOp::kNumber:
    case ScalarOp::kRow:
    case ScalarOp::kLoad:
    case ScalarOp::kBitcast:
      return 0;
    case ScalarOp::kDiv:
    case ScalarOp::kSqrt:
      return 4;
    case ScalarOp::kMul:
      return type == DType::kI64 ? 3 : 1;
    case ScalarOp::kTruncDiv:
    case ScalarOp::kFloorDiv:
    case ScalarOp::kFmod:
    case ScalarOp::kMod:
      return 16;
    case ScalarOp::kPow:
    case ScalarOp::kHypot:
    case ScalarOp::kAtan2:
    case ScalarOp::kLgamma:
      return 40;
    default:
      break;
  }
  return op >= ScalarOp::kExp && op <= ScalarOp::kErfc ? 14 : 1;
}

int body_cost(const Body& body) {
  int cost = 0;
  for (const ScalarNode& node : body.nodes())
    cost += op_cost(node.op, node.type);
  return cost;
}

bool has_check(const Body& body) {
  return std::any_of(
      body.nodes().begin(), body.nodes().end(),
      [](const ScalarNode& node) { return node.op == ScalarOp::kCheck; });
}

std::vector<ScalarId> checks_of(const Body& body) {
  std::vector<ScalarId> out;
  for (size_t id = 0; id < body.nodes().size(); ++id)
    if (body.nodes()[id].op == ScalarOp::kCheck)
      out.push_back(static_cast<ScalarId>(id));
  return out;
}

int pure_loop(const Index& index) {
  if (index.data != kNoScalar || !index.offset.is_const(0)) return -1;
  int found = -1;
  for (size_t loop = 0; loop < index.coefficients.size(); ++loop) {
    const Expr& coefficient = index.coefficients[loop];
    if (coefficient.is_const(0)) continue;
    if (found >= 0 || !coefficient.is_const(1)) return -1;
    found = static_cast<int>(loop);
  }
  return found;
}

Index loop_index(int loop, size_t loops) {
  Index out;
  out.coefficients.resize(loops);
  out.coefficients[loop] = 1;
  return out;
}

int64_t elements_read(const LoopGraph& graph, const Access& access,
                      const std::vector<Expr>& loops,
                      const TargetInfo& target) {
  int64_t points = 1;
  for (size_t loop = 0; loop < loops.size(); ++loop) {
    bool matters = false;
    for (const Index& index : access.indices)
      matters |=
          !index.coefficients[loop].is_const(0) || index.data != kNoScalar;
    if (!matters) continue;
    if (__builtin_mul_overflow(points, target.hint(loops[loop]), &points))
      points = INT64_MAX;
  }
  return std::min(points, target.hint(graph.buffers[access.buffer].sizes));
}

bool walks_columns(const LoopGraph& graph, const Access& access,
                   const std::vector<char>& is_inner) {
  const Buffer& buffer = graph.buffers[access.buffer];
  bool moves_inside = false, is_beside = false;
  for (size_t i = 0; i < access.indices.size(); ++i) {
    const Index& index = access.indices[i];
    for (size_t loop = 0; loop < is_inner.size(); ++loop) {
      if (index.coefficients[loop].is_const(0)) continue;
      if (is_inner[loop]) {
        moves_inside = true;
      } else {
        is_beside |= index.coefficients[loop].is_const(1) &&
                     buffer.strides[i].is_const(1);
      }
    }
  }
  return moves_inside && is_beside;
}

}  // namespace framejit::codegen
