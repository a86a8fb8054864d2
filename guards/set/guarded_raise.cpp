#include "guards/set/guarded_raise.h"

#include <vector>

#include "frame_hook/collector.h"

namespace framejit {

bool GuardedRaise::covers(PyObject* const* args, PyObject* function) {
  if (weak_.dead()) return false;
  CollectorOff off;
  ErrorGuard keep;
  std::vector<PyObject*> objects(guards_->gathered().size() + 1);
  std::vector<int64_t> symbols(guards_->symbols().size() + 1);
  try {
    return evaluate(*guards_, args, function, objects.data(), symbols.data());
  } catch (const InternalError&) {
    return false;
  }
}

}  // namespace framejit
