#include "codegen/legalise/expand.h"

#include <algorithm>

#include "codegen/scalar/simplify.h"

namespace framejit::codegen {

Body expand(const Body& body, const std::vector<ScalarId*>& roots) {
  return rewrite(
      body, roots, [](Body& to, const ScalarNode& node, const auto& in) {
        ScalarId known = expand_operation(to, node.op, in);
        return known != kNoScalar
                   ? known
                   : emit_simplified(to, node.op, node.type, in, node.payload);
      });
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
