// Operators, comparison, subscripts.
#include "bytecode/interpreter/handlers.h"
#include "bytecode/interpreter/printed_texts.h"
#include "bytecode/interpreter/texts_handed_on.h"
#include "bytecode/objects/late_text.h"
#include "bytecode/objects/moved_texts.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {
namespace {

Result<Ref> make_slice(Frame& frame, size_t start_depth, size_t stop_depth) {
  return from_api(
      PySlice_New(frame.top(start_depth), frame.top(stop_depth), nullptr));
}

// Of str % numbers, which goes to print(). Empty: another operation.
Result<Ref> late_text(Interpreter& interp, Frame& frame, int operation) {
  constexpr int kRemainder = 6;  // NB_REMAINDER
  if (operation != kRemainder || !PyUnicode_CheckExact(frame.top(2)) ||
      !goes_to_print(frame, frame.stack.size() - 1))
    return Ref();
  return late_call(interp.state, library_object("_operator", "mod"),
                   {frame.top(2), frame.top(1)});
}

}  // namespace

FJ_HANDLER(Binary) {
  FJ_TRY(Ref late, late_text(interp, frame, op.arg));
  if (late) return replace_top(frame, 2, std::move(late));
  FJ_TRY(Ref value,
         interp.state.binary(op.arg, op.arg2 != 0, frame.top(2), frame.top(1)));
  return replace_top(frame, 2, std::move(value));
}

FJ_HANDLER(Unary) {
  if (op.arg == kNot) {
    FJ_TRY(bool truth, interp.state.truth(frame.top()));
    return replace_top(frame, 1, py_bool(!truth));
  }
  FJ_TRY(Ref value, interp.state.unary(op.arg, frame.top()));
  return replace_top(frame, 1, std::move(value));
}

FJ_HANDLER(ToBool) {
  FJ_TRY(bool truth, interp.state.truth(frame.top()));
  return replace_top(frame, 1, py_bool(truth));
}

FJ_HANDLER(Compare) {
  FJ_TRY(Ref value, interp.state.compare(op.arg, frame.top(2), frame.top(1)));
  if (op.arg2) {
    FJ_TRY(bool truth, interp.state.truth(value.get()));
    value = py_bool(truth);
  }
  return replace_top(frame, 2, std::move(value));
}

FJ_HANDLER(Is) {
  FJ_TRY(bool same, interp.state.is_same(frame.top(2), frame.top(1)));
  return replace_top(frame, 2, py_bool(same != (op.arg != 0)));
}

FJ_HANDLER(Contains) {
  FJ_TRY(bool found, interp.state.contains(frame.top(1), frame.top(2)));
  return replace_top(frame, 2, py_bool(found != (op.arg != 0)));
}

namespace {

// An item of a container, asked for by what runs no code of the program.
bool is_plain_item(PyObject* container, PyObject* key) {
  bool is_plain = PyDict_CheckExact(container) ||
                  PyList_CheckExact(container) || PyTuple_CheckExact(container);
  return is_plain && (PyUnicode_CheckExact(key) || PyLong_CheckExact(key));
}

}  // namespace

FJ_HANDLER(Subscr) {
  MovingScope moving(interp.state,
                     is_plain_item(frame.top(2), frame.top(1)) &&
                         is_handed_on(frame, frame.stack.size() - 1));
  FJ_TRY(Ref value, interp.state.get_item(frame.top(2), frame.top(1)));
  return replace_top(frame, 2, std::move(value));
}

FJ_HANDLER(StoreSubscr) {
  FJ_CHECK_OK(interp.state.set_item(frame.top(2), frame.top(1), frame.top(3)));
  frame.drop(3);
  return Flow::kNext;
}

FJ_HANDLER(DeleteSubscr) {
  FJ_CHECK_OK(interp.state.del_item(frame.top(2), frame.top(1)));
  frame.drop(2);
  return Flow::kNext;
}

FJ_HANDLER(BinarySlice) {
  FJ_TRY(Ref slice, make_slice(frame, 2, 1));
  FJ_TRY(Ref value, interp.state.get_item(frame.top(3), slice.get()));
  return replace_top(frame, 3, std::move(value));
}

FJ_HANDLER(StoreSlice) {
  FJ_TRY(Ref slice, make_slice(frame, 2, 1));
  FJ_CHECK_OK(interp.state.set_item(frame.top(3), slice.get(), frame.top(4)));
  frame.drop(4);
  return Flow::kNext;
}

FJ_HANDLER(GetLen) {
  FJ_TRY(Ref length, interp.state.length(frame.top()));
  frame.push(std::move(length));
  return Flow::kNext;
}

}  // namespace framejit::bytecode
