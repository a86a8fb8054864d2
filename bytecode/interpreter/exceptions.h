// Exceptions and frames: tracebacks get the lines of interpreted frames, and a
// frame's exception table says who handles what is raised in it.
#pragma once

#include "bytecode/interpreter/frame.h"
#include "bytecode/objects/capture_state.h"
#include "bytecode/objects/exceptions.h"

namespace framejit::bytecode {

class Interpreter;

// What CPython does when an exception reaches a frame: puts the line of the
// instruction being executed at the head of the traceback.
Status add_traceback_line(const Frame& frame, PyObject* exception);

// Raising writes to the exception (traceback, context, cause). One of the
// program's own must not change in a capture: Break.
Status check_may_raise(const Interpreter& interp, PyObject* exception);

// The handler for the instruction being executed. True: the stack was cut, the
// exception pushed, and pc set; false: the exception leaves the frame.
bool enter_handler(Frame& frame, const Ref& exception);

// Would code of the program run if the instruction being executed raised? What
// the compiler adds (leaving an except block, unbinding its name) is no such
// code, nor are contexts that only put back a state of torch.
bool has_handler(const Frame& frame);

// Was the exception raised by the instruction itself, over a stand-in or a
// symbolic number among its operands? Then it may be one that the real object
// would not raise, or would raise with other words, and no handler may see it.
// (What an interpreted frame beneath raised has that frame's line already.)
bool is_raised_over_foreign(CaptureState& state, Frame& frame,
                            PyObject* exception);

}  // namespace framejit::bytecode
