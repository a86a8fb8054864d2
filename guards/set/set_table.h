// The hash table of a set or frozenset.
//
// In which order a set gives its elements follows from where they lie, and that
// from everything that was ever added and removed. So a copy that is to look
// like the original has each element, and each trace of a removed one, in the
// same place, and a guard on the elements compares the places, too.
#pragma once

#include "frame_hook/py_ref.h"

namespace framejit {

// One byte per place: free, once used, used.
Ref set_places(PyObject* set);
bool has_set_places(PyObject* set, PyObject* places);
// The same elements in the same places, compared by `equal`.
bool same_set_table(PyObject* a, PyObject* b,
                    bool (*equal)(PyObject*, PyObject*));
// A set (frozenset) with the table of a set (frozenset); empty: raised.
Ref copy_set_table(PyObject* set);
// Gives `target`, a set, the table of `source`. False: raised.
bool take_set_table(PyObject* target, PyObject* source);

}  // namespace framejit
