// The write log: writes to the program's own objects, in order.
//
// A capture never changes the program's objects. What it would have changed is
// logged here, reads look here first (each container and cell keeps what was
// written to it in a table of its own), and the steps of the entry replay the
// log after the graph.
#pragma once

#include <vector>

#include "bytecode/objects/capture_state.h"
#include "guards/set/let_go.h"

namespace framejit::bytecode {

struct Write {
  enum class Kind : uint8_t {
#define FJ_WRITE(name, ...) k##name,
#include "bytecode/objects/write_kinds.def"
#undef FJ_WRITE
  };
  enum class Part : uint8_t { kAttributes, kContent, kOther };
  enum class Change : uint8_t { kSet, kDelete, kOther };
  Kind kind;
  Ref object;
  Ref key;
  Ref value;
  Span span;

  // By its row.
  Part part() const;
  Change change() const;
};

// Stands for "deleted" and "absent" in tables of what was written. Never
// reaches the program.
PyObject* deleted_marker();

struct WriteLog {
  std::vector<Write> entries;

  static void add(CaptureState& state, Write::Kind kind, PyObject* object,
                  PyObject* key = nullptr, PyObject* value = nullptr);
  // Breaks, or guards that nobody can tell, where the write that comes next
  // lets go of that. (add() asks for what the row of the kind says.)
  static void let_go(CaptureState& state, LetGo what, PyObject* object,
                     PyObject* key = nullptr);
  static void let_go(CaptureState& state, LetGo what, const Source* source,
                     PyObject* object, PyObject* key);
  // The whole content will be written back from the shadow.
  static void replace_content(CaptureState& state, PyObject* container);
};

}  // namespace framejit::bytecode
