#include "framejit/csrc/progress.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "frame_hook/options.h"
#include "framejit/csrc/reports.h"

namespace framejit {

namespace {

constexpr int kStderr = STDERR_FILENO;
constexpr auto kInterval = std::chrono::milliseconds(200);

struct PhaseRow {
  const char* text;
  const char* counted;
};
constexpr PhaseRow kPhases[] = {
#define X(name, text, counted) {text, counted},
    FJ_PHASES(X)
#undef X
};

size_t width_of_terminal() {
  winsize size{};
  return ioctl(kStderr, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col
                                                                   : 80;
}

// A process in the background would be stopped, a full terminal would block.
bool can_write() {
  if (tcgetpgrp(kStderr) != getpgrp()) return false;
  pollfd ready{kStderr, POLLOUT, 0};
  if (poll(&ready, 1, 0) != 1 || !(ready.revents & POLLOUT)) return false;
  // Looks into a dict: no code runs.
  return PyGILState_Check() &&
         PySys_GetObject("stderr") == PySys_GetObject("__stderr__");
}

void write_all(const std::string& text) {
  [[maybe_unused]] const ssize_t written =
      write(kStderr, text.data(), text.size());
}

// "1,234,567"
std::string grouped(size_t number) {
  std::string text = std::to_string(number);
  for (size_t at = text.size(); at > 3;) text.insert(at -= 3, ",");
  return text;
}

}  // namespace

TerminalProgress::TerminalProgress(PyObject* function)
    : function_(function), outer_(detail::progress_listener) {
  const int before = errno;
  const int seconds = options().progress;
  if (seconds > 0 && isatty(kStderr)) {
    next_ = start_ + std::chrono::seconds(seconds);
    detail::progress_listener = this;
  }
  errno = before;
}

TerminalProgress::~TerminalProgress() {
  detail::progress_listener = outer_;
  if (!is_shown_) return;
  const int before = errno;
  if (can_write()) write_all("\r\x1b[K");
  errno = before;
}

void TerminalProgress::note(CompilePhase phase, size_t done, size_t total) {
  const Clock::time_point now = Clock::now();
  if (now < next_) return;
  next_ = now + kInterval;
  const int before = errno;
  if (can_write())
    show(phase, done, total,
         std::chrono::duration<double>(now - start_).count());
  errno = before;
}

void TerminalProgress::show(CompilePhase phase, size_t done, size_t total,
                            double seconds) {
  const PhaseRow& row = kPhases[static_cast<int>(phase)];
  std::string line = "FrameJIT: compiling " + describe_function(function_) +
                     ": " + row.text + ", " + grouped(done);
  if (total > 0) line += " of " + grouped(total);
  char time[32];
  std::snprintf(time, sizeof time, ", %.0f s", seconds);
  line += std::string(" ") + row.counted + time;
  const size_t width = width_of_terminal();
  if (line.size() >= width) {
    const size_t kept = std::max<size_t>(width, 24) / 2 - 2;
    line = line.substr(0, kept) + "..." + line.substr(line.size() - kept);
  }
  // Blanks to the end of a line only fill an empty one; what the program has
  // begun to write stays, for they go on behind it, on the next line.
  const std::string begin =
      is_shown_ ? "\r" : std::string(width - 1, ' ') + "\r";
  write_all(begin + "\x1b[2m" + line + "\x1b[0m\x1b[K");
  is_shown_ = true;
}

}  // namespace framejit
