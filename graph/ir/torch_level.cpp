#include "graph/ir/torch_level.h"

#include <string_view>

#include "graph/ir/graph_text.h"

namespace framejit::graph {

namespace {

struct Row {
  const char *text, *advice;
};

constexpr Row kRows[] = {
#define FJ_TORCH_LEVEL(name, text, advice) {text, advice},
#include "graph/ir/torch_level.def"
#undef FJ_TORCH_LEVEL
};

}  // namespace

std::string torch_level_text(TorchLevel reason, const std::string& where,
                             const std::string& subject) {
  const Row& row = kRows[static_cast<size_t>(reason)];
  std::string text = row.text;
  if (size_t at = text.find("{}"); at != std::string::npos)
    text.replace(at, 2, subject);
  if (!where.empty()) text += ": " + where;
  return text + "; " + row.advice;
}

Break torch_level_only(TorchLevel reason, const std::string& where,
                       const std::string& subject) {
  return Break{BreakReason::kBackendFailed,
               torch_level_text(reason, where, subject),
               {}};
}

std::string line_in_program(const Span& span, const Span& caller) {
  if (!span.code) return "";
  if (!caller.code) return format_span(span);
  return format_span(caller) + ", by " + format_span(span);
}

std::string place_of_node(const Node* node) {
  if (!node) return "";
  const bool is_method = node->op == Opcode::kCallMethod;
  std::string name = is_method ? "Tensor." + node->method : node->target_name();
  // Of a package: what is called is some object.
  if (node->callable && !is_method && node->operators.size() == 1 &&
      import_path(node->callable.get()).empty())
    name = node->operators[0].schema().name();
  const std::string line = line_in_program(node->span, node->caller);
  if (line.empty()) return name;
  return name.empty() ? line : name + " at " + line;
}

bool is_in_library(const Span& span) {
  if (!span.code || !PyCode_Check(span.code.get())) return false;
  PyObject* file =
      reinterpret_cast<PyCodeObject*>(span.code.get())->co_filename;
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(file, &size);
  if (!text) {
    PyErr_Clear();  // lone surrogates
    return false;
  }
  const std::string_view path(text, static_cast<size_t>(size));
  for (std::string_view folder :
       {"/site-packages/", "/dist-packages/", "/lib/python3"}) {
    if (path.find(folder) != path.npos) return true;
  }
  return false;
}

std::string name_of_input(const Value& input) {
  return input.name.empty() ? "an input" : input.name;
}

std::string place_of_written(
    const Graph& graph, int input,
    const std::unordered_map<int, std::string>& written_at) {
  const std::string name = name_of_input(*graph.inputs.at(input));
  auto line = written_at.find(input);
  return line == written_at.end() ? name : name + " at " + line->second;
}

std::string place_of_value(const Value& value) {
  return value.node->op == Opcode::kPlaceholder ? name_of_input(value)
                                                : place_of_node(value.node);
}

}  // namespace framejit::graph
