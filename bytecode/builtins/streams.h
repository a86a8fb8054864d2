// Streams that texts are kept for until the graph has run.
//
// A text that is written late must meet nobody who could tell: no code of the
// program may run in the write, and nothing may raise that eager raised where
// the program looked. So such a stream is one whose write() and flush() are C
// code down to the file: io.StringIO, or a text layer of C over a buffer of C
// over a file. What is known of one is guarded by its classes, never by its
// identity: a cache entry that held a file would keep it open.
#pragma once

#include <vector>

#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

// Do write() and flush() of `stream` stay in C? Guarded, if they do.
Result<bool> writes_in_c(CaptureState& state, PyObject* stream);

// The same of what is looked at when guards are checked: runs no code of the
// program, guards nothing. `name`: stdout or stderr of sys, which may be none.
bool writes_in_c_now(PyObject* stream);
bool standard_writes_in_c_now(const char* name);

// sys.stdout or sys.stderr, as the program sees it now: does print() write to
// it in C, or to nothing?
Result<bool> standard_writes_in_c(CaptureState& state, const char* name);
// Has this capture put another one there?
Result<bool> is_standard_replaced(CaptureState& state, const char* name);

// Will the stream take these texts: is it open (guarded), and has its encoding
// their characters?
Result<bool> takes_text(CaptureState& state, PyObject* stream,
                        const std::vector<PyObject*>& texts);

// What any of the usual encodings has.
bool is_encodable(PyObject* text);

}  // namespace framejit::bytecode
