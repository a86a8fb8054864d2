// A compilation that takes long says so on the terminal: function, phase,
// counts and seconds, in one line that is gone when it ends.
//
// Nothing of the program's runs for that and nothing is imported: a compilation
// may be anywhere. The line is written to descriptor 2, from the places that
// count (frame_hook/progress.h), and only where that is a terminal which this
// process has in the foreground and which sys.stderr was not turned away from.
#pragma once

#include <chrono>
#include <string>

#include "frame_hook/progress.h"
#include "frame_hook/py_ref.h"

namespace framejit {

// The scope is the compilation. Needs the GIL.
class TerminalProgress final : public ProgressListener {
 public:
  explicit TerminalProgress(PyObject* function);
  ~TerminalProgress() override;
  TerminalProgress(const TerminalProgress&) = delete;
  TerminalProgress& operator=(const TerminalProgress&) = delete;

  void note(CompilePhase phase, size_t done, size_t total) override;

 private:
  using Clock = std::chrono::steady_clock;
  void show(CompilePhase phase, size_t done, size_t total, double seconds);

  PyObject* function_;  // borrowed: it is being compiled
  ProgressListener* outer_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point next_;
  bool is_shown_ = false;
};

}  // namespace framejit
