#include "guards/set/wrapped_functions.h"

#include "frame_hook/interjections.h"

namespace framejit {

WrappedFunctions::WrappedFunctions(PyObject* object) : type_(Py_TYPE(object)) {
  bool known = false;
  if (type_ == &PyProperty_Type) {
    known = read(object, "fget") && read(object, "fset") &&
            read(object, "fdel") && (functions_[0] || functions_[1]);
  } else if (type_ == &PyClassMethod_Type || type_ == &PyStaticMethod_Type) {
    known = read(object, "__func__") && functions_[0];
  }
  if (!known) count_ = 0;
}

bool WrappedFunctions::read(PyObject* object, const char* name) {
  Ref value = Ref::steal(PyObject_GetAttrString(object, name));
  if (!value) {
    drop_error();
    return false;
  }
  if (value.get() != Py_None && !PyFunction_Check(value.get())) return false;
  functions_[count_++] = value.get() == Py_None ? nullptr : value.get();
  return true;
}

int64_t WrappedFunctions::print() const {
  uint64_t print = reinterpret_cast<uintptr_t>(type_);
  for (int i = 0; i < count_; ++i)
    print = (print ^ reinterpret_cast<uintptr_t>(functions_[i])) *
            0x9E3779B97F4A7C15ull;
  return static_cast<int64_t>(print | 1);
}

}  // namespace framejit
