// Iterators of the program: a resume function gets those of the loops it is in,
// half consumed. Their next items are read without advancing them, each with a
// guard on what was read; that they are to be advanced is logged, and done
// after the graph.
#pragma once

#include <unordered_map>

#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

// Items taken in this capture; -1: exhausted.
struct AdvancedIterators {
  std::unordered_map<PyObject*, int64_t> taken;
};

// A C iterator of the program whose next items can be guarded.
bool is_readable_iterator(PyObject* iterator);
// Its next item (empty: exhausted); advancing it goes to the write log.
Result<Ref> next_of_input(CaptureState& state, PyObject* iterator);

}  // namespace framejit::bytecode
