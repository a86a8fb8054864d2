#include "bytecode/interpreter/generators.h"

#include "bytecode/interpreter/exceptions.h"
#include "bytecode/objects/exceptions.h"
#include "bytecode/objects/native_calls.h"
#include "bytecode/objects/private_type.h"
#include "bytecode/objects/unbuildable.h"

#include <structmember.h>

namespace framejit::bytecode {
namespace {

struct Generator {
  PyObject_HEAD std::shared_ptr<Interpreter*>* interpreter;
  Frame* frame;  // null when finished
  bool running;
  bool started;
  // The exceptions handled inside while it is suspended.
  _PyErr_StackItem handled;
};

Generator* as_generator(PyObject* object) {
  return reinterpret_cast<Generator*>(object);
}

void drop_frame(Generator* generator) {
  delete std::exchange(generator->frame, nullptr);
  Py_CLEAR(generator->handled.exc_value);
}

// Turns a failed result into what a C slot returns: null and an exception.
template <class T>
PyObject* fail_in_slot(Generator* generator, Result<T>& result) {
  if (!result.broke()) return nullptr;
  Interpreter* interpreter = *generator->interpreter->get();
  if (interpreter) {
    interpreter->post_break(result.take_break());
  } else {
    PyErr_SetNone(capture_break_type());
  }
  return nullptr;
}

PyObject* finish_in_slot(PyObject* self, Result<GeneratorStep> step,
                         bool plain_next) {
  if (!step.ok()) return fail_in_slot(as_generator(self), step);
  if (!step.value().finished) return step.value().value.release();
  Ref value = std::move(step.value().value);
  if (value.get() == Py_None) {
    if (!plain_next) PyErr_SetNone(PyExc_StopIteration);
  } else {
    // A tuple or exception as value must not be spread over the arguments.
    Ref stop =
        Ref::steal(PyObject_CallOneArg(PyExc_StopIteration, value.get()));
    if (stop) PyErr_SetObject(PyExc_StopIteration, stop.get());
  }
  return nullptr;
}

// No C++ exception may cross the C code that called the slot.
template <class Body>
PyObject* guarded(PyObject* self, Body body) {
  try {
    return body();
  } catch (const InternalError& error) {
    Interpreter* interpreter = *as_generator(self)->interpreter->get();
    Break brk{BreakReason::kInternal, error.message(), {}};
    if (interpreter) {
      interpreter->post_break(std::move(brk));
    } else {
      PyErr_SetNone(capture_break_type());
    }
    return nullptr;
  } catch (const std::bad_alloc&) {
    return PyErr_NoMemory();
  }
}

PyObject* generator_next_slot(PyObject* self) {
  return guarded(self, [&] {
    return finish_in_slot(self, generator_resume(self, Py_None), true);
  });
}

PyObject* generator_send_method(PyObject* self, PyObject* value) {
  return guarded(self, [&] {
    return finish_in_slot(self, generator_resume(self, value), false);
  });
}

// throw(exception) or the old throw(type, value, traceback).
Ref thrown_exception(PyObject* const* args, Py_ssize_t count) {
  if (count < 1 || count > 3) {
    PyErr_Format(PyExc_TypeError, "throw expected 1 to 3 arguments, got %zd",
                 count);
    return {};
  }
  PyObject* type = args[0];
  PyObject* value = count > 1 ? args[1] : Py_None;
  if (PyExceptionInstance_Check(type)) return Ref::borrow(type);
  if (!PyExceptionClass_Check(type)) {
    PyErr_Format(PyExc_TypeError,
                 "exceptions must be classes or instances deriving from "
                 "BaseException, not %s",
                 Py_TYPE(type)->tp_name);
    return {};
  }
  if (PyExceptionInstance_Check(value)) return Ref::borrow(value);
  if (value == Py_None) return Ref::steal(PyObject_CallNoArgs(type));
  return Ref::steal(PyObject_CallOneArg(type, value));
}

PyObject* generator_throw_method(PyObject* self, PyObject* const* args,
                                 Py_ssize_t count) {
  return guarded(self, [&]() -> PyObject* {
    Ref thrown = thrown_exception(args, count);
    if (!thrown) return nullptr;
    return finish_in_slot(
        self, generator_resume(self, Py_None, std::move(thrown)), false);
  });
}

PyObject* generator_close_method(PyObject* self, PyObject*) {
  return guarded(self, [&]() -> PyObject* {
    Status status = generator_close(self);
    if (!status.ok()) return fail_in_slot(as_generator(self), status);
    Py_RETURN_NONE;
  });
}

// What CPython wraps around the body and around `yield from` (3.12 on) runs no
// code of the user's when the generator is closed.
bool closing_runs_code(const Frame& frame) {
  const DecodedCode& code = *frame.decoded;
  int handler = code.op(frame.pc - 1).handler;
  while (handler >= 0) {
    const MicroOp& first = code.op(code.handlers()[handler].target);
    bool own = first.op == MicroOpKind::kCleanupThrow ||
               (first.op == MicroOpKind::kCallIntrinsic1 &&
                first.arg == kStopIterationError);
    if (!own) return true;
    handler = first.handler;
  }
  return false;
}

// A generator dropped while suspended runs its handlers with GeneratorExit. In
// a frame that runs, that is interpreted here and now, as CPython does it; once
// the outermost frame has ended it is too late for effects, so it breaks.
void generator_finalize(PyObject* self) {
  Generator* generator = as_generator(self);
  Interpreter* interpreter =
      generator->interpreter ? *generator->interpreter->get() : nullptr;
  if (!interpreter || !generator->frame || !generator->started) return;
  const Frame& frame = *generator->frame;
  if (frame.pc == 0 || !closing_runs_code(frame)) return;
  // Frames fall apart because the capture has broken: nothing counts any more.
  if (!interpreter->break_stack().empty()) return;
  ErrorGuard keep;
  if (!interpreter->frame) {
    interpreter->post_break(interpreter->make_break(
        BreakReason::kFinalizerObject, "a suspended generator is dropped"));
    PyErr_Clear();
    return;
  }
  guarded(self, [&]() -> PyObject* {
    Status closed = generator_close(self);
    if (closed.broke()) {
      interpreter->post_break(closed.take_break());
    } else if (!closed.ok()) {
      // CPython would print it and go on.
      interpreter->post_break(interpreter->make_break(
          BreakReason::kFinalizerObject, "a dropped generator raised"));
    }
    return nullptr;
  });
  PyErr_Clear();
}

void generator_dealloc(PyObject* self) {
  if (PyObject_CallFinalizerFromDealloc(self) < 0) return;
  PyObject_GC_UnTrack(self);
  Generator* generator = as_generator(self);
  drop_frame(generator);
  delete std::exchange(generator->interpreter, nullptr);
  PyTypeObject* type = Py_TYPE(self);
  type->tp_free(self);
  Py_DECREF(type);
}

int generator_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Generator* generator = as_generator(self);
  Py_VISIT(generator->handled.exc_value);
  if (generator->frame) {
    Py_VISIT(generator->frame->function.get());
    for (const Ref& value : generator->frame->slots) Py_VISIT(value.get());
    for (const Ref& value : generator->frame->stack) Py_VISIT(value.get());
  }
  return 0;
}

int generator_clear(PyObject* self) {
  if (!as_generator(self)->running) drop_frame(as_generator(self));
  return 0;
}

PyTypeObject* make_generator_type() {
  static PyMethodDef methods[] = {
      {"send", generator_send_method, METH_O, nullptr},
      {"throw",
       reinterpret_cast<PyCFunction>(
           reinterpret_cast<void (*)()>(generator_throw_method)),
       METH_FASTCALL, nullptr},
      {"close", generator_close_method, METH_NOARGS, nullptr},
      {nullptr, nullptr, 0, nullptr}};
  static PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void*>(generator_dealloc)},
      {Py_tp_finalize, reinterpret_cast<void*>(generator_finalize)},
      {Py_tp_traverse, reinterpret_cast<void*>(generator_traverse)},
      {Py_tp_clear, reinterpret_cast<void*>(generator_clear)},
      {Py_tp_iter, reinterpret_cast<void*>(PyObject_SelfIter)},
      {Py_tp_iternext, reinterpret_cast<void*>(generator_next_slot)},
      {Py_tp_methods, methods},
      {0, nullptr}};
  static PyType_Spec spec = {"framejit.generator", sizeof(Generator), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                                 Py_TPFLAGS_DISALLOW_INSTANTIATION,
                             slots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

PyTypeObject* generator_type() {
  static PyTypeObject* type = made_once([] {
    PyTypeObject* made = make_generator_type();
    if (made) set_shown_type(made, [](PyObject*) { return &PyGen_Type; });
    return made;
  });
  return type;
}

// PEP 479: a StopIteration must not leave the frame as if it had returned.
Status stop_iteration_to_error() {
  Ref cause = take_raised();
  FJ_CHECK(cause);
  if (!PyErr_GivenExceptionMatches(cause.get(), PyExc_StopIteration)) {
    restore_raised(std::move(cause));
    return Status::raised();
  }
  PyErr_SetString(PyExc_RuntimeError, "generator raised StopIteration");
  Ref error = take_raised();
  PyException_SetCause(error.get(), cause.new_reference());
  PyException_SetContext(error.get(), cause.release());
  restore_raised(std::move(error));
  return Status::raised();
}

// The receiver a suspended `yield from` passes things on to; null: none.
PyObject* delegate_of(const Frame& frame) {
  if (frame.pc >= frame.decoded->ops().size() || frame.pc < 2) return nullptr;
  const MicroOp& next = frame.decoded->op(frame.pc);
  if (next.op != MicroOpKind::kResume || (next.arg & 3) < 2) return nullptr;
  return frame.stack.empty() ? nullptr : frame.stack.back().get();
}

// throw() of a generator suspended in `yield from`: the receiver gets it
// first. Empty: thrown (perhaps another exception by now) is to be raised here.
Result<std::optional<GeneratorStep>> throw_to_delegate(Interpreter& interpreter,
                                                       Frame& frame,
                                                       Ref* thrown) {
  Ref receiver = Ref::borrow(delegate_of(frame));
  if (!receiver) return std::optional<GeneratorStep>();
  if (!is_generator(receiver.get())) {
    return interpreter.make_break(BreakReason::kGeneratorFrame,
                                  "throw into yield from");
  }
  Result<GeneratorStep> step = GeneratorStep{};
  if (PyErr_GivenExceptionMatches(thrown->get(), PyExc_GeneratorExit)) {
    Status closed = generator_close(receiver.get());
    if (closed.ok()) return std::optional<GeneratorStep>();
    step = closed.forward<GeneratorStep>();
  } else {
    step = generator_resume(receiver.get(), Py_None, std::move(*thrown));
  }
  if (step.broke()) return step.take_break();
  if (!step.ok()) {
    *thrown = take_raised();
    return std::optional<GeneratorStep>();
  }
  if (!step.value().finished) {
    return std::optional<GeneratorStep>(step.take());
  }
  // The receiver returned: go on behind the loop of SEND with its value.
  const MicroOp& send = frame.decoded->op(frame.pc - 2);
  FJ_CHECK(send.op == MicroOpKind::kSend, "yield from without SEND");
  if (kSendDropsReceiver) frame.drop(1);
  frame.pc = send.target;
  *thrown = {};
  return std::optional<GeneratorStep>(
      GeneratorStep{true, std::move(step.value().value)});
}

class RunningScope {
 public:
  explicit RunningScope(Generator* generator) : generator_(generator) {
    generator_->running = true;
    Py_INCREF(generator);
  }
  ~RunningScope() {
    generator_->running = false;
    Py_DECREF(generator_);
  }

 private:
  Generator* generator_;
};

}  // namespace

bool is_generator(PyObject* object) {
  return Py_IS_TYPE(object, generator_type());
}

Result<Ref> make_generator(Interpreter& interpreter,
                           std::unique_ptr<Frame> frame) {
  PyTypeObject* type = generator_type();
  if (!type) return Result<Ref>::raised();
  Generator* generator = PyObject_GC_New(Generator, type);
  if (!generator) return Result<Ref>::raised();
  generator->interpreter =
      new std::shared_ptr<Interpreter*>(interpreter.handle());
  generator->frame = frame.release();
  generator->running = generator->started = false;
  generator->handled = {};
  PyObject_GC_Track(generator);
  auto* object = reinterpret_cast<PyObject*>(generator);
  note_unbuildable(interpreter.state, object);
  return Ref::steal(object);
}

Result<GeneratorStep> generator_resume(PyObject* object, PyObject* value,
                                       Ref thrown) {
  Generator* generator = as_generator(object);
  Interpreter* interpreter = *generator->interpreter->get();
  if (!interpreter) {
    return raise_format(PyExc_RuntimeError,
                        "generator of a capture that has ended")
        .forward<GeneratorStep>();
  }
  if (generator->running) {
    return raise_format(PyExc_ValueError, "generator already executing")
        .forward<GeneratorStep>();
  }
  if (thrown) FJ_CHECK_OK(check_may_raise(*interpreter, thrown.get()));
  if (!generator->frame) {
    if (thrown) {
      restore_raised(std::move(thrown));
      return Result<GeneratorStep>::raised();
    }
    return GeneratorStep{true, Ref::borrow(Py_None)};
  }
  if (!generator->started && !thrown && value != Py_None) {
    return raise_format(PyExc_TypeError,
                        "can't send non-None value to a just-started generator")
        .forward<GeneratorStep>();
  }
  Frame& frame = *generator->frame;
  generator->started = true;
  Ref received = Ref::borrow(value);
  if (thrown) {
    RunningScope running(generator);
    FJ_TRY(std::optional<GeneratorStep> step,
           throw_to_delegate(*interpreter, frame, &thrown));
    if (step && !step->finished) return std::move(*step);
    if (step) received = std::move(step->value);
  }
  // Thrown: the sent value's place stays filled, as in CPython.
  frame.push(thrown ? Ref::borrow(Py_None) : std::move(received));
  Result<Interpreter::Exit> exit = [&] {
    RunningScope running(generator);
    HandledExceptionScope handled(&generator->handled, false);
    return interpreter->run(frame, std::move(thrown));
  }();
  if (exit.ok() && exit.value().flow == Flow::kYield) {
    return GeneratorStep{false, std::move(exit.value().value)};
  }
  if (exit.broke()) return exit.take_break();
  drop_frame(generator);
  if (exit.ok()) return GeneratorStep{true, std::move(exit.value().value)};
  return stop_iteration_to_error().forward<GeneratorStep>();
}

Status generator_close(PyObject* object) {
  Generator* generator = as_generator(object);
  if (!generator->frame) return ok_status();
  if (!generator->started) {
    drop_frame(generator);
    return ok_status();
  }
  FJ_TRY(Ref exit, from_api(PyObject_CallNoArgs(PyExc_GeneratorExit)));
  Result<GeneratorStep> step =
      generator_resume(object, Py_None, std::move(exit));
  if (step.ok()) {
    if (step.value().finished) return ok_status();
    return raise_format(PyExc_RuntimeError, "generator ignored GeneratorExit");
  }
  if (step.broke()) return step.take_break();
  if (PyErr_ExceptionMatches(PyExc_GeneratorExit) ||
      PyErr_ExceptionMatches(PyExc_StopIteration)) {
    PyErr_Clear();
    return ok_status();
  }
  return Status::raised();
}

}  // namespace framejit::bytecode
