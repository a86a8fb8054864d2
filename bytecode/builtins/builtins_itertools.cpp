// itertools. Functions that only hand elements on run natively over what C code
// may iterate; those that call the program's functions get trampolines, which
// come back into the interpreter.
#include "bytecode/builtins/builtins.h"
#include "bytecode/objects/containers.h"
#include "bytecode/objects/model_iterators.h"
#include "bytecode/objects/native_calls.h"
#include "bytecode/objects/object_kinds.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

namespace {

Result<Ref> call_with(BuiltinCall& call, const std::vector<PyObject*>& args,
                      PyObject* kwnames = nullptr) {
  size_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  return call.state.after_native(PyObject_Vectorcall(
      call.callable, args.data(), args.size() - keywords, kwnames));
}

// Elements passed through `function` (a C type) by the interpreter.
Result<Ref> mapped(CaptureState& state, PyTypeObject* function,
                   PyObject* iterable) {
  FJ_TRY(Ref iterator, state.iter(iterable));
  std::vector<Ref> sources{iterator};
  return make_iterator(state, IteratorKind::kMap, as_object(function),
                       std::move(sources));
}

// predicate(element) as C code may ask it; None is the element's own truth.
Result<Ref> predicate_of(CaptureState& state, PyObject* function) {
  if (function == Py_None) function = as_object(&PyBool_Type);
  return trampoline(state, function, TrampolineResult::kTruth);
}

}  // namespace

// repeat(object, times): the object as it is, the number as C code asks for it.
Result<Ref> model_repeat(BuiltinCall& call) {
  size_t at = 1;
  for (size_t i = call.positional(); i < call.args.size(); ++i) {
    PyObject* name = PyTuple_GET_ITEM(call.kwnames, i - call.positional());
    if (PyUnicode_CompareWithASCIIString(name, "times") == 0) at = i;
  }
  if (!call.argument(1, "times")) return call.native(Reads::kNothing);
  FJ_TRY(Ref times, concrete_index(call.state, call.args[at]));
  FJ_TRY(times, sequence_index(call.state, std::move(times)));
  call.args[at] = times.get();
  return call.native(Reads::kNothing);
}

Result<Ref> model_compress(BuiltinCall& call) {
  PyObject* data = call.argument(0, "data");
  PyObject* selectors = call.argument(1, "selectors");
  if (!data || !selectors || !call.takes({"data", "selectors"}))
    return call.native(Reads::kNothing);
  FJ_TRY(Ref values, native_iterable(call.state, data));
  FJ_TRY(Ref wanted, mapped(call.state, &PyBool_Type, selectors));
  return call_with(call, {values.get(), wanted.get()});
}

Result<Ref> model_accumulate(BuiltinCall& call) {
  CaptureState& state = call.state;
  PyObject* iterable = call.argument(0, "iterable");
  PyObject* function = call.argument(1, "func");
  PyObject* initial = call.argument(SIZE_MAX, "initial");
  if (!iterable || !call.takes({"iterable", "func", "initial"}, 1))
    return call.native(Reads::kNothing);
  if (!function || function == Py_None) {
    function = library_object("operator", "add");
  }
  FJ_TRY(Ref values, native_iterable(state, iterable));
  FJ_TRY(Ref back, trampoline(state, function, TrampolineResult::kAsIs));
  if (!initial) return call_with(call, {values.get(), back.get()});
  Ref names = Ref::steal(PyTuple_Pack(1, interned("initial")));
  if (!names) return Result<Ref>::raised();
  return call_with(call, {values.get(), back.get(), initial}, names.get());
}

// takewhile, dropwhile, filterfalse
Result<Ref> model_predicate_iterator(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.native(Reads::kNothing);
  FJ_TRY(Ref predicate, predicate_of(call.state, call.args[0]));
  FJ_TRY(Ref values, native_iterable(call.state, call.args[1]));
  return call_with(call, {predicate.get(), values.get()});
}

Result<Ref> model_starmap(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.native(Reads::kNothing);
  CaptureState& state = call.state;
  FJ_TRY(Ref back, trampoline(state, call.args[0], TrampolineResult::kAsIs));
  FJ_TRY(Ref values, mapped(state, &PyTuple_Type, call.args[1]));
  return call_with(call, {back.get(), values.get()});
}

Result<Ref> model_groupby(BuiltinCall& call) {
  CaptureState& state = call.state;
  PyObject* iterable = call.argument(0, "iterable");
  PyObject* key = call.argument(1, "key");
  if (!iterable || !call.takes({"iterable", "key"}))
    return call.native(Reads::kNothing);
  if (key && key != Py_None) {
    FJ_TRY(Ref values, native_iterable(state, iterable));
    FJ_TRY(Ref back, trampoline(state, key, TrampolineResult::kPlain));
    return call_with(call, {values.get(), back.get()});
  }
  FJ_TRY(std::vector<Ref> items, state.elements(iterable));
  Ref list = Ref::steal(PyList_New(0));
  if (!list) return Result<Ref>::raised();
  for (const Ref& item : items) {
    // C code compares the keys of neighbours.
    if (!is_builtin_constant(item.get())) {
      return state.make_break(BreakReason::kUnguardableInput,
                              "groupby of objects without a key");
    }
    if (PyList_Append(list.get(), item.get()) < 0) {
      return Result<Ref>::raised();
    }
  }
  return call_with(call, {list.get()});
}

}  // namespace framejit::bytecode
