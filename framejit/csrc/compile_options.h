// The options of one framejit.compile() call, as the C++ side sees them.
//
// Equal options are one object (the Python side interns them), because its
// address is half of the code-cache key: two decorators with the same options
// share what was compiled. When the last CompiledFunction that uses the object
// goes, so does everything compiled for it.
#pragma once

#include <string>

#include "frame_hook/code_cache.h"
#include "frame_hook/options.h"
#include "frame_hook/py_ref.h"

namespace framejit {

struct CompileOptions {
  std::string backend;  // a name; "" when `backend_callable` is set
  Ref backend_callable;
  bool fullgraph = false;
  int dynamic = -1;  // -1 automatic, 0 static, 1 everything dynamic
  CallOptions own;   // where the process-wide options do not hold

  CompileOptions() = default;
  CompileOptions(const CompileOptions&) = delete;
  ~CompileOptions() { forget_options(this); }
};

}  // namespace framejit
