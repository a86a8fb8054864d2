// Warnings of C code name the Python line that runs it: in eager the line of
// the operator in the program. Here that line is only known to the capture, so
// such a warning is caught where no frame of the program exists, and given out
// with the place of the operator: its file, line, and the registry of its
// module, which decides what was said before.
#pragma once

#include <string>
#include <vector>

#include "frame_hook/py_ref.h"
#include "guards/result.h"

namespace framejit::graph {

struct WarningPlace {
  Ref file;  // str; empty: unknown
  int line = 0;
};
WarningPlace warning_place(const Span& span);

// message: a str or an instance of a warning class. False: not said, as an
// error is set (a filter makes one of the warning), or, without an error, as
// the place belongs to no module that is imported.
bool warn_at(const WarningPlace& place, PyObject* category, PyObject* message);

// While it lives, what this thread warns of is kept and reaches neither filters
// nor registries, and what torch says once only stays unsaid, so that it can
// still be said. For calls on stand-ins: eager does not make them. Needs the
// GIL.
class WarningsKept {
 public:
  // once: warnings that torch gives once a process count as given.
  explicit WarningsKept(bool once = false);
  ~WarningsKept();
  WarningsKept(const WarningsKept&) = delete;
  WarningsKept& operator=(const WarningsKept&) = delete;

  // Instances of warnings.WarningMessage.
  std::vector<Ref> take();

 private:
  Ref dict_;  // of the module "warnings"; empty: nothing is replaced
  Ref filters_, show_;
  bool always_;
};

// Would a filter make errors of some warnings?
bool warnings_may_raise();

}  // namespace framejit::graph
