#include "codegen/legalise/expand.h"

#include <algorithm>
#include <map>

#include "codegen/scalar/simplify.h"

namespace framejit::codegen {

namespace {

// The rows of named functions, but for sqrt, which is an instruction.
bool is_named_function(ScalarOp op) {
  return op > ScalarOp::kSqrt && op <= ScalarOp::kHypot;
}

}  // namespace

namespace {

// kept: casts that stay; none: of no node.
Body expand_but(const std::vector<char>& kept, const Body& body,
                const std::vector<ScalarId*>& roots, Expansion how) {
  const bool in_libm = how.arithmetic.functions == Functions::kLibm;
  return rewrite(
      body, roots, [&](Body& to, const ScalarNode& node, const auto& in) {
        const auto id = static_cast<size_t>(&node - body.nodes().data());
        const bool stays = (!kept.empty() && kept[id]) ||
                           (in_libm && is_named_function(node.op));
        ScalarId known =
            stays ? kNoScalar
            : node.op == ScalarOp::kCast
                ? expand_cast(to, node.type, in[0])
                : expand_operation(to, node.op, in, how.word_tables);
        return known != kNoScalar
                   ? known
                   : emit_simplified(to, node.op, node.type, in, node.payload);
      });
}

// An f32 made a bf16 or f16 and a float again is the f32.
Body without_rounding_between(const Body& body,
                              const std::vector<ScalarId*>& roots) {
  return rewrite(
      body, roots, [&](Body& to, const ScalarNode& node, const auto& in) {
        const bool widens =
            node.op == ScalarOp::kCast &&
            (node.type == DType::kF32 || node.type == DType::kF64) &&
            is_small_float(to.type(in[0]));
        if (widens) {
          const ScalarNode& narrow = to.node(in[0]);
          if (narrow.op == ScalarOp::kCast &&
              to.type(narrow.in[0]) == DType::kF32)
            return emit_simplified(to, ScalarOp::kCast, node.type,
                                   {narrow.in[0], -1, -1});
        }
        return emit_simplified(to, node.op, node.type, in, node.payload);
      });
}

// By node: an f32 made a bf16 that nothing but stores reads.
std::vector<char> stored_bf16(const Stage& stage) {
  const auto& nodes = stage.body.nodes();
  std::vector<char> found(nodes.size());
  for (const Store& store : stage.stores) {
    if (store.value == kNoScalar || store.combiner) continue;
    const ScalarNode& node = nodes[store.value];
    found[store.value] = node.op == ScalarOp::kCast &&
                         node.type == DType::kBF16 &&
                         nodes[node.in[0]].type == DType::kF32;
  }
  for (const ScalarNode& node : nodes) {
    for (ScalarId in : node.in)
      if (in != kNoScalar) found[in] = false;
  }
  for (auto [id, row] : stage.rows) found[id] = false;
  for (const Reduction& reduction : stage.reductions)
    found[reduction.value] = false;
  return found;
}

}  // namespace

Body expand(const Body& body, const std::vector<ScalarId*>& roots,
            Expansion how) {
  return expand_but({}, body, roots, how);
}

namespace {

constexpr ScalarOp kOperations[] = {
#define FJ_SCALAR_OP(name, ...) ScalarOp::k##name,
#include "codegen/scalar/scalar_ops.def"
#undef FJ_SCALAR_OP
};

}  // namespace

int expanded_size(ScalarOp op, DType operands) {
  using Sizes = std::map<std::pair<ScalarOp, DType>, int>;
  static const Sizes sizes = [] {
    Sizes out;
    for (ScalarOp op : kOperations) {
      const int count = scalar_op_row(op).operands;
      for (DType type : {DType::kF32, DType::kF64, DType::kI64}) {
        Body body;
        std::array<ScalarId, 3> in{kNoScalar, kNoScalar, kNoScalar};
        for (int k = 0; k < count; ++k)
          in[k] = body.emit(ScalarOp::kLoad, type, {-1, -1, -1}, k);
        if (count > 0 && expand_operation(body, op, in) != kNoScalar)
          out[{op, type}] = static_cast<int>(body.nodes().size()) - count;
      }
    }
    return out;
  }();
  auto found = sizes.find({op, operands});
  return found == sizes.end() ? 1 : found->second;
}

Kernel expand(const Kernel& kernel, Expansion how) {
  Kernel result = kernel;
  for (Stage& stage : result.stages) {
    std::vector<ScalarId*> roots;
    auto add = [&](Place& place) {
      for (auto& [id, stride] : place.data) roots.push_back(&id);
      roots.push_back(&place.when);
    };
    for (Place& place : stage.loads) add(place);
    for (Reduction& reduction : stage.reductions) {
      roots.push_back(&reduction.value);
    }
    for (Store& store : stage.stores) {
      add(store.place);
      roots.push_back(&store.value);
    }
    for (auto& [id, row] : stage.rows) roots.push_back(&id);
    if (!how.arithmetic.rounds_between)
      stage.body = without_rounding_between(stage.body, roots);
    std::vector<char> kept;
    if (how.bf16 == Bf16Rounding::kByInstruction) kept = stored_bf16(stage);
    stage.body = expand_but(kept, stage.body, roots, how);
  }
  return result;
}

}  // namespace framejit::codegen
