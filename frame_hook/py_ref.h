// Owner type for a CPython reference.
//
// Every PyObject* that FrameJIT keeps has exactly one of these as its owner; a
// raw PyObject* in a signature is always borrowed. `Ref::steal` takes over a
// new reference (the usual result of a C-API call), `Ref::borrow` adds one.
// All members need the GIL. Plain data: no virtuals, no allocation.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <utility>

namespace framejit {

class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}
  static Ref steal(PyObject* object) { return Ref(object); }
  static Ref borrow(PyObject* object) {
    Py_XINCREF(object);
    return Ref(object);
  }
  Ref(const Ref& other) : object_(other.object_) { Py_XINCREF(object_); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  // The old object is released last: its finalizer may run arbitrary code.
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  PyObject* new_reference() const {
    Py_XINCREF(object_);
    return object_;
  }
  void reset() { *this = Ref(); }
  explicit operator bool() const { return object_ != nullptr; }
  bool operator==(const Ref& other) const { return object_ == other.object_; }

 private:
  explicit Ref(PyObject* object) : object_(object) {}
  PyObject* object_ = nullptr;
};

// Saves the pending Python exception and restores it at the end of a scope, so
// that cleanup code may call into CPython.
class ErrorGuard {
 public:
  ErrorGuard() { PyErr_Fetch(&type_, &value_, &traceback_); }
  ~ErrorGuard() { PyErr_Restore(type_, value_, traceback_); }
  ErrorGuard(const ErrorGuard&) = delete;
  ErrorGuard& operator=(const ErrorGuard&) = delete;

 private:
  PyObject* type_ = nullptr;
  PyObject* value_ = nullptr;
  PyObject* traceback_ = nullptr;
};

// For a static: what is made when it is first asked for, and kept. An exception
// of the program's may be set by then, under which many constructors fail.
template <class Make>
auto made_once(Make make) {
  ErrorGuard keep;
  return make();
}
// An object that is nothing but itself.
inline PyObject* new_marker() {
  return PyObject_CallNoArgs(reinterpret_cast<PyObject*>(&PyBaseObject_Type));
}

}  // namespace framejit
