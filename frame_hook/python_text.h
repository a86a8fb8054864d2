// Python's texts as C++ strings, for messages and tables. None of these leaves
// an error set.
#pragma once

#include <Python.h>

#include <string>

namespace framejit {

// The characters of a str; `otherwise` for anything else (null, too).
std::string text_of(PyObject* unicode, const char* otherwise = "");
// The place of `name` among keyword names (a tuple, or null); -1: not there.
Py_ssize_t keyword_index(PyObject* kwnames, const char* name);
// An attribute that is a str; "" where there is none. Runs what the look-up of
// the attribute runs.
std::string text_attribute(PyObject* object, const char* name);
// "ValueError: message" of the pending exception, which is cleared; "" when
// there is none. Runs the exception's __str__.
std::string take_error_text();

}  // namespace framejit
