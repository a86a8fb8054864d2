// Where in the write log the effects are that happen after the graph and may
// look at what was written, or fail.
#pragma once

#include <cstddef>
#include <set>

namespace framejit::bytecode {

struct DeferredEffects {
  // The index of each in the log. A content that is written as a whole is
  // written before each of them, too.
  std::set<size_t> entries;
};

}  // namespace framejit::bytecode
