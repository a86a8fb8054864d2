// What the compiler remembers of one (code, options) key: CodeCache's
// compiler_state.
#pragma once

#include <memory>
#include <string>

#include "frame_hook/code_cache.h"
#include "framejit/csrc/past_entries.h"
#include "guards/set/shape_history.h"

namespace framejit {

struct FunctionMemory {
  ShapeHistory sizes;   // seen by earlier captures
  std::string refusal;  // why the last capture gave nothing
  ReportPlace place;    // of the function compiled last
  size_t entries_made = 0;
};

// Made when missing.
inline std::shared_ptr<FunctionMemory> function_memory(CodeCache* cache) {
  if (!cache->compiler_state)
    cache->compiler_state = std::make_shared<FunctionMemory>();
  return std::static_pointer_cast<FunctionMemory>(cache->compiler_state);
}

}  // namespace framejit
