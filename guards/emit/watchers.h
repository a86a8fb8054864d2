// Dict and type watchers: the fast form of a predicate on CPython 3.12 on.
//
// A WatchSet is what one predicate relies on: dicts and classes that CPython
// tells us about before it changes them. As long as none of them has changed,
// `flag` is 1, and what the predicate knows of their content needs no check at
// all: only that the dict at hand is that very dict, and the instance of that
// very class (nobody reports `__dict__ =` and `__class__ =`). One store to any
// of them, or the death of one, clears the flag for good.
//
// CPython has eight ids of each kind for all of a process. Where they are
// taken, and on 3.11, nothing can be watched and the emitter reads version
// tags.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "frame_hook/py_ref.h"

namespace framejit {

class WatchSet {
 public:
  WatchSet() = default;
  ~WatchSet();
  WatchSet(const WatchSet&) = delete;
  WatchSet& operator=(const WatchSet&) = delete;

  // False: it cannot be watched. No reference is taken.
  bool add_dict(PyObject* dict);
  bool add_type(PyTypeObject* type);

  bool empty() const { return dicts_.empty() && types_.empty(); }
  bool valid() const { return flag_ != 0; }
  // Lives at one address as long as the set.
  const uint32_t* flag() const { return &flag_; }

 private:
  friend class WatchRegistry;
  uint32_t flag_ = 1;
  std::vector<PyObject*> dicts_;
  std::vector<PyTypeObject*> types_;
};

// A number that changes when a watched dict or class changes, is never the same
// for two objects, and 0 when it is not watched.
uint64_t watched_generation(const void* object);

// How many dicts and classes are watched now (tests: nothing is left behind).
size_t num_watched();

// Test only: gives the ids back and behaves as if others had taken them all.
void set_watchers_available(bool available);

}  // namespace framejit
