// Builtins about one object: what its text is, its hash, whether it is equal to
// another one, as a number.
#include <cstring>

#include "bytecode/builtins/builtins.h"
#include "bytecode/objects/native_calls.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/special_results.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

Result<Ref> model_callable(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.native(Reads::kNothing);
  Ref type = call.state.type_of(call.args[0]);
  auto* raw = reinterpret_cast<PyTypeObject*>(type.get());
  FJ_CHECK_OK(call.state.type_lookup(raw, interned("__call__")));
  return boolean(raw->tp_call != nullptr);
}

Result<Ref> model_hash(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.native(Reads::kNothing);
  CaptureState& state = call.state;
  PyObject* subject = call.args[0];
  if (is_symbolic(state, subject) || state.is_constant(subject)) {
    return call.native(Reads::kDeep);
  }
  FJ_TRY(Ref special, state.python_special(subject, "__hash__"));
  if (special && !is_stand_in(state, subject)) {
    return call_special(state, SpecialResult::kHash, special.get(), subject);
  }
  // By address: another number in the next call.
  return state.make_break(BreakReason::kUnguardableInput,
                          "hash() of an object's identity");
}

Result<Ref> model_repr(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.native(Reads::kDeep);
  bool ascii = call.callable != library_object("builtins", "repr");
  return call.state.format_value(call.args[0], ascii ? 3 : 2, nullptr);
}

Result<Ref> model_str(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.native(Reads::kDeep);
  return call.state.format_value(call.args[0], 1, nullptr);
}

Result<Ref> model_format(BuiltinCall& call) {
  if (!call.plain(1, 2)) return call.native(Reads::kDeep);
  PyObject* spec = call.args.size() > 1 ? call.args[1] : nullptr;
  bool of_object = Py_IS_TYPE(call.callable, &PyMethodDescr_Type);
  if (of_object) {  // object.__format__: str(self)
    if (spec && (!PyUnicode_Check(spec) || PyUnicode_GET_LENGTH(spec) != 0)) {
      return call.unknown();
    }
    return call.state.format_value(call.args[0], 1, nullptr);
  }
  return call.state.format_value(call.args[0], 0, spec);
}

// Of whatever objects, sizes that are symbols too, as BUILD_SLICE makes it.
Result<Ref> model_slice(BuiltinCall& call) {
  if (!call.plain(1, 3)) return call.native(Reads::kNothing);
  const bool is_stop = call.args.size() == 1;
  return from_api(PySlice_New(is_stop ? nullptr : call.args[0],
                              call.args[is_stop ? 0 : 1],
                              call.args.size() == 3 ? call.args[2] : nullptr));
}

Result<Ref> model_object_str(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.unknown();
  return call.state.format_value(call.args[0], 2, nullptr);
}

Result<Ref> model_object_eq(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.unknown();
  FJ_TRY(bool same, call.state.is_same(call.args[0], call.args[1]));
  return Ref::borrow(same ? Py_True : Py_NotImplemented);
}

// The inverse of what the class's __eq__ says, if it says anything.
Result<Ref> model_object_ne(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.unknown();
  CaptureState& state = call.state;
  PyObject *self = call.args[0], *other = call.args[1];
  Ref answer;
  FJ_TRY(Ref special, state.python_special(self, "__eq__"));
  if (special) {
    FJ_TRY(answer, state.caller.call(special.get(), {self, other}));
  } else if (Py_TYPE(self)->tp_richcompare ==
             PyBaseObject_Type.tp_richcompare) {
    FJ_TRY(bool same, state.is_same(self, other));
    answer = Ref::borrow(same ? Py_True : Py_NotImplemented);
  } else if (is_builtin_constant(self) && is_builtin_constant(other)) {
    FJ_TRY(answer, from_api(Py_TYPE(self)->tp_richcompare(self, other, Py_EQ)));
  } else {
    return state.make_break(
        BreakReason::kUnguardableInput,
        std::string("object.__ne__ of ") + Py_TYPE(self)->tp_name);
  }
  if (answer.get() == Py_NotImplemented) return answer;
  FJ_TRY(bool equal, state.truth(answer.get()));
  return boolean(!equal);
}

namespace {

Result<Ref> convert(BuiltinCall& call, const char* method) {
  if (!call.plain(1, 1)) return call.native(Reads::kDeep);
  CaptureState& state = call.state;
  PyObject* subject = call.args[0];
  if (is_stand_in(state, subject)) {
    return state.make_break(BreakReason::kDataDependentValue, method);
  }
  // A number's own conversion comes before __index__ of a derived class.
  const PyNumberMethods* number = Py_TYPE(subject)->tp_as_number;
  bool is_int = std::strcmp(method, "__int__") == 0;
  bool converts = number && (is_int ? number->nb_int : number->nb_float);
  for (const char* name : {method, "__index__"}) {
    FJ_TRY(Ref special, state.python_special(subject, name));
    if (!special && converts) break;
    if (!special) continue;
    SpecialResult kind =
        std::strcmp(name, "__index__") == 0 ? SpecialResult::kIndex
        : std::strcmp(name, "__int__") == 0 ? SpecialResult::kInt
                                            : SpecialResult::kFloat;
    FJ_TRY(Ref value, call_special(state, kind, special.get(), subject));
    bool symbolic = is_symbolic(state, value.get());
    if (symbolic && kind == SpecialResult::kInt) return value;
    call.args[0] = value.get();
    return call.native(Reads::kConverts);
  }
  return call.native(Reads::kConverts);
}

}  // namespace

Result<Ref> model_int(BuiltinCall& call) {
  if (call.plain(1, 1) && is_symbolic(call.state, call.args[0]) &&
      call.state.tracer.symbolic_type(call.args[0]) ==
          as_object(&PyLong_Type)) {
    return Ref::borrow(call.args[0]);
  }
  if (call.plain(1, 1) && is_symbolic_float(call.state, call.args[0])) {
    return call.state.tracer.operate(library_object("math", "trunc"),
                                     {call.args[0]});
  }
  return convert(call, "__int__");
}

Result<Ref> model_float(BuiltinCall& call) {
  if (call.plain(1, 1) && is_symbolic(call.state, call.args[0])) {
    if (is_symbolic_float(call.state, call.args[0]))
      return Ref::borrow(call.args[0]);
    Ref one = Ref::steal(PyLong_FromLong(1));
    if (!one) return Result<Ref>::raised();
    return call.state.tracer.operate(library_object("operator", "truediv"),
                                     {call.args[0], one.get()});
  }
  return convert(call, "__float__");
}

Result<Ref> model_bool(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.native(Reads::kDeep);
  FJ_TRY(bool value, call.state.truth(call.args[0]));
  return boolean(value);
}

}  // namespace framejit::bytecode
