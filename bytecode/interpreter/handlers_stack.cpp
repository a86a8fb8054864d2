// Micro-ops that move references: the stack, slots, cells and names.
#include "bytecode/interpreter/handlers.h"
#include "bytecode/interpreter/printed_texts.h"
#include "bytecode/interpreter/texts_handed_on.h"
#include "bytecode/objects/exceptions.h"
#include "bytecode/objects/late_reads.h"
#include "bytecode/objects/late_text.h"
#include "bytecode/objects/moved_texts.h"

namespace framejit::bytecode {
namespace {

PyObject* slot_name(const Frame& frame, int slot) {
  return frame.decoded->slot_name(slot);
}

Result<Flow> unbound_local(const Frame& frame, int slot) {
  return raise_format(PyExc_UnboundLocalError,
                      "cannot access local variable '%U' where it is not "
                      "associated with a value",
                      slot_name(frame, slot))
      .forward<Flow>();
}

Result<Flow> unbound_deref(const Frame& frame, int slot) {
  if (!frame.decoded->slot_is_free(slot)) return unbound_local(frame, slot);
  return raise_name_error(
             "cannot access free variable '%U' where it is not associated with "
             "a value in enclosing scope",
             slot_name(frame, slot))
      .forward<Flow>();
}

}  // namespace

Result<Flow> undefined_name(PyObject* name) {
  return raise_name_error("name '%U' is not defined", name).forward<Flow>();
}

Status read_argument(Interpreter& interp, Frame& frame, int slot) {
  if (!frame.is_unread(slot)) return ok_status();
  FJ_TRY(Ref value,
         interp.state.wrap(frame.slots[slot].get(), frame.unread[slot]));
  frame.slots[slot] = std::move(value);
  frame.forget_unread(slot);
  return ok_status();
}

FJ_HANDLER(Nop) { return Flow::kNext; }
FJ_HANDLER(Resume) { return Flow::kNext; }

FJ_HANDLER(Pop) {
  frame.drop(1);
  return Flow::kNext;
}

FJ_HANDLER(Copy) {
  frame.push(frame.peek(op.arg));
  return Flow::kNext;
}

FJ_HANDLER(Swap) {
  std::swap(frame.peek(1), frame.peek(op.arg));
  return Flow::kNext;
}

FJ_HANDLER(PushNull) {
  frame.push({});
  return Flow::kNext;
}

FJ_HANDLER(LoadConst) {
  frame.push(Ref::borrow(op.object));
  return Flow::kNext;
}

namespace {

// The result of the breaking call, which a resume function puts on the stack
// first, is mostly popped: nobody looks at it.
bool is_dropped_at_once(const Frame& frame) {
  const std::vector<MicroOp>& ops = frame.decoded->ops();
  size_t pc = frame.pc;
  for (int i = 0; i < 8 && pc < ops.size(); ++i) {
    switch (ops[pc].op) {
      case MicroOpKind::kNop:
      case MicroOpKind::kDeleteFast:
        ++pc;
        break;
      case MicroOpKind::kJump:
        pc = ops[pc].target;
        break;
      default:
        return ops[pc].op == MicroOpKind::kPop;
    }
  }
  return false;
}

// Of an argument of a resume function that is a text and is printed only: an
// f-string in the middle of which was a break. Empty: it is read.
Result<Ref> late_text(Interpreter& interp, const Frame& frame, int slot) {
  if (!frame.is_unread(slot)) return Ref();
  PyObject* value = frame.slots[slot].get();
  if (!PyUnicode_CheckExact(value) ||
      !goes_to_print(frame, frame.stack.size() + 1))
    return Ref();
  return late_text_of_input(interp.state, value, frame.unread[slot]);
}

// Of one that is returned or stored. Empty: it is read.
Result<Ref> text_handed_on(Interpreter& interp, const Frame& frame, int slot) {
  if (!frame.is_unread(slot)) return Ref();
  PyObject* value = frame.slots[slot].get();
  bool is_text = PyUnicode_CheckExact(value) || PyBytes_CheckExact(value);
  if (!is_text || !is_handed_on(frame, frame.stack.size() + 1)) return Ref();
  return moved_text(interp.state, value, frame.unread[slot]);
}

}  // namespace

FJ_HANDLER(LoadFast) {
  if (frame.is_unread(op.arg) && is_dropped_at_once(frame)) {
    frame.push(frame.slots[op.arg]);
    return Flow::kNext;
  }
  FJ_TRY(Ref late, late_text(interp, frame, op.arg));
  if (late) {
    frame.push(std::move(late));
    return Flow::kNext;
  }
  FJ_TRY(Ref moved, text_handed_on(interp, frame, op.arg));
  if (moved) {
    frame.push(std::move(moved));
    return Flow::kNext;
  }
  FJ_CHECK_OK(read_argument(interp, frame, op.arg));
  Ref& slot = frame.slots[op.arg];
  if (!slot) return unbound_local(frame, op.arg);
  frame.push(slot);
  return Flow::kNext;
}

FJ_HANDLER(LoadFastCheck) { return op_LoadFast(interp, frame, op); }

FJ_HANDLER(StoreFast) {
  Ref value = frame.pop();
  frame.forget_unread(op.arg);
  // The old value goes last: it may run a finalizer.
  std::swap(frame.slots[op.arg], value);
  return Flow::kNext;
}

FJ_HANDLER(DeleteFast) {
  if (!frame.slots[op.arg]) return unbound_local(frame, op.arg);
  frame.forget_unread(op.arg);
  Ref old = std::move(frame.slots[op.arg]);
  return Flow::kNext;
}

FJ_HANDLER(LoadFastAndClear) {
  FJ_TRY(Ref late, late_text(interp, frame, op.arg));
  if (late) {
    frame.slots[op.arg] = std::move(late);
  } else if (!frame.is_unread(op.arg) || !is_dropped_at_once(frame)) {
    FJ_CHECK_OK(read_argument(interp, frame, op.arg));
  }
  frame.forget_unread(op.arg);
  frame.push(std::move(frame.slots[op.arg]));
  return Flow::kNext;
}

FJ_HANDLER(MakeCell) {
  FJ_CHECK_OK(read_argument(interp, frame, op.arg));
  Ref& slot = frame.slots[op.arg];
  FJ_TRY(Ref cell, from_api(PyCell_New(slot.get())));
  interp.state.table<CellOwners>().owners.insert_or_assign(
      cell.get(),
      CellOwners::Owner{frame.code, op.arg, reads_late(interp.state)});
  slot = std::move(cell);
  return Flow::kNext;
}

FJ_HANDLER(LoadClosure) {
  FJ_CHECK_OK(read_argument(interp, frame, op.arg));
  FJ_CHECK(frame.slots[op.arg], "a cell that was not made");
  frame.push(frame.slots[op.arg]);
  return Flow::kNext;
}

FJ_HANDLER(LoadDeref) {
  FJ_CHECK_OK(read_argument(interp, frame, op.arg));
  FJ_TRY(Ref value, interp.state.cell_get(frame.slots[op.arg].get()));
  if (!value) return unbound_deref(frame, op.arg);
  frame.push(std::move(value));
  return Flow::kNext;
}

FJ_HANDLER(StoreDeref) {
  FJ_CHECK_OK(read_argument(interp, frame, op.arg));
  FJ_CHECK_OK(interp.state.cell_set(frame.slots[op.arg].get(), frame.top()));
  frame.drop(1);
  return Flow::kNext;
}

FJ_HANDLER(DeleteDeref) {
  FJ_CHECK_OK(read_argument(interp, frame, op.arg));
  PyObject* cell = frame.slots[op.arg].get();
  FJ_TRY(Ref value, interp.state.cell_get(cell));
  if (!value) return unbound_deref(frame, op.arg);
  FJ_CHECK_OK(interp.state.cell_set(cell, nullptr));
  return Flow::kNext;
}

FJ_HANDLER(CopyFreeVars) {
  auto* function = reinterpret_cast<PyFunctionObject*>(frame.function.get());
  PyObject* closure = function->func_closure;
  int first = frame.decoded->first_free();
  FJ_CHECK(closure && PyTuple_GET_SIZE(closure) == op.arg, "closure size");
  SourceArena& sources = interp.state.guards.sources();
  for (int i = 0; i < op.arg; ++i) {
    PyObject* cell = PyTuple_GET_ITEM(closure, i);
    if (frame.source && !interp.state.is_input(cell)) {
      interp.state.register_input(cell, sources.make(SourceKind::kClosureCell,
                                                     frame.source, nullptr, i));
    }
    frame.slots[first + i] = Ref::borrow(cell);
  }
  return Flow::kNext;
}

FJ_HANDLER(LoadGlobal) {
  CaptureState& state = interp.state;
  FJ_TRY(Ref value, state.dict_get(frame.globals.get(), op.object));
  if (!value) {
    FJ_TRY(value, state.dict_get(frame.builtins.get(), op.object));
  }
  if (!value) return undefined_name(op.object);
  if (op.arg2 && !kCallableFirst) frame.push({});
  frame.push(std::move(value));
  if (op.arg2 && kCallableFirst) frame.push({});
  return Flow::kNext;
}

FJ_HANDLER(StoreGlobal) {
  FJ_CHECK_OK(
      interp.state.dict_set(frame.globals.get(), op.object, frame.top()));
  frame.drop(1);
  return Flow::kNext;
}

FJ_HANDLER(DeleteGlobal) {
  PyObject* globals = frame.globals.get();
  FJ_TRY(Ref value, interp.state.dict_get(globals, op.object));
  if (!value) return undefined_name(op.object);
  FJ_CHECK_OK(interp.state.dict_del(globals, op.object));
  return Flow::kNext;
}

FJ_HANDLER(LoadAssertionError) {
  frame.push(Ref::borrow(PyExc_AssertionError));
  return Flow::kNext;
}

}  // namespace framejit::bytecode
