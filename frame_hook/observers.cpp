#include "frame_hook/observers.h"

#include <string_view>
#include <utility>
#include <vector>

#include "frame_hook/options.h"

namespace framejit {

namespace {

std::vector<std::string_view>& observer_types() {
  // cProfile: a Profile is derived from it.
  static auto* names = new std::vector<std::string_view>{"_lsprof.Profiler"};
  return *names;
}

bool has_observer_type(PyObject* object) {
  for (PyTypeObject* type = Py_TYPE(object); type; type = type->tp_base) {
    for (std::string_view name : observer_types()) {
      if (name == type->tp_name) return true;
    }
  }
  return false;
}

bool observers_see_compiled() { return options().profile == "compiled"; }

constinit thread_local int unobserved = 0;

}  // namespace

void add_observer_type(const char* name) {
  observer_types().emplace_back(name);
}

bool is_observer(PyObject* object) {
  return object && !PyCallable_Check(object) && observers_see_compiled() &&
         has_observer_type(object);
}

bool is_observer_callback(PyObject* callback) {
  if (!observers_see_compiled()) return false;
  PyObject* self =
      PyCFunction_Check(callback) ? PyCFunction_GET_SELF(callback) : callback;
  return self && has_observer_type(self);
}

void begin_unobserved() {
  ++unobserved;
  PyThreadState_EnterTracing(PyThreadState_Get());
}

void end_unobserved() {
  --unobserved;
  PyThreadState_LeaveTracing(PyThreadState_Get());
}

ObservedAgain::ObservedAgain() : depth_(std::exchange(unobserved, 0)) {
  for (int i = 0; i < depth_; ++i) {
    PyThreadState_LeaveTracing(PyThreadState_Get());
  }
}

ObservedAgain::~ObservedAgain() {
  unobserved = depth_;
  for (int i = 0; i < depth_; ++i) {
    PyThreadState_EnterTracing(PyThreadState_Get());
  }
}

}  // namespace framejit
