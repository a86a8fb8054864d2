// For framejit.export: one capture of one call as a graph of ATen operators,
// with all that the capture relied on and what is to be done when the graph has
// run, as Python objects. framejit/export decides what of that a program can
// keep.
#pragma once

#include <pybind11/pybind11.h>

namespace framejit {

void bind_export_capture(pybind11::module_& m);

}  // namespace framejit
