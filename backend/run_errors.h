// What goes wrong while a graph runs, as a Python error.
#pragma once

#include <string>

namespace framejit::backend {

// Inside a handler: sets the Python error for the C++ exception, unless there
// is one. A mistake of FrameJIT's own is marked as one
// (frame_hook/dispatcher.h): strict mode raises it.
void set_run_error();

}  // namespace framejit::backend
