#include <algorithm>

#include "frame_hook/line_table.h"
#include "frame_hook/program_code.h"
#include "frame_hook/python_text.h"
#include "guards/result.h"

namespace framejit {
int span_line(const Span& span) {
  if (!span.code || !PyCode_Check(span.code.get())) return 0;
  return line_of_instruction(span.code.get(), span.instruction);
}

std::string format_span(const Span& span) {
  if (!span.code || !PyCode_Check(span.code.get())) return "unknown place";
  ErrorGuard keep_error;
  Ref program = program_code(span.code.get());
  auto* code = reinterpret_cast<PyCodeObject*>(program.get());
  int line = program.get() == span.code.get() ? span_line(span) : 0;
  std::string text = text_of(code->co_filename, "?");
  // Instructions that the compiler made itself carry no line.
  text += ":" + std::to_string(line ? line : code->co_firstlineno);
  return text + " in " + text_of(code->co_name, "?");
}

std::string brief_place(const Span& span) {
  std::string place = format_span(span);
  place.resize(std::min(place.size(), place.rfind(" in ")));
  return place.substr(place.find_last_of('/') + 1);
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
