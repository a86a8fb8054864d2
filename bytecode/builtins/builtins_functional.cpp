// Numbers, the operator module, functools objects and context variables.
#include <cstring>

#include "bytecode/builtins/builtins.h"
#include "bytecode/builtins/cached_results.h"
#include "bytecode/code/micro_op.h"
#include "bytecode/objects/attributes.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/keys.h"
#include "bytecode/objects/native_calls.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/overrides.h"
#include "bytecode/objects/write_log.h"
#include "frame_hook/native_stack.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

namespace {

// A number function: the tensor's own through the tracer, Python dunders
// interpreted, constants natively.
Result<Ref> number_function(BuiltinCall& call, const char* method,
                            const char* operator_name) {
  CaptureState& state = call.state;
  if (call.args.empty()) return call.native(Reads::kDeep);
  PyObject* subject = call.args[0];
  FJ_TRY(Ref special, state.python_special(subject, method));
  if (special) {
    return state.caller.call(special.get(), call.args, call.kwnames);
  }
  if (is_foreign(state, subject)) {
    PyObject* function =
        operator_name ? library_object("operator", operator_name) : nullptr;
    if (function && call.args.size() == 1) {
      return operate(state, function, {subject});
    }
    if (is_stand_in(state, subject)) {
      FJ_TRY(Ref bound, state.tracer.get_attribute(subject, interned(method)));
      std::vector<PyObject*> rest(call.args.begin() + 1, call.args.end());
      return state.caller.call(bound.get(), rest, call.kwnames);
    }
    return call.native(Reads::kDeep);
  }
  return call.native(Reads::kConverts);
}

}  // namespace

Result<Ref> call_on_numbers(BuiltinCall& call) {
  CaptureState& state = call.state;
  for (PyObject* arg : call.args) {
    bool number = is_symbolic(state, arg) || PyFloat_CheckExact(arg) ||
                  PyLong_CheckExact(arg);
    if (!number) return call.native(Reads::kDeep);
  }
  return state.tracer.operate(call.callable, call.args);
}

Result<Ref> model_abs(BuiltinCall& call) {
  return number_function(call, "__abs__", "abs");
}

Result<Ref> model_round(BuiltinCall& call) {
  if (call.plain(2, 2) && is_symbolic(call.state, call.args[0])) {
    Ref type = call.state.type_of(call.args[0]);
    // round(x, n) stays a symbol.
    if (type.get() == reinterpret_cast<PyObject*>(&PyFloat_Type))
      return call_on_numbers(call);
  }
  return number_function(call, "__round__", nullptr);
}

Result<Ref> model_pow(BuiltinCall& call) {
  if (call.plain(2, 2)) {
    return call.state.binary(8, false, call.args[0], call.args[1]);
  }
  return call.native(Reads::kDeep);
}

Result<Ref> model_divmod(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.native(Reads::kDeep);
  CaptureState& state = call.state;
  // Tensors have no such operator.
  if (is_stand_in(state, call.args[0]) || is_stand_in(state, call.args[1]))
    return call.unknown();
  bool foreign =
      is_foreign(state, call.args[0]) || is_foreign(state, call.args[1]);
  if (!foreign) {
    FJ_TRY(Ref left, state.python_special(call.args[0], "__divmod__"));
    FJ_TRY(Ref right, state.python_special(call.args[1], "__rdivmod__"));
    if (!left && !right) return call.native(Reads::kDeep);
    PyTypeObject *type = Py_TYPE(call.args[0]), *other = Py_TYPE(call.args[1]);
    // The reflected method may have to go first, or C code to be asked.
    bool subclass = type != other && PyType_IsSubtype(other, type);
    if (subclass || !left) return call.unknown();
    FJ_TRY(Ref result, state.caller.call(left.get(), call.args));
    if (result.get() != Py_NotImplemented) return result;
    if (!right || type == other) return call.unknown();
    FJ_TRY(result,
           state.caller.call(right.get(), {call.args[1], call.args[0]}));
    if (result.get() != Py_NotImplemented) return result;
    return call.unknown();
  }
  // A class of its own may have a divmod() that its // does not tell of.
  for (PyObject* number : call.args) {
    Ref type = state.type_of(number);
    if (is_heap_type(reinterpret_cast<PyTypeObject*>(type.get())))
      return call.unknown();
  }
  auto divided = state.binary(2, false, call.args[0], call.args[1]);
  if (divided.is_raised()) {  // divmod() has words of its own
    PyErr_Clear();
    return call.unknown();
  }
  FJ_TRY(Ref quotient, std::move(divided));
  FJ_TRY(Ref rest, state.binary(6, false, call.args[0], call.args[1]));
  return from_api(PyTuple_Pack(2, quotient.get(), rest.get()));
}

// ---- the operator module
Result<Ref> call_operator(BuiltinCall& call, const char* name) {
  static const char* const kBinary[] = {
      "add", "and_", "floordiv", "lshift", "matmul",  "mul", "mod",
      "or_", "pow",  "rshift",   "sub",    "truediv", "xor"};
  static const char* const kInPlace[] = {
      "iadd", "iand", "ifloordiv", "ilshift", "imatmul",  "imul", "imod",
      "ior",  "ipow", "irshift",   "isub",    "itruediv", "ixor"};
  static const char* const kCompare[] = {"lt", "le", "eq", "ne", "gt", "ge"};
  CaptureState& state = call.state;
  const std::vector<PyObject*>& args = call.args;
  if (call.has_keywords()) return call.unknown();
  auto is = [&](const char* other) { return std::strcmp(name, other) == 0; };
  if (args.size() == 2) {
    for (int i = 0; i < 13; ++i) {
      if (is(kBinary[i])) return state.binary(i, false, args[0], args[1]);
      if (is(kInPlace[i])) return state.binary(i, true, args[0], args[1]);
    }
    for (int i = 0; i < 6; ++i) {
      if (is(kCompare[i])) return state.compare(i, args[0], args[1]);
    }
    if (is("getitem")) return state.get_item(args[0], args[1]);
    if (is("is_") || is("is_not")) {
      FJ_TRY(bool same, state.is_same(args[0], args[1]));
      return boolean(same == is("is_"));
    }
    if (is("contains")) {
      FJ_TRY(bool found, state.contains(args[0], args[1]));
      return boolean(found);
    }
    if (is("delitem")) {
      FJ_CHECK_OK(state.del_item(args[0], args[1]));
      return none();
    }
  }
  if (args.size() == 3 && is("setitem")) {
    FJ_CHECK_OK(state.set_item(args[0], args[1], args[2]));
    return none();
  }
  if (args.size() == 1) {
    if (is("neg")) return state.unary(kNegative, args[0]);
    if (is("pos")) return state.unary(kPositive, args[0]);
    if (is("invert") || is("inv")) return state.unary(kInvert, args[0]);
    if (is("abs")) return number_function(call, "__abs__", "abs");
    if (is("truth") || is("not_")) {
      FJ_TRY(bool value, state.truth(args[0]));
      return boolean(value == is("truth"));
    }
    if (is("index")) {
      auto is_symbolic_int = [&](PyObject* object) {
        return is_symbolic(state, object) &&
               state.tracer.symbolic_type(object) ==
                   reinterpret_cast<PyObject*>(&PyLong_Type);
      };
      if (is_symbolic_int(args[0])) return Ref::borrow(args[0]);
      // (Not asked of what is an int.)
      if (PyLong_Check(args[0])) return from_api(PyNumber_Index(args[0]));
      FJ_TRY(Ref special, state.python_special(args[0], "__index__"));
      if (special) {
        FJ_TRY(Ref index, state.caller.call(special.get(), {args[0]}));
        if (PyLong_CheckExact(index.get()) || is_symbolic_int(index.get()))
          return index;
        if (PyLong_Check(index.get())) {
          return state.make_break(
              BreakReason::kUnsupportedAttribute,
              "an __index__ that returns a subclass of int");
        }
        Ref type = state.type_of(index.get());
        PyErr_Format(PyExc_TypeError,
                     "__index__ returned non-int (type %.200s)",
                     reinterpret_cast<PyTypeObject*>(type.get())->tp_name);
        return Result<Ref>::raised();
      }
    }
  }
  return call.native(Reads::kDeep);
}

// ---- functools and operator objects
Result<Ref> model_partial(BuiltinCall& call) {
  // partial() only stores what it is given, once it is callable.
  if (call.positional() == 0) return call.unknown();
  FJ_CHECK_OK(know_callable(call.state, call.args[0]));
  size_t keywords = call.kwnames ? PyTuple_GET_SIZE(call.kwnames) : 0;
  return from_api(PyObject_Vectorcall(call.callable, call.args.data(),
                                      call.args.size() - keywords,
                                      call.kwnames));
}

namespace {

Result<Ref> part_of(CaptureState& state, PyObject* partial, const char* name,
                    int index) {
  Ref part = Ref::steal(PyObject_GenericGetAttr(partial, interned(name)));
  if (!part) return Result<Ref>::raised();
  const Source* source = state.source_of(partial);
  if (!source) return part;
  return state.wrap(
      part.get(), state.guards.sources().make(SourceKind::kPartialPart, source,
                                              nullptr, index));
}

Result<Ref> call_partial(BuiltinCall& call, PyObject* partial) {
  CaptureState& state = call.state;
  FJ_TRY(Ref function, part_of(state, partial, "func", 0));
  FJ_TRY(Ref stored, part_of(state, partial, "args", 1));
  FJ_TRY(Ref stored_keywords, part_of(state, partial, "keywords", 2));
  FJ_TRY(Ref keywords, state.shadow(stored_keywords.get()));
  std::vector<PyObject*> args;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(stored.get()); ++i) {
    args.push_back(PyTuple_GET_ITEM(stored.get(), i));
  }
  for (size_t i = 0; i < call.positional(); ++i) args.push_back(call.args[i]);
  // Keywords of the call replace stored ones, in the stored place.
  Ref merged = Ref::steal(PyDict_Copy(keywords.get()));
  if (!merged) return Result<Ref>::raised();
  for (size_t i = call.positional(); i < call.args.size(); ++i) {
    if (PyDict_SetItem(merged.get(),
                       PyTuple_GET_ITEM(call.kwnames, i - call.positional()),
                       call.args[i]) < 0) {
      return Result<Ref>::raised();
    }
  }
  Ref names = Ref::steal(PySequence_Tuple(merged.get()));
  if (!names) return Result<Ref>::raised();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names.get()); ++i) {
    args.push_back(
        PyDict_GetItem(merged.get(), PyTuple_GET_ITEM(names.get(), i)));
  }
  bool any = PyTuple_GET_SIZE(names.get()) != 0;
  return state.caller.call(function.get(), args, any ? names.get() : nullptr);
}

// itemgetter, attrgetter, methodcaller: described by their own __reduce__.
Result<Ref> call_getter(BuiltinCall& call, PyObject* getter) {
  CaptureState& state = call.state;
  if (!call.plain(1, 1)) return call.unknown();
  Ref reduction =
      Ref::steal(PyObject_CallMethod(getter, "__reduce__", nullptr));
  if (!reduction) return Result<Ref>::raised();
  PyObject* parts = PyTuple_GET_ITEM(reduction.get(), 1);
  if (!PyTuple_CheckExact(parts)) return call.unknown();
  PyObject* subject = call.args[0];
  if (kMethodCaller.is_type_of(getter)) {
    PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(getter));
    if (PyTuple_GET_ITEM(reduction.get(), 0) != type) return call.unknown();
    FJ_TRY(Ref method, state.get_attr(subject, PyTuple_GET_ITEM(parts, 0)));
    std::vector<PyObject*> args;
    for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(parts); ++i) {
      args.push_back(PyTuple_GET_ITEM(parts, i));
    }
    return state.caller.call(method.get(), args);
  }
  bool items = kItemGetter.is_type_of(getter);
  std::vector<Ref> found;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parts); ++i) {
    PyObject* key = PyTuple_GET_ITEM(parts, i);
    if (items) {
      FJ_TRY(Ref value, state.get_item(subject, key));
      found.push_back(std::move(value));
      continue;
    }
    Ref dot = Ref::steal(PyUnicode_FromString("."));
    Ref path = Ref::steal(PyUnicode_Split(key, dot.get(), -1));
    if (!path) return Result<Ref>::raised();
    Ref value = Ref::borrow(subject);
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(path.get()); ++k) {
      PyObject* name = Py_NewRef(PyList_GET_ITEM(path.get(), k));
      PyUnicode_InternInPlace(&name);
      Ref keep_name = Ref::steal(name);
      FJ_TRY(value, state.get_attr(value.get(), name));
    }
    found.push_back(std::move(value));
  }
  if (found.size() == 1) return found[0];
  Ref tuple = Ref::steal(PyTuple_New(found.size()));
  if (!tuple) return Result<Ref>::raised();
  for (size_t i = 0; i < found.size(); ++i) {
    PyTuple_SET_ITEM(tuple.get(), i, found[i].release());
  }
  return tuple;
}

// What a cached function may be asked with: a value, or an object that the
// cache tells apart by identity. `symbolic`: numbers that have no hash.
bool is_cache_key(CaptureState& state, PyObject* arg, bool* symbolic) {
  if (native_stack_low()) return false;
  if (state.is_constant(arg) || PyType_Check(arg) || PyFunction_Check(arg)) {
    return true;
  }
  if (is_symbolic(state, arg)) return *symbolic = true;
  if (PyTuple_Check(arg)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(arg); ++i) {
      if (!is_cache_key(state, PyTuple_GET_ITEM(arg, i), symbolic)) {
        return false;
      }
    }
    return true;
  }
  // What another cached function returned: made here, or read from its cache.
  const Source* source = state.source_of(arg);
  bool read = source && source->kind == SourceKind::kDictItem &&
              source->base->kind == SourceKind::kConst;
  return (read || is_cached_result(state, arg)) && is_identity_key(state, arg);
}

// What the cache holds is read from it (read_cached_result). A result that it
// does not hold is computed here, and by the cache after the graph: equal
// arguments give one object in a capture, as the cache does; one that can be
// changed must neither be changed in the capture nor outlive it
// (note_cached_result). A function with effects is left to CPython, after which
// the cache holds the result.
Result<Ref> call_cached(BuiltinCall& call, PyObject* wrapper) {
  CaptureState& state = call.state;
  FJ_TRY(Ref held, read_cached_result(state, wrapper, call.args, call.kwnames));
  if (held) return held;
  FJ_TRY(Ref function,
         from_api(PyObject_GetAttrString(wrapper, "__wrapped__")));
  state.pin(function.get());
  bool symbolic = false;
  for (PyObject* arg : call.args) {
    if (!is_cache_key(state, arg, &symbolic)) {
      return state.make_break(BreakReason::kUnguardableInput,
                              "lru_cache of an object");
    }
  }
  FJ_TRY(Ref key, cached_call_key(wrapper, call.args, call.kwnames));
  Ref& memo = state.table<CachedResults>().calls;
  if (!memo) memo = Ref::steal(PyDict_New());
  if (!memo) return Result<Ref>::raised();
  const bool memoised = !symbolic && key.get() != Py_None;
  if (memoised) {
    PyObject* known = PyDict_GetItemWithError(memo.get(), key.get());
    if (known) {
      if (!keeps_all_given(state, wrapper)) {
        return state.make_break(
            BreakReason::kUnguardableInput,
            "an lru_cache that may have forgotten a result");
      }
      Ref value = Ref::borrow(known);
      FJ_CHECK_OK(
          log_cached_call(state, wrapper, call.args, call.kwnames, true));
      return value;
    }
    if (PyErr_Occurred()) return Result<Ref>::raised();
  }
  size_t writes = state.table<WriteLog>().entries.size();
  Result<Ref> result =
      state.caller.call(function.get(), call.args, call.kwnames);
  if (result.is_raised()) {
    // The cache counts it.
    PyErr_Clear();
    return state.make_break(BreakReason::kUnguardableInput,
                            "lru_cache of a function that raises");
  }
  FJ_TRY(Ref value, std::move(result));
  if (!take_back_cached_calls(state, writes)) {
    return state.make_break(BreakReason::kUnguardableInput,
                            "lru_cache of a function with effects");
  }
  FJ_TRY(bool noted, note_cached_result(state, value.get()));
  if (!noted) {
    return state.make_break(BreakReason::kUnguardableInput,
                            "lru_cache of a mutable result");
  }
  if (memoised && PyDict_SetItem(memo.get(), key.get(), value.get()) < 0) {
    return Result<Ref>::raised();
  }
  FJ_CHECK_OK(log_cached_call(state, wrapper, call.args, call.kwnames, false));
  return value;
}

}  // namespace

// A weak reference of the capture's own: it may not outlive it.
Result<Ref> model_weakref(BuiltinCall& call) {
  if (!call.plain(1, 1) || is_foreign(call.state, call.args[0])) {
    return call.unknown();
  }
  return from_api(PyWeakref_NewRef(call.args[0], nullptr));
}

Result<Ref> call_by_type(BuiltinCall& call) {
  PyObject* callable = call.callable;
  if (kPartial.is_type_of(callable)) return call_partial(call, callable);
  if (kLruCache.is_type_of(callable)) return call_cached(call, callable);
  if (PyWeakref_CheckRef(callable) && call.args.empty()) {
    const Source* source = call.state.source_of(callable);
    FJ_TRY(Ref referent, from_api(PyObject_CallNoArgs(callable)));
    // Made in this capture (model_weakref): of an object with an origin.
    bool is_fresh = !source && PyWeakref_CheckRefExact(callable);
    if (is_fresh) return referent;
    // A dead reference stays dead, but no guard says so.
    if (!source || referent.get() == Py_None) return call.unknown();
    SourceArena& sources = call.state.guards.sources();
    return call.state.wrap(referent.get(),
                           sources.make(SourceKind::kWeakReferent, source));
  }
  if (is_getter(callable)) return call_getter(call, callable);
  return Ref();
}

}  // namespace framejit::bytecode
