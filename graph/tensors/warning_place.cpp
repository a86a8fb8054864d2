#include "graph/tensors/warning_place.h"

#include <c10/util/Exception.h>

#include <utility>

namespace framejit::graph {
namespace {

PyObject* text_item(PyObject* dict, const char* name) {
  PyObject* found = PyDict_GetItemString(dict, name);
  return found && PyUnicode_Check(found) ? found : nullptr;
}

// The globals of the module whose file this is; empty: there is none, or more
// than one (a script that is imported, too).
Ref globals_of(PyObject* file) {
  Ref found;
  Py_ssize_t position = 0;
  PyObject *key, *module;
  while (PyDict_Next(PyImport_GetModuleDict(), &position, &key, &module)) {
    if (!PyModule_Check(module)) continue;
    PyObject* dict = PyModule_GetDict(module);
    PyObject* name = text_item(dict, "__file__");
    if (!name || PyUnicode_Compare(name, file) != 0) continue;
    if (found && found.get() != dict) return {};
    found = Ref::borrow(dict);
  }
  return found;
}

Ref registry_of(PyObject* globals) {
  Ref name = Ref::steal(PyUnicode_InternFromString("__warningregistry__"));
  if (!name) return {};
  Ref registry = Ref::borrow(PyDict_GetItemWithError(globals, name.get()));
  if (registry || PyErr_Occurred()) return registry;
  registry = Ref::steal(PyDict_New());
  if (registry && PyDict_SetItem(globals, name.get(), registry.get()) < 0)
    return {};
  return registry;
}

// Made once: a capture asks for them at every call. Never destroyed.
struct Replacements {
  PyObject* module = PyUnicode_InternFromString("warnings");
  PyObject* filters = PyUnicode_InternFromString("filters");
  PyObject* show = PyUnicode_InternFromString("_showwarnmsg");
  // Every warning is shown, whatever was said before.
  PyObject* all =
      Py_BuildValue("[(sOOOi)]", "always", Py_None, PyExc_Warning, Py_None, 0);
  PyObject* kept = PyList_New(0);
  PyObject* keep = kept ? PyObject_GetAttrString(kept, "append") : nullptr;
  bool complete = module && filters && show && all && keep;
};
const Replacements& replacements() {
  static const auto* made = new Replacements;
  return *made;
}

// The dict of the module, if it was imported. Sets no error.
Ref warnings_dict() {
  const Replacements& ours = replacements();
  Ref module =
      ours.complete ? Ref::steal(PyImport_GetModule(ours.module)) : Ref();
  PyErr_Clear();
  return module && PyModule_Check(module.get())
             ? Ref::borrow(PyModule_GetDict(module.get()))
             : Ref();
}

}  // namespace

WarningPlace warning_place(const Span& span) {
  int line = span_line(span);
  if (line <= 0) return {};
  auto* code = reinterpret_cast<PyCodeObject*>(span.code.get());
  return {Ref::borrow(code->co_filename), line};
}

bool warn_at(const WarningPlace& place, PyObject* category, PyObject* message) {
  Ref globals = place.file ? globals_of(place.file.get()) : Ref();
  PyObject* module = globals ? text_item(globals.get(), "__name__") : nullptr;
  if (!module) return false;
  Ref registry = registry_of(globals.get());
  return registry &&
         PyErr_WarnExplicitObject(category, message, place.file.get(),
                                  place.line, module, registry.get()) == 0;
}

WarningsKept::WarningsKept(bool once)
    : always_(c10::WarningUtils::get_warnAlways()) {
  ErrorGuard error;
  c10::WarningUtils::set_warnAlways(!once || always_);
  Ref dict = warnings_dict();
  if (!dict) return;
  const Replacements& ours = replacements();
  filters_ = Ref::borrow(PyDict_GetItemWithError(dict.get(), ours.filters));
  show_ = Ref::borrow(PyDict_GetItemWithError(dict.get(), ours.show));
  if (!filters_ || !show_ ||
      PyDict_SetItem(dict.get(), ours.filters, ours.all) < 0) {
    PyErr_Clear();
    return;
  }
  dict_ = std::move(dict);
  PyDict_SetItem(dict_.get(), ours.show, ours.keep);
}

WarningsKept::~WarningsKept() {
  ErrorGuard error;
  c10::WarningUtils::set_warnAlways(always_);
  if (!dict_) return;
  const Replacements& ours = replacements();
  PyDict_SetItem(dict_.get(), ours.filters, filters_.get());
  PyDict_SetItem(dict_.get(), ours.show, show_.get());
  take();
}

std::vector<Ref> WarningsKept::take() {
  std::vector<Ref> messages;
  PyObject* kept = replacements().kept;
  if (!kept || PyList_GET_SIZE(kept) == 0) return messages;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(kept); ++i)
    messages.push_back(Ref::borrow(PyList_GET_ITEM(kept, i)));
  PyList_SetSlice(kept, 0, PY_SSIZE_T_MAX, nullptr);
  return messages;
}

bool warnings_may_raise() {
  Ref dict = warnings_dict();
  if (!dict) return false;
  PyObject* action = text_item(dict.get(), "defaultaction");
  auto raises = [](PyObject* text) {
    return PyUnicode_Check(text) &&
           PyUnicode_CompareWithASCIIString(text, "error") == 0;
  };
  if (action && raises(action)) return true;
  PyObject* filters = PyDict_GetItemString(dict.get(), "filters");
  if (!filters || !PyList_Check(filters)) return true;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(filters); ++i) {
    PyObject* filter = PyList_GET_ITEM(filters, i);
    if (!PyTuple_Check(filter) || PyTuple_GET_SIZE(filter) == 0 ||
        raises(PyTuple_GET_ITEM(filter, 0)))
      return true;
  }
  return false;
}

}  // namespace framejit::graph
