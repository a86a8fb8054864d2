// Binding: from the arguments of a call to the parameter slots of the code.
//
// The slots are positional, keyword-only, *args (a tuple), **kw (a dict): the
// order of localsplus. A plain positional call of a function without the rest
// needs no binding at all (the arguments are the slots). Everything else comes
// here. A call that does not bind is no error of ours: the caller runs the
// original function, so the TypeError is CPython's own.
#pragma once

#include <cstddef>
#include <memory>

#include "frame_hook/py_ref.h"

namespace framejit {

// How many positional arguments are the slots as they are; -1: of no call.
inline Py_ssize_t plain_parameters(const PyCodeObject* code) {
  bool plain = code->co_kwonlyargcount == 0 &&
               !(code->co_flags & (CO_VARARGS | CO_VARKEYWORDS));
  return plain ? code->co_argcount : -1;
}

// The slot of keyword `name`, a str; -1: the code has none. Positional-only
// parameters are not found, so their names may go to **kw, as in CPython.
int keyword_slot(PyCodeObject* code, PyObject* name);

// Owns a reference to each bound slot, so that code which changes the
// function's defaults meanwhile cannot take them away.
class BoundArguments {
 public:
  BoundArguments() = default;
  BoundArguments(const BoundArguments&) = delete;
  BoundArguments& operator=(const BoundArguments&) = delete;
  ~BoundArguments();

  // False: the call does not bind or needs user code to find out (a keyword of
  // a str subclass). No Python error is set.
  bool bind(PyFunctionObject* function, PyObject* const* args, size_t nargs,
            PyObject* kwnames);

  PyObject* const* slots() const { return slots_; }
  size_t size() const { return size_; }

 private:
  bool bind_keywords(PyCodeObject* code, PyObject* const* values,
                     PyObject* kwnames, PyObject* extra);
  bool fill_defaults(PyFunctionObject* function, size_t nargs);

  static constexpr size_t kInline = 12;
  PyObject* inline_[kInline];
  std::unique_ptr<PyObject*[]> heap_;
  PyObject** slots_ = inline_;
  size_t size_ = 0;
};

}  // namespace framejit
