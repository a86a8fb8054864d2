// Builtins about classes: whether something is of one, and making one.
#include <algorithm>

#include "bytecode/builtins/builtins.h"
#include "bytecode/objects/attributes.h"
#include "bytecode/objects/breaks.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/opaque_value.h"
#include "bytecode/objects/unbuildable.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

namespace {

// ABCMeta's own __instancecheck__ or __subclasscheck__.
bool is_abc_method(PyObject* function, const char* name) {
  static const LibraryType kAbcMeta("abc", "ABCMeta");
  PyTypeObject* abc = kAbcMeta.get();
  return abc && raw_lookup(abc, name) == function;
}

// The __class__ of an object that says it is another than its type (a mock, a
// proxy of weakref), or an empty Ref. That it does not is guarded.
Result<Ref> claimed_class(CaptureState& state, PyObject* subject,
                          PyObject* type) {
  const bool may_claim = is_heap_type(reinterpret_cast<PyTypeObject*>(type)) ||
                         PyWeakref_CheckProxy(subject);
  if (!may_claim || is_stand_in(state, subject)) return Ref();
  FJ_TRY(Ref found, maybe_attr(state, subject, interned("__class__")));
  if (!found || found.get() == type || !PyType_Check(found.get())) return Ref();
  return found;
}

Result<Ref> class_test(CaptureState& state, PyObject* subject,
                       PyObject* classes, bool instance) {
  FJ_CHECK_OK(room_for(state, "classes"));
  if (PyTuple_Check(classes)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(classes); ++i) {
      FJ_TRY(Ref answer, class_test(state, subject,
                                    PyTuple_GET_ITEM(classes, i), instance));
      FJ_TRY(bool yes, state.truth(answer.get()));
      if (yes) return boolean(true);
    }
    return boolean(false);
  }
  if (is_opaque(subject, OpaqueKind::kUnknown)) {
    return state.make_break(BreakReason::kUnguardableInput,
                            "the type of what the caller handles");
  }
  const char* hook = instance ? "__instancecheck__" : "__subclasscheck__";
  Ref type = instance ? state.type_of(subject) : Ref::borrow(subject);
  if (instance && type.get() == classes) return boolean(true);
  FJ_TRY(Ref special, state.python_special(classes, hook));
  if (special && !is_abc_method(special.get(), hook)) {
    FJ_TRY(Ref answer, state.caller.call(special.get(), {classes, subject}));
    FJ_TRY(bool yes, state.truth(answer.get()));
    return boolean(yes);
  }
  if (instance && !special && is_stand_in(state, subject)) {
    // Classes of C look at the tensor itself.
    FJ_TRY(bool yes, state.tracer.is_instance(subject, classes));
    return boolean(yes);
  }
  // An abstract class asks its registry: a property of the two classes.
  int yes = PyObject_IsSubclass(type.get(), classes);
  if (yes == 0 && instance) {
    FJ_TRY(Ref claimed, claimed_class(state, subject, type.get()));
    if (claimed && special) {
      return state.make_break(BreakReason::kUnsupportedAttribute,
                              "an abstract class and a __class__");
    }
    if (claimed) {
      guard_mro(state, claimed.get());
      yes = PyObject_IsSubclass(claimed.get(), classes);
    }
  }
  if (yes < 0) {
    if (!instance || !PyErr_ExceptionMatches(PyExc_TypeError)) {
      return state.after_native(nullptr);
    }
    PyErr_Clear();
    yes = PyObject_IsInstance(subject, classes);  // the right TypeError
    if (yes < 0) return state.after_native(nullptr);
  }
  if (!special) {
    guard_mro(state, type.get());
  } else if (yes == 0) {
    FJ_CHECK_OK(guard_abc_registry(state));
  }
  return boolean(yes == 1);
}

}  // namespace

Result<Ref> model_isinstance(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.native(Reads::kNothing);
  return class_test(call.state, call.args[0], call.args[1], true);
}

Result<Ref> model_issubclass(BuiltinCall& call) {
  if (!call.plain(2, 2) || !PyType_Check(call.args[0])) {
    return call.native(Reads::kNothing);
  }
  return class_test(call.state, call.args[0], call.args[1], false);
}

Result<Ref> model_type_instancecheck(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.unknown();
  Ref type = call.state.type_of(call.args[1]);
  if (!PyType_Check(call.args[0])) return call.unknown();
  guard_mro(call.state, type.get());
  auto* wanted = reinterpret_cast<PyTypeObject*>(call.args[0]);
  if (PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(type.get()), wanted)) {
    return boolean(true);
  }
  FJ_TRY(Ref claimed, claimed_class(call.state, call.args[1], type.get()));
  if (!claimed) return boolean(false);
  guard_mro(call.state, claimed.get());
  return boolean(
      PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(claimed.get()), wanted));
}

Result<Ref> model_type_subclasscheck(BuiltinCall& call) {
  if (!call.plain(2, 2) || !PyType_Check(call.args[0]) ||
      !PyType_Check(call.args[1])) {
    return call.unknown();
  }
  guard_mro(call.state, call.args[1]);
  return boolean(
      PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(call.args[1]),
                       reinterpret_cast<PyTypeObject*>(call.args[0])));
}

// What type.__new__ calls where it is there: it may come.
Status know_hooks(CaptureState& state, PyObject* bases, PyObject* names) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(bases); ++i) {
    FJ_CHECK_OK(state.type_lookup(
        reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(bases, i)),
        interned("__init_subclass__")));
  }
  Py_ssize_t position = 0;
  PyObject *name, *value;
  while (PyDict_Next(names, &position, &name, &value)) {
    if (!is_heap_type(Py_TYPE(value)) ||
        state.tracer.classify(value) != ObjectClass::kPlain)
      continue;
    FJ_CHECK_OK(state.type_lookup(Py_TYPE(value), interned("__set_name__")));
  }
  return ok_status();
}

// type.__new__ gives a class without a __module__ that of its caller, by the
// globals of the innermost frame, which is not ours. So it gets the namespace
// (of which it makes a copy) with that of the frame that is interpreted.
Result<Ref> with_module(CaptureState& state, PyObject* names) {
  PyObject* key = interned("__module__");
  if (PyDict_GetItemWithError(names, key)) return Ref::borrow(names);
  if (PyErr_Occurred()) return Result<Ref>::raised();
  PythonFrame place = state.caller.python_frame(0);
  Ref module;
  if (place.known && place.globals) {
    FJ_TRY(module, state.dict_get(place.globals, interned("__name__")));
  }
  if (!module || !PyUnicode_CheckExact(module.get())) {
    return state.make_break(BreakReason::kUnknownCallee,
                            "makes a class of no module");
  }
  FJ_TRY(Ref copy, from_api(PyDict_Copy(names)));
  if (PyDict_SetItem(copy.get(), key, module.get()) < 0)
    return Result<Ref>::raised();
  return copy;
}

// type(name, bases, namespace): natively. What it looks into must be fresh.
Result<Ref> make_class(CaptureState& state, PyObject* meta,
                       const std::vector<PyObject*>& args, PyObject* kwnames) {
  size_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  bool known = args.size() - keywords == 3 && PyTuple_CheckExact(args[1]) &&
               PyDict_Check(args[2]) && !state.is_input(args[2]);
  if (!known) {
    return state.make_break(BreakReason::kUnknownCallee, "makes a class");
  }
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args[1]); ++i) {
    PyObject* base = PyTuple_GET_ITEM(args[1], i);
    if (!PyType_Check(base)) {
      return state.make_break(BreakReason::kUnknownCallee, "makes a class");
    }
    state.pin(base);
  }
  PyObject* slots = PyDict_GetItemString(args[2], "__slots__");
  if (slots && state.is_input(slots) && !state.is_constant(slots)) {
    // It is read as it is now.
    return state.make_break(BreakReason::kUnknownCallee,
                            "makes a class with __slots__ of the program");
  }
  FJ_CHECK_OK(know_hooks(state, args[1], args[2]));
  PyObject* maker = raw_lookup(&PyType_Type, "__new__");
  std::vector<PyObject*> values{meta};
  values.insert(values.end(), args.begin(), args.end());
  // A tuple of our own: the class has it, and no other class does.
  Ref bases = Ref::steal(
      PyTuple_New(std::max<Py_ssize_t>(PyTuple_GET_SIZE(args[1]), 1)));
  if (!bases) return Result<Ref>::raised();
  PyTuple_SET_ITEM(bases.get(), 0, Py_NewRef(as_object(&PyBaseObject_Type)));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args[1]); ++i) {
    PyTuple_SetItem(bases.get(), i, Py_NewRef(PyTuple_GET_ITEM(args[1], i)));
  }
  values[2] = bases.get();
  FJ_TRY(Ref names, with_module(state, args[2]));
  values[3] = names.get();
  auto& in_making = state.table<ClassesInMaking>().bases;
  in_making.push_back(bases.get());
  Ref result = Ref::steal(PyObject_Vectorcall(
      maker, values.data(), values.size() - keywords, kwnames));
  if (result) {
    keep_unbuildable(state, result.get());
  }
  in_making.pop_back();
  FJ_TRY(Ref made, state.after_native(result.release()));
  keep_unbuildable(state, made.get());
  return made;
}

Result<Ref> model_type_new(BuiltinCall& call) {
  if (call.args.empty()) return call.unknown();
  std::vector<PyObject*> rest(call.args.begin() + 1, call.args.end());
  return make_class(call.state, call.args[0], rest, call.kwnames);
}

Result<Ref> model_type_init(BuiltinCall&) { return none(); }

// Which methods of a new class are abstract follows from its bases.
Result<Ref> model_abc_init(BuiltinCall& call) {
  if (!call.plain(1, 1) || !is_fresh_class(call.state, call.args[0])) {
    return call.unknown();
  }
  PyObject* mro = reinterpret_cast<PyTypeObject*>(call.args[0])->tp_mro;
  for (Py_ssize_t i = 1; i < PyTuple_GET_SIZE(mro); ++i) {
    FJ_CHECK_OK(call.state.type_lookup(
        reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i)),
        interned("__abstractmethods__")));
  }
  return call.native(Reads::kNothing);
}

Result<Ref> model_type(BuiltinCall& call) {
  if (call.plain(1, 1)) return call.state.type_of(call.args[0]);
  return make_class(call.state, as_object(&PyType_Type), call.args,
                    call.kwnames);
}

}  // namespace framejit::bytecode
