#include "frame_hook/python_text.h"

#include "frame_hook/interjections.h"
#include "frame_hook/py_ref.h"

namespace framejit {

std::string text_of(PyObject* unicode, const char* otherwise) {
  Py_ssize_t size = 0;
  const char* data = unicode && PyUnicode_Check(unicode)
                         ? PyUnicode_AsUTF8AndSize(unicode, &size)
                         : nullptr;
  if (data) return std::string(data, static_cast<size_t>(size));
  // Not of a caller's error: only a lone surrogate sets one here.
  if (unicode && PyUnicode_Check(unicode)) drop_error();
  return otherwise;
}

Py_ssize_t keyword_index(PyObject* kwnames, const char* name) {
  const Py_ssize_t count = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* given = PyTuple_GET_ITEM(kwnames, i);
    if (PyUnicode_CompareWithASCIIString(given, name) == 0) return i;
  }
  return -1;
}

std::string text_attribute(PyObject* object, const char* name) {
  Ref value = Ref::steal(PyObject_GetAttrString(object, name));
  if (!value) drop_error();
  return text_of(value.get());
}

std::string take_error_text() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  if (!type) return "";
  PyErr_NormalizeException(&type, &value, &traceback);
  Ref keep_type = Ref::steal(type), keep_value = Ref::steal(value),
      keep_traceback = Ref::steal(traceback);
  std::string text = reinterpret_cast<PyTypeObject*>(type)->tp_name;
  Ref message = Ref::steal(value ? PyObject_Str(value) : nullptr);
  if (!message) drop_error();
  std::string words = text_of(message.get());
  return words.empty() ? text : text + ": " + words;
}

}  // namespace framejit
