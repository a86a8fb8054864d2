// Descriptors: what `descriptor.__get__(object, type)` gives, by kind.
//
// Python functions, properties and cached properties are bound here and their
// code is interpreted; slots and the few C attributes that can be guarded are
// read with a source of their own. Everything C that looks into an input object
// is a break.

#include "bytecode/objects/attributes.h"
#include "bytecode/objects/breaks.h"
#include "frame_hook/compiled_function.h"
#include "frame_hook/python_text.h"

#include <structmember.h>

#include "bytecode/objects/classes.h"
#include "bytecode/objects/model_iterators.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/write_log.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

namespace {

bool name_is(PyObject* name, const char* text) {
  return PyUnicode_CompareWithASCIIString(name, text) == 0;
}

// A class attribute that is no descriptor. The MRO look-up pinned its identity.
Result<Ref> class_value(CaptureState& state, PyObject* value,
                        PyTypeObject* type, PyObject* name) {
  FJ_CHECK_OK(room_for(state, "classes"));
  if (is_changed_here(state, type, name)) {
    // Of the class that has it: one of the program, or one of this capture.
    FJ_TRY(ClassPlace place, find_place(state, type, name));
    if (place.value.get() == value) {
      if (place.made_here) return Ref::borrow(value);
      if (place.owner != type)
        return class_value(state, value, place.owner, name);
    }
  }
  if (is_dynamic_class_number(state, value, type, name)) {
    return state.wrap(value, class_source(state, type, name));
  }
  if (state.is_constant(value)) return Ref::borrow(value);
  ObjectClass kind = state.tracer.classify(value);
  if (kind != ObjectClass::kPlain || PyTuple_Check(value)) {
    SourceArena& sources = state.guards.sources();
    const Source* base = sources.constant(reinterpret_cast<PyObject*>(type));
    return state.wrap(value, sources.make(SourceKind::kTypeAttr, base, name));
  }
  FJ_CHECK_OK(state.pin_value(value));
  return Ref::borrow(value);
}

// A part of a descriptor that never changes (property.fget,
// staticmethod.__func__).
Result<Ref> fixed_part(CaptureState& state, PyObject* descriptor,
                       const char* name) {
  Ref part = Ref::steal(PyObject_GenericGetAttr(descriptor, interned(name)));
  if (!part) return Result<Ref>::raised();
  // A descriptor made in this capture has parts made in it, too.
  if (state.is_input(descriptor)) state.pin(part.get());
  return part;
}

Result<Ref> bind_property(CaptureState& state, PyObject* descriptor,
                          PyObject* object, PyTypeObject* type) {
  FJ_TRY(Ref getter, fixed_part(state, descriptor, "fget"));
  if (getter.get() == Py_None) {
    // In CPython's words, which may name the property.
    Ref none = Ref::steal(PyProperty_Type.tp_descr_get(
        descriptor, object, reinterpret_cast<PyObject*>(type)));
    FJ_CHECK(!none);
    return Result<Ref>::raised();
  }
  return state.caller.call(getter.get(), {object});
}

Result<Ref> bind_classmethod(CaptureState& state, PyObject* descriptor,
                             PyTypeObject* type) {
  FJ_TRY(Ref function, fixed_part(state, descriptor, "__func__"));
  if (!PyFunction_Check(function.get()) &&
      !kLruCache.is_type_of(function.get()) &&
      Py_TYPE(function.get())->tp_descr_get) {
    return state.make_break(BreakReason::kUnsupportedAttribute,
                            "classmethod of a descriptor");
  }
  return from_api(
      PyMethod_New(function.get(), reinterpret_cast<PyObject*>(type)));
}

// functools.cached_property: computes once and stores in the instance dict,
// where super() and explicit calls have not looked before.
Result<Ref> bind_cached_property(CaptureState& state, PyObject* descriptor,
                                 PyObject* object) {
  FJ_TRY(Ref function, state.get_attr(descriptor, interned("func")));
  FJ_TRY(Ref key, state.get_attr(descriptor, interned("attrname")));
  if (key.get() == Py_None || !PyUnicode_Check(key.get())) {
    return state.make_break(BreakReason::kUnsupportedAttribute,
                            "cached_property without a name");
  }
  FJ_TRY(Ref dict, state.instance_dict(object));
  if (!dict) {
    return state.make_break(BreakReason::kUnsupportedAttribute,
                            "cached_property without __dict__");
  }
  FJ_TRY(Ref known, state.dict_get(dict.get(), key.get()));
  if (known) return known;
  FJ_TRY(Ref value, state.caller.call(function.get(), {object}));
  FJ_CHECK_OK(state.dict_set(dict.get(), key.get(), value.get()));
  return value;
}

Result<Ref> unset_slot(PyObject* object, PyObject* name) {
  PyErr_Format(PyExc_AttributeError, "'%.100s' object has no attribute '%U'",
               Py_TYPE(object)->tp_name, name);
  return Result<Ref>::raised();
}

// Where to read a C attribute of `object` again: its source; for a class of the
// program that is known by identity only, the class itself. Null: the capture
// made it.
const Source* readable_source(CaptureState& state, PyObject* object) {
  const Source* source = state.source_of(object);
  if (!source && PyType_Check(object) &&
      is_heap_type(reinterpret_cast<PyTypeObject*>(object)) &&
      !is_fresh_class(state, object)) {
    source = state.guards.sources().constant(object);
  }
  return source;
}

Result<Ref> bind_member(CaptureState& state, PyObject* descriptor,
                        PyObject* object, PyTypeObject* type, PyObject* name) {
  auto written = state.table<SlotWrites>().values.find({object, descriptor});
  if (written != state.table<SlotWrites>().values.end()) {
    if (written->second.get() == deleted_marker()) {
      return unset_slot(object, name);
    }
    return written->second;
  }
  const Source* source = readable_source(state, object);
  if (!source || state.is_constant(object)) {
    return from_api(Py_TYPE(descriptor)
                        ->tp_descr_get(descriptor, object,
                                       reinterpret_cast<PyObject*>(type)));
  }
  PyMemberDef* member =
      reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member;
  // A field of a struct sequence is an item: what the copy in hand has there.
  if (PyTuple_Check(object)) {
    constexpr Py_ssize_t kFirst = offsetof(PyTupleObject, ob_item);
    Py_ssize_t index =
        (member->offset - kFirst) / Py_ssize_t(sizeof(PyObject*));
    if (member->offset >= kFirst && index < PyTuple_GET_SIZE(object)) {
      return Ref::borrow(PyTuple_GET_ITEM(object, index));
    }
  }
  SourceArena& sources = state.guards.sources();
  if (kPartial.is_base_of(Py_TYPE(object))) {
    int part = name_is(name, "func")       ? 0
               : name_is(name, "args")     ? 1
               : name_is(name, "keywords") ? 2
                                           : -1;
    if (part >= 0) {
      Ref value = Ref::steal(PyObject_GenericGetAttr(object, name));
      if (!value) return Result<Ref>::raised();
      return state.wrap(value.get(), sources.make(SourceKind::kPartialPart,
                                                  source, nullptr, part));
    }
  }
  if (PyCode_Check(object)) {  // never changes
    return from_api(Py_TYPE(descriptor)
                        ->tp_descr_get(descriptor, object,
                                       reinterpret_cast<PyObject*>(type)));
  }
  if (member->type == T_OBJECT) {
    FJ_TRY(Ref value,
           from_api(Py_TYPE(descriptor)
                        ->tp_descr_get(descriptor, object,
                                       reinterpret_cast<PyObject*>(type))));
    return state.wrap(value.get(),
                      sources.make(SourceKind::kGetSet, source, name));
  }
  if (member->type != T_OBJECT_EX) {
    return state.make_break(
        BreakReason::kUnsupportedAttribute,
        std::string("C member ") + type->tp_name + "." + member->name);
  }
  PyObject* value = *reinterpret_cast<PyObject**>(
      reinterpret_cast<char*>(object) + member->offset);
  if (!value) {
    return state.make_break(
        BreakReason::kUnguardableInput,
        std::string("unset slot ") + type->tp_name + "." + member->name);
  }
  return state.wrap(value, sources.make(SourceKind::kSlotMember, source, name,
                                        member->offset));
}

// C attributes of pinned objects that can be guarded by reading them again.
bool is_guardable_getset(PyObject* object, PyObject* name) {
  static const char* const kNames[] = {
      "__name__",        "__qualname__",   "__module__", "__doc__",
      "__defaults__",    "__kwdefaults__", "__bases__",  "__mro__",
      "__annotations__", "__type_params__"};
  if (PyExceptionInstance_Check(object)) return name_is(name, "args");
  if (kDeque.is_type_of(object)) return name_is(name, "maxlen");
  if (!PyFunction_Check(object) && !PyType_Check(object)) return false;
  for (const char* known : kNames) {
    if (name_is(name, known)) return true;
  }
  return false;
}

// What a C method that came in says of the object it is bound to: its
// definition, which is guarded, does not tell. Null: the rest.
Result<Ref> bind_of_c_method(CaptureState& state, PyObject* method,
                             PyObject* name) {
  const bool is_self = name_is(name, "__self__");
  if (!is_self && !name_is(name, "__qualname__")) return Ref();
  SourceArena& sources = state.guards.sources();
  const Source* source = state.source_of(method);
  if (!source && state.is_constant(method)) source = sources.constant(method);
  if (!source) return Ref();  // bound here
  if (is_self)
    return state.wrap(PyCFunction_GET_SELF(method),
                      sources.make(SourceKind::kMethodSelf, source));
  FJ_TRY(Ref text, from_api(PyObject_GetAttr(method, name)));
  return state.wrap(text.get(),
                    sources.make(SourceKind::kGetSet, source, name));
}

// Objects of C whose attributes never change.
bool is_frozen(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  return PyCFunction_Check(object) || type == &PyMethodDescr_Type ||
         type == &PyWrapperDescr_Type || type == &PyGetSetDescr_Type ||
         type == &PyMemberDescr_Type || type == &PyClassMethodDescr_Type ||
         PyCode_Check(object) ||
         (PyType_Check(object) &&
          !is_heap_type(reinterpret_cast<PyTypeObject*>(object)));
}

Result<Ref> bind_getset(CaptureState& state, PyObject* descriptor,
                        PyObject* object, PyTypeObject* type, PyObject* name) {
  if (name_is(name, "__class__")) return state.type_of(object);
  if (is_stand_in(state, object))
    return state.tracer.get_by_descriptor(object, descriptor);
  if (name_is(name, "__dict__") && !PyType_Check(object)) {
    FJ_TRY(Ref dict, state.instance_dict(object));
    if (dict) return dict;
  }
  descrgetfunc get = Py_TYPE(descriptor)->tp_descr_get;
  PyObject* type_object = reinterpret_cast<PyObject*>(type);
  if (name_is(name, "__dict__") && PyType_Check(object)) {
    // A view of the class's dict: only key reads are modelled.
    FJ_TRY(Ref view, from_api(get(descriptor, object, type_object)));
    if (is_fresh_class(state, object)) return view;
    state.register_input(view.get(),
                         state.guards.sources().constant(view.get()));
    state.table<ClassDicts>().classes[view.get()] =
        reinterpret_cast<PyTypeObject*>(object);
    return view;
  }
  if (PyCFunction_Check(object) && is_bound_c_method(object)) {
    FJ_TRY(Ref found, bind_of_c_method(state, object, name));
    if (found) return found;
  }
  const Source* source = readable_source(state, object);
  if (!source || state.is_constant(object) || is_frozen(object)) {
    return state.after_native(get(descriptor, object, type_object));
  }
  SourceArena& sources = state.guards.sources();
  if (PyFunction_Check(object) && name_is(name, "__code__")) {
    return state.wrap(PyFunction_GET_CODE(object),
                      sources.make(SourceKind::kFunctionCode, source));
  }
  if (is_guardable_getset(object, name)) {
    FJ_TRY(Ref value, from_api(get(descriptor, object, type_object)));
    return state.wrap(value.get(),
                      sources.make(SourceKind::kGetSet, source, name));
  }
  return state.make_break(
      BreakReason::kUnsupportedAttribute,
      "C attribute '" + text_of(name, "?") + "' of " + type->tp_name);
}

// Other C descriptors. Binding a method copies two pointers; anything else may
// look into the object.
Result<Ref> bind_native(CaptureState& state, PyObject* descriptor,
                        PyObject* object, PyTypeObject* type) {
  PyTypeObject* kind = Py_TYPE(descriptor);
  bool only_binds = kind == &PyMethodDescr_Type ||
                    kind == &PyWrapperDescr_Type ||
                    kind == &PyClassMethodDescr_Type || kind == &PyMethod_Type;
  // pybind11's: on the class itself its metaclass hands it out as it is.
  if (kind == &PyInstanceMethod_Type) {
    if (!object) return Ref::borrow(descriptor);
    only_binds = true;
  }
  only_binds |= kLruCache.is_type_of(descriptor);
  only_binds |= is_compiled_function(descriptor);  // a method, as of a function
  // namedtuple fields: the tuple was copied with stand-ins inside.
  if (object) only_binds |= PyTuple_Check(object);
  if (!only_binds && object && state.is_input(object)) {
    return state.make_break(
        BreakReason::kUnsupportedAttribute,
        std::string("C descriptor ") + kind->tp_name + " of " + type->tp_name);
  }
  return state.after_native(kind->tp_descr_get(
      descriptor, object, reinterpret_cast<PyObject*>(type)));
}

}  // namespace

Result<Ref> class_dict_get(CaptureState& state, PyTypeObject* type,
                           PyObject* name) {
  if (!PyUnicode_CheckExact(name)) {
    return state.make_break(BreakReason::kUnguardableInput,
                            "a key of a class dict");
  }
  if (state.table<ClassWrites>().values.contains(
          {reinterpret_cast<PyObject*>(type), name})) {
    return written_class_dict(state);
  }
  FJ_TRY(PyObject * own, own_attribute(state, type, name));
  if (!own) return Ref();
  Ref kept = Ref::borrow(own);
  FJ_CHECK_OK(state.type_lookup(type, name));
  return class_value(state, own, type, name);
}

Status know_descriptor(CaptureState& state, PyObject* raw, PyTypeObject* type,
                       PyObject* name) {
  PyTypeObject* kind = Py_TYPE(raw);
  if (!is_heap_type(kind) || as_model_iterator(raw) ||
      state.tracer.classify(raw) != ObjectClass::kPlain)
    return ok_status();
  for (const char* slot : {"__get__", "__set__", "__delete__"})
    FJ_CHECK_OK(state.type_lookup(kind, interned(slot)));
  if (!is_heap_type(type) ||
      is_fresh_class(state, reinterpret_cast<PyObject*>(type)))
    return ok_status();
  if (is_changed_here(state, type, name)) {
    FJ_TRY(ClassPlace place, find_place(state, type, name));
    if (place.made_here || !place.owner) return ok_status();
    type = place.owner;
  }
  state.guard(GuardKind::kTypeIs, class_source(state, type, name),
              reinterpret_cast<PyObject*>(kind));
  return ok_status();
}

Status know_callable(CaptureState& state, PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (!is_heap_type(type) || as_model_iterator(object) ||
      state.tracer.classify(object) != ObjectClass::kPlain)
    return ok_status();
  FJ_CHECK_OK(state.type_lookup(type, interned("__call__")));
  return ok_status();
}

Result<Ref> bind_descriptor(CaptureState& state, PyObject* descriptor,
                            PyObject* object, PyTypeObject* type,
                            PyObject* name) {
  PyTypeObject* kind = Py_TYPE(descriptor);
  descrgetfunc get = kind->tp_descr_get;
  if (!get) return class_value(state, descriptor, type, name);
  if (kind == &PyFunction_Type) {
    if (!object) return Ref::borrow(descriptor);
    return from_api(PyMethod_New(descriptor, object));
  }
  if (kind == &PyStaticMethod_Type) {
    return fixed_part(state, descriptor, "__func__");
  }
  if (kind == &PyClassMethod_Type) {
    return bind_classmethod(state, descriptor, type);
  }
  if (get == PyProperty_Type.tp_descr_get) {
    if (!object) return Ref::borrow(descriptor);
    return bind_property(state, descriptor, object, type);
  }
  if (object && kind == &PyMemberDescr_Type) {
    return bind_member(state, descriptor, object, type, name);
  }
  if (object && kind == &PyGetSetDescr_Type) {
    return bind_getset(state, descriptor, object, type, name);
  }
  static auto* const cached_property =
      library_object("functools", "cached_property");
  if (object && reinterpret_cast<PyObject*>(kind) == cached_property) {
    return bind_cached_property(state, descriptor, object);
  }
  if (is_heap_type(kind)) {
    FJ_TRY(Ref python, state.type_lookup(kind, interned("__get__")));
    if (python && PyFunction_Check(python.get())) {
      return state.caller.call(python.get(),
                               {descriptor, object ? object : Py_None,
                                reinterpret_cast<PyObject*>(type)});
    }
  }
  return bind_native(state, descriptor, object, type);
}

}  // namespace framejit::bytecode
