// Opaque values: objects that stand for what a capture may pass on but not
// know.
//
//  - a traceback: real ones do not exist for interpreted frames. It knows the
//    lines that an exception had when it was asked for them;
//  - an unknown: what the caller of the compiled function handles, say;
//  - an identity: id(object), a number that differs from call to call but whose
//    equality with other ids is a fact that can be guarded;
//  - a token: what ContextVar.set() gave;
//  - a frame: what sys._getframe() gave; its globals and code are known;
//  - a text that is printed (late_text.h);
//  - a text or bytes that is handed on (moved_texts.h).
//
// Passing them around, asking `tb is None`, or keying a dict by an id is fine;
// every other use (arithmetic, formatting, attributes ...) ends in one of this
// type's slots, which break the capture.
#pragma once

#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

enum class OpaqueKind : uint8_t {
  kTraceback,
  kUnknown,
  kIdentity,
  kToken,
  kFrame,
  kText,
  kMoved
};

Result<Ref> make_opaque(CaptureState& state, OpaqueKind kind,
                        PyObject* object = nullptr, PyObject* other = nullptr);
bool is_opaque(PyObject* object);
bool is_opaque(PyObject* object, OpaqueKind kind);
OpaqueKind opaque_kind(PyObject* object);
// A traceback: the lines, or null. id(): the object. A token: the variable;
// `other` is what it had before. A frame: its globals and its code. A text: the
// call that makes it, or null (it came in). One that is handed on: its type.
PyObject* opaque_object(PyObject* object);
PyObject* opaque_other(PyObject* object);
// What type() says of it; empty: not known.
PyTypeObject* opaque_type(PyObject* object);

}  // namespace framejit::bytecode
