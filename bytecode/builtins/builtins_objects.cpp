// Builtins about objects: type tests, attributes, making instances, text.
#include <algorithm>
#include <cstring>

#include "bytecode/builtins/builtins.h"
#include "bytecode/objects/attributes.h"
#include "bytecode/objects/breaks.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/exceptions.h"
#include "bytecode/objects/fact_object.h"
#include "bytecode/objects/model_iterators.h"
#include "bytecode/objects/native_calls.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/opaque_value.h"
#include "bytecode/objects/special_results.h"
#include "bytecode/objects/unbuildable.h"
#include "guards/known_objects.h"
#include "guards/set/evaluate.h"

namespace framejit::bytecode {

namespace {

// ABCMeta's own __instancecheck__ or __subclasscheck__.
bool is_abc_method(PyObject* function, const char* name) {
  static const LibraryType kAbcMeta("abc", "ABCMeta");
  PyTypeObject* abc = kAbcMeta.get();
  return abc && raw_lookup(abc, name) == function;
}

// Gives the attribute, or an empty Ref when CPython raises AttributeError.
Result<Ref> maybe_attr(CaptureState& state, PyObject* object, PyObject* name) {
  Result<Ref> found = state.find_attr(object, name);
  if (found.is_raised() && PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Clear();
    return Ref();
  }
  return found;
}

// The __class__ of an object that says it is another than its type (a mock),
// or an empty Ref. That it does not is guarded.
Result<Ref> claimed_class(CaptureState& state, PyObject* subject,
                          PyObject* type) {
  if (!is_heap_type(reinterpret_cast<PyTypeObject*>(type)) ||
      is_stand_in(state, subject)) {
    return Ref();
  }
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
    // "No" holds until some class is registered with some abstract class; the
    // registry never takes a "yes" back.
    PyObject* registry = abc_registry();
    Ref token = Ref::steal(
        registry ? PyObject_GetAttr(registry, interned("token")) : nullptr);
    if (!token) {
      PyErr_Clear();
      return state.make_break(BreakReason::kUnguardableInput,
                              "the registry of abstract classes");
    }
    SourceArena& sources = state.guards.sources();
    state.guard(GuardKind::kEquals,
                sources.make(SourceKind::kGetSet, sources.constant(registry),
                             interned("token")),
                token.get());
  }
  return boolean(yes == 1);
}

// A str with one identity, as CPython makes it for attribute names.
Ref attribute_name(PyObject* name) {
  PyObject* text = Py_NewRef(name);
  if (PyUnicode_CheckExact(text)) PyUnicode_InternInPlace(&text);
  return Ref::steal(text);
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

Result<Ref> model_type_setattr(BuiltinCall& call) {
  if (!call.plain(3, 3) || !PyType_Check(call.args[0]) ||
      !PyUnicode_Check(call.args[1])) {
    return call.unknown();
  }
  if (!is_fresh_class(call.state, call.args[0])) {
    Ref name = attribute_name(call.args[1]);
    FJ_CHECK_OK(
        set_class_attr(call.state, call.args[0], name.get(), call.args[2]));
    return none();
  }
  call.state.table<TypeLookups>().found.clear();
  return call.native(Reads::kNothing);
}

Result<Ref> model_type_delattr(BuiltinCall& call) {
  if (!call.plain(2, 2) || !PyType_Check(call.args[0]) ||
      !PyUnicode_Check(call.args[1])) {
    return call.unknown();
  }
  if (!is_fresh_class(call.state, call.args[0])) {
    Ref name = attribute_name(call.args[1]);
    FJ_CHECK_OK(set_class_attr(call.state, call.args[0], name.get(), nullptr));
    return none();
  }
  call.state.table<TypeLookups>().found.clear();
  return call.native(Reads::kNothing);
}

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

Result<Ref> model_getattr(BuiltinCall& call) {
  if (!call.plain(2, 3) || !PyUnicode_Check(call.args[1])) {
    return call.native(Reads::kDeep);
  }
  Ref name = attribute_name(call.args[1]);
  if (call.args.size() == 2)
    return call.state.get_attr(call.args[0], name.get());
  FJ_TRY(Ref found, maybe_attr(call.state, call.args[0], name.get()));
  if (found) return found;
  return Ref::borrow(call.args[2]);
}

Result<Ref> model_hasattr(BuiltinCall& call) {
  if (!call.plain(2, 2) || !PyUnicode_Check(call.args[1])) {
    return call.native(Reads::kDeep);
  }
  Ref name = attribute_name(call.args[1]);
  FJ_TRY(Ref found, maybe_attr(call.state, call.args[0], name.get()));
  return boolean(static_cast<bool>(found));
}

Result<Ref> model_setattr(BuiltinCall& call) {
  if (!call.plain(3, 3) || !PyUnicode_Check(call.args[1])) {
    return call.native(Reads::kDeep);
  }
  Ref name = attribute_name(call.args[1]);
  FJ_CHECK_OK(call.state.set_attr(call.args[0], name.get(), call.args[2]));
  return none();
}

Result<Ref> model_delattr(BuiltinCall& call) {
  if (!call.plain(2, 2) || !PyUnicode_Check(call.args[1])) {
    return call.native(Reads::kDeep);
  }
  Ref name = attribute_name(call.args[1]);
  FJ_CHECK_OK(call.state.del_attr(call.args[0], name.get()));
  return none();
}

Result<Ref> model_callable(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.native(Reads::kNothing);
  Ref type = call.state.type_of(call.args[0]);
  auto* raw = reinterpret_cast<PyTypeObject*>(type.get());
  FJ_CHECK_OK(call.state.type_lookup(raw, interned("__call__")));
  return boolean(raw->tp_call != nullptr);
}

Result<Ref> model_hash(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.native(Reads::kNothing);
  CaptureState& state = call.state;
  PyObject* subject = call.args[0];
  if (is_symbolic(state, subject) || state.is_constant(subject)) {
    return call.native(Reads::kDeep);
  }
  FJ_TRY(Ref special, state.python_special(subject, "__hash__"));
  if (special && !is_stand_in(state, subject)) {
    return call_special(state, SpecialResult::kHash, special.get(), subject);
  }
  // By address: another number in the next call.
  return state.make_break(BreakReason::kUnguardableInput,
                          "hash() of an object's identity");
}

Result<Ref> model_vars(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.unknown();
  FJ_TRY(Ref dict, call.state.find_attr(call.args[0], interned("__dict__")));
  if (dict) return dict;
  return raise_format(PyExc_TypeError,
                      "vars() argument must have __dict__ attribute")
      .forward<Ref>();
}

namespace {

Status add_names(CaptureState& state, PyObject* set, PyObject* names) {
  FJ_TRY(std::vector<Ref> items, state.elements(names));
  for (const Ref& item : items) {
    if (PySet_Add(set, item.get()) < 0) return Status::raised();
  }
  return ok_status();
}

Status add_class_names(CaptureState& state, PyObject* set, PyTypeObject* type) {
  guard_mro(state, as_object(type));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    FJ_TRY(Ref names,
           class_names(state, reinterpret_cast<PyTypeObject*>(
                                  PyTuple_GET_ITEM(type->tp_mro, i))));
    FJ_CHECK_OK(add_names(state, set, names.get()));
  }
  return ok_status();
}

}  // namespace

// Names of an instance, a class or what its __dir__ says, sorted.
Result<Ref> model_dir(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.native(Reads::kNothing);
  CaptureState& state = call.state;
  PyObject* object = call.args[0];
  if (is_foreign(state, object)) return call.unknown();
  FJ_TRY(Ref names, from_api(PySet_New(nullptr)));
  FJ_TRY(Ref own, state.python_special(object, "__dir__"));
  if (own) {
    FJ_TRY(Ref given, state.caller.call(own.get(), {object}));
    FJ_TRY(std::vector<Ref> items, state.elements(given.get()));
    FJ_TRY(Ref list, from_api(PyList_New(0)));
    for (const Ref& item : items) {
      if (!PyUnicode_CheckExact(item.get())) return call.unknown();
      if (PyList_Append(list.get(), item.get()) < 0) {
        return Result<Ref>::raised();
      }
    }
    if (PyList_Sort(list.get()) < 0) return Result<Ref>::raised();
    return list;
  }
  if (PyModule_Check(object)) {
    FJ_TRY(Ref dict, state.instance_dict(object));
    FJ_TRY(Ref hook, state.dict_get(dict.get(), interned("__dir__")));
    if (hook) return call.unknown();
    FJ_CHECK_OK(add_names(state, names.get(), dict.get()));
  } else if (PyType_Check(object)) {
    if (Py_TYPE(object) != &PyType_Type &&
        raw_lookup(Py_TYPE(object), "__dir__") !=
            raw_lookup(&PyType_Type, "__dir__")) {
      return call.unknown();
    }
    FJ_CHECK_OK(add_class_names(state, names.get(),
                                reinterpret_cast<PyTypeObject*>(object)));
  } else {
    if (raw_lookup(Py_TYPE(object), "__dir__") !=
        raw_lookup(&PyBaseObject_Type, "__dir__")) {
      return call.unknown();
    }
    FJ_TRY(Ref dict, state.instance_dict(object));
    if (dict) FJ_CHECK_OK(add_names(state, names.get(), dict.get()));
    FJ_CHECK_OK(add_class_names(state, names.get(), Py_TYPE(object)));
  }
  FJ_TRY(Ref list, from_api(PySequence_List(names.get())));
  if (PyList_Sort(list.get()) < 0) return Result<Ref>::raised();
  return list;
}

Result<Ref> model_super(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.unknown();
  if (is_heap_type(Py_TYPE(call.args[1]))) {
    // A __class__ property would be asked.
    FJ_TRY(Ref raw, call.state.type_lookup(Py_TYPE(call.args[1]),
                                           interned("__class__")));
    if (raw && !Py_IS_TYPE(raw.get(), &PyGetSetDescr_Type)) {
      return call.unknown();
    }
  }
  return call.state.after_native(PyObject_CallFunctionObjArgs(
      as_object(&PySuper_Type), call.args[0], call.args[1], nullptr));
}

// ---- text
Result<Ref> model_repr(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.native(Reads::kDeep);
  bool ascii = call.callable != library_object("builtins", "repr");
  return call.state.format_value(call.args[0], ascii ? 3 : 2, nullptr);
}

Result<Ref> model_str(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.native(Reads::kDeep);
  return call.state.format_value(call.args[0], 1, nullptr);
}

Result<Ref> model_format(BuiltinCall& call) {
  if (!call.plain(1, 2)) return call.native(Reads::kDeep);
  PyObject* spec = call.args.size() > 1 ? call.args[1] : nullptr;
  bool of_object = Py_IS_TYPE(call.callable, &PyMethodDescr_Type);
  if (of_object) {  // object.__format__: str(self)
    if (spec && PyUnicode_Check(spec) && PyUnicode_GET_LENGTH(spec) != 0) {
      return call.unknown();
    }
    return call.state.format_value(call.args[0], 1, nullptr);
  }
  return call.state.format_value(call.args[0], 0, spec);
}

Result<Ref> model_object_str(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.unknown();
  return call.state.format_value(call.args[0], 2, nullptr);
}

// ---- the methods of object and type
Result<Ref> model_object_getattribute(BuiltinCall& call) {
  if (!call.plain(2, 2) || !PyUnicode_Check(call.args[1])) {
    return call.unknown();
  }
  PyObject* object = call.args[0];
  Ref name = attribute_name(call.args[1]);
  if (is_foreign(call.state, object) || PyMethod_Check(object)) {
    return call.unknown();
  }
  FJ_TRY(Ref found, generic_attr(call.state, object, name.get()));
  if (found) return found;
  if (PyModule_Check(object)) {
    FJ_TRY(Ref dict, call.state.instance_dict(object));
    FJ_TRY(Ref hook, call.state.dict_get(dict.get(), interned("__getattr__")));
    if (hook) return call.state.caller.call(hook.get(), {name.get()});
  }
  raise_no_attribute(call.state, object, name.get());
  return Result<Ref>::raised();
}

Result<Ref> model_type_getattribute(BuiltinCall& call) {
  if (!call.plain(2, 2) || !PyType_Check(call.args[0]) ||
      !PyUnicode_Check(call.args[1])) {
    return call.unknown();
  }
  Ref name = attribute_name(call.args[1]);
  auto* type = reinterpret_cast<PyTypeObject*>(call.args[0]);
  FJ_TRY(Ref found, type_attr(call.state, type, name.get()));
  if (found) return found;
  raise_no_attribute(call.state, call.args[0], name.get());
  return Result<Ref>::raised();
}

Result<Ref> model_object_setattr(BuiltinCall& call) {
  if (!call.plain(3, 3) || !PyUnicode_Check(call.args[1]) ||
      is_foreign(call.state, call.args[0]) || PyType_Check(call.args[0])) {
    return call.unknown();
  }
  Ref name = attribute_name(call.args[1]);
  FJ_CHECK_OK(
      generic_set_attr(call.state, call.args[0], name.get(), call.args[2]));
  return none();
}

Result<Ref> model_object_delattr(BuiltinCall& call) {
  if (!call.plain(2, 2) || !PyUnicode_Check(call.args[1]) ||
      is_foreign(call.state, call.args[0]) || PyType_Check(call.args[0])) {
    return call.unknown();
  }
  Ref name = attribute_name(call.args[1]);
  FJ_CHECK_OK(generic_set_attr(call.state, call.args[0], name.get(), nullptr));
  return none();
}

Result<Ref> model_object_eq(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.unknown();
  FJ_TRY(bool same, call.state.is_same(call.args[0], call.args[1]));
  bool wants_equal =
      std::strcmp(
          reinterpret_cast<PyWrapperDescrObject*>(call.callable)->d_base->name,
          "__eq__") == 0;
  if (!same) {
    if (wants_equal) return Ref::borrow(Py_NotImplemented);
    // __ne__ inverts what __eq__ says.
    return call.state.compare(Py_NE, call.args[0], call.args[1]);
  }
  return boolean(wants_equal);
}

// object.__init__ takes nothing when the class has an __init__ of its own.
Result<Ref> model_object_init(BuiltinCall& call) {
  if (call.args.size() > 1) {
    PyTypeObject* type = Py_TYPE(call.args[0]);
    if (type->tp_init != PyBaseObject_Type.tp_init) {
      PyErr_SetString(PyExc_TypeError,
                      "object.__init__() takes exactly one argument (the "
                      "instance to initialize)");
      return Result<Ref>::raised();
    }
    if (type->tp_new == PyBaseObject_Type.tp_new) return call.unknown();
  }
  return none();
}

// ---- making instances
namespace {

struct CallArguments {
  Ref tuple;
  Ref keywords;  // dict or empty
};

Result<CallArguments> pack(const std::vector<PyObject*>& args,
                           PyObject* kwnames) {
  size_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  size_t count = args.size() - keywords;
  CallArguments packed{Ref::steal(PyTuple_New(count)), Ref()};
  if (!packed.tuple) return Result<CallArguments>::raised();
  for (size_t i = 0; i < count; ++i) {
    PyTuple_SET_ITEM(packed.tuple.get(), i, Py_NewRef(args[i]));
  }
  if (keywords) {
    packed.keywords = Ref::steal(PyDict_New());
    if (!packed.keywords) return Result<CallArguments>::raised();
    for (size_t i = 0; i < keywords; ++i) {
      if (PyDict_SetItem(packed.keywords.get(), PyTuple_GET_ITEM(kwnames, i),
                         args[count + i]) < 0) {
        return Result<CallArguments>::raised();
      }
    }
  }
  return packed;
}

PyTypeObject* exception_root() {
  return reinterpret_cast<PyTypeObject*>(PyExc_BaseException);
}

// `maker` is the C __new__ that the class finds: object's, list's, ... It gets
// arguments that it does not look into, or that were prepared for it, and makes
// its own check that the class's layout is its own.
Result<Ref> native_new(CaptureState& state, PyObject* maker, PyTypeObject* type,
                       const std::vector<PyObject*>& args, PyObject* kwnames) {
  if (raw_lookup(type, "__del__")) {
    return state.make_break(BreakReason::kFinalizerObject, type->tp_name);
  }
  PyObject* self =
      maker && PyCFunction_Check(maker) ? PyCFunction_GET_SELF(maker) : nullptr;
  if (!self || !PyType_Check(self)) {
    return state.make_break(BreakReason::kUnknownCallee,
                            std::string("__new__ of ") + type->tp_name);
  }
  auto* owner = reinterpret_cast<PyTypeObject*>(self);
  std::vector<PyObject*> values{as_object(type)};
  std::vector<Ref> keep;
  bool ignores = owner == &PyList_Type || owner == &PyDict_Type ||
                 owner == &PyODict_Type || owner == &PySet_Type;
  bool stores =
      owner == &PyBaseObject_Type || owner->tp_new == exception_root()->tp_new;
  bool scalar = owner == &PyLong_Type || owner == &PyFloat_Type ||
                owner == &PyUnicode_Type || owner == &PyBytes_Type ||
                PyType_IsSubtype(owner, exception_root());
  if (ignores) {
    kwnames = nullptr;
  } else if (stores) {
    values.insert(values.end(), args.begin(), args.end());
  } else if (owner == &PyTuple_Type || scalar) {
    for (PyObject* arg : args) {
      FJ_TRY(Ref plain, scalar ? prepare(state, arg, Reads::kDeep)
                               : native_iterable(state, arg));
      values.push_back(plain.get());
      keep.push_back(std::move(plain));
    }
  } else {
    return state.make_break(BreakReason::kUnknownCallee,
                            std::string("C class ") + owner->tp_name);
  }
  size_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  return state.after_native(PyObject_Vectorcall(
      maker, values.data(), values.size() - keywords, kwnames));
}

// __init__ of C on a fresh object.
Result<Ref> native_init(CaptureState& state, PyObject* object,
                        const std::vector<PyObject*>& args, PyObject* kwnames) {
  if (state.is_input(object)) {
    return state.make_break(BreakReason::kUnsupportedWrite,
                            "C __init__ of an input object");
  }
  PyTypeObject* base = solid_base(Py_TYPE(object));
  initproc init = base->tp_init;
  if (!init || init == PyBaseObject_Type.tp_init) return none();
  bool known = PyList_Check(object) || PyDict_Check(object) ||
               PySet_Check(object) || PyType_IsSubtype(base, exception_root());
  if (!known) {
    return state.make_break(BreakReason::kUnknownCallee,
                            std::string("C __init__ of ") + base->tp_name);
  }
  std::vector<Ref> keep;
  std::vector<PyObject*> values = args;
  bool exception = PyType_IsSubtype(base, exception_root());
  for (PyObject*& value : values) {
    if (exception) break;  // only stores them
    bool iterates = base == &PyList_Type || base == &PySet_Type;
    FJ_TRY(Ref plain, iterates ? native_iterable(state, value)
                               : prepare(state, value, Reads::kElements));
    value = plain.get();
    keep.push_back(std::move(plain));
  }
  FJ_TRY(CallArguments packed, pack(values, kwnames));
  if (init(object, packed.tuple.get(), packed.keywords.get()) < 0) {
    return state.after_native(nullptr);
  }
  return none();
}

std::vector<PyObject*> with_first(PyObject* first,
                                  const std::vector<PyObject*>& rest) {
  std::vector<PyObject*> all{first};
  all.insert(all.end(), rest.begin(), rest.end());
  return all;
}

Result<Ref> type_call(CaptureState& state, PyTypeObject* type,
                      const std::vector<PyObject*>& args, PyObject* kwnames) {
  FJ_TRY(Ref maker, state.type_lookup(type, interned("__new__")));
  PyObject* function = maker.get();
  Ref inner;
  if (function && Py_IS_TYPE(function, &PyStaticMethod_Type)) {
    inner = Ref::steal(PyObject_GetAttrString(function, "__func__"));
    if (!inner) return Result<Ref>::raised();
    function = inner.get();
  }
  Ref object;
  if (PyType_IsSubtype(type, &PyType_Type) &&
      !(function && PyFunction_Check(function))) {
    FJ_TRY(object, make_class(state, as_object(type), args, kwnames));
  } else if (function && PyFunction_Check(function)) {
    FJ_TRY(object, state.caller.call(
                       function, with_first(as_object(type), args), kwnames));
  } else {
    FJ_TRY(object, state.tracer.make_instance(as_object(type), args, kwnames));
    if (!object) {
      FJ_TRY(object, native_new(state, function, type, args, kwnames));
    }
  }
  if (!PyObject_TypeCheck(object.get(), type)) return object;
  FJ_TRY(Ref init,
         state.type_lookup(Py_TYPE(object.get()), interned("__init__")));
  if (init && PyFunction_Check(init.get())) {
    FJ_TRY(
        Ref result,
        state.caller.call(init.get(), with_first(object.get(), args), kwnames));
    if (result.get() != Py_None) {
      PyErr_Format(PyExc_TypeError,
                   "__init__() should return None, not '%.200s'",
                   Py_TYPE(result.get())->tp_name);
      return Result<Ref>::raised();
    }
    return object;
  }
  if (PyType_Check(object.get()) || is_stand_in(state, object.get())) {
    return object;
  }
  FJ_CHECK_OK(native_init(state, object.get(), args, kwnames));
  return object;
}

// Struct sequences and the like.
bool is_struct_sequence(PyTypeObject* type) {
  if (type->tp_base != &PyTuple_Type || type->tp_new == PyTuple_Type.tp_new) {
    return false;
  }
  PyObject* maker = raw_lookup(type, "__new__");
  Ref dict = own_dict(type);
  return maker && PyCFunction_Check(maker) && dict &&
         PyDict_GetItemString(dict.get(), "n_sequence_fields");
}

}  // namespace

Result<Ref> call_type(CaptureState& state, PyTypeObject* type,
                      const std::vector<PyObject*>& args, PyObject* kwnames) {
  if (is_heap_type(Py_TYPE(type))) {
    // `__call__ = dict` of TypedDict: a class is no method.
    FJ_TRY(Ref raw, state.type_lookup(Py_TYPE(type), interned("__call__")));
    if (raw && PyType_Check(raw.get())) {
      return state.caller.call(raw.get(), args, kwnames);
    }
  }
  FJ_TRY(Ref special, state.python_special(as_object(type), "__call__"));
  if (special) {
    return state.caller.call(special.get(), with_first(as_object(type), args),
                             kwnames);
  }
  bool exception = PyType_IsSubtype(type, exception_root());
  bool struct_sequence = is_struct_sequence(type);
  if (struct_sequence && args.size() == 1 && !kwnames) {
    FJ_TRY(std::vector<Ref> items, state.elements(args[0]));
    Ref fields = Ref::steal(PyTuple_New(items.size()));
    if (!fields) return Result<Ref>::raised();
    for (size_t i = 0; i < items.size(); ++i) {
      PyTuple_SET_ITEM(fields.get(), i, items[i].release());
    }
    return from_api(PyObject_CallOneArg(as_object(type), fields.get()));
  }
  if (!is_heap_type(type) && !exception) return Ref();
  if (type == &PyType_Type) {
    return make_class(state, as_object(type), args, kwnames);
  }
  return type_call(state, type, args, kwnames);
}

// type.__call__(cls, ...), as super().__call__() of a metaclass reaches it.
Result<Ref> model_type_call(BuiltinCall& call) {
  if (call.args.empty() || !PyType_Check(call.args[0])) return call.unknown();
  std::vector<PyObject*> rest(call.args.begin() + 1, call.args.end());
  auto* type = reinterpret_cast<PyTypeObject*>(call.args[0]);
  if (!is_heap_type(type)) {
    return call.state.caller.call(call.args[0], rest, call.kwnames);
  }
  return type_call(call.state, type, rest, call.kwnames);
}

Result<Ref> model_object(BuiltinCall& call) {
  if (!call.args.empty()) return call.native(Reads::kNothing);
  return from_api(PyObject_CallNoArgs(call.callable));
}

// __new__ of object, list, dict, set, tuple, exceptions.
Result<Ref> model_new(BuiltinCall& call) {
  if (call.positional() < 1 || !PyType_Check(call.args[0])) {
    return call.native(Reads::kNothing);
  }
  auto* type = reinterpret_cast<PyTypeObject*>(call.args[0]);
  std::vector<PyObject*> rest(call.args.begin() + 1, call.args.end());
  return native_new(call.state, call.callable, type, rest, call.kwnames);
}

Result<Ref> model_native_init(BuiltinCall& call) {
  if (call.args.empty()) return call.unknown();
  std::vector<PyObject*> rest(call.args.begin() + 1, call.args.end());
  return native_init(call.state, call.args[0], rest, call.kwnames);
}

Result<Ref> model_method_type(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.native(Reads::kNothing);
  return from_api(PyMethod_New(call.args[0], call.args[1]));
}

// ---- conversions
namespace {

Result<Ref> convert(BuiltinCall& call, const char* method) {
  if (!call.plain(1, 1)) return call.native(Reads::kDeep);
  CaptureState& state = call.state;
  PyObject* subject = call.args[0];
  if (is_stand_in(state, subject)) {
    return state.make_break(BreakReason::kDataDependentValue, method);
  }
  for (const char* name : {method, "__index__"}) {
    FJ_TRY(Ref special, state.python_special(subject, name));
    if (!special) continue;
    SpecialResult kind =
        std::strcmp(name, "__index__") == 0 ? SpecialResult::kIndex
        : std::strcmp(name, "__int__") == 0 ? SpecialResult::kInt
                                            : SpecialResult::kFloat;
    FJ_TRY(Ref value, call_special(state, kind, special.get(), subject));
    bool symbolic = is_symbolic(state, value.get());
    if (symbolic && kind == SpecialResult::kInt) return value;
    call.args[0] = value.get();
    return call.native(Reads::kDeep);
  }
  return call.native(Reads::kDeep);
}

}  // namespace

Result<Ref> model_int(BuiltinCall& call) {
  if (call.plain(1, 1) && is_symbolic(call.state, call.args[0]) &&
      call.state.tracer.symbolic_type(call.args[0]) ==
          as_object(&PyLong_Type)) {
    return Ref::borrow(call.args[0]);
  }
  if (call.plain(1, 1) && is_symbolic_float(call.state, call.args[0])) {
    return call.state.tracer.operate(library_object("math", "trunc"),
                                     {call.args[0]});
  }
  return convert(call, "__int__");
}

Result<Ref> model_float(BuiltinCall& call) {
  if (call.plain(1, 1) && is_symbolic(call.state, call.args[0])) {
    if (is_symbolic_float(call.state, call.args[0]))
      return Ref::borrow(call.args[0]);
    Ref one = Ref::steal(PyLong_FromLong(1));
    if (!one) return Result<Ref>::raised();
    return call.state.tracer.operate(library_object("operator", "truediv"),
                                     {call.args[0], one.get()});
  }
  return convert(call, "__float__");
}

Result<Ref> model_bool(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.native(Reads::kDeep);
  FJ_TRY(bool value, call.state.truth(call.args[0]));
  return boolean(value);
}

}  // namespace framejit::bytecode
