// What a tuple, list, set, dict or deque holds, whatever its class answers: the
// walk of the type in C beneath it. (`PySequence_List` would ask an `__iter__`
// in Python.)
#pragma once

#include "bytecode/objects/classes.h"

namespace framejit::bytecode {

// A list; null: raised.
inline Ref own_items(PyObject* container) {
  PyTypeObject* base = solid_base(Py_TYPE(container));
  Ref iterator = Ref::steal(base->tp_iter(container));
  return Ref::steal(iterator ? PySequence_List(iterator.get()) : nullptr);
}

}  // namespace framejit::bytecode
