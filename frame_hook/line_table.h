// The lines of a code object's instructions, for who asks many times.
//
// CPython walks its table from the start for each question, which is quadratic
// in the length of a function where each node of a graph names its line. Here
// the table is decoded once: ranges of instructions, found by bisection. The
// format is that of co_linetable (CPython's Objects/locations.md), the same in
// 3.11, 3.12 and 3.13.
#pragma once

#include <vector>

#include "frame_hook/py_ref.h"

namespace framejit {

// Of an instruction, in every CPython so far; 3.13 hides the type.
inline constexpr int kCodeUnitBytes = 2;

class LineTable {
 public:
  LineTable() = default;
  explicit LineTable(PyCodeObject* code);

  // The line of the instruction at a byte offset; 0: it has none.
  int line(int offset) const;

 private:
  struct Range {
    int end;  // byte offset
    int line;
  };
  std::vector<Range> ranges_;
};

// 0: unknown. Keeps the table with the code where that is long. Runs no Python.
int line_of_instruction(PyObject* code, int offset);

}  // namespace framejit
