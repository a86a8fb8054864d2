// What is compiled, as records for machines: FRAMEJIT_TRACE, framejit.testing.
//
// A record is a kind and a dict of plain values and code objects, shared by the
// listeners of the Python package; while there is none, nothing is made.
#pragma once

#include <string>

#include "frame_hook/py_ref.h"

namespace framejit {

// callable(kind, dict). Removed by identity.
void add_trace_listener(PyObject* callable);
void remove_trace_listener(PyObject* callable);
bool tracing();

class TraceRecord {
 public:
  explicit TraceRecord(const char* kind);
  TraceRecord& add(const char* key, const std::string& text);
  TraceRecord& add(const char* key, long long number);
  TraceRecord& add(const char* key, double number);
  TraceRecord& add(const char* key, Ref object);  // taken as it is
  void emit();  // errors of listeners are dropped

 private:
  const char* kind_;
  Ref dict_;
};

}  // namespace framejit
