// Containers of the program: reads with narrow guards, and copies for uses of
// the whole.
//
// A container that was written or read as a whole has a ContainerState: reads
// look at its shadow first (a copy with wrapped contents), then at its overlay
// (keys written so far), then at the object itself, with a guard.
#pragma once

#include <unordered_map>

#include <vector>

#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

struct ContainerState {
  Ref shadow;  // copy with wrapped contents; all later reads and writes go here
  Ref overlay;  // dict without a shadow: key -> value, or deleted_marker()
  std::vector<Ref> key_iterators;  // over copies of the keys alone
  bool replaced = false;           // whole content is written back at the end
  bool written = false;
};

struct Containers {
  std::unordered_map<PyObject*, ContainerState> states;
};
// Mapping proxies made in the capture -> the dict behind.
struct Proxies {
  std::unordered_map<PyObject*, Ref> dicts;
};

// PyListObject::allocated of a list that is being sorted, until it is written.
inline constexpr Py_ssize_t kNoListStorage = -1;

// The dict behind a mappingproxy made in the capture; null: is none.
PyObject* proxied(CaptureState& state, PyObject* object);
// An index or slice with concrete numbers.
Result<Ref> concrete_index(CaptureState& state, PyObject* index);
// What stands for `index` in a sequence: what an __index__ of the program
// gives, in slices, too. What C code alone could read is a break.
Result<Ref> sequence_index(CaptureState& state, Ref index);
// KeyError(key)
void raise_key_error(PyObject* key);

// C code that knows a type reads the elements of derived classes as they lie,
// whatever their __iter__ would give. A break where there is one.
Status check_no_iter(CaptureState& state, PyObject* container);
// Has its class __len__ or __length_hint__ in Python?
Result<bool> tells_its_length(CaptureState& state, PyObject* object);
// PyObject_LengthHint() of a class with one of the methods in Python.
Status ask_length_hint(CaptureState& state, PyObject* object);
// The elements for list(), tuple() and kin, which ask first how many there are.
Result<std::vector<Ref>> listed_elements(CaptureState& state,
                                         PyObject* iterable);
// The elements that such code reads.
Result<std::vector<Ref>> own_elements(CaptureState& state, PyObject* sequence);

// An iterator over the keys of the dict is alive: changing the set of keys
// would have to make it raise. A break.
Status check_key_iterators(CaptureState& state, PyObject* dict);

}  // namespace framejit::bytecode
