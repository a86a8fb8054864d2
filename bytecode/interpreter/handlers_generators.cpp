// Generator frames: yield, yield from, and the intrinsic functions of 3.12.
#include "bytecode/interpreter/generators.h"
#include "bytecode/interpreter/handlers.h"
#include "bytecode/objects/exceptions.h"

namespace framejit::bytecode {
namespace {

// One value of `yield from receiver`. finished: the value is StopIteration's.
Result<GeneratorStep> send_value(Interpreter& interp, PyObject* receiver,
                                 PyObject* value) {
  if (is_generator(receiver)) return generator_resume(receiver, value);
  if (value != Py_None) {
    FJ_TRY(Ref method, interp.state.get_attr(receiver, names().send));
    Result<Ref> sent = interp.call(method.get(), {value});
    if (sent.ok()) return GeneratorStep{false, sent.take()};
    if (sent.broke()) return sent.take_break();
  } else {
    FJ_TRY(Ref special, interp.state.python_special(receiver, "__next__"));
    if (!special) {
      FJ_TRY(Ref next, interp.state.next(receiver));
      if (next) return GeneratorStep{false, std::move(next)};
      return GeneratorStep{true, Ref::borrow(Py_None)};
    }
    Result<Ref> next = interp.call(special.get(), {receiver});
    if (next.ok()) return GeneratorStep{false, next.take()};
    if (next.broke()) return next.take_break();
  }
  if (!PyErr_ExceptionMatches(PyExc_StopIteration)) {
    return Result<GeneratorStep>::raised();
  }
  Ref stop = take_raised();
  PyObject* result =
      reinterpret_cast<PyStopIterationObject*>(stop.get())->value;
  return GeneratorStep{true, Ref::borrow(result ? result : Py_None)};
}

}  // namespace

FJ_HANDLER(ReturnGenerator) { return Flow::kGenerator; }

FJ_HANDLER(Yield) {
  if (!frame.generator) {
    return interp.make_break(BreakReason::kGeneratorFrame);
  }
  return Flow::kYield;
}

FJ_HANDLER(Send) {
  Ref receiver = frame.peek(2);
  Ref value = frame.peek(1);
  FJ_TRY(GeneratorStep step, send_value(interp, receiver.get(), value.get()));
  frame.drop(1);
  if (!step.finished) {
    frame.push(std::move(step.value));
    return Flow::kNext;
  }
  if (kSendDropsReceiver) frame.drop(1);
  frame.push(std::move(step.value));
  frame.pc = op.target;
  return Flow::kNext;
}

FJ_HANDLER(EndSend) {
  Ref value = frame.pop();
  return replace_top(frame, 1, std::move(value));
}

FJ_HANDLER(GetYieldFromIter) {
  if (is_generator(frame.top())) return Flow::kNext;
  FJ_TRY(Ref iterator, interp.state.iter(frame.top()));
  return replace_top(frame, 1, std::move(iterator));
}

FJ_HANDLER(CallIntrinsic1) {
  if (op.arg == kStopIterationError) {
    // The operand stays: the resumption turns StopIteration into an error.
    return Flow::kNext;
  }
  return interp.make_break(BreakReason::kUnsupportedOpcode,
                           "intrinsic function " + std::to_string(op.arg));
}

FJ_HANDLER(CallIntrinsic2) {
  return interp.make_break(BreakReason::kUnsupportedOpcode,
                           "intrinsic function " + std::to_string(op.arg));
}

}  // namespace framejit::bytecode
