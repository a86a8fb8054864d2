// The texts of objects: f-strings, format() and what str() and repr() ask.
#include "bytecode/objects/breaks.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/containers.h"
#include "bytecode/objects/identity.h"
#include "bytecode/objects/native_calls.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/opaque_value.h"
#include "bytecode/objects/special_results.h"
#include "bytecode/objects/strict_errors.h"
#include "frame_hook/cpython_internals.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

Status guard_class_text(CaptureState& state, PyObject* object) {
  if (PyType_Check(object) &&
      is_heap_type(reinterpret_cast<PyTypeObject*>(object))) {
    for (const char* shown : {"__module__", "__qualname__"}) {
      FJ_CHECK_OK(state.get_attr(object, interned(shown)));
    }
  }
  return ok_status();
}

namespace {

Result<Ref> text_of(CaptureState& state, PyObject* value, bool repr) {
  if (PyUnicode_CheckExact(value) && !repr) return Ref::borrow(value);
  if (is_stand_in(state, value)) {
    return state.make_break(BreakReason::kDataDependentValue,
                            "formats a tensor");
  }
  if (!repr) {
    FJ_TRY(Ref to_str, state.python_special(value, "__str__"));
    if (to_str)
      return call_special(state, SpecialResult::kStr, to_str.get(), value);
  }
  PyObject* raw = raw_lookup(Py_TYPE(value), "__str__");
  bool str_is_repr = repr || (raw && Py_IS_TYPE(raw, &PyWrapperDescr_Type) &&
                              PyDescr_TYPE(raw) == &PyBaseObject_Type);
  if (str_is_repr) {
    FJ_TRY(Ref to_repr, state.python_special(value, "__repr__"));
    if (to_repr)
      return call_special(state, SpecialResult::kRepr, to_repr.get(), value);
  }
  if (PyExceptionInstance_Check(value) && state.is_input(value)) {
    // What the root class shows is its arguments.
    auto* root = reinterpret_cast<PyTypeObject*>(PyExc_BaseException);
    PyTypeObject* type = Py_TYPE(value);
    if ((repr ? type->tp_repr == root->tp_repr
              : type->tp_str == root->tp_str)) {
      FJ_TRY(Ref args, state.get_attr(value, interned("args")));
      if (is_builtin_constant(args.get())) {
        return state.after_native(repr ? PyObject_Repr(value)
                                       : PyObject_Str(value));
      }
    }
  }
  if (PyExceptionInstance_Check(value) && !state.is_input(value)) {
    // str(e) looks at e.args.
    PyObject* args = reinterpret_cast<PyBaseExceptionObject*>(value)->args;
    FJ_TRY(Ref plain, prepare(state, args, Reads::kDeep));
    if (plain.get() != args)
      return unguardable(state, value, "the text of what is computed");
    return state.after_native(repr ? PyObject_Repr(value)
                                   : PyObject_Str(value));
  }
  if (PyFunction_Check(value) || PyMethod_Check(value) ||
      PyCFunction_Check(value)) {
    return state.make_break(BreakReason::kUnguardableInput,
                            "repr shows an address");
  }
  if (PyType_Check(value)) {
    FJ_CHECK_OK(guard_class_text(state, value));
    return state.after_native(repr ? PyObject_Repr(value)
                                   : PyObject_Str(value));
  }
  FJ_TRY(Ref plain, prepare(state, value, Reads::kFormats));
  return state.after_native(repr ? PyObject_Repr(plain.get())
                                 : PyObject_Str(plain.get()));
}

// Is format(object, "") its str()? Not where C code has a form of its own
// (decimal.Decimal).
bool formats_by_text(PyTypeObject* type) {
  PyObject* raw = raw_lookup(type, "__format__");
  if (!raw || !Py_IS_TYPE(raw, &PyMethodDescr_Type)) return false;
  PyTypeObject* owner = PyDescr_TYPE(raw);
  return owner == &PyBaseObject_Type || owner == &PyLong_Type ||
         owner == &PyFloat_Type || owner == &PyComplex_Type ||
         owner == &PyUnicode_Type;
}

}  // namespace

Result<Ref> CaptureState::format_value(PyObject* value, int conversion,
                                       PyObject* spec) {
  Ref subject = Ref::borrow(value);
  if (is_symbolic(*this, value)) {
    FJ_TRY(subject, tracer.concretise(value));
  }
  if (conversion == 1 || conversion == 2 || conversion == 3) {
    FJ_TRY(subject, text_of(*this, subject.get(), conversion != 1));
    if (conversion == 3 && !PyUnicode_IS_ASCII(subject.get())) {
      // As PyObject_ASCII() does with the repr: its backslashes stay single.
      FJ_TRY(Ref bytes, from_api(PyUnicode_AsEncodedString(
                            subject.get(), "ascii", "backslashreplace")));
      FJ_TRY(subject, from_api(PyUnicode_DecodeASCII(
                          PyBytes_AS_STRING(bytes.get()),
                          PyBytes_GET_SIZE(bytes.get()), nullptr)));
    }
  }
  bool empty_spec =
      !spec || (PyUnicode_Check(spec) && PyUnicode_GET_LENGTH(spec) == 0);
  if (PyUnicode_CheckExact(subject.get()) && empty_spec) return subject;
  Ref no_spec = Ref::steal(PyUnicode_FromString(""));
  PyObject* text = spec ? spec : no_spec.get();
  FJ_TRY(Ref special, python_special(subject.get(), "__format__"));
  if (special) {
    FJ_TRY(Ref made, caller.call(special.get(), {subject.get(), text}));
    return checked_special(*this, SpecialResult::kFormat, std::move(made));
  }
  if (empty_spec && !is_builtin_constant(subject.get())) {
    FJ_TRY(Ref own_text, python_special(subject.get(), "__str__"));
    if (!own_text || formats_by_text(Py_TYPE(subject.get())))
      return text_of(*this, subject.get(), false);
  }
  FJ_TRY(Ref plain, prepare(*this, subject.get(), Reads::kFormats));
  return after_native(PyObject_Format(plain.get(), text));
}

}  // namespace framejit::bytecode
