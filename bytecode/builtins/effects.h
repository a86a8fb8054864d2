// Effects that are kept for after the graph.
#pragma once

#include <vector>

#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

// Lists that effects append to unseen; nobody may look at them meanwhile.
struct EffectLists {
  struct Entry {
    Ref list;
    const Source* source;
    size_t ordinal;
  };
  std::vector<Entry> lists;
};

// callable(*args), in the order of the write log. Should it fail, its exception
// leaves the captured function: where code of the program would see it on its
// way, this is a break.
Status defer(CaptureState& state, PyObject* callable,
             const std::vector<PyObject*>& args);
// A C function that such entries call; made once for each method.
PyObject* effect_function(PyMethodDef* method);

}  // namespace framejit::bytecode
