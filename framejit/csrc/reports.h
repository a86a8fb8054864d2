// Reports: what FrameJIT did, as text for logs and as Python objects for
// inspect() and explain(). Nothing here changes what is compiled.
#pragma once

#include <string>

#include "framejit/csrc/jit_entry.h"
#include "guards/result.h"

namespace framejit {

// "f (train.py:12)".
std::string describe_function(PyObject* function);
// Id, title, detail, the user's line, and the hint.
std::string break_report(const Break& brk);
// Takes the pending Python exception away: "ValueError: text".
std::string take_error_text();
// Emits the guards, graphs, bytecode and kernels of a new entry to the
// channels that are on, and its breaks.
void log_compilation(PyObject* function, const JitEntry& entry);

// A list of dicts, one per cache entry of the code under these options.
Ref entries_of(PyObject* code, const void* options);

// Frames met beneath a broken function that are worth compiling: the user's,
// not those of the standard library, of torch's machinery or of this package.
bool should_compile(PyObject* function, PyObject* code);

}  // namespace framejit
