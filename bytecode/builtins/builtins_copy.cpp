// object.__reduce_ex__, which copy.copy, copy.deepcopy and dataclasses.asdict
// are made of: an object as a recipe, from attributes that are read like any
// others.
#include "bytecode/builtins/builtins.h"
#include "bytecode/objects/attributes.h"
#include "bytecode/objects/builtin_types.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/own_items.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

namespace {

bool is_default(PyObject* raw, PyTypeObject* owner) {
  return !raw ||
         (Py_IS_TYPE(raw, &PyMethodDescr_Type) && PyDescr_TYPE(raw) == owner);
}

// A layout that __newobj__ and a state make again.
bool can_be_remade(PyTypeObject* base) {
  static constexpr bool kRemade[] = {
#define FJ_TYPE(name, type, parts, identity, prepare, shadow, iterate, \
                rebuild, make, fill, new_takes, init_takes, remade)    \
  remade,
#include "bytecode/objects/builtin_types.def"
  };
  return kRemade[size_t(builtin_type(base))];
}

Result<Ref> new_arguments(CaptureState& state, PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  FJ_TRY(Ref extended, state.type_lookup(type, interned("__getnewargs_ex__")));
  if (extended) {
    return state.make_break(BreakReason::kUnsupportedAttribute,
                            "__getnewargs_ex__");
  }
  FJ_TRY(Ref raw, state.type_lookup(type, interned("__getnewargs__")));
  if (!raw) return from_api(PyTuple_New(0));
  if (PyFunction_Check(raw.get())) {
    return state.caller.call(raw.get(), {self});
  }
  if (PyTuple_Check(self)) {
    // (tuple.__getnewargs__ asks for no `__iter__`.)
    Ref items = own_items(self);
    Ref tuple = Ref::steal(items ? PyList_AsTuple(items.get()) : nullptr);
    if (!tuple) return Result<Ref>::raised();
    return from_api(PyTuple_Pack(1, tuple.get()));
  }
  FJ_TRY(Ref plain, plain_scalar(self));
  return from_api(PyTuple_Pack(1, plain.get()));
}

// The names of __slots__ of all bases.
Result<Ref> slot_values(CaptureState& state, PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  Ref values = Ref::steal(PyDict_New());
  if (!values) return Result<Ref>::raised();
  PyObject* mro = type->tp_mro;
  for (Py_ssize_t i = PyTuple_GET_SIZE(mro) - 1; i >= 0; --i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    if (!is_heap_type(base)) continue;
    Ref dict = own_dict(base);
    Py_ssize_t position = 0;
    PyObject *name, *raw;
    std::vector<Ref> names;
    while (PyDict_Next(dict.get(), &position, &name, &raw)) {
      if (Py_IS_TYPE(raw, &PyMemberDescr_Type)) {
        names.push_back(Ref::borrow(name));
      }
    }
    for (const Ref& slot : names) {
      Result<Ref> value = maybe_attr(state, self, slot.get());
      if (!value.ok()) return value;
      if (!value.value()) continue;
      if (PyDict_SetItem(values.get(), slot.get(), value.value().get()) < 0) {
        return Result<Ref>::raised();
      }
    }
  }
  return values;
}

Result<Ref> state_of(CaptureState& state, PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  FJ_TRY(Ref raw, state.type_lookup(type, interned("__getstate__")));
  if (raw && PyFunction_Check(raw.get())) {
    return state.caller.call(raw.get(), {self});
  }
  if (!is_default(raw.get(), &PyBaseObject_Type)) {
    return state.make_break(BreakReason::kUnsupportedAttribute,
                            std::string("__getstate__ of ") + type->tp_name);
  }
  Ref content = Ref::borrow(Py_None);
  FJ_TRY(Ref dict, state.instance_dict(self));
  if (dict) {
    FJ_TRY(Ref size, state.length(dict.get()));
    FJ_TRY(bool filled, state.truth(size.get()));
    if (filled) content = dict;
  }
  FJ_TRY(Ref slots, slot_values(state, self));
  if (PyDict_GET_SIZE(slots.get()) == 0) return content;
  return from_api(PyTuple_Pack(2, content.get(), slots.get()));
}

}  // namespace

// Constants are their own copies; the rest is copy.deepcopy's Python code.
Result<Ref> model_deepcopy(BuiltinCall& call) {
  if (call.args.empty() || !is_builtin_constant(call.args[0])) return Ref();
  return Ref::borrow(call.args[0]);
}

// The tuple itself when no item changed: a question of identity, which the
// Python code asks of constants, too.
Result<Ref> model_deepcopy_tuple(BuiltinCall& call) {
  if (!call.plain(2, 2) || !PyTuple_CheckExact(call.args[0])) return Ref();
  CaptureState& state = call.state;
  PyObject* self = call.args[0];
  PyObject* deepcopy = library_object("copy", "deepcopy");
  PyObject* identity = library_object("builtins", "id");
  Py_ssize_t size = PyTuple_GET_SIZE(self);
  Ref made = Ref::steal(PyTuple_New(size));
  if (!made || !deepcopy) return Result<Ref>::raised();
  bool changed = false;
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* item = PyTuple_GET_ITEM(self, i);
    FJ_TRY(Ref copy, state.caller.call(deepcopy, {item, call.args[1]}));
    changed |= state.unshadow(copy.get()) != state.unshadow(item);
    PyTuple_SET_ITEM(made.get(), i, copy.release());
  }
  // A list in it may have led back here.
  FJ_TRY(Ref key, state.caller.call(identity, {self}));
  FJ_TRY(Ref known, state.dict_get(call.args[1], key.get()));
  if (known) return known;
  return changed ? made : Ref::borrow(self);
}

Result<Ref> model_reduce_ex(BuiltinCall& call) {
  CaptureState& state = call.state;
  if (!call.plain(2, 2) || !PyLong_CheckExact(call.args[1]) ||
      PyLong_AsLong(call.args[1]) < 2) {
    return call.unknown();
  }
  PyObject* self = call.args[0];
  if (state.tracer.classify(self) != ObjectClass::kPlain ||
      PyType_Check(self)) {
    return call.unknown();
  }
  PyTypeObject* type = Py_TYPE(self);
  FJ_TRY(Ref reduce, state.type_lookup(type, interned("__reduce__")));
  if (reduce && PyFunction_Check(reduce.get())) {
    return state.caller.call(reduce.get(), {self});
  }
  if (!is_default(reduce.get(), &PyBaseObject_Type)) {
    // Containers and exceptions of C say what they hold, one level deep.
    bool shallow = is_container(self) || PyAnySet_Check(self) ||
                   (PyExceptionInstance_Check(self) && !state.is_input(self));
    if (!shallow || is_heap_type(type)) return call.unknown();
    Ref visible = Ref::borrow(self);
    if (is_container(self)) {
      FJ_TRY(visible, state.shadow(self));
    }
    PyObject* value = visible.get();
    return state.after_native(
        PyObject_Vectorcall(reduce.get(), &value, 1, nullptr));
  }
  if (!can_be_remade(solid_base(type))) return call.unknown();
  FJ_TRY(Ref args, new_arguments(state, self));
  if (!PyTuple_CheckExact(args.get())) return call.unknown();
  FJ_TRY(Ref content, state_of(state, self));
  Ref items = Ref::borrow(Py_None), pairs = Ref::borrow(Py_None);
  if (PyList_Check(self)) {
    FJ_TRY(items, state.iter(self));
  }
  if (PyDict_Check(self)) {
    FJ_TRY(Ref method, state.get_attr(self, interned("items")));
    FJ_TRY(Ref view, state.caller.call(method.get(), {}));
    FJ_TRY(pairs, state.iter(view.get()));
  }
  Ref full = Ref::steal(PyTuple_New(PyTuple_GET_SIZE(args.get()) + 1));
  if (!full) return Result<Ref>::raised();
  PyTuple_SET_ITEM(full.get(), 0, Py_NewRef(as_object(type)));
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args.get()); ++i) {
    PyTuple_SET_ITEM(full.get(), i + 1,
                     Py_NewRef(PyTuple_GET_ITEM(args.get(), i)));
  }
  PyObject* make = library_object("copyreg", "__newobj__");
  if (!make) return Result<Ref>::raised();
  return from_api(PyTuple_Pack(5, make, full.get(), content.get(), items.get(),
                               pairs.get()));
}

}  // namespace framejit::bytecode
