// `import` inside a function: modules that are already imported are read like
// any other input, through sys.modules; anything else would run code and
// breaks.
#include "bytecode/interpreter/handlers.h"
#include "bytecode/objects/attributes.h"

#include "frame_hook/python_text.h"

namespace framejit::bytecode {
namespace {

Break import_break(Interpreter& interp, PyObject* name) {
  return interp.make_break(BreakReason::kUnknownCallee,
                           "import of " + text_of(name, "?"));
}

// The module sys.modules holds under the name, as an input; empty when absent
// or still being imported.
Result<Ref> imported_module(Interpreter& interp, PyObject* name) {
  PyObject* modules = PySys_GetObject("modules");
  if (!modules || !PyDict_CheckExact(modules)) return Ref();
  PyObject* module = PyDict_GetItemWithError(modules, name);
  if (!module) {
    PyErr_Clear();
    return Ref();
  }
  if (!PyModule_Check(module)) return Ref();
  Ref spec = Ref::steal(PyObject_GetAttrString(module, "__spec__"));
  if (!spec) PyErr_Clear();
  if (spec && spec.get() != Py_None) {
    Ref busy = Ref::steal(PyObject_GetAttrString(spec.get(), "_initializing"));
    if (!busy) PyErr_Clear();
    if (busy && PyObject_IsTrue(busy.get()) != 0) return Ref();
  }
  SourceArena& sources = interp.state.guards.sources();
  return interp.state.wrap(
      module,
      sources.make(SourceKind::kDictItem, sources.constant(modules), name));
}

// "a.b" seen from a package, `level` dots in front; empty: not resolved.
Result<Ref> absolute_name(Interpreter& interp, Frame& frame, PyObject* name,
                          long level) {
  if (level == 0) return Ref::borrow(name);
  FJ_TRY(Ref package,
         interp.state.dict_get(frame.globals.get(), names().__package__));
  if (!package || !PyUnicode_CheckExact(package.get())) return Ref();
  Py_ssize_t end = PyUnicode_GET_LENGTH(package.get());
  for (long i = 1; i < level; ++i) {
    end = PyUnicode_FindChar(package.get(), '.', 0, end, -1);
    if (end < 0) return Ref();
  }
  FJ_TRY(Ref base, from_api(PyUnicode_Substring(package.get(), 0, end)));
  if (PyUnicode_GET_LENGTH(name) == 0) return base;
  return from_api(PyUnicode_FromFormat("%U.%U", base.get(), name));
}

}  // namespace

FJ_HANDLER(ImportName) {
  CaptureState& state = interp.state;
  PyObject* from_list = frame.top(1);
  long level = PyLong_AsLong(frame.top(2));
  if (level < 0) {
    PyErr_Clear();
    return import_break(interp, op.object);
  }
  // A replaced __import__ is the program's own business.
  FJ_TRY(Ref importer,
         state.dict_get(frame.builtins.get(), names().__import__));
  if (!importer || !PyCFunction_Check(importer.get())) {
    return import_break(interp, op.object);
  }
  FJ_TRY(Ref name, absolute_name(interp, frame, op.object, level));
  if (!name) return import_break(interp, op.object);
  FJ_TRY(Ref module, imported_module(interp, name.get()));
  if (!module) return import_break(interp, name.get());
  if (from_list == Py_None) {
    // `import a.b` binds a.
    Py_ssize_t dot = PyUnicode_FindChar(name.get(), '.', 0,
                                        PyUnicode_GET_LENGTH(name.get()), 1);
    if (dot >= 0) {
      if (level != 0) return import_break(interp, name.get());
      FJ_TRY(Ref top, from_api(PyUnicode_Substring(name.get(), 0, dot)));
      FJ_TRY(module, imported_module(interp, top.get()));
      if (!module) return import_break(interp, top.get());
    }
  } else if (PyTuple_CheckExact(from_list)) {
    // A name that is missing might be a submodule to import.
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(from_list); ++i) {
      PyObject* item = PyTuple_GET_ITEM(from_list, i);
      FJ_TRY(Ref found, maybe_attr(state, module.get(), item));
      if (!found) return import_break(interp, name.get());
    }
  } else {
    return import_break(interp, name.get());
  }
  return replace_top(frame, 2, std::move(module));
}

FJ_HANDLER(ImportFrom) {
  FJ_TRY(Ref value, maybe_attr(interp.state, frame.top(), op.object));
  if (!value) return import_break(interp, op.object);
  frame.push(std::move(value));
  return Flow::kNext;
}

}  // namespace framejit::bytecode
