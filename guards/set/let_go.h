// What happens when the program lets an object go: nothing, or code of its own.
//
// A compiled call drops what the program overwrites, deletes or takes out when
// its graph has run, not where the program says so. Nobody can tell, unless the
// object has a finalizer, a weak reference callback or is seen through a weak
// reference, or it is the last to hold something that is. A capture breaks
// before letting go of such an object, and guards that there is none where
// there was none. What is held by something that stays, stays as well, and is
// not looked into.
#pragma once

#include <cstdint>

#include "frame_hook/py_ref.h"

namespace framejit {

enum class LetGo : int64_t {
  kNothing,
  kObject,  // the object itself
  // The object's own attribute `key`, if it has one: an instance's, a class's,
  // a tensor's grad.
  kAttribute,
  kItem,     // the dict's or list's item, if it has one
  kContent,  // all that the container holds
};

// Whose objects hold nothing and are seen by nobody when they go.
bool is_quiet_type(PyTypeObject* type);

// Runs no code, sets no error.
bool lets_go_quietly(LetGo what, PyObject* object, PyObject* key);

}  // namespace framejit
