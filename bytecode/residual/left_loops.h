// Loops that are left to CPython: too long to be unrolled, as an earlier
// capture has found out.
//
// Kept with the code object (by instruction, so for the resume functions made
// of it too) until framejit.reset(): with the budget of the capture, for
// another compile() may allow more.
#pragma once

#include <string>
#include <vector>

#include "frame_hook/py_ref.h"

namespace framejit::bytecode {

// Of these headers (byte offsets), that of the outermost loop around the
// instruction at `offset`; -1.
int loop_around(PyObject* code, int offset, const std::vector<int>& headers);
void leave_loop(PyObject* code, int header, size_t budget);
// The headers in this code of the loops that were too long for such a budget.
std::vector<int> left_loops(PyObject* code, size_t budget);
// Where a left loop begins: is the rest of the function worth resuming for?
bool has_work_behind_loop(PyObject* code, int header);
void forget_left_loops();

}  // namespace framejit::bytecode
