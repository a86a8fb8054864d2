// Functions that the program makes anew for each call.
//
//   def f(x):
//     g = lambda t: t + 1
//     framejit.graph_break()
//     return g(x)             # the rest of f: another g each time
//
// A function is guarded by its identity, and an entry that names one dies with
// it. One that comes in at a place where the capture before met another of the
// same code is guarded by its parts instead: its code and, as far as they are
// read, its defaults, cells and globals, like those of the function that is
// compiled. That holds as long as it is only called, passed on and returned:
// whatever else may look at it pins it.
#pragma once

#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

// Guards the function by its parts, if it is one of these, and says so.
bool guard_by_parts(CaptureState& state, PyObject* function,
                    const Source* source);
// The object may be told apart from others: pins it, if it is one of these.
void pin_remade(CaptureState& state, PyObject* object);
bool has_remade(const CaptureState& state);
// What came in where, in captures so far.
void forget_functions_seen();
template <class Objects>
void pin_all_remade(CaptureState& state, const Objects& objects) {
  if (!has_remade(state)) return;
  for (const auto& object : objects) pin_remade(state, object);
}

}  // namespace framejit::bytecode
