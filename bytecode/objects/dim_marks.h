// What the user said of a tensor's dims: mark_dynamic, maybe_mark_dynamic,
// mark_static. Kept in the tensor's own __dict__ (`_framejit_dims`); the marks
// that functions of a library leave there (DimMarkRow) are read as well. They
// choose what a capture makes symbolic, never what is true: nothing is guarded
// for them.
#pragma once

#include <cstdint>
#include <vector>

#include "frame_hook/py_ref.h"

namespace framejit::bytecode {

struct DimMarks {
  uint64_t dynamic = 0;  // symbolic, and an error where that cannot be kept
  uint64_t maybe = 0;    // symbolic if possible
  uint64_t fixed = 0;    // never symbolic
  struct Range {
    int dim;
    int64_t low, high;  // inclusive; the widest when not given
  };
  std::vector<Range> ranges;

  bool empty() const { return (dynamic | maybe | fixed) == 0; }
  // The dims to make symbolic, out of those wanted without the marks.
  uint64_t apply(uint64_t wanted) const {
    return ((wanted | maybe) & ~fixed) | dynamic;
  }
};

// Runs no code of the user's.
DimMarks read_dim_marks(PyObject* tensor);

}  // namespace framejit::bytecode
