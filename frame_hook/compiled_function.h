// CompiledFunction: what framejit.compile returns for a function.
//
// A C callable with vectorcall around a Python function and the options of its
// compile() call. A warm call binds, tries native predicates and runs an
// executor, without a Python frame and without the frame hook. It behaves like
// the function everywhere else: as a method, for inspect, pickle, copy and
// weakref; attributes it does not have are the function's.
#pragma once

#include "frame_hook/code_cache.h"
#include "frame_hook/py_ref.h"

namespace framejit {

struct CompiledFunction {
  PyObject ob_base;
  vectorcallfunc vectorcall;
  PyObject* function;  // the original, never replaced
  PyObject* code;      // the code `cache` belongs to; owned
  CodeCache* cache;    // null: look it up (first call, __code__ assigned)
  const void* options;
  PyObject* options_owner;  // keeps `options` alive; may be null
  PyObject* dict;
  PyObject* weak_references;
  // Arguments of a plain positional call that needs no binding; -1: none does.
  Py_ssize_t plain_arguments;
  bool native_only;  // generators and coroutines run as they are
};

// Made on first use; null with an error set when that fails.
PyTypeObject* compiled_function_type();
bool is_compiled_function(PyObject* object);

// A new CompiledFunction for a Python function. `options` is the key of its
// code cache: equal options should be one object, which is kept alive by
// `options_owner` and calls forget_options() when it dies.
PyObject* make_compiled_function(PyObject* function, const void* options,
                                 PyObject* options_owner);

}  // namespace framejit
