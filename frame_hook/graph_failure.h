// For executors: what must hold while the original code runs in the place of a
// graph that failed.
#pragma once

#include <memory>

namespace framejit {

// Called by a run that is about to fail before its commit; destroyed when the
// call that runs the original code has ended. Needs the GIL.
void keep_until_original_ends(std::shared_ptr<void> state);

}  // namespace framejit
