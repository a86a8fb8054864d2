#include "graph/tracing/special_methods.h"

#include "frame_hook/python_text.h"
#include "graph/tracing/recorder.h"

namespace framejit::graph {

namespace {

// torch's own implementation of a special method: C code, or a function of
// torch/_tensor.py or another of its modules.
bool is_torchs_own(PyObject* raw) {
  if (!PyFunction_Check(raw)) {
    PyTypeObject* type = Py_TYPE(raw);
    return type == &PyWrapperDescr_Type || type == &PyMethodDescr_Type ||
           type == &PyGetSetDescr_Type;
  }
  PyObject* name =
      PyDict_GetItemString(PyFunction_GET_GLOBALS(raw), "__name__");
  return name && PyUnicode_Check(name) && text_of(name).starts_with("torch.");
}

// functools.wraps says what is beneath a decorator.
PyObject* beneath_decorators(PyObject* raw) {
  while (raw && PyFunction_Check(raw)) {
    PyObject* marks = reinterpret_cast<PyFunctionObject*>(raw)->func_dict;
    PyObject* wrapped =
        marks ? PyDict_GetItemString(marks, "__wrapped__") : nullptr;
    if (!wrapped) break;
    raw = wrapped;
  }
  return raw;
}

}  // namespace

Status SpecialMethods::guard(PyObject* stand_in, const std::string& name,
                             Recorder& recorder) {
  PyTypeObject* type = Py_TYPE(stand_in);
  if (!guarded_.emplace(type, name).second) return ok_status();
  Ref key = Ref::steal(PyUnicode_InternFromString(name.c_str()));
  if (!key) return Status::raised();
  Ref raw = Ref::borrow(_PyType_Lookup(type, key.get()));
  if (raw && !is_torchs_own(raw.get()))
    return Break{BreakReason::kUnsupportedAttribute,
                 std::string(type->tp_name) + "." + name + " was patched",
                 recorder.span()};
  GuardSet& guards = *recorder.guards();
  Guard fact{GuardKind::kTypeAttrIs};
  fact.source = guards.sources().constant(reinterpret_cast<PyObject*>(type));
  fact.object = std::move(key);
  fact.object2 = raw;
  guards.add(std::move(fact));
  // What it does is traced and not interpreted, so the methods that it calls
  // are guarded here.
  PyObject* function = beneath_decorators(raw.get());
  if (!function || !PyFunction_Check(function)) return ok_status();
  PyObject* names =
      reinterpret_cast<PyCodeObject*>(PyFunction_GET_CODE(function))->co_names;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names); ++i) {
    PyObject* called = PyTuple_GET_ITEM(names, i);
    if (_PyType_Lookup(type, called))
      FJ_CHECK_OK(guard(stand_in, text_of(called), recorder));
  }
  return ok_status();
}

}  // namespace framejit::graph
