#include "bytecode/library/library.h"

#include <cstring>
#include <deque>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "frame_hook/frame_eval.h"
#include "frame_hook/observers.h"
#include "frame_hook/python_text.h"
#include "guards/set/guard_set.h"
#include "guards/set/quiet_callbacks.h"

namespace framejit::bytecode {
namespace {

// The rows that one library has for one module.
struct WatchedModule {
  const Library* library;
  const char* name;
  PyObject* text;  // interned
  Ref module;      // the one whose rows are resolved; empty: none yet
};

struct Substitutes {
  const SubstituteTable* table;
  Ref dict;  // empty: not imported yet, or it is not there
  bool imported = false;
};

struct MarkEntry {
  PyObject* name;  // interned
  const MarkRow* row;
};

// Objects that have rows, and everything in it, live forever.
struct Registry {
  std::vector<const Library*> libraries;
  std::vector<WatchedModule> modules;
  std::unordered_map<PyObject*, const CalleeRow*> callees;
  std::unordered_map<PyObject*, FunctionRows> functions;  // by code
  std::unordered_map<PyTypeObject*, const ManagerRow*> managers;
  std::unordered_set<PyTypeObject*> tuple_types;
  std::vector<std::pair<PyTypeObject*, const ErrorStateRow*>> error_states;
  std::deque<CalleeRow> family_callees;
  std::vector<MarkEntry> marks;
  std::vector<DimMark> dim_marks;
  std::vector<Substitutes> substitutes;
  // By name once, then by identity: the function and what stands for it.
  std::unordered_map<PyObject*, std::pair<Ref, Ref>> substitute_of;
  const OverrideProtocol* overrides = nullptr;
};

bool add_to(Registry& registry, const Library& library);

Registry& registry() {
  static Registry* instance = [] {
    auto* made = new Registry;
    add_to(*made, standard_rows());
    return made;
  }();
  return *instance;
}

void watch(Registry& registry, const Library& library, const char* name) {
  for (const WatchedModule& known : registry.modules) {
    if (known.library == &library && !std::strcmp(known.name, name)) return;
  }
  registry.modules.push_back(
      {&library, name, PyUnicode_InternFromString(name), {}});
}

bool add_to(Registry& registry, const Library& library) {
  if (library.overrides && registry.overrides) return false;
  for (const Library* known : registry.libraries) {
    if (known == &library) return false;
  }
  registry.libraries.push_back(&library);
  auto watch_all = [&](const auto& rows) {
    for (const auto& row : rows) watch(registry, library, row.module);
  };
  watch_all(library.callees);
  watch_all(library.families);
  watch_all(library.fast_paths);
  watch_all(library.wrappers);
  watch_all(library.constant_types);
  watch_all(library.error_states);
  watch_all(library.tuple_types);
  watch_all(library.managers);
  for (const MarkRow& row : library.marks) {
    registry.marks.push_back({PyUnicode_InternFromString(row.attribute), &row});
  }
  for (const DimMarkRow& row : library.dim_marks) {
    registry.dim_marks.push_back(
        {PyUnicode_InternFromString(row.attribute), row.kind});
  }
  for (ObserverRow row : library.observers) add_observer_type(row);
  if (library.substitutes) {
    registry.substitutes.push_back({library.substitutes, {}});
    registry.substitute_of.clear();
  }
  if (library.overrides) registry.overrides = library.overrides;
  return true;
}

// ---- from a path to an object

PyObject* unwrapped(PyObject* object) {
  if (!object || (!Py_IS_TYPE(object, &PyStaticMethod_Type) &&
                  !Py_IS_TYPE(object, &PyClassMethod_Type))) {
    return object;
  }
  // In the class's dict, so it stays when the new reference goes.
  Ref function = Ref::steal(PyObject_GetAttrString(object, "__func__"));
  return function.get();
}

// The code of a function that `code` makes, if no other has the name.
PyObject* nested_code(PyObject* code, std::string_view name) {
  PyObject* constants = reinterpret_cast<PyCodeObject*>(code)->co_consts;
  PyObject* found = nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(constants); ++i) {
    PyObject* item = PyTuple_GET_ITEM(constants, i);
    if (!PyCode_Check(item)) continue;
    if (text_of(reinterpret_cast<PyCodeObject*>(item)->co_name) != name)
      continue;
    if (found) return nullptr;
    found = item;
  }
  return found;
}

// What the path leads to; no code of the library runs (module.__getattr__ is
// not asked). Borrowed, or null.
PyObject* follow(PyObject* module, std::string_view path) {
  PyObject* at = module;
  bool in_code = false;
  while (at && !path.empty()) {
    size_t dot = path.find('.');
    std::string name(path.substr(0, dot));
    path = dot == std::string_view::npos ? "" : path.substr(dot + 1);
    Ref key = Ref::steal(PyUnicode_InternFromString(name.c_str()));
    if (!key) return nullptr;
    if (name == "<locals>") {
      if (PyFunction_Check(at)) at = PyFunction_GET_CODE(at);
      in_code = PyCode_Check(at);
      if (!in_code) return nullptr;
    } else if (in_code) {
      at = nested_code(at, name);
    } else if (PyModule_Check(at)) {
      at = PyDict_GetItemWithError(PyModule_GetDict(at), key.get());
    } else if (PyType_Check(at)) {
      at = unwrapped(
          _PyType_Lookup(reinterpret_cast<PyTypeObject*>(at), key.get()));
    } else {
      return nullptr;
    }
  }
  return at;
}

PyObject* code_at(PyObject* module, const char* path) {
  PyObject* found = follow(module, path);
  if (found && PyFunction_Check(found)) found = PyFunction_GET_CODE(found);
  return found && PyCode_Check(found) ? found : nullptr;
}

PyTypeObject* type_at(PyObject* module, const char* path) {
  PyObject* found = follow(module, path);
  return found && PyType_Check(found) ? reinterpret_cast<PyTypeObject*>(found)
                                      : nullptr;
}

bool has_names(PyObject* code, std::span<const char* const> names) {
  PyObject* own = reinterpret_cast<PyCodeObject*>(code)->co_names;
  if (PyTuple_GET_SIZE(own) != Py_ssize_t(names.size())) return false;
  for (size_t i = 0; i < names.size(); ++i) {
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(own, i), names[i])) {
      return false;
    }
  }
  return true;
}

// ---- resolving

void add_callee(Registry& registry, PyObject* callee, const CalleeRow* row) {
  if (callee && registry.callees.emplace(callee, row).second) Py_INCREF(callee);
}

bool is_derived(PyObject* object, PyTypeObject* type) {
  return PyType_Check(object) &&
         PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(object), type);
}

void add_family(Registry& registry, PyObject* module, const FamilyRow& row) {
  PyTypeObject* type = type_at(module, row.type);
  if (!type) return;
  const CalleeRow* callee = &registry.family_callees.emplace_back(
      CalleeRow{row.module, row.type, row.model});
  PyObject *name, *object;
  Py_ssize_t position = 0;
  while (PyDict_Next(PyModule_GetDict(module), &position, &name, &object)) {
    bool member = row.of == FamilyRow::Of::kInstances
                      ? PyType_IsSubtype(Py_TYPE(object), type)
                      : is_derived(object, type);
    if (member) add_callee(registry, object, callee);
  }
}

void add_constants(PyObject* module, const ConstantTypeRow& row) {
  PyTypeObject* type = type_at(module, row.type);
  if (!type) return;
  PyObject *name, *object;
  Py_ssize_t position = 0;
  while (PyDict_Next(PyModule_GetDict(module), &position, &name, &object)) {
    if (is_derived(object, type)) {
      add_constant_type(reinterpret_cast<PyTypeObject*>(object));
    }
  }
}

// Its rows in the table of the code object, made when missing.
FunctionRows* rows_of(Registry& registry, PyObject* code) {
  auto [at, is_new] = registry.functions.try_emplace(code);
  if (is_new) Py_INCREF(code);
  return &at->second;
}

void resolve(Registry& registry, const Library& library, const char* name,
             PyObject* module) {
  auto here = [&](const auto& row) { return !std::strcmp(row.module, name); };
  for (const CalleeRow& row : library.callees) {
    if (here(row)) add_callee(registry, follow(module, row.path), &row);
  }
  for (const FamilyRow& row : library.families) {
    if (here(row)) add_family(registry, module, row);
  }
  for (const FastPathRow& row : library.fast_paths) {
    PyObject* code = here(row) ? code_at(module, row.path) : nullptr;
    if (code && has_names(code, row.names)) {
      rows_of(registry, code)->fast_path = &row;
    }
  }
  for (const WrapperRow& row : library.wrappers) {
    PyObject* code = here(row) ? code_at(module, row.path) : nullptr;
    if (code) rows_of(registry, code)->wrapper = &row;
  }
  for (const ConstantTypeRow& row : library.constant_types) {
    if (here(row)) add_constants(module, row);
  }
  for (const ErrorStateRow& row : library.error_states) {
    PyTypeObject* type = here(row) ? type_at(module, row.type) : nullptr;
    if (!type) continue;
    Py_INCREF(type);
    registry.error_states.emplace_back(type, &row);
  }
  for (const TupleTypeRow& row : library.tuple_types) {
    PyTypeObject* type = here(row) ? type_at(module, row.path) : nullptr;
    // A class statement makes no type without this flag.
    if (!type || type->tp_flags & Py_TPFLAGS_HEAPTYPE) continue;
    if (registry.tuple_types.insert(type).second) Py_INCREF(type);
  }
  for (const ManagerRow& row : library.managers) {
    PyTypeObject* type = here(row) ? type_at(module, row.path) : nullptr;
    if (type && registry.managers.emplace(type, &row).second) Py_INCREF(type);
  }
}

// An import of it is under way: not everything is there yet.
bool is_initializing(PyObject* module) {
  PyObject* spec = PyDict_GetItemString(PyModule_GetDict(module), "__spec__");
  if (!spec || spec == Py_None) return false;
  Ref flag = Ref::steal(PyObject_GetAttrString(spec, "_initializing"));
  return flag.get() == Py_True;
}

}  // namespace

bool register_library(const Library& library) {
  for (const char* module : library.quiet_callbacks)
    add_quiet_callbacks_of(module);
  return add_to(registry(), library);
}

void resolve_libraries() {
  ErrorGuard keep;
  PauseHook pause;
  Registry& rows = registry();
  PyObject* modules = PyImport_GetModuleDict();
  for (WatchedModule& watched : rows.modules) {
    PyObject* module = PyDict_GetItemWithError(modules, watched.text);
    if (!module || module == watched.module.get()) continue;
    if (!PyModule_Check(module) || is_initializing(module)) continue;
    // Again when there is another: tests and reloaders import twice.
    watched.module = Ref::borrow(module);
    resolve(rows, *watched.library, watched.name, module);
  }
  PyErr_Clear();
}

const CalleeRow* find_callee(PyObject* callable) {
  const auto& rows = registry().callees;
  auto found = rows.find(callable);
  return found == rows.end() ? nullptr : found->second;
}

FunctionRows find_function(PyObject* code) {
  const auto& rows = registry().functions;
  auto found = rows.find(code);
  return found == rows.end() ? FunctionRows{} : found->second;
}

const ManagerRow* find_manager(PyTypeObject* type) {
  const auto& rows = registry().managers;
  auto found = rows.find(type);
  return found == rows.end() ? nullptr : found->second;
}

bool is_library_tuple(PyTypeObject* type) {
  return registry().tuple_types.contains(type);
}

PyObject* wrapped_by(PyObject* function, const WrapperRow& row) {
  auto* object = reinterpret_cast<PyFunctionObject*>(function);
  PyObject* wrapped = nullptr;
  if (!row.variable) {
    wrapped = object->func_dict
                  ? PyDict_GetItemString(object->func_dict, "__wrapped__")
                  : nullptr;
  } else if (object->func_closure) {
    Ref names = Ref::steal(
        PyCode_GetFreevars(reinterpret_cast<PyCodeObject*>(object->func_code)));
    if (!names) PyErr_Clear();
    for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names.get()); ++i) {
      if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names.get(), i),
                                           row.variable) == 0) {
        wrapped = PyCell_GET(PyTuple_GET_ITEM(object->func_closure, i));
      }
    }
  }
  return wrapped && PyFunction_Check(wrapped) ? wrapped : nullptr;
}

bool is_in_package(PyObject* module_name, const char* package) {
  return (text_of(module_name) + ".").starts_with(std::string(package) + ".");
}

namespace {

bool applies(const MarkRow& row, PyObject* dict, PyObject* owner,
             PyObject* module) {
  if (row.package && !is_in_package(module, row.package)) return false;
  if (row.mark == Mark::kOtherCompiler) {
    PyObject* id = PyDict_GetItemString(dict, row.attribute);
    return id && PyLong_CheckExact(id) && PyLong_AsVoidPtr(id) == owner;
  }
  if (row.mark != Mark::kWrapper) return true;
  PyObject* wrapped = PyDict_GetItemString(dict, "__wrapped__");
  return wrapped && PyFunction_Check(wrapped);
}

// owner: whose dict it is, if that is known.
Mark mark_in(PyObject* dict, PyObject* owner, PyObject* module) {
  if (!dict || PyDict_GET_SIZE(dict) == 0) return Mark::kNone;
  for (const MarkEntry& entry : registry().marks) {
    if (PyDict_Contains(dict, entry.name) == 1 &&
        applies(*entry.row, dict, owner, module)) {
      return entry.row->mark;
    }
  }
  return Mark::kNone;
}

// "module.Class.method"; empty: it has no name in UTF-8.
std::string full_name(PyObject* function) {
  auto* object = reinterpret_cast<PyFunctionObject*>(function);
  std::string module = text_of(object->func_module);
  std::string name = text_of(object->func_qualname);
  return module.empty() || name.empty() ? "" : module + "." + name;
}

PyObject* dict_of(Substitutes& substitutes) {
  if (!substitutes.imported) {
    substitutes.imported = true;
    PauseHook pause;
    Ref module = Ref::steal(PyImport_ImportModule(substitutes.table->module));
    Ref dict =
        Ref::steal(module ? PyObject_GetAttrString(module.get(),
                                                   substitutes.table->attribute)
                          : nullptr);
    PyErr_Clear();  // our Python package is not installed
    if (dict && PyDict_Check(dict.get())) substitutes.dict = std::move(dict);
  }
  return substitutes.dict.get();
}

}  // namespace

Mark find_mark(PyObject* function) {
  auto* object = reinterpret_cast<PyFunctionObject*>(function);
  return mark_in(object->func_dict, function, object->func_module);
}

Mark find_mark_in(PyObject* dict) { return mark_in(dict, nullptr, nullptr); }

const std::vector<DimMark>& dim_mark_rows() { return registry().dim_marks; }

PyObject* find_substitute(PyObject* function) {
  ErrorGuard keep;
  Registry& rows = registry();
  auto known = rows.substitute_of.find(function);
  if (known != rows.substitute_of.end()) return known->second.second.get();
  std::string name = full_name(function);
  PyObject* found = nullptr;
  for (size_t i = 0; !found && i < rows.substitutes.size(); ++i) {
    PyObject* dict = dict_of(rows.substitutes[i]);
    found = dict ? PyDict_GetItemString(dict, name.c_str()) : nullptr;
  }
  rows.substitute_of[function] = {Ref::borrow(function), Ref::borrow(found)};
  return found;
}

const OverrideProtocol* override_protocol() { return registry().overrides; }

namespace {

const ErrorStateRow* error_state_of(const Registry& known, PyObject* object) {
  for (const auto& [type, row] : known.error_states)
    if (PyType_IsSubtype(Py_TYPE(object), type)) return row;
  return nullptr;
}

}  // namespace

const ErrorStateRow* find_error_state(std::span<PyObject* const> operands) {
  const Registry& known = registry();
  if (known.error_states.empty()) return nullptr;
  for (PyObject* operand : operands) {
    if (const ErrorStateRow* row = error_state_of(known, operand)) return row;
    if (!PyList_CheckExact(operand) && !PyTuple_CheckExact(operand)) continue;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(operand); ++i) {
      PyObject* item = PySequence_Fast_GET_ITEM(operand, i);
      if (const ErrorStateRow* row = error_state_of(known, item)) return row;
    }
  }
  return nullptr;
}

}  // namespace framejit::bytecode
