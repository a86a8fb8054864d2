// Observers: profilers that take the time of what runs, and no more.
//
// A debugger must see the original, line by line. A profiler is asked how the
// program runs, so with it, too, compiled code is what runs, and it sees the
// frames that there are: residual functions, what they call, and the graphs by
// what torch's own profiler is told. (FRAMEJIT_PROFILE=original says
// otherwise.) Known by the type of the object that CPython hands to C code: an
// object of that type that cannot be called is no Python function of
// sys.setprofile.
//
// While code of ours runs that is no part of the program (a capture), no tool
// is told of its frames.
#pragma once

#include "frame_hook/py_ref.h"

namespace framejit {

// A type by its full name (tp_name), for good: CPython's own are known.
void add_observer_type(const char* name);

// What a C profile function is given.
bool is_observer(PyObject* object);
// What sys.monitoring calls for one event: a method of an observer.
bool is_observer_callback(PyObject* callback);

// From begin to end CPython tells no tool of what this thread does. Counted.
void begin_unobserved();
void end_unobserved();

// Code of the program runs between the two.
class ObservedAgain {
 public:
  ObservedAgain();
  ~ObservedAgain();
  ObservedAgain(const ObservedAgain&) = delete;
  ObservedAgain& operator=(const ObservedAgain&) = delete;

 private:
  int depth_;
};

}  // namespace framejit
