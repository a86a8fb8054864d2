// x[i] with symbolic integers. Indexing takes them for numbers; select() does
// not, so they are selected first. torch goes through an index from left to
// right, and the stride of a new dim is made of the dim that follows then: new
// dims before a symbolic integer are made first, too.
#pragma once

#include "graph/tracing/recorder.h"

namespace framejit::graph {

struct SelectedItem {
  Ref tensor;  // empty: nothing was selected
  Ref index;   // what is left of the index; empty: nothing
};

// Records a select() for each symbolic integer of the index, and an unsqueeze()
// for each new dim before one. An index with
// tensors, lists or bools is left alone: there, the integers are indices like
// these.
Result<SelectedItem> select_symbolic_items(Recorder& recorder, PyObject* tensor,
                                           PyObject* index);

}  // namespace framejit::graph
