// Attribute writes and deletes: CPython's protocol over the write log.
//
// Fresh objects are written natively. On an input object an instance attribute
// goes to the log through the instance dict, a slot to the slot table, a
// property to its setter in Python; anything else is a break.
#include "bytecode/objects/attributes.h"
#include "frame_hook/python_text.h"

#include "bytecode/objects/classes.h"
#include "bytecode/objects/exceptions.h"
#include "bytecode/objects/moved_texts.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/opaque_value.h"
#include "bytecode/objects/overrides.h"
#include "bytecode/objects/write_log.h"
#include "guards/known_objects.h"

#include <structmember.h>

#include <cstring>

namespace framejit::bytecode {

namespace {

std::string attribute_text(PyTypeObject* type, PyObject* name) {
  return std::string(type->tp_name) + "." + text_of(name, "?");
}

// Names that C code reads of any object (__doc__, __module__, __notes__).
bool is_special_name(PyObject* name) {
  Py_ssize_t size = PyUnicode_Check(name) ? PyUnicode_GET_LENGTH(name) : 0;
  return size > 1 && PyUnicode_READ_CHAR(name, 0) == '_' &&
         PyUnicode_READ_CHAR(name, 1) == '_';
}

// A container that came in, of which C code would see the state of now,
// without the writes of the capture and without a guard.
bool is_container_from_outside(CaptureState& state, PyObject* value) {
  const bool has_items = PyList_Check(value) || PyTuple_Check(value) ||
                         PyDict_Check(value) || PyAnySet_Check(value);
  return has_items && state.is_input(value) && !state.is_constant(value);
}

// A place in an object of C, which its code looks at behind our back: what
// stands for a value there must be the value.
Status check_stored_in_c(CaptureState& state, PyObject* name, PyObject* value) {
  if (!value) return ok_status();
  // (A __dict__ is a place that we know; in the others nothing looks at it.)
  bool is_kept = false;
  for (const char* kept : {"__dict__", "__annotations__", "obj"})
    is_kept |= PyUnicode_CompareWithASCIIString(name, kept) == 0;
  if (!is_kept && is_container_from_outside(state, value)) {
    return state.make_break(BreakReason::kUnsupportedWrite,
                            std::string("a field of C code is given a ") +
                                Py_TYPE(value)->tp_name +
                                " of the program: " + text_of(name, "?"));
  }
  if (is_opaque(value) && !is_opaque(value, OpaqueKind::kMoved)) {
    return state.make_break(BreakReason::kUnguardableInput,
                            "a field of C code is given what is not known");
  }
  return check_given_to_c(state, value);
}

// A place that `__slots__` of a class in Python made.
bool is_python_slot(PyObject* descriptor) {
  PyTypeObject* owner = PyDescr_TYPE(descriptor);
  return Py_IS_TYPE(descriptor, &PyMemberDescr_Type) && is_heap_type(owner) &&
         reinterpret_cast<PyHeapTypeObject*>(owner)->ht_slots;
}

Status native_set(CaptureState& state, PyObject* object, PyObject* name,
                  PyObject* value) {
  if (PyObject_GenericSetAttr(object, name, value) < 0) {
    return Status::raised();
  }
  return ok_status();
}

Status set_property(CaptureState& state, PyObject* descriptor, PyObject* object,
                    PyObject* value) {
  Ref function = Ref::steal(
      PyObject_GenericGetAttr(descriptor, interned(value ? "fset" : "fdel")));
  if (!function) return Status::raised();
  if (function.get() == Py_None) {
    // In CPython's words, which may name the property.
    FJ_CHECK(PyProperty_Type.tp_descr_set(descriptor, object, value) < 0);
    return Status::raised();
  }
  if (state.is_input(descriptor)) state.pin(function.get());
  std::vector<PyObject*> args{object};
  if (value) args.push_back(value);
  FJ_CHECK_OK(state.caller.call(function.get(), args));
  return ok_status();
}

Status set_member(CaptureState& state, PyObject* descriptor, PyObject* object,
                  PyObject* name, PyObject* value) {
  if (!state.is_input(object)) return native_set(state, object, name, value);
  PyMemberDef* member =
      reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member;
  PyTypeObject* type = Py_TYPE(object);
  if (member->type != T_OBJECT_EX || !is_heap_type(type)) {
    return state.make_break(BreakReason::kUnsupportedWrite,
                            attribute_text(type, name));
  }
  if (!value) {
    FJ_CHECK_OK(bind_descriptor(state, descriptor, object, type, name));
  }
  Ref stored = value ? Ref::borrow(value) : Ref::borrow(deleted_marker());
  state.keep_alive(descriptor);
  state.table<SlotWrites>().values[{object, descriptor}] = std::move(stored);
  WriteLog::add(state,
                value ? Write::Kind::kInstanceSet : Write::Kind::kInstanceDel,
                object, name, value);
  return ok_status();
}

// Whatever the name by which it was found.
bool sets_own_dict(PyObject* descriptor) {
  auto* getset = reinterpret_cast<PyGetSetDescrObject*>(descriptor)->d_getset;
  return std::strcmp(getset->name, "__dict__") == 0;
}

// Made in the capture, it would be rebuilt as a plain dict with its content;
// one that came in is handed on as it is.
bool is_dict_of_a_class(CaptureState& state, PyObject* value) {
  return PyDict_Check(value) && !PyDict_CheckExact(value) &&
         !state.is_input(state.unshadow(value));
}

Status set_through_descriptor(CaptureState& state, PyObject* descriptor,
                              PyObject* object, PyObject* name,
                              PyObject* value) {
  PyTypeObject* kind = Py_TYPE(descriptor);
  if (kind->tp_descr_set == PyProperty_Type.tp_descr_set) {
    return set_property(state, descriptor, object, value);
  }
  if (kind == &PyGetSetDescr_Type && value && sets_own_dict(descriptor) &&
      is_dict_of_a_class(state, value)) {
    return state.make_break(
        BreakReason::kUnsupportedWrite,
        std::string("a ") + Py_TYPE(value)->tp_name + " as __dict__");
  }
  if (kind == &PyMemberDescr_Type) {
    if (!is_python_slot(descriptor))
      FJ_CHECK_OK(check_stored_in_c(state, name, value));
    return set_member(state, descriptor, object, name, value);
  }
  if (is_heap_type(kind)) {
    FJ_TRY(Ref python,
           state.type_lookup(kind, interned(value ? "__set__" : "__delete__")));
    if (python && PyFunction_Check(python.get())) {
      std::vector<PyObject*> args{descriptor, object};
      if (value) args.push_back(value);
      FJ_CHECK_OK(state.caller.call(python.get(), args));
      return ok_status();
    }
  }
  FJ_CHECK_OK(check_stored_in_c(state, name, value));
  if (!state.is_input(object)) return native_set(state, object, name, value);
  if (PyFunction_Check(object) && value && PyUnicode_CheckExact(value)) {
    // functools.total_ordering names its functions again and again.
    FJ_TRY(Ref known, state.get_attr(object, name));
    if (PyUnicode_CheckExact(known.get()) &&
        PyUnicode_Compare(known.get(), value) == 0) {
      return ok_status();
    }
  }
  return state.make_break(BreakReason::kUnsupportedWrite,
                          attribute_text(Py_TYPE(object), name));
}

Status missing(CaptureState& state, PyObject* object, PyObject* name) {
  raise_no_attribute(state, object, name);
  return Status::raised();
}

}  // namespace

Status generic_set_attr(CaptureState& state, PyObject* object, PyObject* name,
                        PyObject* value) {
  PyTypeObject* type = Py_TYPE(object);
  FJ_TRY(Ref raw, state.type_lookup(type, name));
  if (raw) FJ_CHECK_OK(know_descriptor(state, raw.get(), type, name));
  if (value && is_special_name(name)) {
    // (add_note() writes into the list that is there.)
    FJ_CHECK_OK(PyExceptionInstance_Check(object)
                    ? check_stored_in_c(state, name, value)
                    : check_given_to_c(state, value));
  }
  if (raw && Py_TYPE(raw.get())->tp_descr_set) {
    return set_through_descriptor(state, raw.get(), object, name, value);
  }
  FJ_TRY(Ref dict, attribute_dict(state, object));
  if (!dict) {
    FJ_CHECK_OK(check_stored_in_c(state, name, value));
    if (!state.is_input(object)) return native_set(state, object, name, value);
    if (!value || (!raw && is_heap_type(type))) {
      // There is no place for it, as CPython says in its own words.
      int failed = PyObject_GenericSetAttr(object, name, value);
      FJ_CHECK(failed < 0, "an attribute where there is no place for one");
      return Status::raised();
    }
    return state.make_break(BreakReason::kUnsupportedWrite,
                            attribute_text(type, name));
  }
  if (!state.is_input(dict.get())) {
    // A fresh instance: its own dict or inline values.
    return native_set(state, object, name, value);
  }
  if (value) return state.dict_set(dict.get(), name, value);
  FJ_TRY(Ref found, state.dict_get(dict.get(), name));
  if (!found) return missing(state, object, name);
  return state.dict_del(dict.get(), name);
}

namespace {

// What users hang on tensors is in the tensor's own dict; the rest is C's.
Status write_tensor_attr(CaptureState& state, PyObject* stand_in,
                         PyObject* name, PyObject* value) {
  PyTypeObject* type = Py_TYPE(stand_in);
  FJ_TRY(Ref raw, state.type_lookup(type, name));
  PyObject* real = state.tracer.real_of(stand_in);
  if (state.tracer.is_subclass(stand_in)) {
    if (raw) FJ_CHECK_OK(know_descriptor(state, raw.get(), type, name));
    for (const char* hook : {"__setattr__", "__delattr__"}) {
      FJ_TRY(Ref found, state.type_lookup(type, interned(hook)));
      if (is_library_attribute(type, interned(hook))) continue;
      return state.make_break(BreakReason::kUnsupportedWrite,
                              std::string(hook) + " of a tensor's class");
    }
    if (raw && Py_TYPE(raw.get())->tp_descr_set &&
        !is_library_attribute(type, name)) {
      return set_through_descriptor(state, raw.get(), stand_in, name, value);
    }
  }
  if (raw && Py_TYPE(raw.get())->tp_descr_set) {
    PyObject* setter =
        library_object("builtins", value ? "setattr" : "delattr");
    std::vector<PyObject*> args{stand_in, name};
    if (value) args.push_back(value);
    FJ_TRY(Ref answer, call_override(state, setter, args));
    if (answer) return ok_status();
    // The write is done when the call ends, by what asks the class once more.
    if (state.tracer.is_subclass(stand_in) && asks_own_class(type)) {
      return state.make_break(BreakReason::kUnsupportedWrite,
                              attribute_text(type, name));
    }
    FJ_CHECK_OK(check_stored_in_c(state, name, value));
    FJ_TRY(Ref replay, state.tracer.set_attribute(stand_in, name, value));
    if (!replay) return ok_status();
    PyObject* object = real ? real : stand_in;
    WriteLog::let_go(state, LetGo::kAttribute, object, name);
    if (replay.get() != Py_None)
      WriteLog::add(state, Write::Kind::kStoredBy, object, replay.get(), value);
    else
      WriteLog::add(state,
                    value ? Write::Kind::kAttrSet : Write::Kind::kAttrDel,
                    object, name, value);
    return ok_status();
  }
  if (!real) {
    // Made here, and perhaps not for the program: written when it is.
    FJ_CHECK_OK(native_set(state, stand_in, name, value));
    WriteLog::add(state, value ? Write::Kind::kAttrSet : Write::Kind::kAttrDel,
                  stand_in, name, value);
    return ok_status();
  }
  const Source* source = state.tracer.source_of(stand_in);
  Ref dict = Ref::steal(PyObject_GenericGetDict(real, nullptr));
  if (!dict) return Status::raised();
  register_instance_dict(state, dict.get(), real, source);
  if (value) return state.dict_set(dict.get(), name, value);
  FJ_TRY(Ref found, state.dict_get(dict.get(), name));
  if (!found) return missing(state, stand_in, name);
  return state.dict_del(dict.get(), name);
}

std::string class_attribute(PyObject* type, PyObject* name) {
  return "attribute of a class: " +
         attribute_text(reinterpret_cast<PyTypeObject*>(type), name);
}

}  // namespace

// Descriptors and special methods change how every instance behaves, beneath
// C code, too: those are left to CPython.
Status set_class_attr(CaptureState& state, PyObject* type, PyObject* name,
                      PyObject* value) {
  auto* object = reinterpret_cast<PyTypeObject*>(type);
  if (!is_heap_type(object)) {
    // CPython's own TypeError.
    if (PyType_Type.tp_setattro(type, name, value) == 0) {
      return state.make_break(BreakReason::kUnsupportedWrite,
                              class_attribute(type, name));
    }
    return Status::raised();
  }
  const char* text = PyUnicode_AsUTF8(name);
  if (!text) return Status::raised();
  FJ_TRY(Ref of_meta, state.type_lookup(Py_TYPE(type), name));
  bool replaces = false;
  if (value) {
    FJ_TRY(replaces, replaces_plain_attribute(state, object, name));
  }
  Ref before;
  if (!replaces) {
    FJ_TRY(before, state.type_lookup(object, name));
  }
  auto is_descriptor = [](PyObject* raw) {
    return raw && (Py_TYPE(raw)->tp_descr_get || Py_TYPE(raw)->tp_descr_set);
  };
  bool plain = std::strncmp(text, "__", 2) != 0 && !of_meta &&
               !is_descriptor(before.get()) && !is_descriptor(value);
  if (plain && !value) {
    auto written = state.table<ClassWrites>().values.find({type, name});
    if (written != state.table<ClassWrites>().values.end()) {
      plain = written->second.get() != deleted_marker();
    } else {
      FJ_TRY(PyObject * own, own_attribute(state, object, name));
      plain = own != nullptr;
    }
  }
  if (!plain) {
    return state.make_break(BreakReason::kUnsupportedWrite,
                            class_attribute(type, name));
  }
  state.pin(type);
  state.keep_alive(type);
  state.keep_alive(name);
  state.table<ClassWrites>().values[{type, name}] =
      value ? Ref::borrow(value) : Ref::borrow(deleted_marker());
  WriteLog::add(state, value ? Write::Kind::kAttrSet : Write::Kind::kAttrDel,
                type, name, value);
  return ok_status();
}

namespace {

Status write_attr(CaptureState& state, PyObject* object, PyObject* name,
                  PyObject* value) {
  PyTypeObject* type = Py_TYPE(object);
  if (value && is_opaque(value, OpaqueKind::kTraceback) &&
      PyExceptionInstance_Check(object) &&
      PyUnicode_CompareWithASCIIString(name, "__traceback__") == 0) {
    return set_traceback(state, object, value);
  }
  if (is_symbolic(state, object)) {
    FJ_TRY(Ref number, state.tracer.concretise(object));
    return native_set(state, number.get(), name, value);
  }
  if (is_stand_in(state, object)) {
    return write_tensor_attr(state, object, name, value);
  }
  if (is_fresh_class(state, object)) {
    FJ_TRY(Ref own, state.type_lookup(
                        type, interned(value ? "__setattr__" : "__delattr__")));
    if (own && PyFunction_Check(own.get())) {
      std::vector<PyObject*> args{object, name};
      if (value) args.push_back(value);
      FJ_CHECK_OK(state.caller.call(own.get(), args));
      return ok_status();
    }
    FJ_CHECK_OK(is_special_name(name) ? check_stored_in_c(state, name, value)
                                      : check_given_to_c(state, value));
    int failed = PyType_Type.tp_setattro(object, name, value);
    if (failed < 0) return Status::raised();
    state.table<TypeLookups>().found.clear();
    return ok_status();
  }
  const char* hook = value ? "__setattr__" : "__delattr__";
  FJ_TRY(Ref raw, state.type_lookup(type, interned(hook)));
  if (PyType_Check(object) && raw &&
      Py_IS_TYPE(raw.get(), &PyWrapperDescr_Type) &&
      PyDescr_TYPE(raw.get()) == &PyType_Type) {
    return set_class_attr(state, object, name, value);
  }
  if (raw && (PyFunction_Check(raw.get()) || has_other_name(raw.get(), hook))) {
    std::vector<PyObject*> args{object, name};
    if (value) args.push_back(value);
    FJ_CHECK_OK(state.caller.call(raw.get(), args));
    return ok_status();
  }
  bool modelled =
      raw && Py_IS_TYPE(raw.get(), &PyWrapperDescr_Type) &&
      PyDescr_TYPE(raw.get())->tp_setattro == PyObject_GenericSetAttr;
  if (modelled) return generic_set_attr(state, object, name, value);
  if (PyType_Check(object)) {
    return state.make_break(BreakReason::kUnsupportedWrite,
                            class_attribute(object, name));
  }
  if (state.is_input(object)) {
    return state.make_break(BreakReason::kUnsupportedWrite,
                            attribute_text(type, name));
  }
  FJ_CHECK_OK(check_stored_in_c(state, name, value));
  if (PyObject_SetAttr(object, name, value) < 0) return Status::raised();
  return ok_status();
}

}  // namespace

Status CaptureState::set_attr(PyObject* object, PyObject* name,
                              PyObject* value) {
  return write_attr(*this, object, name, value);
}

Status CaptureState::del_attr(PyObject* object, PyObject* name) {
  return write_attr(*this, object, name, nullptr);
}

}  // namespace framejit::bytecode
