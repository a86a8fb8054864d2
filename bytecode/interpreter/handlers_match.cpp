// Structural pattern matching.
#include "bytecode/interpreter/handlers.h"
#include "bytecode/objects/attributes.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/exceptions.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/opaque_value.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {
namespace {

// Pushes whether the subject is of a type with this flag. Registering a class
// with collections.abc gives it one.
Result<Flow> push_type_flag(Interpreter& interp, Frame& frame,
                            unsigned long flag) {
  if (is_opaque(frame.top(), OpaqueKind::kUnknown)) {
    return interp.make_break(BreakReason::kUnguardableInput,
                             "the type of what the caller handles");
  }
  Ref type = interp.state.type_of(frame.top());
  auto* of = reinterpret_cast<PyTypeObject*>(type.get());
  const bool has = PyType_HasFeature(of, flag);
  if (!has && is_heap_type(of)) FJ_CHECK_OK(guard_abc_registry(interp.state));
  frame.push(py_bool(has));
  return Flow::kNext;
}

// Builtin types whose single positional pattern is the subject itself.
bool matches_self(PyObject* type) {
  const PyTypeObject* self_types[] = {
      &PyBool_Type,  &PyByteArray_Type, &PyBytes_Type, &PyDict_Type,
      &PyFloat_Type, &PyFrozenSet_Type, &PyLong_Type,  &PyList_Type,
      &PySet_Type,   &PyUnicode_Type,   &PyTuple_Type};
  for (const PyTypeObject* self_type : self_types) {
    if (PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type),
                         const_cast<PyTypeObject*>(self_type))) {
      return true;
    }
  }
  return false;
}

// A name that a pattern looks at, positional or not.
Status check_sub_pattern(PyObject* type, PyObject* name,
                         const std::vector<Ref>& seen) {
  for (const Ref& earlier : seen) {
    const int same = PyUnicode_Compare(earlier.get(), name);
    if (same == -1 && PyErr_Occurred()) return Status::raised();
    if (same == 0) {
      return raise_format(PyExc_TypeError,
                          "%s() got multiple sub-patterns for attribute %R",
                          reinterpret_cast<PyTypeObject*>(type)->tp_name, name);
    }
  }
  return ok_status();
}

}  // namespace

FJ_HANDLER(MatchMapping) {
  return push_type_flag(interp, frame, Py_TPFLAGS_MAPPING);
}

FJ_HANDLER(MatchSequence) {
  return push_type_flag(interp, frame, Py_TPFLAGS_SEQUENCE);
}

FJ_HANDLER(MatchKeys) {
  PyObject* keys = frame.top(1);
  PyObject* subject = frame.top(2);
  if (!PyDict_CheckExact(subject)) {
    return interp.make_break(BreakReason::kUnsupportedAttribute,
                             "mapping pattern on something else than a dict");
  }
  Py_ssize_t count = PyTuple_GET_SIZE(keys);
  FJ_TRY(Ref values, from_api(PyTuple_New(count)));
  FJ_TRY(Ref seen, from_api(PySet_New(nullptr)));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* key = PyTuple_GET_ITEM(keys, i);
    if (count > 1 && !is_builtin_constant(key)) {
      return interp.make_break(
          BreakReason::kUnsupportedAttribute,
          "mapping pattern with keys that are no constants");
    }
    if (count > 1) {
      const int known = PySet_Contains(seen.get(), key);
      if (known == 1) {
        return raise_format(PyExc_ValueError,
                            "mapping pattern checks duplicate key (%R)", key)
            .forward<Flow>();
      }
      if (known < 0 || PySet_Add(seen.get(), key) < 0)
        return Result<Flow>::raised();
    }
    FJ_TRY(Ref value,
           interp.state.dict_get(subject, PyTuple_GET_ITEM(keys, i)));
    if (!value) {
      frame.push(Ref::borrow(Py_None));
      return Flow::kNext;
    }
    PyTuple_SET_ITEM(values.get(), i, value.release());
  }
  frame.push(std::move(values));
  return Flow::kNext;
}

FJ_HANDLER(MatchClass) {
  Ref keyword_names = frame.peek(1);
  Ref type = frame.peek(2);
  Ref subject = frame.peek(3);
  CaptureState& state = interp.state;
  if (!PyType_Check(type.get())) {
    return raise_format(PyExc_TypeError, "called match pattern must be a class")
        .forward<Flow>();
  }
  // As the C function tests, whatever the program calls by its name.
  static PyObject* const isinstance = library_object("builtins", "isinstance");
  FJ_CHECK(isinstance, "a builtin is missing");
  FJ_TRY(Ref matched, interp.call(isinstance, {subject.get(), type.get()}));
  FJ_TRY(bool is_instance, state.truth(matched.get()));
  if (!is_instance) return replace_top(frame, 3, Ref::borrow(Py_None));
  std::vector<Ref> found, seen;
  // False: the subject has no such attribute.
  auto look_up = [&](PyObject* name) -> Result<bool> {
    FJ_CHECK_OK(check_sub_pattern(type.get(), name, seen));
    seen.push_back(Ref::borrow(name));
    FJ_TRY(Ref value, maybe_attr(state, subject.get(), name));
    if (!value) return false;
    found.push_back(std::move(value));
    return true;
  };
  if (op.arg > 0) {
    FJ_TRY(Ref match_args,
           maybe_attr(state, type.get(), names().__match_args__));
    bool self_match = !match_args && matches_self(type.get());
    if (match_args && !PyTuple_CheckExact(match_args.get())) {
      return interp.make_break(BreakReason::kUnsupportedAttribute,
                               "__match_args__ that is no tuple");
    }
    int allowed = self_match   ? 1
                  : match_args ? PyTuple_GET_SIZE(match_args.get())
                               : 0;
    if (allowed < op.arg) {
      return raise_format(PyExc_TypeError,
                          "%s() accepts %d positional sub-pattern%s (%d given)",
                          reinterpret_cast<PyTypeObject*>(type.get())->tp_name,
                          allowed, allowed == 1 ? "" : "s", op.arg)
          .forward<Flow>();
    }
    if (self_match) found.push_back(subject);
    for (int i = 0; !self_match && i < op.arg; ++i) {
      PyObject* name = PyTuple_GET_ITEM(match_args.get(), i);
      if (!PyUnicode_CheckExact(name)) {
        return raise_format(
                   PyExc_TypeError,
                   "__match_args__ elements must be strings (got %.200s)",
                   Py_TYPE(name)->tp_name)
            .forward<Flow>();
      }
      FJ_TRY(bool has, look_up(name));
      if (!has) return replace_top(frame, 3, Ref::borrow(Py_None));
    }
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keyword_names.get()); ++i) {
    FJ_TRY(bool has, look_up(PyTuple_GET_ITEM(keyword_names.get(), i)));
    if (!has) return replace_top(frame, 3, Ref::borrow(Py_None));
  }
  FJ_TRY(Ref tuple, from_api(PyTuple_New(found.size())));
  for (size_t i = 0; i < found.size(); ++i) {
    PyTuple_SET_ITEM(tuple.get(), i, found[i].release());
  }
  return replace_top(frame, 3, std::move(tuple));
}

}  // namespace framejit::bytecode
