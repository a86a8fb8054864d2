#include "bytecode/objects/builtin_types.h"

#include <unordered_map>
#include <vector>

#include "frame_hook/cpython_internals.h"
#include "frame_hook/py_ref.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

namespace {

PyTypeObject* as_type(PyObject* object) {
  return reinterpret_cast<PyTypeObject*>(object);
}

// Of a str that is ASCII; it has no name in the C API.
PyTypeObject* ascii_iterator_type() {
  static PyTypeObject* type = made_once([] {
    Ref made = Ref::steal(PyObject_GetIter(interned("a")));
    return Py_TYPE(made.get());
  });
  return type;
}

// Types live forever once they are found, so an address stays what it is.
class RowsByType {
 public:
  RowsByType() {
    for (size_t i = 0; i < size_t(BuiltinType::kOther); ++i)
      missing_.push_back(static_cast<BuiltinType>(i));
    find_missing();
  }

  BuiltinType find(PyTypeObject* type) {
    auto found = rows_.find(type);
    if (found != rows_.end()) return found->second;
    if (missing_.empty() || !find_missing()) return BuiltinType::kOther;
    return find(type);
  }

 private:
  // Those of modules that were not loaded before. False: nothing new.
  bool find_missing() {
    return std::erase_if(missing_, [&](BuiltinType row) {
             PyTypeObject* type = type_of(row);
             if (type) rows_.emplace(type, row);
             return type != nullptr;
           }) != 0;
  }
  static PyTypeObject* type_of(BuiltinType row) {
    switch (row) {
#define FJ_TYPE(name, type, ...) \
  case BuiltinType::k##name:     \
    return type;
#include "bytecode/objects/builtin_types.def"
    }
    return nullptr;
  }

  std::unordered_map<PyTypeObject*, BuiltinType> rows_;
  std::vector<BuiltinType> missing_;
};

}  // namespace

BuiltinType builtin_type(PyTypeObject* type) {
  static auto* rows = new RowsByType;
  return rows->find(type);
}

BuiltinType builtin_base(PyTypeObject* type) {
  PyObject* mro = type->tp_mro;
  for (Py_ssize_t i = 0; mro && i < PyTuple_GET_SIZE(mro); ++i) {
    BuiltinType row = builtin_type(as_type(PyTuple_GET_ITEM(mro, i)));
    if (row != BuiltinType::kOther) return row;
  }
  return BuiltinType::kOther;
}

}  // namespace framejit::bytecode
