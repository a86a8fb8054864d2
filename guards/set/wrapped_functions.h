// What a class holds in the place of a function: property, classmethod,
// staticmethod.
//
// A guard that compares such an object must not keep it: it holds functions,
// these their closures, and with __class__ the class itself, which then never
// dies. No weak reference to it is possible. So it is known by its address and
// by its functions, which are watched: while they live, an object at that
// address with the same functions is as good as the one that was there.
#pragma once

#include <cstdint>

#include "guards/set/guard_set.h"

namespace framejit {

class WrappedFunctions {
 public:
  explicit WrappedFunctions(PyObject* object);
  // Of one of the types, with functions in Python alone (or None).
  bool known() const { return count_ != 0; }
  int size() const { return count_; }
  PyObject* operator[](int i) const { return functions_[i]; }
  // Of the type and the functions; never 0.
  int64_t print() const;

 private:
  bool read(PyObject* object, const char* name);

  PyTypeObject* type_;
  PyObject* functions_[3] = {};  // the object's; null: None
  int count_ = 0;
};

}  // namespace framejit
