// Residual and resume code: how a frame goes on after a graph break.
//
// The capture stopped at an instruction of a user function. make_residual()
// generates, from that function's code,
//  - the *residual* code: a prologue puts slots and stack back as they were,
//    a copy of the breaking instruction runs inside its original handler
//    range, and behind it, outside any handler, one tail per successor returns
//    the token (token_marker(), resume function, arguments...). When the
//    instruction raises, the user's own handlers run (the whole body follows),
//    natively, to the end of the function;
//  - one *resume* code per successor: the same prologue, then the original body
//    entered behind the break. It is captured and dispatched like any function.
//
//   def f(x):                     residual(x, stack...):  prologue
//     y = x + 1                     -> CALL print
//     print(y)    # breaks             tail: return (marker, resume, x, y,
//     None) return y * 2                resume(x, y, .s0):      prologue;
//     POP_TOP; ...
//
// Names, file and line numbers stay the user's. The tail makes the resume
// function with MAKE_FUNCTION, so it has the globals of the residual function,
// which must be those of the user's. Neither has a closure, whatever its code's
// co_freevars say: free variables' cells are arguments. All code is derived
// from the user's original code, also for a break inside a resume function,
// and cached by (instruction, shape of the frame): a break in a loop comes to
// the same resume code at each turn.
//
// Where a loop is too long to be captured, the residual code is all of the
// loop: its prologue jumps to the header in a copy of the body, in which the
// tails stand where control leaves the loop (loops.h).
#pragma once

#include <string>
#include <vector>

#include "bytecode/code/stack_effects.h"
#include "bytecode/library/library.h"

namespace framejit::bytecode {

enum class StackItemKind : uint8_t {
  kValue,
  kNull,
  kLasti,  // int: the code unit that raised (see lasti), for RERAISE
  // In an except block that is active in the interpreter only, not in the
  // thread: the exception PUSH_EXC_INFO saved. Its argument is the exception
  // being handled since; the residual code does PUSH_EXC_INFO with it.
  kSavedException,
};

struct StackItem {
  StackItemKind kind = StackItemKind::kValue;
  int lasti = 0;  // code unit in the broken code
  bool operator==(const StackItem&) const = default;
};

// The static shape of a frame just before the breaking instruction (before
// KW_NAMES and PRECALL, if any: the stack is the same).
struct FrameState {
  std::vector<bool> bound;  // per localsplus slot; a slot with a cell is bound
  std::vector<StackItem> stack;  // bottom first
  // Except blocks that are active, those of the thread included.
  int active_handlers = 0;
};

// What to pass as one positional argument of the residual function.
struct ResidualArg {
  enum class From : uint8_t {
    kSlot,     // localsplus slot `index` of the broken code (a cell as it is)
    kStack,    // stack item `index` from the bottom; for a kSavedException,
               // the exception handled there
    kNothing,  // an unbound slot: None
  };
  From from = From::kNothing;
  int index = 0;
};

struct ResidualCode {
  Ref code;
  std::vector<ResidualArg> args;
  std::vector<Ref> resume_codes;  // one per successor; none after RETURN, RAISE
};

// What the residual code runs before it returns a token.
enum class Extent : uint8_t {
  kInstruction,
  kLoop,  // the loop whose header the instruction is, to its end
};

// `offset`: byte offset of the breaking instruction in `code`, which is a user
// function's or a resume code. A FrameState that cannot be true there, or a
// place with no break, is a Break.
Result<ResidualCode> make_residual(PyObject* code, int offset,
                                   const FrameState& state,
                                   Extent extent = Extent::kInstruction);

// Behind a loop a variable may be bound or not. Where it is not, the argument
// of the resume function is this marker; its code makes the slot unbound first
// of all.
PyObject* unbound_marker();  // borrowed, immortal
struct MaybeUnbound {
  std::vector<int> slots;
  int checked_offset = 0;  // the instruction behind the code that looks
};
MaybeUnbound maybe_unbound(PyObject* code);

// What the bytecode says of each stack item before an instruction, bottom
// first; empty when there is no break. An int on the stack is an instruction
// offset exactly where this says kLasti (also in resume code, whose prologue
// loads it as a constant).
std::vector<StackKind> stack_kinds_at(PyObject* code, int offset);
// The StackItem for a value of the interpreter's stack (null: a NULL).
StackItem stack_item(StackKind kind, PyObject* value);

// Why there is no break at an instruction; null when there is.
const char* why_not_breakable(PyObject* code, int offset);

// Except blocks that are active when a resume code begins. 0: other code.
int handlers_at_resume(PyObject* code);

// Generated code and where it came from.
bool is_resume_code(PyObject* code);
bool is_residual_code(PyObject* code);  // never to be captured
// For a byte offset in generated code, the offset in the user's code (-1: in
// the prologue). Unchanged for the user's own code.
int original_offset(PyObject* code, int offset);
// Rows of libraries for the user's code, or for that which generated code is
// made from.
FunctionRows original_rows(PyObject* code);

// Drops the generated code that the user's code object keeps for reuse.
void release_residual_codes(PyObject* code);

}  // namespace framejit::bytecode
