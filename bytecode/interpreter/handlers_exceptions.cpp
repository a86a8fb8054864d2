// Raising, except blocks and `with`.
#include "bytecode/interpreter/exceptions.h"
#include "bytecode/interpreter/handlers.h"
#include "bytecode/library/library.h"
#include "bytecode/objects/attributes.h"
#include "bytecode/objects/exceptions.h"
#include "bytecode/objects/opaque_value.h"
#include "bytecode/objects/step_functions.h"
#include "bytecode/objects/write_log.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {
namespace {

bool is_exception_class(PyObject* object) {
  return PyType_Check(object) && PyExceptionClass_Check(object);
}

// `raise X` and `from X`: a class is called.
Result<Ref> as_exception(Interpreter& interp, PyObject* object,
                         const char* message) {
  Ref exception = Ref::borrow(object);
  if (is_exception_class(object)) {
    FJ_TRY(exception, interp.call(object, {}));
  }
  if (!PyExceptionInstance_Check(exception.get())) {
    return raise_format(PyExc_TypeError, message).forward<Ref>();
  }
  return exception;
}

Result<Flow> no_context_manager(PyTypeObject* type, bool missed_exit) {
  return raise_format(PyExc_TypeError,
                      "'%.200s' object does not support the context manager "
                      "protocol%s",
                      type->tp_name,
                      missed_exit ? " (missed __exit__ method)" : "")
      .forward<Flow>();
}

// The method as `with` finds it: on the type, whatever the object itself or a
// `__getattribute__` has by that name. Empty when absent.
Result<Ref> special_method(Interpreter& interp, PyObject* manager,
                           PyObject* name) {
  CaptureState& state = interp.state;
  PyTypeObject* type = Py_TYPE(manager);
  FJ_TRY(Ref raw, state.type_lookup(type, name));
  if (!raw) return Ref();
  if (PyFunction_Check(raw.get())) {
    return from_api(PyMethod_New(raw.get(), manager));
  }
  if (!is_heap_type(type) ||
      state.tracer.classify(manager) != ObjectClass::kPlain) {
    return state.get_attr(manager, name);
  }
  FJ_CHECK_OK(know_descriptor(state, raw.get(), type, name));
  return bind_descriptor(state, raw.get(), manager, type, name);
}

Result<bool> valid_except_type(PyObject* type) {
  if (PyTuple_Check(type)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type); ++i) {
      if (!is_exception_class(PyTuple_GET_ITEM(type, i))) return false;
    }
    return true;
  }
  return is_exception_class(type);
}

}  // namespace

FJ_HANDLER(Raise) {
  if (op.arg == 0) {
    Ref current = handled_exception();
    if (!current) {
      // What the caller of the compiled function handles is no input.
      return interp.make_break(BreakReason::kUnsupportedException,
                               "bare raise outside an except block");
    }
    if (!frame.outermost) FJ_CHECK_OK(check_may_raise(interp, current.get()));
    restore_raised(std::move(current));
    return Result<Flow>::raised();
  }
  PyObject* raised = frame.top(op.arg);
  FJ_TRY(Ref exception,
         as_exception(interp, raised,
                      "exceptions must derive from BaseException"));
  FJ_CHECK_OK(check_may_raise(interp, exception.get()));
  if (op.arg == 2) {
    Ref cause = frame.peek(1);
    if (cause.get() == Py_None) {
      PyException_SetCause(exception.get(), nullptr);
    } else {
      FJ_TRY(cause, as_exception(interp, cause.get(),
                                 "exception causes must derive from "
                                 "BaseException"));
      PyException_SetCause(exception.get(), cause.release());
    }
  }
  return raise_object(exception.get()).forward<Flow>();
}

FJ_HANDLER(Reraise) {
  Ref exception = frame.pop();
  FJ_CHECK(PyExceptionInstance_Check(exception.get()), "RERAISE operand");
  restore_raised(std::move(exception));
  return Result<Flow>::raised();
}

FJ_HANDLER(PushExcInfo) {
  frame.handlers.push_back(frame.stack.size() - 1);
  Ref exception = frame.pop();
  Ref previous = swap_handled_exception(exception);
  frame.push(previous ? std::move(previous) : Ref::borrow(Py_None));
  frame.push(std::move(exception));
  return Flow::kNext;
}

FJ_HANDLER(PopExcept) {
  Ref previous = frame.pop();
  if (frame.handlers.empty()) {
    FJ_CHECK(frame.thread_handlers > 0, "POP_EXCEPT without a handler");
    // Entered natively, before this resume function began.
    --frame.thread_handlers;
    Ref args = Ref::steal(PyTuple_Pack(1, previous.get()));
    if (!args) return Result<Flow>::raised();
    WriteLog::add(interp.state, Write::Kind::kCall,
                  set_handled_exception_function(), nullptr, args.get());
    return Flow::kNext;
  }
  if (previous.get() == Py_None) previous.reset();
  Ref handled = swap_handled_exception(std::move(previous));
  frame.handlers.pop_back();
  return Flow::kNext;
}

FJ_HANDLER(CheckExcMatch) {
  FJ_TRY(bool valid, valid_except_type(frame.top()));
  if (!valid) {
    return raise_format(PyExc_TypeError,
                        "catching classes that do not inherit from "
                        "BaseException is not allowed")
        .forward<Flow>();
  }
  bool match = PyErr_GivenExceptionMatches(frame.top(2), frame.top());
  return replace_top(frame, 1, py_bool(match));
}

FJ_HANDLER(BeforeWith) {
  Ref manager = frame.peek(1);
  const ManagerRow* row = find_manager(Py_TYPE(manager.get()));
  if (row && row->model) {
    FJ_TRY(manager, row->model(interp, std::move(manager)));
  }
  if (interp.state.tracer.classify(manager.get()) != ObjectClass::kPlain) {
    return interp.make_break(BreakReason::kUnsupportedAttribute,
                             "a tensor as context manager");
  }
  PyTypeObject* type = Py_TYPE(manager.get());
  FJ_TRY(Ref enter, special_method(interp, manager.get(), names().__enter__));
  if (!enter) return no_context_manager(type, false);
  FJ_TRY(Ref exit, special_method(interp, manager.get(), names().__exit__));
  if (!exit) return no_context_manager(type, true);
  FJ_TRY(Ref value, interp.call(enter.get(), {}));
  replace_top(frame, 1, std::move(exit));
  frame.push(std::move(value));
  return Flow::kNext;
}

FJ_HANDLER(WithExceptStart) {
  PyObject* exception = frame.top(1);
  PyObject* exit = frame.top(4);
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(exception));
  FJ_TRY(Ref traceback, traceback_of(interp.state, exception));
  FJ_TRY(Ref result, interp.call(exit, {type, exception, traceback.get()}));
  frame.push(std::move(result));
  return Flow::kNext;
}

FJ_HANDLER(CleanupThrow) {
  PyObject* exception = frame.top();
  if (!PyErr_GivenExceptionMatches(exception, PyExc_StopIteration)) {
    restore_raised(frame.pop());
    return Result<Flow>::raised();
  }
  // [sub-iterator, last sent value, exception] -> [None, value]
  Ref value =
      Ref::borrow(reinterpret_cast<PyStopIterationObject*>(exception)->value);
  frame.drop(3);
  frame.push(Ref::borrow(Py_None));
  frame.push(std::move(value));
  return Flow::kNext;
}

}  // namespace framejit::bytecode
