// Keys of dicts and elements of sets: whose hash and equality a capture may
// leave to C code, and what must be guarded for the answer to stay true.
//
// A constant is compared by its value, which is guarded. An object hashed by
// identity is itself in every call, but two inputs may become one: that they
// are two is guarded when one is looked up among others. To look a
// tensor up in a dict of the program (the state of an optimizer), its identity
// is guarded. A class with __hash__ and __eq__ in Python is asked through the
// hook, by interpreted code.
#pragma once

#include <vector>

#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

// Stand-ins that are keys: that they are different objects is guarded.
struct TensorKeys {
  std::vector<PyObject*> keys;
};

// Hash and equality of this key never run Python code, and its value (or
// identity) is a guarded fact.
bool is_safe_key(CaptureState& state, PyObject* key);
// The key as C code may have it: symbolic numbers by their values, with a
// guard, also those in tuples.
Result<Ref> concrete_key(CaptureState& state, PyObject* key);
// Guards how the class of a key hashes and compares.
void guard_key_class(CaptureState& state, PyObject* key);
// Hashed and compared by identity, which is no guarded fact: a fresh set of
// such objects answers `in` element by element.
bool is_identity_key(CaptureState& state, PyObject* key);
// A tensor as the key of a fresh set or dict: tensors are hashed by identity,
// so what counts is which of them are one object. False: not a stand-in.
bool note_tensor_key(CaptureState& state, PyObject* key);
// A tensor that is hashed by its identity, without asking its class.
bool is_tensor_key(CaptureState& state, PyObject* key);
// A tensor as the key of a dict of the program: guards that it is this very
// object in the next call. False: not a stand-in.
bool pin_tensor_key(CaptureState& state, PyObject* key);
// Guards that the tensors noted are as many objects as now.
void guard_tensor_keys(CaptureState& state);
// Adds to a fresh set: whether an element hashed by identity is one of those
// already there is asked, and guarded.
Status add_to_fresh_set(CaptureState& state, PyObject* set, PyObject* element);
// Is the key one that a fresh dict may be asked for natively? Guards what the
// answer depends on.
Status check_fresh_dict_key(CaptureState& state, PyObject* dict, PyObject* key);

}  // namespace framejit::bytecode
