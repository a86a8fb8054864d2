// Late reads: what a gradient function reads of the program when it runs.
//
// A tensor hook or the backward of a torch.autograd.Function is captured when
// its node is made, but eager runs it in the backward: by then the capture
// itself, or whoever called the function, may have written to what it reads.
// So while one is interpreted (LateScope) every read of mutable state of the
// program is noted, and what was noted makes the call a break. The rule is one:
//
//   may be read    code (functions, classes, modules, C callables, descriptors)
//                  wherever it lies, the function's own arguments, constants,
//                  what it made itself, names of libraries, and a cell that
//                  only one instruction can ever write to
//   is noted       any other use of an object that came from outside (an
//                  instance, a container, a cell), data in the namespace of
//                  a module or class of the program, numbers of the interpreter
//
// The state of the library's own is asked of the tracer, which refuses it
// itself (graph/tracing/late_state.h).
//
// CaptureState's reads ask here: source_of() for objects, dict_get() for
// namespaces, type_lookup() for classes and cell_get() for cells.
#pragma once

#include <string>
#include <unordered_map>

#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

struct LateReads {
  bool active = false;
  std::string found;  // the first, in the user's words; empty: none
};
inline bool reads_late(const CaptureState& state) {
  return state.table<LateReads>().active;
}

// Who makes a cell says who can write to it.
struct CellOwners {
  struct Owner {
    Ref code;
    int slot;
    bool late;  // made in a gradient function
  };
  std::unordered_map<PyObject*, Owner> owners;
};

class LateScope {
 public:
  explicit LateScope(CaptureState& state)
      : reads_(state.table<LateReads>()), before_(reads_.active) {
    reads_.active = true;
  }
  ~LateScope() { reads_.active = before_; }
  LateScope(const LateScope&) = delete;

 private:
  LateReads& reads_;
  bool before_;
};

void note_late_object(const CaptureState& state, PyObject* object,
                      const Source* source);
// `value` was found at `key` in a dict that may be a module's namespace.
void note_late_name(const CaptureState& state, PyObject* dict,
                    const Source* source, PyObject* key, PyObject* value);
void note_late_attribute(const CaptureState& state, PyTypeObject* type,
                         PyObject* name, PyObject* value);
void note_late_cell(const CaptureState& state, PyObject* cell, PyObject* value);
// An attribute that lies on the tensor, not on its class.
void note_late_tensor_attribute(const CaptureState& state, PyObject* name);
// A number of the interpreter, in the user's words.
void note_late_number(const CaptureState& state, const char* what);

// Can nobody but `holder` reach what is in it? Of what the program hangs on the
// context of a gradient function.
bool is_settled(const CaptureState& state, PyObject* object, int depth = 0);

}  // namespace framejit::bytecode
