// Context variables: an overlay over the values at the start.
#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

#include "bytecode/objects/capture_state.h"

namespace framejit::bytecode {

// Variables written in the capture: value now, value before (empty: none).
struct ContextValues {
  std::unordered_map<PyObject*, std::pair<Ref, Ref>> values;
  std::vector<Ref> used_tokens;  // of this capture
};

}  // namespace framejit::bytecode
