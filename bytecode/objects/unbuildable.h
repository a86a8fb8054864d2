// Classes, generators and opaque values made in the capture: they cannot be
// rebuilt after it.
//
// When one of them would have to outlive the capture, the next attempt stops
// before the instruction of the outermost frame that made it.
#pragma once

#include <unordered_map>

#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

struct Unbuildable {
  // -> the micro-op of the outermost frame that made it.
  std::unordered_map<PyObject*, size_t> made;
  // Keys of fresh dicts and sets whose class hashes or compares in Python: to
  // rebuild such a container would ask it again, at another time. -> where it
  // was asked first.
  std::unordered_map<PyObject*, size_t> python_keys;
  // Where the first was made that would have to outlive the capture; 0: none.
  size_t stop_before = 0;

  // What was done at this place cannot be done again after the capture.
  void escapes(size_t place) {
    if (stop_before == 0 || place < stop_before) stop_before = place;
  }
};

// Not kept alive: the finally blocks of a generator run when the program drops
// it.
inline void note_unbuildable(CaptureState& state, PyObject* object) {
  state.table<Unbuildable>().made[object] = state.caller.place();
}
inline void note_python_key(CaptureState& state, PyObject* key) {
  state.keep_alive(key);
  state.table<Unbuildable>().python_keys.try_emplace(key, state.caller.place());
}
inline void keep_unbuildable(CaptureState& state, PyObject* object) {
  state.keep_alive(object);
  note_unbuildable(state, object);
}

}  // namespace framejit::bytecode
