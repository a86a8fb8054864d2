// Types of objects that a capture makes for itself. A program may get hold of
// one behind our back, but can neither make one nor change its type.
#pragma once

#include <Python.h>

namespace framejit::bytecode {

// Null with an error set. The name must be a literal.
inline PyTypeObject* make_private_type(const char* name, size_t size,
                                       PyType_Slot* slots) {
  PyType_Spec spec = {name, static_cast<int>(size), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
                          Py_TPFLAGS_IMMUTABLETYPE,
                      slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

}  // namespace framejit::bytecode
