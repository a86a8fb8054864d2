#include "guards/guard_set.h"

namespace framejit {

std::unique_ptr<Predicate> emit_predicate(const GuardSet&, PyObject* const*,
                                          PyObject*) {
  return nullptr;
}

}  // namespace framejit
