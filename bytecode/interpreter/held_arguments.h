// What the program lets go of while a capture, or a compiled call, still holds
// it: arguments.
//
// The frame of a resume function owns what it was given: `del a` there may end
// an object's life, and run its finalizer. A capture keeps its inputs, and a
// compiled call its arguments, to the end. So the capture watches the
// arguments: when the outermost frame has lost one, it breaks at that
// instruction if anybody could tell (guards/set/let_go.h), and guards that
// nobody can if not. What the write log removes from objects of the program is
// seen there.
#pragma once

#include <vector>

#include "bytecode/interpreter/frame.h"
#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

class HeldArguments {
 public:
  HeldArguments(CaptureState& state, const CaptureRequest& request);
  // After an instruction of the outermost frame.
  Status check(const Frame& frame);

 private:
  struct Argument {
    PyObject* object;
    const Source* source;
    size_t slot;
  };
  bool holds(const Frame& frame, Argument& argument) const;
  bool is(const Argument& argument, PyObject* value) const;

  CaptureState& state_;
  std::vector<Argument> arguments_;
};

}  // namespace framejit::bytecode
