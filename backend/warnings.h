// What torch's operators warn of while a graph runs without the GIL.
//
// Kept, and given to Python's warnings when the graph has succeeded: a graph
// that fails runs again as the original code, which then warns itself.
#pragma once

#include <c10/util/Exception.h>

#include <vector>

namespace framejit::backend {

class WarningBuffer final : public c10::WarningHandler {
 public:
  WarningBuffer() : before_(c10::WarningUtils::get_warning_handler()) {
    c10::WarningUtils::set_warning_handler(this);
  }
  ~WarningBuffer() override { c10::WarningUtils::set_warning_handler(before_); }
  WarningBuffer(const WarningBuffer&) = delete;
  WarningBuffer& operator=(const WarningBuffer&) = delete;

  void process(const c10::Warning& warning) override {
    warnings_.push_back(warning);
  }
  // With the GIL. Throws where a filter makes an error of a warning.
  void give_out();

 private:
  c10::WarningHandler* before_;
  std::vector<c10::Warning> warnings_;
};

}  // namespace framejit::backend
