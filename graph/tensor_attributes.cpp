#include "graph/tensor_attributes.h"

#include <string_view>
#include <unordered_map>

namespace framejit::graph {

std::optional<AttributeAction> attribute_action(PyObject* name) {
  static const std::unordered_map<std::string_view, AttributeAction> rows = {
#define FJ_ATTRIBUTE(name, action) {#name, AttributeAction::k##action},
#include "graph/tensor_attributes.def"
#undef FJ_ATTRIBUTE
  };
  const char* text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
  if (!text) {
    PyErr_Clear();
    return std::nullopt;
  }
  auto found = rows.find(text);
  if (found == rows.end()) return std::nullopt;
  return found->second;
}

}  // namespace framejit::graph
