// Moved texts: texts and bytes that came in and are only handed on.
//
// A text that is read is a fact, guarded by its value. One that goes into what
// the function returns, or into an attribute, differs from call to call (the
// name of a sample), so where the bytecode ahead shows that
// (texts_handed_on.h) it is an opaque value, known by its source and type.
//
// Bytecode does not show everything: a hook may look at what a module returns.
// Then, and wherever such a capture does not end with the function's return or
// C code raises in it, another attempt is made, in which texts are facts.
//
// C code that asks what it was given whether it is a text does not raise: it
// goes another way. So it is given none: a break where a callee of C gets one
// that was stored before, or where it is to be stored in a field of C.
#pragma once

#include <vector>

#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

struct MovedTexts {
  bool allowed = false;  // by this attempt
  bool wanted = false;   // by the read that is under way
  bool any = false;
};

// Empty: it is no such object, or is to be known.
Result<Ref> moved_text(CaptureState& state, PyObject* object,
                       const Source* source);

// Is it one of them, or does it hold one? A container too large to look through
// counts as if it did.
bool holds_moved_text(CaptureState& state, PyObject* object);
// Breaks where C code is given one.
Status check_given_to_c(CaptureState& state, PyObject* object);
Status check_given_to_c(CaptureState& state,
                        const std::vector<PyObject*>& objects);

// A read of an item of a container, whose text is handed on.
class MovingScope {
 public:
  MovingScope(CaptureState& state, bool wanted)
      : texts_(state.table<MovedTexts>()) {
    texts_.wanted = wanted;
  }
  ~MovingScope() { texts_.wanted = false; }
  MovingScope(const MovingScope&) = delete;
  MovingScope& operator=(const MovingScope&) = delete;

 private:
  MovedTexts& texts_;
};

}  // namespace framejit::bytecode
