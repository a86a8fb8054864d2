#include "guards/result.h"

namespace framejit {
namespace {

constexpr BreakReasonRow kBreakRows[] = {
#define FJ_BREAK(name, id, title, hint) {#name, id, title, hint},
#include "guards/break_reasons.def"
#undef FJ_BREAK
};
static_assert(sizeof(kBreakRows) / sizeof(kBreakRows[0]) ==
              static_cast<size_t>(BreakReason::kCount));

std::string text_of(PyObject* unicode) {
  Py_ssize_t size = 0;
  const char* data = unicode && PyUnicode_Check(unicode)
                         ? PyUnicode_AsUTF8AndSize(unicode, &size)
                         : nullptr;
  if (!data) {
    PyErr_Clear();
    return "?";
  }
  return std::string(data, static_cast<size_t>(size));
}

}  // namespace

const BreakReasonRow& break_reason_row(BreakReason reason) {
  size_t index = static_cast<size_t>(reason);
  if (index >= static_cast<size_t>(BreakReason::kCount))
    index = static_cast<size_t>(BreakReason::kInternal);
  return kBreakRows[index];
}

int span_line(const Span& span) {
  if (!span.code || !PyCode_Check(span.code.get())) return 0;
  auto* code = reinterpret_cast<PyCodeObject*>(span.code.get());
  int line = PyCode_Addr2Line(code, span.instruction);
  return line > 0 ? line : 0;
}

std::string format_span(const Span& span) {
  if (!span.code || !PyCode_Check(span.code.get())) return "unknown place";
  ErrorGuard keep_error;
  auto* code = reinterpret_cast<PyCodeObject*>(span.code.get());
  int line = span_line(span);
  std::string text = text_of(code->co_filename);
  // Instructions that the compiler made itself carry no line.
  text += ":" + std::to_string(line ? line : code->co_firstlineno);
  return text + " in " + text_of(code->co_name);
}

std::string format_break(const Break& brk) {
  const BreakReasonRow& row = break_reason_row(brk.reason);
  std::string text = std::string(row.id) + " " + row.title;
  if (!brk.detail.empty()) text += ": " + brk.detail;
  if (brk.span.code) text += " (" + format_span(brk.span) + ")";
  return text;
}

InternalError::InternalError(const char* file, int line, std::string message)
    : message_(std::string(file) + ":" + std::to_string(line) + ": " +
               std::move(message)) {}

}  // namespace framejit
