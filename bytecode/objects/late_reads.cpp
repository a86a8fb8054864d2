#include "bytecode/objects/late_reads.h"

#include "bytecode/code/decoder.h"
#include "bytecode/library/library.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/origins.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

namespace {

// What a program calls, looks up and imports: rebinding it is changing the
// program, not its data.
bool is_code(const CaptureState& state, PyObject* object) {
  if (PyFunction_Check(object) || PyType_Check(object) ||
      PyModule_Check(object) || PyCFunction_Check(object) ||
      PyCode_Check(object) || PyMethod_Check(object) || is_type_form(object) ||
      is_method_wrapper(object)) {
    return true;
  }
  static PyTypeObject* const kDescriptors[] = {
      &PyMethodDescr_Type, &PyWrapperDescr_Type, &PyClassMethodDescr_Type,
      &PyGetSetDescr_Type, &PyMemberDescr_Type,  &PyStaticMethod_Type,
      &PyClassMethod_Type, &PyProperty_Type};
  for (PyTypeObject* descriptor : kDescriptors)
    if (Py_IS_TYPE(object, descriptor)) return true;
  if (is_builtin_constant(object) || !PyCallable_Check(object)) return false;
  return state.tracer.classify(object) == ObjectClass::kPlain &&
         state.tracer.classify_callee(object) != CalleeClass::kNotForeign;
}

void note(const CaptureState& state, std::string what) {
  std::string& found = state.table<LateReads>().found;
  if (found.empty()) found = std::move(what);
}

std::string text_of(const CaptureState& state, const Source* source) {
  return source_text(source, PyFunction_GetCode(state.request.function));
}

std::string name_text(PyObject* name) {
  const char* text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : nullptr;
  if (!text) PyErr_Clear();
  return text ? text : "?";
}

// The module whose namespace the dict is; null: of none.
PyObject* module_name_of(PyObject* dict) {
  PyObject* name = PyDict_GetItemString(dict, "__name__");
  return name && PyUnicode_Check(name) ? name : nullptr;
}

bool is_namespace(PyObject* dict, const Source* source) {
  if (source && (source->kind == SourceKind::kGlobals ||
                 source->kind == SourceKind::kBuiltins)) {
    return true;
  }
  PyObject* name = module_name_of(dict);
  if (!name) return false;
  Ref module = Ref::steal(PyImport_GetModule(name));
  if (!module) PyErr_Clear();
  return module && PyModule_Check(module.get()) &&
         PyModule_GetDict(module.get()) == dict;
}

// Of the package that has the library's functions.
bool is_of_library(PyObject* module_name) {
  const OverrideProtocol* library = override_protocol();
  return library && is_in_package(module_name, library->package);
}

// A library's own, or a module made in C.
bool is_library_namespace(PyObject* dict) {
  PyObject* name = module_name_of(dict);
  if (!name) return false;
  if (is_of_library(name)) return true;
  Ref module = Ref::steal(PyImport_GetModule(name));
  if (!module) PyErr_Clear();
  return module && PyModule_Check(module.get()) &&
         PyModule_GetDict(module.get()) == dict &&
         PyModule_GetDef(module.get());
}

bool runs_library_code(const CaptureState& state) {
  PythonFrame frame = state.caller.python_frame(0);
  return frame.known && frame.globals && PyDict_Check(frame.globals) &&
         is_library_namespace(frame.globals);
}

// How often a slot of the code is written to, by the code or by functions in
// it. A write in a loop counts as many.
int count_writes(PyCodeObject* code, PyObject* name, int depth) {
  constexpr int kMany = 2;
  if (depth > 16) return kMany;
  Result<const DecodedCode*> decoded =
      decode(reinterpret_cast<PyObject*>(code));
  if (!decoded.ok()) {
    if (decoded.is_raised()) PyErr_Clear();
    return kMany;
  }
  const DecodedCode& body = *decoded.value();
  int slot = -1;
  for (int i = 0; i < body.num_slots(); ++i) {
    PyObject* own = body.slot_name(i);
    bool is_cell = body.slot_is_cell(i) || body.slot_is_free(i);
    if (is_cell && (own == name || PyUnicode_Compare(own, name) == 0)) slot = i;
  }
  if (slot < 0) return 0;
  int writes = depth == 0 && slot < body.num_args() ? 1 : 0;
  for (size_t at = 0; at < body.ops().size(); ++at) {
    const MicroOp& op = body.op(static_cast<int>(at));
    if (op.arg != slot) continue;
    if (op.op == MicroOpKind::kDeleteDeref) return kMany;
    if (op.op != MicroOpKind::kStoreDeref) continue;
    // Functions may be called more than once.
    if (depth > 0) return kMany;
    ++writes;
    for (size_t from = at; from < body.ops().size(); ++from) {
      int target = body.op(static_cast<int>(from)).target;
      if (target >= 0 && target <= static_cast<int>(at)) return kMany;
    }
  }
  PyObject* constants = code->co_consts;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constants); ++i) {
    PyObject* inner = PyTuple_GET_ITEM(constants, i);
    if (!PyCode_Check(inner)) continue;
    writes +=
        count_writes(reinterpret_cast<PyCodeObject*>(inner), name, depth + 1);
  }
  return writes;
}

}  // namespace

void note_late_object(const CaptureState& state, PyObject* object,
                      const Source* source) {
  if (PyTuple_Check(object) || PyCell_Check(object) ||
      state.tracer.classify(object) != ObjectClass::kPlain ||
      is_builtin_constant(object) || is_code(state, object)) {
    return;
  }
  if (is_guarded_by_identity(object) && !PyContextVar_CheckExact(object))
    return;
  if (PyDict_CheckExact(object) && is_namespace(object, source)) return;
  note(state, text_of(state, source));
}

void note_late_name(const CaptureState& state, PyObject* dict,
                    const Source* source, PyObject* key, PyObject* value) {
  if (!PyDict_CheckExact(dict) || !is_namespace(dict, source)) return;
  if (is_code(state, value) || is_library_namespace(dict)) return;
  PyObject* module = module_name_of(dict);
  note(state,
       module ? name_text(module) + "." + name_text(key) : name_text(key));
}

void note_late_attribute(const CaptureState& state, PyTypeObject* type,
                         PyObject* name, PyObject* value) {
  if (!value || !is_heap_type(type) || is_code(state, value)) return;
  std::string text = name_text(name);
  if (text.starts_with("__") && text.ends_with("__")) return;
  if (is_enum_member(value) && Py_TYPE(value) == type) return;
  PyObject* mro = type->tp_mro;
  for (Py_ssize_t i = 0; mro && i < PyTuple_GET_SIZE(mro); ++i) {
    PyObject* base = PyTuple_GET_ITEM(mro, i);
    Ref dict = own_dict(reinterpret_cast<PyTypeObject*>(base));
    if (!dict || !PyDict_GetItem(dict.get(), name)) continue;
    PyObject* module = PyDict_GetItemString(dict.get(), "__module__");
    if (!is_heap_type(reinterpret_cast<PyTypeObject*>(base)) ||
        (module && is_of_library(module))) {
      return;
    }
    break;
  }
  note(state, std::string(type->tp_name) + "." + text);
}

void note_late_cell(const CaptureState& state, PyObject* cell,
                    PyObject* value) {
  if (!value) return;
  const auto& sources = state.table<Origins>().sources;
  auto source = sources.find(cell);
  if (source != sources.end()) {
    // Decorators keep the function they wrap so.
    if (!is_code(state, value) && !runs_library_code(state))
      note(state, text_of(state, source->second) + " of a closure");
    return;
  }
  const auto& owners = state.table<CellOwners>().owners;
  auto owner = owners.find(cell);
  if (owner == owners.end()) {
    note(state, "a closure");
    return;
  }
  if (owner->second.late) return;
  auto* code = reinterpret_cast<PyCodeObject*>(owner->second.code.get());
  PyObject* name =
      PyTuple_GET_ITEM(code->co_localsplusnames, owner->second.slot);
  if (count_writes(code, name, 0) > 1) note(state, name_text(name));
}

void note_late_tensor_attribute(const CaptureState& state, PyObject* name) {
  note(state, "the attribute " + name_text(name) + " of a tensor");
}

void note_late_number(const CaptureState& state, const char* what) {
  note(state, what);
}

bool is_settled(const CaptureState& state, PyObject* object, int depth) {
  if (is_builtin_constant(object) || PyCapsule_CheckExact(object)) return true;
  if (state.tracer.classify(object) != ObjectClass::kPlain) return true;
  if (state.table<Origins>().sources.contains(object)) return true;
  if (depth > 8) return false;
  if (PyTuple_CheckExact(object)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(object); ++i)
      if (!is_settled(state, PyTuple_GET_ITEM(object, i), depth + 1))
        return false;
    return true;
  }
  if (PyFunction_Check(object) || PyMethod_Check(object)) return false;
  if (is_code(state, object)) return true;
  // Whoever else holds it can write to it.
  if (Py_REFCNT(object) > 1) return false;
  if (PyList_CheckExact(object)) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(object); ++i)
      if (!is_settled(state, PyList_GET_ITEM(object, i), depth + 1))
        return false;
    return true;
  }
  if (!PyDict_CheckExact(object)) return false;
  PyObject *key, *value;
  Py_ssize_t place = 0;
  while (PyDict_Next(object, &place, &key, &value))
    if (!is_settled(state, key, depth + 1) ||
        !is_settled(state, value, depth + 1))
      return false;
  return true;
}

}  // namespace framejit::bytecode
