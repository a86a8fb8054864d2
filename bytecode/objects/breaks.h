// Breaks that several files make: one wording for each.
#pragma once

#include "bytecode/objects/capture_state.h"
#include "frame_hook/native_stack.h"

namespace framejit::bytecode {

// Something about an input that no guard covers: "the length of a Foo".
Break unguardable(CaptureState& state, PyObject* object, const char* what);
// A key that C code would hash and compare, with no guard on the answer.
Break unguardable_key(CaptureState& state, PyObject* key);
// An item written to or deleted from something that is no known container.
Break unsupported_item(CaptureState& state, PyObject* object);
// What a functools.lru_cache function gave was changed, or would have to
// outlive the capture.
Break shared_cached_result(CaptureState& state, BreakReason reason);
// The dict of a class that this capture has written to.
Break written_class_dict(CaptureState& state);
// What is nested deeper than the native stack (or a limit that stands for it)
// bears: "calls", "containers".
Break too_deep(CaptureState& state, const char* what);
// Asked by each walk over objects before it goes down.
inline Status room_for(CaptureState& state, const char* what) {
  if (native_stack_low()) [[unlikely]]
    return too_deep(state, what);
  return ok_status();
}

}  // namespace framejit::bytecode
