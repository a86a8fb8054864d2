// Finding the row of a C callee. Bound methods and slot wrappers are traced
// back to the raw attribute of the class, so that `[].append` and
// `list.append` have one row.
#include "bytecode/builtins/builtins.h"

#include <algorithm>

#include <cstring>
#include <string_view>

#include "bytecode/library/library.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/moved_texts.h"
#include "bytecode/objects/native_calls.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/opaque_value.h"
#include "bytecode/objects/remade_functions.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/python_text.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

namespace {

struct Row {
  BuiltinFunction function = nullptr;  // null: pure
  Reads reads = Reads::kDeep;
};

struct RowSpec {
  const char* module;
  const char* path;
  Row row;
};

const RowSpec kRows[] = {
#define FJ_PURE(module, path, reads) {module, path, {nullptr, Reads::reads}},
#define FJ_MODEL(module, path, function) {module, path, {function}},
#include "bytecode/builtins/builtins.def"

#undef FJ_PURE
#undef FJ_MODEL
};

// "dict.get" in a module: the raw attribute of the class, as methods are found.
Ref resolve(const char* module, std::string_view path) {
  size_t dot = path.find('.');
  std::string first(path.substr(0, dot));
  // Types that `builtins` does not name.
  if (std::strcmp(module, "builtins") == 0 && first == "module") {
    return Ref::borrow(
        _PyType_Lookup(&PyModule_Type, interned("__getattribute__")));
  }
  Ref imported = Ref::steal(PyImport_ImportModule(module));
  if (!imported) return Ref();
  Ref object =
      Ref::steal(PyObject_GetAttrString(imported.get(), first.c_str()));
  if (!object || dot == std::string_view::npos) return object;
  Ref name = Ref::steal(
      PyUnicode_InternFromString(std::string(path.substr(dot + 1)).c_str()));
  if (!name || !PyType_Check(object.get())) return Ref();
  PyObject* raw =
      _PyType_Lookup(reinterpret_cast<PyTypeObject*>(object.get()), name.get());
  // Handed out as what is in it.
  if (raw && Py_IS_TYPE(raw, &PyStaticMethod_Type))
    return Ref::steal(PyObject_GetAttrString(raw, "__func__"));
  return Ref::borrow(raw);
}

using RowTable = std::unordered_map<PyObject*, Row>;

const RowTable& row_table() {
  static const RowTable* table = [] {
    // Imports: their frames are not the program's, and would come back here.
    PauseHook pause;
    auto* rows = new RowTable;
    ErrorGuard keep;
    for (const RowSpec& spec : kRows) {
      Ref object = resolve(spec.module, spec.path);
      if (!object) {
        PyErr_Clear();  // this CPython has no such callee
        continue;
      }
      rows->emplace(object.release(), spec.row);  // lives forever
    }
    return rows;
  }();
  return *table;
}

// Every method of these types is pure: their objects are constants.
bool is_immutable_builtin(PyTypeObject* type) {
  static PyTypeObject* const kTypes[] = {
      &PyUnicode_Type, &PyBytes_Type,    &PyLong_Type,  &PyFloat_Type,
      &PyComplex_Type, &PyBool_Type,     &PyRange_Type, &PySlice_Type,
      &PyTuple_Type,   &PyFrozenSet_Type};
  for (PyTypeObject* known : kTypes) {
    if (type == known) return true;
  }
  return is_regular_expression(type);
}

// The raw class attribute behind a bound method; puts self in front.
Result<Ref> unbind(CaptureState& state, PyObject* callable,
                   std::vector<PyObject*>* args, Ref* keep_self) {
  PyObject* self = nullptr;
  const char* name = nullptr;
  Ref text, bound_self;
  if (PyCFunction_Check(callable)) {
    self = PyCFunction_GET_SELF(callable);
    if (!self || PyModule_Check(self)) return Ref::borrow(callable);
    const Source* source = state.source_of(callable);
    if (source && source->kind != SourceKind::kConst &&
        is_bound_c_method(callable)) {
      FJ_TRY(*keep_self,
             state.wrap(self, state.guards.sources().make(
                                  SourceKind::kMethodSelf, source)));
      self = keep_self->get();
    }
    name = reinterpret_cast<PyCFunctionObject*>(callable)->m_ml->ml_name;
    text = Ref::steal(PyUnicode_InternFromString(name));
  } else if (is_method_wrapper(callable)) {
    bound_self = Ref::steal(PyObject_GetAttrString(callable, "__self__"));
    text = Ref::steal(PyObject_GetAttrString(callable, "__name__"));
    if (!bound_self || !text) return Result<Ref>::raised();
    *keep_self = bound_self;
    const Source* source = state.source_of(callable);
    if (source && source->kind != SourceKind::kConst) {
      FJ_TRY(*keep_self,
             state.wrap(bound_self.get(),
                        state.guards.sources().make(SourceKind::kGetSet, source,
                                                    interned("__self__"))));
    }
    self = keep_self->get();
  } else {
    return Ref::borrow(callable);
  }
  if (!text || !self) return Result<Ref>::raised();
  PyObject* raw = nullptr;
  if (PyType_Check(self)) {
    raw = _PyType_Lookup(reinterpret_cast<PyTypeObject*>(self), text.get());
    // A static method of C (object.__new__) is its own raw attribute; a class
    // method takes the class as its first argument.
    if (raw == callable) return Ref::borrow(callable);
    if (raw && Py_IS_TYPE(raw, &PyClassMethodDescr_Type)) {
      args->insert(args->begin(), self);
      return Ref::borrow(raw);
    }
    // A class method of C beneath one of Python (super().__init_subclass__).
    PyObject* mro = reinterpret_cast<PyTypeObject*>(self)->tp_mro;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); ++i) {
      Ref dict =
          own_dict(reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i)));
      PyObject* own = dict ? PyDict_GetItem(dict.get(), text.get()) : nullptr;
      if (own && Py_IS_TYPE(own, &PyClassMethodDescr_Type) &&
          PyCFunction_Check(callable) &&
          reinterpret_cast<PyMethodDescrObject*>(own)->d_method ==
              reinterpret_cast<PyCFunctionObject*>(callable)->m_ml) {
        args->insert(args->begin(), self);
        return Ref::borrow(own);
      }
    }
    // __new__ reached through a subclass.
    if (raw && PyCFunction_Check(raw)) return Ref::borrow(callable);
  }
  // Of the bound class, which need not be type(self) after super().
  PyObject* owner_mro = Py_TYPE(self)->tp_mro;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(owner_mro); ++i) {
    auto* base =
        reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(owner_mro, i));
    Ref dict = own_dict(base);
    raw = dict ? PyDict_GetItem(dict.get(), text.get()) : nullptr;
    if (!raw) continue;
    bool match;
    if (PyCFunction_Check(callable)) {
      match = Py_IS_TYPE(raw, &PyMethodDescr_Type) &&
              reinterpret_cast<PyMethodDescrObject*>(raw)->d_method ==
                  reinterpret_cast<PyCFunctionObject*>(callable)->m_ml;
    } else {
      Ref again = Py_IS_TYPE(raw, &PyWrapperDescr_Type)
                      ? Ref::steal(PyWrapper_New(raw, bound_self.get()))
                      : Ref();
      if (PyErr_Occurred()) PyErr_Clear();
      // Equal wrappers have the same descriptor and the same self.
      match =
          again && PyObject_RichCompareBool(again.get(), callable, Py_EQ) == 1;
    }
    if (!match) continue;
    args->insert(args->begin(), self);
    return Ref::borrow(raw);
  }
  return Ref::borrow(callable);
}

// dict.__len__((1, 2)): a method of another type, which raises TypeError before
// it reads anything. (Models take the object to be what they are called for.)
Result<bool> refuses_receiver(const BuiltinCall& call) {
  PyObject* callable = call.callable;
  if (!Py_IS_TYPE(callable, &PyWrapperDescr_Type) &&
      !Py_IS_TYPE(callable, &PyMethodDescr_Type))
    return false;
  PyTypeObject* owner = PyDescr_TYPE(callable);
  const bool is_container = owner == &PyList_Type || owner == &PyTuple_Type ||
                            owner == &PyDict_Type || owner == &PySet_Type ||
                            owner == &PyFrozenSet_Type;
  if (!is_container || call.positional() == 0) return false;
  FJ_TRY(Ref type, Result<Ref>(call.state.type_of(call.args[0])));
  return !PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type.get()), owner);
}

// "{0.name}".format(a): attributes and items of what C code may otherwise be
// given as it is: classes, functions, modules.
bool reads_attributes(const BuiltinCall& call) {
  PyObject* text = call.args.empty() ? nullptr : call.args[0];
  if (!text || !PyUnicode_Check(text) ||
      !Py_IS_TYPE(call.callable, &PyMethodDescr_Type))
    return false;
  const char* name =
      reinterpret_cast<PyMethodDescrObject*>(call.callable)->d_method->ml_name;
  if (std::strcmp(name, "format") != 0 && std::strcmp(name, "format_map") != 0)
    return false;
  bool in_field = false, reads = false;
  for (Py_ssize_t i = 0; i < PyUnicode_GET_LENGTH(text); ++i) {
    Py_UCS4 c = PyUnicode_READ_CHAR(text, i);
    if (c == '{') in_field = true;
    if (c == '}' || c == ':' || c == '!') in_field = false;
    reads = reads || (in_field && (c == '.' || c == '['));
  }
  for (size_t i = 1; reads && i < call.args.size(); ++i) {
    if (!is_builtin_constant(call.args[i])) return true;
  }
  return false;
}

// Models that ask for the type alone, or store where the write decides: what
// assigns an attribute of a module goes by these.
bool takes_moved_texts(BuiltinFunction model) {
  return model == model_isinstance || model == model_type_instancecheck ||
         model == model_setattr || model == model_object_setattr;
}

// A class whose instances are made by Python code, or by what looks at no
// argument.
bool is_made_in_python(PyTypeObject* type) {
  if (!is_heap_type(type) || PyType_IsSubtype(type, &PyType_Type)) return false;
  PyObject* maker = raw_lookup(type, "__new__");
  PyObject* init = raw_lookup(type, "__init__");
  if (!maker || !init) return false;
  Ref inner;
  if (Py_IS_TYPE(maker, &PyStaticMethod_Type)) {
    inner = Ref::steal(PyObject_GetAttrString(maker, "__func__"));
    if (!inner) PyErr_Clear();
    maker = inner.get();
  }
  return maker &&
         (PyFunction_Check(maker) ||
          maker == raw_lookup(&PyBaseObject_Type, "__new__")) &&
         (PyFunction_Check(init) ||
          init == raw_lookup(&PyBaseObject_Type, "__init__"));
}

// tuple.__new__(cls, (...)), by which named tuples are made, object.__new__ and
// calls of classes: they do not look at what they are given.
bool only_makes(PyObject* callable, const std::vector<PyObject*>& args) {
  if (PyType_Check(callable))
    return is_made_in_python(reinterpret_cast<PyTypeObject*>(callable));
  if (callable == raw_lookup(&PyBaseObject_Type, "__new__")) return true;
  return callable == raw_lookup(&PyTuple_Type, "__new__") && args.size() == 2 &&
         PyTuple_CheckExact(args[1]);
}

// What C code may ask of any argument: a class, a text. Of these nobody knows.
Status check_arguments(CaptureState& state, const std::vector<PyObject*>& args,
                       BuiltinFunction model, PyObject* callable = nullptr) {
  for (PyObject* arg : args) {
    if (is_opaque(arg, OpaqueKind::kUnknown)) {
      return state.make_break(BreakReason::kUnguardableInput,
                              "C code is given what the caller handles");
    }
  }
  if (takes_moved_texts(model) || (callable && only_makes(callable, args)))
    return ok_status();
  return check_given_to_c(state, args);
}

// A callee of a registered library. Empty: it has no row.
Result<Ref> call_library(BuiltinCall& call) {
  const CalleeRow* row = find_callee(call.callable);
  if (!row) return Ref();
  FJ_CHECK_OK(check_arguments(call.state, call.args, nullptr));
  pin_all_remade(call.state, call.args);
  if (row->model) return row->model(call);
  return call.native(row->reads);
}

}  // namespace

PyObject* BuiltinCall::argument(size_t index, const char* keyword) const {
  if (index < positional()) return args[index];
  if (!keyword || !kwnames) return nullptr;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(kwnames); ++i) {
    if (PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i),
                                         keyword) == 0) {
      return args[positional() + i];
    }
  }
  return nullptr;
}

bool BuiltinCall::takes(std::initializer_list<const char*> names,
                        size_t keyword_only) const {
  if (positional() > names.size() - keyword_only) return false;
  for (Py_ssize_t i = 0; kwnames && i < PyTuple_GET_SIZE(kwnames); ++i) {
    PyObject* keyword = PyTuple_GET_ITEM(kwnames, i);
    const auto found =
        std::find_if(names.begin(), names.end(), [&](const char* name) {
          return PyUnicode_CompareWithASCIIString(keyword, name) == 0;
        });
    const auto at = static_cast<size_t>(found - names.begin());
    if (found == names.end() || at < positional()) return false;
  }
  return true;
}

Break BuiltinCall::unknown() const {
  ErrorGuard keep;
  std::string name = text_attribute(callable, "__qualname__");
  if (name.empty()) name = Py_TYPE(callable)->tp_name;
  return state.make_break(BreakReason::kUnknownCallee, name);
}

Result<Ref> call_builtin(CaptureState& state, PyObject* callable,
                         const std::vector<PyObject*>& args,
                         PyObject* kwnames) {
  const RowTable& rows = row_table();
  if (PyFunction_Check(callable)) {
    auto row = rows.find(callable);
    BuiltinCall call{state, callable, args, kwnames};
    if (row == rows.end()) return call_library(call);
    FJ_CHECK_OK(check_arguments(state, args, row->second.function));
    pin_all_remade(state, args);
    return row->second.function ? row->second.function(call) : Ref();
  }
  pin_all_remade(state, args);
  BuiltinCall call{state, callable, args, kwnames};
  Ref keep_self;
  FJ_TRY(Ref raw, unbind(state, callable, &call.args, &keep_self));
  call.callable = raw.get();
  auto row = rows.find(raw.get());
  FJ_CHECK_OK(check_arguments(
      state, call.args, row == rows.end() ? nullptr : row->second.function,
      raw.get()));
  if (row != rows.end()) {
    FJ_TRY(bool refuses, refuses_receiver(call));
    if (refuses) return call.native(Reads::kNothing);
    if (row->second.function) return row->second.function(call);
    return call.native(row->second.reads);
  }
  FJ_TRY(Ref answer, call_library(call));
  if (answer) return answer;
  // Every exception type of C has an __init__ and a __new__ of its own.
  if (Py_IS_TYPE(raw.get(), &PyWrapperDescr_Type) &&
      PyType_IsSubtype(PyDescr_TYPE(raw.get()),
                       reinterpret_cast<PyTypeObject*>(PyExc_BaseException)) &&
      std::strcmp(
          reinterpret_cast<PyWrapperDescrObject*>(raw.get())->d_base->name,
          "__init__") == 0) {
    return model_native_init(call);
  }
  if (PyCFunction_Check(raw.get()) && PyCFunction_GET_SELF(raw.get()) &&
      PyExceptionClass_Check(PyCFunction_GET_SELF(raw.get())) &&
      std::strcmp(
          reinterpret_cast<PyCFunctionObject*>(raw.get())->m_ml->ml_name,
          "__new__") == 0) {
    return model_new(call);
  }
  if (PyType_Check(callable)) {
    return call_type(state, reinterpret_cast<PyTypeObject*>(callable), args,
                     kwnames);
  }
  if (Py_IS_TYPE(raw.get(), &PyMethodDescr_Type) ||
      Py_IS_TYPE(raw.get(), &PyWrapperDescr_Type) ||
      Py_IS_TYPE(raw.get(), &PyClassMethodDescr_Type)) {
    if (is_immutable_builtin(PyDescr_TYPE(raw.get()))) {
      if (reads_attributes(call)) return call.unknown();
      return call.native(Reads::kDeep);
    }
    return call_by_type(call);
  }
  // Whole families of callees.
  if (is_function_of_module(raw.get(), "_operator")) {
    return call_operator(
        call, reinterpret_cast<PyCFunctionObject*>(raw.get())->m_ml->ml_name);
  }
  if (is_function_of_module(raw.get(), "math") ||
      is_function_of_module(raw.get(), "cmath")) {
    bool symbolic = false;
    for (PyObject* arg : call.args) {
      symbolic = symbolic || is_symbolic(state, arg);
    }
    if (symbolic && !call.has_keywords()) return call_on_numbers(call);
    return call.native(Reads::kDeep);
  }
  return call_by_type(call);
}

}  // namespace framejit::bytecode
