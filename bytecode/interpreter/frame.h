// Frame: one activation of Python code inside the symbolic interpreter.
//
// Mirrors a CPython frame with real objects: `slots` is localsplus (locals,
// cells, free variables; an empty Ref is unbound), `stack` is the value stack
// (an empty Ref is a NULL). Cells are real cell objects in their slots. Frames
// of inlined calls live on the C++ stack, those of generators in the generator
// object. The object that a value came from is never here: origins are side
// tables of CaptureState.
#pragma once

#include <vector>

#include "bytecode/code/decoder.h"
#include "guards/result.h"
#include "guards/set/source.h"

namespace framejit::bytecode {

struct Frame {
  Ref function;                          // PyFunctionObject
  Ref code;                              // PyCodeObject
  const DecodedCode* decoded = nullptr;  // lives as long as the code
  Ref globals;                           // dict
  Ref builtins;                          // dict
  const Source* source = nullptr;  // of the function; null: made in the capture
  Ref locals;                      // what locals() gave
  std::vector<Ref> slots;
  std::vector<Ref> stack;
  size_t pc = 0;       // next micro-op
  size_t current = 0;  // the one being executed
  Frame* caller = nullptr;
  bool outermost = false;
  // A function of FrameJIT's own, interpreted in place of a library's.
  bool is_substitute = false;
  // Differs from the caller's: frames of the program lie between the two.
  int hidden = 0;
  bool generator = false;
  // Except blocks entered and not yet left in this frame: where on the stack
  // each keeps the exception handled before it.
  std::vector<size_t> handlers;
  // Of a resume function: those that were entered before it began, by code
  // that ran natively. The thread, not the capture, knows their exceptions.
  int thread_handlers = 0;
  // Micro-ops that a jump has come back to, and those where a loop begins that
  // is left to CPython (bytecode/residual/left_loops.h).
  std::vector<size_t> turned;
  std::vector<size_t> left_loops;
  // Arguments nobody has looked at yet: slot -> source; empty: none. What is
  // never read is never guarded.
  std::vector<const Source*> unread;
  bool is_unread(int slot) const {
    return size_t(slot) < unread.size() && unread[slot];
  }
  void forget_unread(int slot) {
    if (size_t(slot) < unread.size()) unread[slot] = nullptr;
  }

  PyCodeObject* code_object() const {
    return reinterpret_cast<PyCodeObject*>(code.get());
  }
  void push(Ref value) { stack.push_back(std::move(value)); }
  Ref pop() {
    FJ_CHECK(!stack.empty(), "stack underflow");
    Ref value = std::move(stack.back());
    stack.pop_back();
    return value;
  }
  // depth 1 is the top.
  Ref& peek(size_t depth) {
    FJ_CHECK(depth >= 1 && depth <= stack.size(), "stack underflow");
    return stack[stack.size() - depth];
  }
  PyObject* top(size_t depth = 1) { return peek(depth).get(); }
  void drop(size_t count) {
    FJ_CHECK(count <= stack.size(), "stack underflow");
    // The last reference may run a finalizer: never while the vector is in an
    // intermediate state.
    for (; count > 0; --count) pop();
  }
  std::vector<PyObject*> top_values(size_t count) {
    FJ_CHECK(count <= stack.size(), "stack underflow");
    std::vector<PyObject*> values;
    values.reserve(count);
    for (size_t i = stack.size() - count; i < stack.size(); ++i) {
      values.push_back(stack[i].get());
    }
    return values;
  }
};

// What a micro-op's handler tells the loop.
enum class Flow : uint8_t {
  kNext,       // go on at frame.pc
  kReturn,     // the top of the stack is the return value
  kYield,      // the top of the stack is the yielded value
  kGenerator,  // the frame becomes a generator's
};

}  // namespace framejit::bytecode
