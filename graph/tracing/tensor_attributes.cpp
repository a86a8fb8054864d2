#include "graph/tracing/tensor_attributes.h"

#include <string_view>
#include <unordered_map>

#include "frame_hook/python_text.h"

namespace framejit::graph {

std::optional<AttributeAction> attribute_action(PyObject* name) {
  static const std::unordered_map<std::string_view, AttributeAction> rows = {
#define FJ_ATTRIBUTE(name, action) {#name, AttributeAction::k##action},
#include "graph/tracing/tensor_attributes.def"
#undef FJ_ATTRIBUTE
  };
  auto found = rows.find(text_of(name));
  if (found == rows.end()) return std::nullopt;
  return found->second;
}

}  // namespace framejit::graph
