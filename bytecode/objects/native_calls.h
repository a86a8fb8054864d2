// The border to C code.
//
// `prepare` decides what an object becomes when C code is going to look into
// it. C code that calls back (map, a sort key, an iterator of the program) gets
// an object of ours that returns into the interpreter; a Break there is stored
// in the capture and the C code sees a private exception.
#pragma once

#include <optional>
#include <vector>

#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

// Objects of ours that C code may still hold when the capture is over: each
// begins with these fields, and must not reach the capture any more.
struct CaptureObject {
  PyObject_HEAD CaptureState* state;  // null once the capture has ended
};
struct NativeCalls {
  std::vector<Ref> held;               // CaptureObjects
  std::optional<Break> pending_break;  // see CaptureState::set_native_break
  void detach() {
    for (const Ref& object : held) {
      reinterpret_cast<CaptureObject*>(object.get())->state = nullptr;
    }
    // The newest first: it may own a chain of the others, whose destructors
    // would nest.
    while (!held.empty()) held.pop_back();
  }
};

enum class Reads : uint8_t {
  kNothing,   // the callee keeps or compares the identity only
  kElements,  // looks at the elements (one level), not into them
  kCompares,  // compares and hashes values
  kConverts,  // asks for a number
  kFormats,   // asks for a text
  kDeep,      // looks at values in any way: compares, formats, converts them
};
// `object` as C code may have it: shadows for input containers, concrete
// values for symbolic ones; Break UnguardableInput for what no guard covers.
Result<Ref> prepare(CaptureState& state, PyObject* object, Reads reads);
// A native call with prepared arguments.
Result<Ref> call_native(CaptureState& state, PyObject* callable,
                        const std::vector<PyObject*>& args, PyObject* kwnames,
                        Reads reads);

// What else a trampoline does with the result.
enum class TrampolineResult : uint8_t {
  kAsIs,
  kTruth,  // its truth, asked by the interpreter
  kPlain,  // as C code may compare it
};
// A callable for C code that comes back into the interpreter.
Result<Ref> trampoline(CaptureState& state, PyObject* callable,
                       TrampolineResult result = TrampolineResult::kAsIs);
PyObject* trampoline_callable(PyObject* object);  // null: is none

// The exception that carries a break through foreign C code.
PyObject* capture_break_type();

// Runs `body` (which gives a Result<Ref>) under a C frame: breaks and internal
// errors are stored, and stand as an exception. iterator: an empty result is
// the end.
template <class Body>
PyObject* under_c(CaptureState* state, bool iterator, Body body) {
  if (!state) {
    PyErr_SetString(PyExc_RuntimeError, "the capture is over");
    return nullptr;
  }
  try {
    Result<Ref> result = body();
    if (result.ok()) {
      return result.value() || iterator ? result.take().release()
                                        : Py_NewRef(Py_None);
    }
    if (result.is_raised()) return nullptr;
    state->set_native_break(result.take_break());
  } catch (const InternalError& error) {
    state->set_native_break(Break{BreakReason::kInternal, error.message(), {}});
  } catch (const std::exception& error) {
    state->set_native_break(Break{BreakReason::kInternal, error.what(), {}});
  }
  PyErr_SetString(PyExc_RuntimeError, "framejit stopped its capture here");
  return nullptr;
}

}  // namespace framejit::bytecode
