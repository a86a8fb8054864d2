#include "frame_hook/argument_binding.h"

#include <algorithm>

#include "frame_hook/cpython_internals.h"
#include "frame_hook/interjections.h"

namespace framejit {

int keyword_slot(PyCodeObject* code, PyObject* name) {
  PyObject* const* names =
      reinterpret_cast<PyTupleObject*>(code->co_localsplusnames)->ob_item;
  int end = code->co_argcount + code->co_kwonlyargcount;
  for (int i = code->co_posonlyargcount; i < end; ++i) {
    if (names[i] == name) return i;
  }
  for (int i = code->co_posonlyargcount; i < end; ++i) {
    if (PyUnicode_GET_LENGTH(names[i]) == PyUnicode_GET_LENGTH(name) &&
        PyUnicode_Compare(names[i], name) == 0) {
      return i;
    }
  }
  return -1;
}

BoundArguments::~BoundArguments() {
  for (size_t i = 0; i < size_; ++i) Py_XDECREF(slots_[i]);
}

bool BoundArguments::bind(PyFunctionObject* function, PyObject* const* args,
                          size_t nargs, PyObject* kwnames) {
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  size_t positional = code->co_argcount;
  size_t named = positional + code->co_kwonlyargcount;
  bool has_varargs = (code->co_flags & CO_VARARGS) != 0;
  bool has_varkw = (code->co_flags & CO_VARKEYWORDS) != 0;
  size_ = internals::parameter_slots(code);
  if (size_ > kInline) {
    heap_ = std::make_unique<PyObject*[]>(size_);
    slots_ = heap_.get();
  }
  std::fill_n(slots_, size_, nullptr);
  if (nargs > positional && !has_varargs) return false;

  size_t given = std::min(nargs, positional);
  for (size_t i = 0; i < given; ++i) {
    Py_INCREF(args[i]);
    slots_[i] = args[i];
  }
  if (has_varargs) {
    PyObject* rest = PyTuple_New(nargs - given);
    if (!rest) {
      drop_error();
      return false;
    }
    for (size_t i = given; i < nargs; ++i) {
      Py_INCREF(args[i]);
      PyTuple_SET_ITEM(rest, i - given, args[i]);
    }
    slots_[named] = rest;
  }
  PyObject* extra = nullptr;
  if (has_varkw) {
    extra = slots_[named + has_varargs] = PyDict_New();
    if (!extra) {
      drop_error();
      return false;
    }
  }
  if (kwnames && !bind_keywords(code, args + nargs, kwnames, extra)) {
    return false;
  }
  return fill_defaults(function, given);
}

bool BoundArguments::bind_keywords(PyCodeObject* code, PyObject* const* values,
                                   PyObject* kwnames, PyObject* extra) {
  for (Py_ssize_t i = 0, n = PyTuple_GET_SIZE(kwnames); i < n; ++i) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, i);
    if (!PyUnicode_CheckExact(name)) return false;
    int slot = keyword_slot(code, name);
    if (slot >= 0) {
      if (slots_[slot]) return false;  // given twice
      Py_INCREF(values[i]);
      slots_[slot] = values[i];
    } else if (!extra || PyDict_Contains(extra, name) != 0) {
      return false;
    } else if (PyDict_SetItem(extra, name, values[i]) < 0) {
      drop_error();
      return false;
    }
  }
  return true;
}

bool BoundArguments::fill_defaults(PyFunctionObject* function, size_t given) {
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  size_t positional = code->co_argcount;
  size_t named = positional + code->co_kwonlyargcount;
  PyObject* defaults = function->func_defaults;
  size_t count = defaults ? PyTuple_GET_SIZE(defaults) : 0;
  for (size_t i = given; i < positional; ++i) {
    if (slots_[i]) continue;
    // More defaults than parameters are possible (__defaults__ is writable);
    // the last ones belong to the last parameters.
    if (i + count < positional) return false;
    PyObject* value = PyTuple_GET_ITEM(defaults, i + count - positional);
    Py_INCREF(value);
    slots_[i] = value;
  }
  for (size_t i = positional; i < named; ++i) {
    if (slots_[i]) continue;
    PyObject* keyword_defaults = function->func_kwdefaults;
    if (!keyword_defaults) return false;
    PyObject* value = PyDict_GetItemWithError(
        keyword_defaults, PyTuple_GET_ITEM(code->co_localsplusnames, i));
    if (!value) {
      drop_error();
      return false;
    }
    Py_INCREF(value);
    slots_[i] = value;
  }
  return true;
}

}  // namespace framejit
