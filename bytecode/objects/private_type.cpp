#include "bytecode/objects/private_type.h"

#include <unordered_map>

namespace framejit::bytecode {

namespace {

std::unordered_map<PyTypeObject*, ShownType>& shown_types() {
  static auto* types = new std::unordered_map<PyTypeObject*, ShownType>;
  return *types;
}

}  // namespace

void set_shown_type(PyTypeObject* private_type, ShownType shown) {
  shown_types()[private_type] = shown;
}

PyTypeObject* shown_type(PyObject* object) {
  auto found = shown_types().find(Py_TYPE(object));
  return found == shown_types().end() ? nullptr : found->second(object);
}

PyTypeObject* make_private_type(const char* name, size_t size,
                                PyType_Slot* slots, ShownType shown) {
  PyType_Spec spec = {name, static_cast<int>(size), 0,
                      Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION |
                          Py_TPFLAGS_IMMUTABLETYPE,
                      slots};
  auto* type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  if (type && shown) set_shown_type(type, shown);
  return type;
}

}  // namespace framejit::bytecode
