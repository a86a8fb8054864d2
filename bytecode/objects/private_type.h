// Types of objects that a capture makes for itself. A program may get hold of
// one behind our back, but can neither make one nor change its type. Some stand
// for objects of Python's (a generator that is interpreted): type() says so.
#pragma once

#include <Python.h>

namespace framejit::bytecode {

// What type() says of the object; null: its own type.
using ShownType = PyTypeObject* (*)(PyObject* object);
void set_shown_type(PyTypeObject* private_type, ShownType shown);
PyTypeObject* shown_type(PyObject* object);

// Null with an error set. The name must be a literal.
PyTypeObject* make_private_type(const char* name, size_t size,
                                PyType_Slot* slots, ShownType shown = nullptr);

}  // namespace framejit::bytecode
