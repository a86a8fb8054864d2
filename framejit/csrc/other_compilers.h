// FrameJIT beside torch.compile (docs/beside-torch-compile.md).
//
// What torch.compile compiles it compiles alone: on a thread where Dynamo is at
// work calls of compiled functions run the originals, which Dynamo sees as it
// sees any function. What was given to torch.compile is not looked into by a
// capture.
#pragma once

#include "frame_hook/py_ref.h"

namespace framejit {

// Tells the frame hook how to ask whether Dynamo is at work. False: an error is
// set.
bool watch_other_compilers();
// A function that torch.compile returned, or one it was told to leave alone.
bool belongs_to_other_compiler(PyObject* function);

}  // namespace framejit
