// C iterators looked into without being advanced: what lies ahead of them is a
// fact that a guard can state, and an object that a predicate can gather.
//
// A resume function gets the iterators of the loops it is in as arguments. The
// capture reads their next items through these functions; advancing them is an
// effect, replayed after the graph.
#pragma once

#include <cstdint>

#include "frame_hook/py_ref.h"

namespace framejit {

enum class IteratorLayout : uint8_t {
  kNone,
  kList,       // part 0: the list
  kReversed,   // of a list; part 0: the list
  kTuple,      // items only
  kRange,      // numbers only
  kDict,       // keys, values or items; part 0: the dict
  kEnumerate,  // part 0: the inner iterator; number 0: the count
  kZip,        // part i: iterator i
  kMap,        // part 0: the function; part i + 1: iterator i
  kFilter,     // part 0: the function; part 1: the iterator
};
IteratorLayout iterator_layout(PyObject* iterator);

// Objects that the iterator is made of; borrowed, null when there is none.
PyObject* iterator_part(PyObject* iterator, int64_t index);
// How many items are ahead, where the iterator alone says it; -1: not known (a
// dict that changed its size, an iterator over others).
int64_t iterator_left(PyObject* iterator);
// The item `ahead` steps from the next one; borrowed, null when there is none.
// Of a dict: the key (which 0) or the value (which 1).
PyObject* iterator_item(PyObject* iterator, int64_t ahead, int which);
// The same for iterators of numbers.
bool iterator_number(PyObject* iterator, int64_t ahead, int64_t* out);
// zip(..., strict=True)
bool is_strict_zip(PyObject* iterator);

}  // namespace framejit
