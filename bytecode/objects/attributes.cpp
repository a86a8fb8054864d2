// Attribute reads: CPython's protocol with a guard for every fact it looks at.
//
// The order is the one of PyObject_GenericGetAttr, type_getattro and
// module_getattro; __getattribute__ and __getattr__ written in Python are
// interpreted. A class attribute is guarded by the result of the MRO look-up,
// an instance attribute by its path, and an absent one by its absence.
#include "bytecode/objects/attributes.h"

#include <cstring>
#include <string_view>

#include "bytecode/objects/breaks.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/containers.h"
#include "bytecode/objects/late_reads.h"
#include "bytecode/objects/model_iterators.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/opaque_value.h"
#include "bytecode/objects/overrides.h"
#include "bytecode/objects/private_type.h"
#include "guards/known_objects.h"
#include "guards/set/evaluate.h"

namespace framejit::bytecode {

namespace {

// Does it come before what the object itself holds? One that only writes (with
// __set__ or __delete__, and no __get__) does not.
bool is_data_descriptor(PyObject* descriptor) {
  PyTypeObject* kind = Py_TYPE(descriptor);
  return kind->tp_descr_get && kind->tp_descr_set;
}

bool name_is(PyObject* name, const char* text) {
  return PyUnicode_CompareWithASCIIString(name, text) == 0;
}

}  // namespace

void raise_no_attribute(CaptureState& state, PyObject* object, PyObject* name) {
  Ref message;
  if (PyType_Check(object)) {
    message = Ref::steal(PyUnicode_FromFormat(
        "type object '%.50s' has no attribute '%U'",
        reinterpret_cast<PyTypeObject*>(object)->tp_name, name));
  } else if (PyModule_Check(object)) {
    PyObject* text = PyDict_GetItemString(PyModule_GetDict(object), "__name__");
    message = Ref::steal(
        text && PyUnicode_Check(text)
            ? PyUnicode_FromFormat("module '%U' has no attribute '%U'", text,
                                   name)
            : PyUnicode_FromFormat("module has no attribute '%U'", name));
  } else {
    Ref type = state.type_of(object);
    message = Ref::steal(PyUnicode_FromFormat(
        "'%.100s' object has no attribute '%U'",
        reinterpret_cast<PyTypeObject*>(type.get())->tp_name, name));
  }
  if (message) PyErr_SetObject(PyExc_AttributeError, message.get());
}

// PyObject_GetAttr() says in the AttributeError, whoever raised it, what was
// asked of which object, unless it says so already.
Status say_where_asked(CaptureState& state, PyObject* object, PyObject* name) {
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return Status::raised();
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  Ref error = Ref::borrow(value);
  PyErr_Restore(type, value, traceback);
  if (!PyErr_GivenExceptionMatches(error.get(), PyExc_AttributeError))
    return Status::raised();
  auto* fields = reinterpret_cast<PyAttributeErrorObject*>(error.get());
  if (fields->name || fields->obj) return Status::raised();
  Status done = ok_status();
  {
    ErrorGuard pending;
    done = state.set_attr(error.get(), interned("name"), name);
    if (done.ok()) done = state.set_attr(error.get(), interned("obj"), object);
  }
  if (done.ok()) return Status::raised();
  PyErr_Clear();
  if (!done.is_raised()) return done;
  return state.make_break(BreakReason::kUnsupportedException,
                          "an AttributeError that refuses its name");
}

Ref CaptureState::type_of(PyObject* object) {
  if (PyTypeObject* shown = shown_type(object)) {
    return Ref::borrow(reinterpret_cast<PyObject*>(shown));
  }
  if (is_symbolic(*this, object)) {
    return Ref::borrow(tracer.symbolic_type(object));
  }
  guard_metaclass(*this, object);
  return Ref::borrow(reinterpret_cast<PyObject*>(Py_TYPE(object)));
}

Result<Ref> CaptureState::python_special(PyObject* object, const char* name) {
  PyTypeObject* type = Py_TYPE(object);
  if (!is_heap_type(type) || as_model_iterator(object)) return Ref();
  guard_metaclass(*this, object);
  ObjectClass kind = tracer.classify(object);
  if (kind == ObjectClass::kStandIn) {
    if (!tracer.is_subclass(object) ||
        is_library_attribute(type, interned(name))) {
      FJ_CHECK_OK(tracer.guard_special(object, name));
      return Ref();
    }
  } else if (kind != ObjectClass::kPlain) {
    return Ref();
  }
  FJ_TRY(Ref raw, type_lookup(type, interned(name)));
  if (!raw) return Ref();
  if (raw.get() == Py_None) {
    // Python itself writes `__hash__ = None` beside an `__eq__`.
    if (std::string_view(name) == "__hash__") return Ref();
    return make_break(BreakReason::kUnsupportedAttribute,
                      std::string(type->tp_name) + "." + name + " is None");
  }
  if (PyFunction_Check(raw.get())) return raw;
  PyTypeObject* kind_of = Py_TYPE(raw.get());
  // `__setattr__ = dict.__setitem__`: C code, but not that of the slot.
  if (has_other_name(raw.get(), name)) return raw;
  if (kind_of == &PyWrapperDescr_Type || kind_of == &PyMethodDescr_Type ||
      kind_of == &PyClassMethodDescr_Type || kind_of == &PyGetSetDescr_Type ||
      kind_of == &PyMemberDescr_Type) {
    return Ref();
  }
  return make_break(
      BreakReason::kUnsupportedAttribute,
      std::string(type->tp_name) + "." + name + " is a " + kind_of->tp_name);
}

namespace {

// Neither a function that is known by identity nor a module changes its dict.
bool is_fixed_place(const Source* source) {
  return source->kind == SourceKind::kConst ||
         ((source->kind == SourceKind::kGlobals ||
           source->kind == SourceKind::kBuiltins) &&
          source->base->kind == SourceKind::kConst);
}

}  // namespace

void register_instance_dict(CaptureState& state, PyObject* dict,
                            PyObject* owner, const Source* source) {
  SourceArena& sources = state.guards.sources();
  const Source* place = sources.make(SourceKind::kInstanceDict, source);
  // The dict of a module is the same for life.
  bool fixed = PyModule_Check(owner) && source->kind == SourceKind::kConst;
  auto& owners = state.table<InstanceDicts>().owners;
  const Source* known = state.source_of(dict);
  if (!known) {
    state.register_input(dict, fixed ? sources.constant(dict) : place);
    if (!PyModule_Check(owner)) owners[dict] = owner;
    return;
  }
  if (known == place || (fixed && is_fixed_place(known))) return;
  Guard alias{GuardKind::kSameObject, place};
  if (known->kind == SourceKind::kConst) {
    alias.kind = GuardKind::kIs;
    alias.object = Ref::borrow(dict);
  } else {
    alias.other = known;
  }
  alias.span = state.caller.here();
  state.guards.add(std::move(alias));
}

Result<Ref> attribute_dict(CaptureState& state, PyObject* object) {
  if (PyType_Check(object)) return Ref();
  PyTypeObject* type = Py_TYPE(object);
  if (type->tp_dictoffset == 0) return Ref();
  const Source* source = state.source_of(object);
  if (PyModule_Check(object)) {
    Ref dict = Ref::borrow(PyModule_GetDict(object));
    if (!dict) return Ref();
    // Its class may be assigned.
    state.guard(GuardKind::kTypeIs, source, reinterpret_cast<PyObject*>(type));
    if (source) register_instance_dict(state, dict.get(), object, source);
    return dict;
  }
  Ref dict = Ref::steal(PyObject_GenericGetDict(object, nullptr));
  if (!dict) {
    PyErr_Clear();
    return Ref();
  }
  if (!PyDict_CheckExact(dict.get())) {
    return state.make_break(BreakReason::kUnsupportedAttribute,
                            "an instance whose __dict__ is no dict");
  }
  if (source) register_instance_dict(state, dict.get(), object, source);
  return dict;
}

Result<Ref> CaptureState::instance_dict(PyObject* object) {
  FJ_TRY(Ref dict, attribute_dict(*this, object));
  if (dict && !PyModule_Check(object)) {
    guard(GuardKind::kTypeIs, source_of(dict.get()),
          reinterpret_cast<PyObject*>(&PyDict_Type));
  }
  return dict;
}

Result<Ref> generic_attr(CaptureState& state, PyObject* object,
                         PyObject* name) {
  PyTypeObject* type = Py_TYPE(object);
  FJ_TRY(Ref raw, state.type_lookup(type, name));
  if (raw) FJ_CHECK_OK(know_descriptor(state, raw.get(), type, name));
  if (raw && is_data_descriptor(raw.get())) {
    return bind_descriptor(state, raw.get(), object, type, name);
  }
  FJ_TRY(Ref dict, attribute_dict(state, object));
  if (dict) {
    FJ_TRY(Ref value, state.dict_get(dict.get(), name));
    if (value) return value;
  }
  if (raw) return bind_descriptor(state, raw.get(), object, type, name);
  return Ref();
}

Result<Ref> type_attr(CaptureState& state, PyTypeObject* type, PyObject* name) {
  PyObject* object = reinterpret_cast<PyObject*>(type);
  PyTypeObject* meta = Py_TYPE(type);
  guard_metaclass(state, object);
  FJ_TRY(Ref raw_meta, state.type_lookup(meta, name));
  if (raw_meta) FJ_CHECK_OK(know_descriptor(state, raw_meta.get(), meta, name));
  if (raw_meta && is_data_descriptor(raw_meta.get())) {
    return bind_descriptor(state, raw_meta.get(), object, meta, name);
  }
  FJ_TRY(Ref raw, state.type_lookup(type, name));
  if (raw) {
    FJ_CHECK_OK(know_descriptor(state, raw.get(), type, name));
    return bind_descriptor(state, raw.get(), nullptr, type, name);
  }
  if (raw_meta) {
    return bind_descriptor(state, raw_meta.get(), object, meta, name);
  }
  return Ref();
}

namespace {

// What the program has put on the tensor by that name, or empty.
Result<Ref> value_on_tensor(CaptureState& state, PyObject* stand_in,
                            PyObject* name) {
  PyObject* real = state.tracer.real_of(stand_in);
  PyObject** dict = _PyObject_GetDictPtr(real ? real : stand_in);
  const bool has = dict && *dict && PyDict_GET_SIZE(*dict) > 0;
  if (!real) {
    PyObject* value = has ? PyDict_GetItemWithError(*dict, name) : nullptr;
    if (!value && PyErr_Occurred()) return Result<Ref>::raised();
    return Ref::borrow(value);
  }
  // The writes of this call are not in the dict yet.
  const bool is_written =
      dict && *dict && state.table<Containers>().states.contains(*dict);
  const Source* source = state.tracer.source_of(stand_in);
  if (!has && !is_written) {
    if (dict) state.guard(GuardKind::kNoTensorAttrs, source);
    return Ref();
  }
  register_instance_dict(state, *dict, real, source);
  return state.dict_get(*dict, name);
}

// An attribute of a class that the program derived from the tensor's. Empty and
// not `absent`: the library's own.
Result<Ref> subclass_attr(CaptureState& state, PyObject* stand_in,
                          PyObject* name, PyObject* raw, bool* absent) {
  PyTypeObject* type = Py_TYPE(stand_in);
  if (!is_library_attribute(type, interned("__getattribute__"))) {
    return state.make_break(BreakReason::kUnsupportedAttribute,
                            "__getattribute__ of a tensor's class");
  }
  bool own = raw && !is_library_attribute(type, name);
  if (own) FJ_CHECK_OK(know_descriptor(state, raw, type, name));
  if (own && is_data_descriptor(raw)) {
    return bind_descriptor(state, raw, stand_in, type, name);
  }
  if (raw && is_data_descriptor(raw)) {
    PyObject* getter = library_object("builtins", "getattr");
    return call_override(state, getter, {stand_in, name});
  }
  FJ_TRY(Ref value, value_on_tensor(state, stand_in, name));
  if (value) return value;
  if (own) return bind_descriptor(state, raw, stand_in, type, name);
  if (raw) return Ref();
  *absent = true;
  FJ_TRY(Ref hook, state.type_lookup(type, interned("__getattr__")));
  if (!hook) return Ref();
  if (!PyFunction_Check(hook.get())) {
    return state.make_break(BreakReason::kUnsupportedAttribute,
                            "__getattr__ of a tensor's class");
  }
  return state.caller.call(hook.get(), {stand_in, name});
}

Result<Ref> tensor_attr(CaptureState& state, PyObject* stand_in,
                        PyObject* name) {
  if (name_is(name, "__class__")) return state.type_of(stand_in);
  // Of the tensor, and not of the stand-in: for the tracer to say.
  if (name_is(name, "__dict__"))
    return state.tracer.get_attribute(stand_in, name);
  FJ_TRY(Ref raw, state.type_lookup(Py_TYPE(stand_in), name));
  if (!raw && reads_late(state)) note_late_tensor_attribute(state, name);
  if (state.tracer.is_subclass(stand_in)) {
    bool absent = false;
    FJ_TRY(Ref found, subclass_attr(state, stand_in, name, raw.get(), &absent));
    if (found || absent) return found;
  } else if (raw && is_data_descriptor(raw.get()) &&
             is_override_mode_active(state)) {
    PyObject* getter = library_object("builtins", "getattr");
    FJ_TRY(Ref answer, call_override(state, getter, {stand_in, name}));
    if (answer) return answer;
  }
  PyObject* real = state.tracer.real_of(stand_in);
  if (real && !(raw && is_data_descriptor(raw.get()))) {
    FJ_TRY(Ref value, value_on_tensor(state, stand_in, name));
    if (value || !raw) return value;
  }
  return state.tracer.get_attribute(stand_in, name);
}

}  // namespace

Result<Ref> tensor_attr_of_object(CaptureState& state, PyObject* stand_in,
                                  PyObject* name) {
  // With one of these more would be asked than is asked here.
  for (const char* hook : {"__getattribute__", "__getattr__"}) {
    FJ_TRY(Ref found, state.type_lookup(Py_TYPE(stand_in), interned(hook)));
    if (found && !is_library_attribute(Py_TYPE(stand_in), interned(hook)))
      return state.make_break(BreakReason::kUnsupportedAttribute,
                              std::string(hook) + " of a tensor's class");
  }
  return state.get_attr(stand_in, name);
}

namespace {

// The three fields of a super object. Nothing of the program runs.
Result<Ref> super_field(PyObject* super, const char* name) {
  PyObject* descriptor = raw_lookup(&PySuper_Type, name);
  if (!descriptor) return Result<Ref>::raised();
  return from_api(
      Py_TYPE(descriptor)
          ->tp_descr_get(descriptor, super,
                         reinterpret_cast<PyObject*>(&PySuper_Type)));
}

Result<Ref> super_object_attr(CaptureState& state, PyObject* super,
                              PyObject* name) {
  FJ_TRY(Ref type, super_field(super, "__thisclass__"));
  FJ_TRY(Ref self, super_field(super, "__self__"));
  if (name_is(name, "__class__") || self.get() == Py_None) {
    return from_api(PyObject_GetAttr(super, name));
  }
  return state.super_attr(type.get(), self.get(), name);
}

Result<Ref> method_attr(CaptureState& state, PyObject* method, PyObject* name) {
  FJ_TRY(auto parts, state.method_parts(method));
  if (name_is(name, "__func__")) return parts.first;
  if (name_is(name, "__self__")) return parts.second;
  if (_PyType_Lookup(&PyMethod_Type, name)) {
    return from_api(PyObject_GenericGetAttr(method, name));
  }
  return state.find_attr(parts.first.get(), name);
}

// Other names of an alias are looked up in the class behind.
Result<Ref> type_form_attr(CaptureState& state, PyObject* object,
                           PyObject* name) {
  static const char* const kOwn[] = {"__args__", "__origin__", "__parameters__",
                                     "__class__"};
  bool is_union = kUnion.is_type_of(object);
  for (const char* own : kOwn) {
    if (!is_union && !name_is(name, own)) continue;
    FJ_TRY(Ref value, from_api(PyObject_GetAttr(object, name)));
    if (PyTuple_Check(value.get())) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value.get()); ++i) {
        FJ_CHECK_OK(state.pin_value(PyTuple_GET_ITEM(value.get(), i)));
      }
    } else {
      FJ_CHECK_OK(state.pin_value(value.get()));
    }
    return value;
  }
  return state.make_break(
      BreakReason::kUnsupportedAttribute,
      std::string("attribute of a ") + Py_TYPE(object)->tp_name);
}

// True: the pending exception is an AttributeError, now cleared.
bool swallow_attribute_error() {
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return false;
  PyErr_Clear();
  return true;
}

// object.__getattribute__ or what C code of the type does instead.
Result<Ref> c_getattribute(CaptureState& state, PyObject* object,
                           PyObject* name) {
  if (PyType_Check(object)) {
    return type_attr(state, reinterpret_cast<PyTypeObject*>(object), name);
  }
  Result<Ref> found = generic_attr(state, object, name);
  if (!PyModule_Check(object) || !found.ok() || found.value()) return found;
  FJ_TRY(Ref dict, state.instance_dict(object));
  if (!dict) return Ref();
  FJ_TRY(Ref hook, state.dict_get(dict.get(), interned("__getattr__")));
  if (!hook) return Ref();
  return state.caller.call(hook.get(), {name});
}

// Whose C __getattribute__ c_getattribute() models: object's (which many C
// types name again), type's and module's.
bool is_modelled_getattribute(CaptureState& state, PyObject* raw) {
  if (!raw || !Py_IS_TYPE(raw, &PyWrapperDescr_Type) ||
      has_other_name(raw, "__getattribute__")) {
    return false;
  }
  PyTypeObject* owner = PyDescr_TYPE(raw);
  // (Methods of such metaclasses: bind_native.)
  return owner->tp_getattro == PyObject_GenericGetAttr ||
         owner == &PyType_Type || owner == &PyModule_Type ||
         state.tracer.is_binding_metaclass(owner);
}

}  // namespace

Result<std::pair<Ref, Ref>> CaptureState::method_parts(PyObject* method) {
  PyObject* function = PyMethod_GET_FUNCTION(method);
  PyObject* self = PyMethod_GET_SELF(method);
  const Source* source = source_of(method);
  if (!source) {
    return std::make_pair(Ref::borrow(function), Ref::borrow(self));
  }
  FJ_TRY(
      Ref wrapped_function,
      wrap(function, guards.sources().make(SourceKind::kMethodFunc, source)));
  FJ_TRY(Ref wrapped_self,
         wrap(self, guards.sources().make(SourceKind::kMethodSelf, source)));
  return std::make_pair(wrapped_function, wrapped_self);
}

Result<Ref> CaptureState::find_attr(PyObject* object, PyObject* name) {
  FJ_CHECK_OK(room_for(*this, "objects"));
  if (is_symbolic(*this, object)) {
    if (name_is(name, "__class__")) return type_of(object);
    FJ_TRY(Ref number, tracer.concretise(object));
    return from_api(PyObject_GetAttr(number.get(), name));
  }
  if (is_stand_in(*this, object)) return tensor_attr(*this, object, name);
  PyTypeObject* type = Py_TYPE(object);
  if (type == &PySuper_Type) return super_object_attr(*this, object, name);
  if (type == &PyMethod_Type) return method_attr(*this, object, name);
  if (name_is(name, "__traceback__") && PyExceptionInstance_Check(object)) {
    return make_break(BreakReason::kUnsupportedException, "reads a traceback");
  }
  if (is_opaque(object, OpaqueKind::kFrame)) {
    if (name_is(name, "f_globals")) return Ref::borrow(opaque_object(object));
    if (name_is(name, "f_code")) return Ref::borrow(opaque_other(object));
  }
  if (as_model_iterator(object)) {
    return make_break(BreakReason::kUnsupportedAttribute,
                      "attribute of a map or filter object");
  }
  if (is_type_form(object)) return type_form_attr(*this, object, name);
  guard_metaclass(*this, object);
  FJ_TRY(Ref raw, type_lookup(type, interned("__getattribute__")));
  Result<Ref> found = Ref();
  if (raw && (PyFunction_Check(raw.get()) ||
              has_other_name(raw.get(), "__getattribute__"))) {
    found = caller.call(raw.get(), {object, name});
  } else if (is_modelled_getattribute(*this, raw.get())) {
    found = c_getattribute(*this, object, name);
  } else if (is_constant(object) || !is_input(object)) {
    found = after_native(PyObject_GetAttr(object, name));
  } else {
    return make_break(BreakReason::kUnsupportedAttribute,
                      std::string("C __getattribute__ of ") + type->tp_name);
  }
  if (found.broke() || (found.ok() && found.value())) return found;
  if (!is_heap_type(type)) return found;
  if (found.is_raised() && !PyErr_ExceptionMatches(PyExc_AttributeError)) {
    return found;
  }
  // A pending AttributeError stays what is raised when there is no hook.
  Ref hook;
  {
    ErrorGuard pending;
    FJ_TRY(hook, type_lookup(type, interned("__getattr__")));
  }
  if (!hook) return found;
  if (!PyFunction_Check(hook.get()) &&
      !has_other_name(hook.get(), "__getattr__")) {
    if (found.is_raised()) PyErr_Clear();
    return make_break(BreakReason::kUnsupportedAttribute,
                      std::string("C __getattr__ of ") + type->tp_name);
  }
  if (found.is_raised()) swallow_attribute_error();
  return caller.call(hook.get(), {object, name});
}

Result<Ref> maybe_attr(CaptureState& state, PyObject* object, PyObject* name) {
  Result<Ref> found = state.find_attr(object, name);
  if (found.is_raised() && PyErr_ExceptionMatches(PyExc_AttributeError)) {
    PyErr_Clear();
    return Ref();
  }
  return found;
}

namespace {

// What find_attr() gave, or the AttributeError of PyObject_GetAttr().
Result<Ref> found_or_missing(CaptureState& state, Result<Ref> found,
                             PyObject* object, PyObject* name,
                             bool says_what_was_raised = true) {
  if (found.broke() || (found.ok() && found.value())) return found;
  if (found.ok()) {
    raise_no_attribute(state, object, name);
  } else if (!says_what_was_raised) {
    return found;
  }
  FJ_CHECK_OK(say_where_asked(state, object, name));
  return Result<Ref>::raised();
}

}  // namespace

Result<Ref> CaptureState::get_attr(PyObject* object, PyObject* name) {
  return found_or_missing(*this, find_attr(object, name), object, name);
}

Result<Ref> load_method(CaptureState& state, PyObject* object, PyObject* name) {
  const bool asks = Py_TYPE(object)->tp_getattro != PyObject_GenericGetAttr;
  return found_or_missing(state, state.find_attr(object, name), object, name,
                          asks);
}

Result<Ref> CaptureState::super_attr(PyObject* type, PyObject* self,
                                     PyObject* name) {
  if (name_is(name, "__class__")) {
    return Ref::borrow(reinterpret_cast<PyObject*>(&PySuper_Type));
  }
  if (!PyType_Check(type)) {
    PyErr_SetString(PyExc_TypeError, "super() argument 1 must be a type");
    return Result<Ref>::raised();
  }
  auto* start = reinterpret_cast<PyTypeObject*>(type);
  bool class_level =
      PyType_Check(self) &&
      PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(self), start);
  PyTypeObject* search =
      class_level ? reinterpret_cast<PyTypeObject*>(self) : Py_TYPE(self);
  if (!PyType_IsSubtype(search, start)) {
    PyErr_SetString(PyExc_TypeError,
                    "super(type, obj): obj must be an instance or subtype of "
                    "type");
    return Result<Ref>::raised();
  }
  PyObject* mro = search->tp_mro;
  Py_ssize_t start_at = 0;
  while (start_at < PyTuple_GET_SIZE(mro) &&
         PyTuple_GET_ITEM(mro, start_at) != type)
    ++start_at;
  FJ_TRY(ClassPlace place, find_place(*this, search, name, start_at + 1));
  if (place.owner) {
    PyObject* own = place.value.get();
    if (reads_late(*this)) note_late_attribute(*this, place.owner, name, own);
    const bool binds = Py_TYPE(own)->tp_descr_get != nullptr;
    if (!binds && place.made_here) return std::move(place.value);
    return bind_descriptor(*this, own, class_level ? nullptr : self,
                           binds ? search : place.owner, name);
  }
  Ref super = Ref::steal(PyObject_CallFunctionObjArgs(
      reinterpret_cast<PyObject*>(&PySuper_Type), type, self, nullptr));
  if (!super) return Result<Ref>::raised();
  raise_no_attribute(*this, super.get(), name);
  FJ_CHECK_OK(say_where_asked(*this, super.get(), name));
  return Result<Ref>::raised();
}

}  // namespace framejit::bytecode
