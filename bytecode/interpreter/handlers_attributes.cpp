// Attributes, methods and super().
#include "bytecode/interpreter/handlers.h"
#include "bytecode/objects/attributes.h"

namespace framejit::bytecode {
namespace {

// Method loads push a bound method and a NULL: the interpreter gains nothing
// from the unbound pair, and a residual frame can hold this one.
void push_method(Frame& frame, Ref method) {
  if (!kCallableFirst) frame.push({});
  frame.push(std::move(method));
  if (kCallableFirst) frame.push({});
}

}  // namespace

FJ_HANDLER(LoadAttr) {
  FJ_TRY(Ref value, interp.state.get_attr(frame.top(), op.object));
  return replace_top(frame, 1, std::move(value));
}

FJ_HANDLER(LoadMethod) {
  FJ_TRY(Ref value, load_method(interp.state, frame.top(), op.object));
  frame.drop(1);
  push_method(frame, std::move(value));
  return Flow::kNext;
}

FJ_HANDLER(StoreAttr) {
  FJ_CHECK_OK(interp.state.set_attr(frame.top(1), op.object, frame.top(2)));
  frame.drop(2);
  return Flow::kNext;
}

FJ_HANDLER(DeleteAttr) {
  FJ_CHECK_OK(interp.state.del_attr(frame.top(), op.object));
  frame.drop(1);
  return Flow::kNext;
}

FJ_HANDLER(LoadSuperAttr) {
  // The name `super` may have been rebound: then it is an ordinary call.
  Ref value;
  if (frame.top(3) == reinterpret_cast<PyObject*>(&PySuper_Type)) {
    FJ_TRY(value,
           interp.state.super_attr(frame.top(2), frame.top(1), op.object));
  } else {
    Arguments args;
    if (op.arg) args = {frame.top(2), frame.top(1)};
    FJ_TRY(Ref object, interp.call(frame.top(3), std::move(args)));
    FJ_TRY(value, interp.state.get_attr(object.get(), op.object));
  }
  frame.drop(3);
  if (op.arg2) {
    push_method(frame, std::move(value));
  } else {
    frame.push(std::move(value));
  }
  return Flow::kNext;
}

}  // namespace framejit::bytecode
