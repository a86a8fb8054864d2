// Jumps, loops, returns.
#include "bytecode/interpreter/generators.h"
#include "bytecode/interpreter/handlers.h"

namespace framejit::bytecode {

FJ_HANDLER(Jump) {
  frame.pc = op.target;
  return Flow::kNext;
}

FJ_HANDLER(PopJump) {
  bool taken;
  if (op.arg == kIfNone || op.arg == kIfNotNone) {
    taken = (frame.top() == Py_None) == (op.arg == kIfNone);
  } else {
    FJ_TRY(bool truth, interp.state.truth(frame.top()));
    taken = truth == (op.arg == kIfTrue);
  }
  frame.drop(1);
  if (taken) frame.pc = op.target;
  return Flow::kNext;
}

FJ_HANDLER(JumpOrPop) {
  FJ_TRY(bool truth, interp.state.truth(frame.top()));
  if (truth == (op.arg == kIfTrue)) {
    frame.pc = op.target;
  } else {
    frame.drop(1);
  }
  return Flow::kNext;
}

FJ_HANDLER(GetIter) {
  FJ_TRY(Ref iterator, interp.state.iter(frame.top()));
  return replace_top(frame, 1, std::move(iterator));
}

FJ_HANDLER(ForIter) {
  // Own reference: the loop body of a generator may drop the iterator.
  Ref iterator = frame.peek(1);
  Ref value;
  if (is_generator(iterator.get())) {
    FJ_TRY(GeneratorStep step, generator_resume(iterator.get(), Py_None));
    if (!step.finished) value = std::move(step.value);
  } else {
    FJ_TRY(value, interp.state.next(iterator.get()));
  }
  if (value) {
    frame.push(std::move(value));
  } else {
    frame.drop(1);
    frame.pc = op.target;
  }
  return Flow::kNext;
}

FJ_HANDLER(EndFor) {
  frame.drop(op.arg);
  return Flow::kNext;
}

FJ_HANDLER(Return) { return Flow::kReturn; }

FJ_HANDLER(ReturnConst) {
  frame.push(Ref::borrow(op.object));
  return Flow::kReturn;
}

}  // namespace framejit::bytecode
