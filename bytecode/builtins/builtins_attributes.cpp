// Builtins about attributes: by name, all names of an object, super(), and the
// methods of object and type that they end in.
#include "bytecode/builtins/builtins.h"
#include "bytecode/objects/attributes.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/exceptions.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/opaque_value.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

namespace {

// A str with one identity, as CPython makes it for attribute names.
Ref attribute_name(PyObject* name) {
  PyObject* text = Py_NewRef(name);
  if (PyUnicode_CheckExact(text)) PyUnicode_InternInPlace(&text);
  return Ref::steal(text);
}

}  // namespace

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

Result<Ref> model_vars(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.unknown();
  FJ_TRY(Ref dict, maybe_attr(call.state, call.args[0], interned("__dict__")));
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
  if (is_foreign(state, object) || is_opaque(object)) return call.unknown();
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

Result<Ref> model_object_getattribute(BuiltinCall& call) {
  if (!call.plain(2, 2) || !PyUnicode_Check(call.args[1])) {
    return call.unknown();
  }
  PyObject* object = call.args[0];
  Ref name = attribute_name(call.args[1]);
  if (is_stand_in(call.state, object))
    return tensor_attr_of_object(call.state, object, name.get());
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
  if (call.plain(3, 3) && PyUnicode_Check(call.args[1]) &&
      is_stand_in(call.state, call.args[0])) {
    Ref name = attribute_name(call.args[1]);
    FJ_CHECK_OK(call.state.set_attr(call.args[0], name.get(), call.args[2]));
    return none();
  }
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
  if (call.plain(2, 2) && PyUnicode_Check(call.args[1]) &&
      is_stand_in(call.state, call.args[0])) {
    Ref name = attribute_name(call.args[1]);
    FJ_CHECK_OK(call.state.del_attr(call.args[0], name.get()));
    return none();
  }
  if (!call.plain(2, 2) || !PyUnicode_Check(call.args[1]) ||
      is_foreign(call.state, call.args[0]) || PyType_Check(call.args[0])) {
    return call.unknown();
  }
  Ref name = attribute_name(call.args[1]);
  FJ_CHECK_OK(generic_set_attr(call.state, call.args[0], name.get(), nullptr));
  return none();
}

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

}  // namespace framejit::bytecode
