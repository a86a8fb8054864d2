#include "backend/lowering/rows.h"

#include <unordered_map>

namespace framejit::backend {

namespace {

const std::pair<const char*, LowerFunction> kRows[] = {
#define FJ_LOWER(name, function) {name, function},
#include "backend/lowering/rows.def"
#undef FJ_LOWER
};

}  // namespace

bool lower_node(const std::string& name, NodeLowering& node) {
  static const auto* rows = [] {
    auto* out = new std::unordered_map<std::string, LowerFunction>;
    for (const auto& [row, function] : kRows) (*out)[row] = function;
    return out;
  }();
  auto found = rows->find(name);
  if (found == rows->end())
    return lower_pointwise(name, node) || lower_on_lists(name, node);
  found->second(node);
  return true;
}

}  // namespace framejit::backend
