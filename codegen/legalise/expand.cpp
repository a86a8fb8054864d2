#include "codegen/legalise/expand.h"

#include <algorithm>

#include "codegen/scalar/simplify.h"

namespace framejit::codegen {

Body expand(const Body& body, const std::vector<ScalarId*>& roots) {
  const auto& nodes = body.nodes();
  std::vector<char> needed(nodes.size());
  for (const ScalarId* root : roots) {
    if (*root != kNoScalar) needed[*root] = true;
  }
  for (size_t i = nodes.size(); i-- > 0;) {
    needed[i] |= nodes[i].op == ScalarOp::kCheck;
    if (!needed[i]) continue;
    for (ScalarId in : nodes[i].in) {
      if (in != kNoScalar) needed[in] = true;
    }
  }
  Body result;
  std::vector<ScalarId> now(nodes.size(), kNoScalar);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!needed[i]) continue;
    std::array<ScalarId, 3> in = nodes[i].in;
    for (ScalarId& operand : in) {
      if (operand != kNoScalar) operand = now[operand];
    }
    now[i] = expand_operation(result, nodes[i].op, in);
    if (now[i] == kNoScalar) {
      now[i] = emit_simplified(result, nodes[i].op, nodes[i].type, in,
                               nodes[i].payload);
    }
  }
  for (ScalarId* root : roots) {
    if (*root != kNoScalar) *root = now[*root];
  }
  return result;
}

Kernel expand(const Kernel& kernel) {
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
    stage.body = expand(stage.body, roots);
  }
  return result;
}

}  // namespace framejit::codegen
