// C callees: what the capture knows about calling them.
//
// builtins.def has a row per callee: a *pure* one is called natively with
// arguments prepared by what it reads of them; a *modelled* one is a function
// here that works on CaptureState, because its arguments may be the program's
// objects or because it calls back. A callee without a row is a break.
#pragma once

#include <initializer_list>
#include <vector>

#include "bytecode/objects/native_calls.h"

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
  // What a function with these parameters takes; "": by position alone. The
  // last ones are taken by keyword alone.
  bool takes(std::initializer_list<const char*> names,
             size_t keyword_only = 0) const;
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
#include "bytecode/builtins/builtins.def"
#undef FJ_PURE
#undef FJ_MODEL

// A C callee with a row, or of a family with one. ok + empty Ref: it has none
// (the interpreter goes on to its own cases).
Result<Ref> call_builtin(CaptureState& state, PyObject* callable,
                         const std::vector<PyObject*>& args, PyObject* kwnames);
// type.__call__: __new__ and __init__ as CPython runs them.
Result<Ref> call_type(CaptureState& state, PyTypeObject* type,
                      const std::vector<PyObject*>& args, PyObject* kwnames);
// type(name, bases, namespace) of a metaclass.
Result<Ref> make_class(CaptureState& state, PyObject* meta,
                       const std::vector<PyObject*>& args, PyObject* kwnames);
// Callables found by their type: partial, lru_cache, itemgetter & co. Empty:
// not one of them.
Result<Ref> call_by_type(BuiltinCall& call);
// Functions of the operator module. Empty: none of ours.
Result<Ref> call_operator(BuiltinCall& call, const char* name);
// A function of the math module on symbolic numbers.
Result<Ref> call_on_numbers(BuiltinCall& call);

// singledispatch(f).dispatch(cls). Empty: another function.
Result<Ref> call_dispatch(CaptureState& state, PyObject* function,
                          const std::vector<PyObject*>& args);

inline Result<Ref> none() { return Ref::borrow(Py_None); }
inline Result<Ref> boolean(bool value) {
  return Ref::borrow(value ? Py_True : Py_False);
}

// A method of dict itself on an OrderedDict: it leaves the order behind.
bool bypasses_order(const BuiltinCall& call);
// What a method of set gets for `object`: sets and dicts whole, for the size of
// the table that is made depends on them; else a list of the elements.
Result<Ref> set_operand(CaptureState& state, PyObject* object);

}  // namespace framejit::bytecode
