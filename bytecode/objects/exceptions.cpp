#include "bytecode/objects/exceptions.h"

#include <frameobject.h>

#include <cstdarg>

#include "bytecode/objects/fact_object.h"
#include "bytecode/objects/opaque_value.h"

namespace framejit::bytecode {

Ref take_raised() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  if (!type) return {};
  PyErr_NormalizeException(&type, &value, &traceback);
  Py_XDECREF(type);
  Ref lines = Ref::steal(traceback);
  Ref exception = Ref::steal(value);
  if (exception && PyExceptionInstance_Check(exception.get())) {
    PyException_SetTraceback(exception.get(), lines ? lines.get() : Py_None);
  }
  return exception;
}

void restore_raised(Ref exception) {
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(exception.get()));
  Py_INCREF(type);
  PyObject* traceback = PyException_GetTraceback(exception.get());
  PyErr_Restore(type, exception.release(), traceback);
}

Status raise_format(PyObject* type, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  PyErr_FormatV(type, format, arguments);
  va_end(arguments);
  return Status::raised();
}

Status raise_name_error(const char* format, PyObject* name) {
  Ref error;
  if (Ref text = Ref::steal(PyUnicode_FromFormat(format, name)))
    error = Ref::steal(PyObject_CallOneArg(PyExc_NameError, text.get()));
  if (!error || PyObject_SetAttrString(error.get(), "name", name) < 0)
    return Status::raised();
  return raise_object(error.get());
}

Status raise_object(PyObject* exception) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception)), exception);
  return Status::raised();
}

Status add_traceback_line(PyObject* exception, const char* file,
                          const char* function, int line) {
  Ref code = Ref::steal(
      reinterpret_cast<PyObject*>(PyCode_NewEmpty(file, function, line)));
  Ref globals = Ref::steal(PyDict_New());
  if (!code || !globals) return Status::raised();
  Ref made = Ref::steal(reinterpret_cast<PyObject*>(PyFrame_New(
      PyThreadState_Get(), reinterpret_cast<PyCodeObject*>(code.get()),
      globals.get(), nullptr)));
  if (!made) return Status::raised();
  restore_raised(Ref::borrow(exception));
  int failed = PyTraceBack_Here(reinterpret_cast<PyFrameObject*>(made.get()));
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  Ref keep_type = Ref::steal(type), keep_value = Ref::steal(value),
      lines = Ref::steal(traceback);
  if (failed < 0) {
    restore_raised(std::move(keep_value));
    return Status::raised();
  }
  if (PyException_SetTraceback(exception, lines.get()) < 0)
    return Status::raised();
  return ok_status();
}

Result<Ref> traceback_of(CaptureState& state, PyObject* exception) {
  Ref lines = Ref::steal(PyException_GetTraceback(exception));
  return make_opaque(state, OpaqueKind::kTraceback, lines.get());
}

Status set_traceback(CaptureState& state, PyObject* exception,
                     PyObject* traceback) {
  if (state.is_input(exception)) {
    return state.make_break(BreakReason::kUnsupportedException,
                            "sets the traceback of an exception made outside");
  }
  PyObject* lines = opaque_object(traceback);
  if (PyException_SetTraceback(exception, lines ? lines : Py_None) < 0)
    return Status::raised();
  return ok_status();
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

namespace {

class HandledFact final : public Fact {
 public:
  Ref read(FactName) override {
    return Ref::borrow(handled_exception() ? Py_True : Py_False);
  }
};

struct HandledOutside {
  bool handled = false;
  bool guarded = false;
};

}  // namespace

void note_handled_outside(CaptureState& state, bool handled) {
  state.table<HandledOutside>().handled = handled;
}

Result<bool> is_handled_outside(CaptureState& state) {
  auto& outside = state.table<HandledOutside>();
  if (!outside.guarded) {
    FJ_TRY(Ref fact, make_fact(std::make_unique<HandledFact>()));
    state.guard(GuardKind::kIs,
                fact_source(state, fact.get(), FactName::handles_exception),
                outside.handled ? Py_True : Py_False);
    outside.guarded = true;
  }
  return outside.handled;
}

Ref swap_handled_exception(Ref exception) {
  _PyErr_StackItem* item = PyThreadState_Get()->exc_info;
  Ref old = Ref::steal(item->exc_value);
  item->exc_value = exception.release();
  return old;
}

}  // namespace framejit::bytecode
