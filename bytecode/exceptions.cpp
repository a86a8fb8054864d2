#include "bytecode/exceptions.h"

#include <cstdarg>

namespace framejit::bytecode {

Ref take_raised() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (!type) return {};
  PyErr_NormalizeException(&type, &value, &traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  Ref exception = Ref::steal(value);
  // Native code that raised through Python frames left a traceback.
  if (exception && PyExceptionInstance_Check(exception.get())) {
    PyException_SetTraceback(exception.get(), Py_None);
  }
  return exception;
}

void restore_raised(Ref exception) {
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(exception.get()));
  Py_INCREF(type);
  PyErr_Restore(type, exception.release(), nullptr);
}

Status raise_format(PyObject* type, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  PyErr_FormatV(type, format, arguments);
  va_end(arguments);
  return Status::raised();
}

Status raise_object(PyObject* exception) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception)), exception);
  return Status::raised();
}

HandledExceptionScope::HandledExceptionScope(_PyErr_StackItem* item,
                                             bool hide_outer)
    : thread_(PyThreadState_Get()), item_(item), outer_(thread_->exc_info) {
  item->previous_item = hide_outer ? nullptr : outer_;
  thread_->exc_info = item;
}

HandledExceptionScope::~HandledExceptionScope() {
  item_->previous_item = nullptr;
  thread_->exc_info = outer_;
}

Ref handled_exception() {
  Ref exception = Ref::steal(PyErr_GetHandledException());
  if (exception.get() == Py_None) return {};
  return exception;
}

Ref swap_handled_exception(Ref exception) {
  _PyErr_StackItem* item = PyThreadState_Get()->exc_info;
  Ref old = Ref::steal(item->exc_value);
  item->exc_value = exception.release();
  return old;
}

}  // namespace framejit::bytecode
