// What torch's operators warn of while a graph runs without the GIL.
//
// Kept, with the line of the program that the operator comes from, and given to
// Python's warnings when the graph has succeeded. Where that cannot be (a
// filter makes an error of one, or nobody knows the module of the line) the
// graph fails and the original code runs, which then warns itself.
#pragma once

#include <c10/util/Exception.h>

#include <utility>
#include <vector>

#include "graph/tensors/warning_place.h"

namespace framejit::backend {

class WarningBuffer final : public c10::WarningHandler {
 public:
  WarningBuffer() : before_(c10::WarningUtils::get_warning_handler()) {
    c10::WarningUtils::set_warning_handler(this);
  }
  ~WarningBuffer() override { c10::WarningUtils::set_warning_handler(before_); }
  WarningBuffer(const WarningBuffer&) = delete;
  WarningBuffer& operator=(const WarningBuffer&) = delete;

  // What runs next on this thread; must live as long as the buffer.
  static void at(const graph::WarningPlace* place) { now = place; }

  void process(const c10::Warning& warning) override {
    warnings_.emplace_back(warning, now);
  }
  // With the GIL. Throws where a warning cannot be said, also with a Python
  // error set.
  void give_out();

 private:
  static inline constinit thread_local const graph::WarningPlace* now = nullptr;

  c10::WarningHandler* before_;
  std::vector<std::pair<c10::Warning, const graph::WarningPlace*>> warnings_;
};

}  // namespace framejit::backend
