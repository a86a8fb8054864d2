// What the user said of a tensor's dims: mark_dynamic, maybe_mark_dynamic,
// mark_static. Kept in the tensor's own __dict__ (`_framejit_dims`, of strides
// `_framejit_strides`); the marks that functions of a library leave there
// (DimMarkRow) are read as well. They
// choose what a capture makes symbolic, never what is true: nothing is guarded
// for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "frame_hook/py_ref.h"
#include "guards/set/dynamic_dims.h"

namespace framejit::bytecode {

struct DimMarks {
  uint64_t dynamic = 0;  // symbolic, and an error where that cannot be kept
  uint64_t maybe = 0;    // symbolic if possible
  uint64_t fixed = 0;    // never symbolic
  // The same of strides; no mark of those is a mere wish.
  uint64_t dynamic_strides = 0, fixed_strides = 0;
  struct Range {
    int dim;
    bool is_stride;
    int64_t low, high;  // inclusive; the widest when not given
  };
  std::vector<Range> ranges;

  bool empty() const {
    return (dynamic | maybe | fixed | dynamic_strides | fixed_strides) == 0;
  }
  // The dims to make symbolic, out of those wanted without the marks. A mark
  // of one size says nothing of the memory between the rows: a stride is
  // symbolic with any size, and a number where all of them are.
  DynamicDims apply(DynamicDims wanted, size_t rank) const {
    if (dynamic | maybe) wanted.strides = ~uint64_t{0};
    wanted.sizes = ((wanted.sizes | maybe) & ~fixed) | dynamic;
    uint64_t all = rank < 64 ? (uint64_t{1} << rank) - 1 : ~uint64_t{0};
    if ((fixed & ~dynamic & all) == all) wanted.strides = 0;
    wanted.strides = (wanted.strides & ~fixed_strides) | dynamic_strides;
    return wanted;
  }
};

// Runs no code of the user's.
DimMarks read_dim_marks(PyObject* tensor);

}  // namespace framejit::bytecode
