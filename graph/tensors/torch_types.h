// torch's own Python types that have no name in its headers, by their type
// objects.
#pragma once

#include "frame_hook/py_ref.h"
#include "guards/known_objects.h"

namespace framejit::graph {

extern const LibraryType kScriptFunction;

// The metaclass of classes bound with pybind11; null: not there yet.
inline PyTypeObject* pybind_metaclass() {
  PyTypeObject* bound = kScriptFunction.get();
  return bound ? Py_TYPE(bound) : nullptr;
}
inline bool is_pybind_class(PyObject* type) {
  return Py_TYPE(type) == pybind_metaclass();
}
// What a function bound with pybind11 has as its self.
bool is_pybind_record(PyObject* object);
// torch.FloatTensor and its like: instances of a class of their own.
bool is_legacy_tensor_type(PyObject* object);

}  // namespace framejit::graph
