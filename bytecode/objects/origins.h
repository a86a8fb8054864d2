// Origins: where the objects of the program came from.
//
// Everything is keyed by identity. Keys stay valid because every object that
// has an entry is kept alive by `kept` until the capture ends.
#pragma once

#include <unordered_map>
#include <vector>

#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

struct Origins {
  std::unordered_map<PyObject*, const Source*> sources;
  std::vector<PyObject*> order;  // inputs in the order they were registered
  std::vector<Ref> kept;
  // Tuples with tensors inside are copied with stand-ins inside.
  std::unordered_map<PyObject*, PyObject*> rebuilt;    // real -> copy
  std::unordered_map<PyObject*, PyObject*> originals;  // copy, shadow -> real
  std::unordered_map<PyObject*, PyObject*> stand_ins;  // real -> stand-in
  // Modules that came by what compile() made of them -> that.
  std::unordered_map<PyObject*, PyObject*> followers;
};

// The length of an input, as a symbol where it had others in earlier calls;
// else empty. (dynamic=True does not speak of lengths: programs mostly ask for
// them where they read the items, too.)
Result<Ref> dynamic_length(CaptureState& state, const Source* container,
                           int64_t length);

// Only argument and container steps: the part of the program's data that
// `dynamic=True` speaks of (attributes of modules stay static).
bool is_argument_path(const Source* source);
// Where the follower is whose original is at `source`; null: no such path.
const Source* follower_source(const Source* source);

}  // namespace framejit::bytecode
