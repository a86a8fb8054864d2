// Structural pattern matching.
#include "bytecode/interpreter/handlers.h"
#include "bytecode/objects/attributes.h"
#include "bytecode/objects/exceptions.h"

namespace framejit::bytecode {
namespace {

bool has_type_flag(Interpreter& interp, PyObject* object, unsigned long flag) {
  Ref type = interp.state.type_of(object);
  return PyType_HasFeature(reinterpret_cast<PyTypeObject*>(type.get()), flag);
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

Result<Ref> builtin(const char* name) {
  PyObject* dict = PyEval_GetBuiltins();
  PyObject* value = dict ? PyDict_GetItemString(dict, name) : nullptr;
  FJ_CHECK(value, "a builtin is missing");
  return Ref::borrow(value);
}

}  // namespace

FJ_HANDLER(MatchMapping) {
  frame.push(py_bool(has_type_flag(interp, frame.top(), Py_TPFLAGS_MAPPING)));
  return Flow::kNext;
}

FJ_HANDLER(MatchSequence) {
  frame.push(py_bool(has_type_flag(interp, frame.top(), Py_TPFLAGS_SEQUENCE)));
  return Flow::kNext;
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
  for (Py_ssize_t i = 0; i < count; ++i) {
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
  FJ_TRY(Ref isinstance, builtin("isinstance"));
  FJ_TRY(Ref matched,
         interp.call(isinstance.get(), {subject.get(), type.get()}));
  FJ_TRY(bool is_instance, state.truth(matched.get()));
  if (!is_instance) return replace_top(frame, 3, Ref::borrow(Py_None));
  std::vector<Ref> found, attributes;
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
      attributes.push_back(Ref::borrow(PyTuple_GET_ITEM(match_args.get(), i)));
    }
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keyword_names.get()); ++i) {
    attributes.push_back(Ref::borrow(PyTuple_GET_ITEM(keyword_names.get(), i)));
  }
  for (const Ref& name : attributes) {
    FJ_TRY(Ref value, maybe_attr(state, subject.get(), name.get()));
    if (!value) return replace_top(frame, 3, Ref::borrow(Py_None));
    found.push_back(std::move(value));
  }
  FJ_TRY(Ref tuple, from_api(PyTuple_New(found.size())));
  for (size_t i = 0; i < found.size(); ++i) {
    PyTuple_SET_ITEM(tuple.get(), i, found[i].release());
  }
  return replace_top(frame, 3, std::move(tuple));
}

}  // namespace framejit::bytecode
