#include "backend/warnings.h"

#include <torch/csrc/Exceptions.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "frame_hook/graph_failure.h"

namespace framejit::backend {
namespace {

// As torch/csrc/Exceptions.cpp gives them to Python.
std::string python_text(const c10::Warning& warning) {
  std::string text = torch::processErrorMsg(warning.msg());
  const c10::SourceLocation& at = warning.source_location();
  if (!at.file) return text;
  return text + " (Triggered internally at " + at.file + ":" +
         std::to_string(at.line) + ".)";
}

PyObject* python_category(const c10::Warning& warning) {
  return std::holds_alternative<c10::Warning::DeprecationWarning>(
             warning.type())
             ? PyExc_DeprecationWarning
             : PyExc_UserWarning;
}

// What torch says once a process it has said to us: the original code, which
// is to say it, would be silent.
class SaidAgain {
 public:
  SaidAgain() : before_(c10::WarningUtils::get_warnAlways()) {
    c10::WarningUtils::set_warnAlways(true);
  }
  ~SaidAgain() { c10::WarningUtils::set_warnAlways(before_); }
  SaidAgain(const SaidAgain&) = delete;
  SaidAgain& operator=(const SaidAgain&) = delete;

 private:
  bool before_;
};

}  // namespace

void WarningBuffer::give_out() {
  if (warnings_.empty()) [[likely]]
    return;
  auto warnings = std::move(warnings_);
  warnings_.clear();
  for (const auto& [warning, place] : warnings) {
    if (warning.verbatim()) {  // it has a place of its own
      torch::PyWarningHandler python;
      c10::warn(warning);
      continue;
    }
    std::string text = python_text(warning);
    Ref message = Ref::steal(
        PyUnicode_DecodeUTF8(text.data(), Py_ssize_t(text.size()), "replace"));
    if (message && place &&
        graph::warn_at(*place, python_category(warning), message.get()))
      continue;
    keep_until_original_ends(std::make_shared<SaidAgain>());
    throw std::runtime_error("an operator warns: " + text);
  }
}

}  // namespace framejit::backend
