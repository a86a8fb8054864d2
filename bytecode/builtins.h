// C callees: what the capture knows about calling them.
//
// builtins.def has a row per callee: a *pure* one is called natively with
// arguments prepared by what it reads of them; a *modelled* one is a function
// here that works on CaptureState, because its arguments may be the program's
// objects or because it calls back. A callee without a row is a break.
#pragma once

#include <vector>

#include "bytecode/capture_tables.h"

namespace framejit::bytecode {

struct BuiltinCall {
  CaptureState& state;
  PyObject* callable;           // the row's object (a descriptor for methods)
  std::vector<PyObject*> args;  // self first for methods; keyword values last
  PyObject* kwnames = nullptr;

  size_t positional() const {
    return args.size() - (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  }
  // The i-th positional argument, or the keyword's value, or null.
  PyObject* argument(size_t index, const char* keyword = nullptr) const;
  bool has_keywords() const {
    return kwnames && PyTuple_GET_SIZE(kwnames) != 0;
  }
  // Exactly this many positional arguments (or between), and no keywords.
  bool plain(size_t least, size_t most) const {
    return !has_keywords() && args.size() >= least && args.size() <= most;
  }
  // The native call: pure rows, and modelled ones whose arguments are wrong in
  // a way that C code reports.
  Result<Ref> native(Reads reads) const {
    return call_native(state, callable, args, kwnames, reads);
  }
  Break unknown() const;
};

using BuiltinFunction = Result<Ref> (*)(BuiltinCall&);

#define FJ_PURE(module, path, reads)
#define FJ_MODEL(module, path, function) \
  Result<Ref> function(BuiltinCall& call);
#include "bytecode/builtins.def"
#undef FJ_PURE
#undef FJ_MODEL

// Callables found by their type: partial, lru_cache, itemgetter & co. Empty:
// not one of them.
Result<Ref> call_by_type(BuiltinCall& call);
// Functions of NumPy on numbers (builtins_numpy.cpp). Empty: another callable.
Result<Ref> call_numpy(BuiltinCall& call);
// Functions of the operator module. Empty: none of ours.
Result<Ref> call_operator(BuiltinCall& call, const char* name);
// A function of the math module on symbolic numbers.
Result<Ref> call_on_numbers(BuiltinCall& call);

// What the cache of a functools.lru_cache function holds for the arguments
// (cached_results.cpp); guarded. Empty Ref: nothing, or nobody can tell.
Result<Ref> read_cached_result(CaptureState& state, PyObject* wrapper,
                               const std::vector<PyObject*>& given);
// Results of functools.lru_cache functions that are objects
// (cached_results.cpp). False: of a kind that changes unseen, a tensor say.
Result<bool> note_cached_result(CaptureState& state, PyObject* value);
bool is_cached_result(CaptureState& state, PyObject* object);
// All of them are as they were when they were made.
Result<bool> cached_results_unchanged(CaptureState& state);
// singledispatch(f).dispatch(cls). Empty: another function.
Result<Ref> call_dispatch(CaptureState& state, PyObject* function,
                          const std::vector<PyObject*>& args);
bool is_regular_expression(PyTypeObject* type);

inline Result<Ref> none() { return Ref::borrow(Py_None); }
inline Result<Ref> boolean(bool value) {
  return Ref::borrow(value ? Py_True : Py_False);
}
inline PyObject* as_object(PyTypeObject* type) {
  return reinterpret_cast<PyObject*>(type);
}

// The keys of a class's dict in order, as a tuple; guarded.
Result<Ref> class_names(CaptureState& state, PyTypeObject* type);

// An answer came from the MRO of `type`, which assigning __bases__ changes.
void guard_mro(CaptureState& state, PyObject* type);

}  // namespace framejit::bytecode
