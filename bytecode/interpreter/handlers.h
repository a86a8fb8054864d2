// One handler per micro-op: op_LoadFast, op_Call ... A micro-op that is not
// captured has a row in handlers_unsupported.cpp, which breaks with a reason;
// one with neither does not link.
#pragma once

#include "bytecode/interpreter/interpreter.h"

namespace framejit::bytecode {

#define FJ_MICRO(name) \
  Result<Flow> op_##name(Interpreter& interp, Frame& frame, const MicroOp& op);
FJ_MICRO_OPS(FJ_MICRO)
#undef FJ_MICRO

#define FJ_HANDLER(name)                                       \
  Result<Flow> op_##name([[maybe_unused]] Interpreter& interp, \
                         [[maybe_unused]] Frame& frame,        \
                         [[maybe_unused]] const MicroOp& op)

// Replaces the top `count` stack items by `value`.
inline Flow replace_top(Frame& frame, size_t count, Ref value) {
  frame.drop(count);
  frame.push(std::move(value));
  return Flow::kNext;
}
// The argument in a slot becomes an input at its first use.
Status read_argument(Interpreter& interp, Frame& frame, int slot);
// Raises "name '...' is not defined".
Result<Flow> undefined_name(PyObject* name);
inline Ref py_bool(bool value) {
  return Ref::borrow(value ? Py_True : Py_False);
}

// "mod.f()": as CPython words errors about * and ** of a call. Empty: raised.
Ref function_text(PyObject* function);
Result<bool> is_iterable(CaptureState& state, PyObject* object);

// Keys and values of a mapping that C code would read as a whole (DICT_UPDATE,
// DICT_MERGE, ** of a call); guards the content of an input.
Result<std::vector<std::pair<Ref, Ref>>> mapping_items(Interpreter& interp,
                                                       PyObject* mapping);

}  // namespace framejit::bytecode
