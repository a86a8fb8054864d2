// Running Python source in a namespace of its own, for tests.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "frame_hook/py_ref.h"

namespace framejit {

// A namespace that source is run in and values are read from.
class PythonSource {
 public:
  PythonSource() : dict_(Ref::steal(PyDict_New())) {
    PyDict_SetItemString(dict_.get(), "__builtins__", PyEval_GetBuiltins());
    Ref name = Ref::steal(PyUnicode_FromString("test"));
    PyDict_SetItemString(dict_.get(), "__name__", name.get());
  }
  void run(const std::string& source) {
    Ref result = Ref::steal(
        PyRun_String(source.c_str(), Py_file_input, dict_.get(), dict_.get()));
    if (!result) {
      PyErr_Print();
      ADD_FAILURE() << source;
    }
  }
  Ref value(const std::string& expression) {
    Ref result = Ref::steal(PyRun_String(expression.c_str(), Py_eval_input,
                                         dict_.get(), dict_.get()));
    if (!result) {
      PyErr_Print();
      ADD_FAILURE() << expression;
    }
    return result;
  }
  PyObject* dict() const { return dict_.get(); }

 private:
  Ref dict_;
};

}  // namespace framejit
