#include "framejit/csrc/trace_log.h"

#include "frame_hook/interjections.h"

#include <algorithm>
#include <vector>

namespace framejit {
namespace {

// Never destroyed: the process may end after the interpreter has.
std::vector<Ref>& listeners() {
  static auto* instance = new std::vector<Ref>;
  return *instance;
}

}  // namespace

void add_trace_listener(PyObject* callable) {
  listeners().push_back(Ref::borrow(callable));
}

void remove_trace_listener(PyObject* callable) {
  auto found =
      std::find(listeners().begin(), listeners().end(), Ref::borrow(callable));
  if (found == listeners().end()) return;
  Ref removed = std::move(*found);  // dropped when the list is whole again
  listeners().erase(found);
}

bool tracing() { return !listeners().empty(); }

TraceRecord::TraceRecord(const char* kind)
    : kind_(kind), dict_(Ref::steal(PyDict_New())) {
  if (!dict_) drop_error();
}

TraceRecord& TraceRecord::add(const char* key, Ref object) {
  ErrorGuard error;
  if (dict_ && object) PyDict_SetItemString(dict_.get(), key, object.get());
  drop_error();
  return *this;
}

TraceRecord& TraceRecord::add(const char* key, const std::string& text) {
  ErrorGuard error;
  return add(key, Ref::steal(PyUnicode_DecodeUTF8(
                      text.data(), Py_ssize_t(text.size()), "replace")));
}

TraceRecord& TraceRecord::add(const char* key, long long number) {
  return add(key, Ref::steal(PyLong_FromLongLong(number)));
}

TraceRecord& TraceRecord::add(const char* key, double number) {
  return add(key, Ref::steal(PyFloat_FromDouble(number)));
}

void TraceRecord::emit() {
  if (!tracing() || !dict_) return;
  ErrorGuard error;
  // A copy: a listener may take itself off.
  const std::vector<Ref> all = listeners();
  for (const Ref& listener : all) {
    Ref done = Ref::steal(
        PyObject_CallFunction(listener.get(), "sO", kind_, dict_.get()));
    if (!done) drop_error();
  }
}

}  // namespace framejit
