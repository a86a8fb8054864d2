#include "bytecode/objects/classes.h"
#include "bytecode/objects/breaks.h"
#include "bytecode/objects/write_log.h"

#include "bytecode/objects/fact_object.h"
#include "bytecode/objects/late_reads.h"
#include "bytecode/objects/native_calls.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/unbuildable.h"
#include "guards/known_objects.h"
#include "guards/set/evaluate.h"

#include <cstring>

namespace framejit::bytecode {

namespace {

// Made by a class statement (or type()), not by C code.
bool is_python_class(PyTypeObject* type) {
  static const destructor python_dealloc =
      reinterpret_cast<PyTypeObject*>(capture_break_type())->tp_dealloc;
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) &&
         type->tp_dealloc == python_dealloc;
}

}  // namespace

// Native methods and slots of C never need an origin of their own.
bool needs_pin(PyObject* raw) {
  return !Py_IS_TYPE(raw, &PyMethodDescr_Type) &&
         !Py_IS_TYPE(raw, &PyWrapperDescr_Type) &&
         !Py_IS_TYPE(raw, &PyGetSetDescr_Type) &&
         !Py_IS_TYPE(raw, &PyMemberDescr_Type) &&
         !Py_IS_TYPE(raw, &PyClassMethodDescr_Type);
}

bool is_heap_type(PyTypeObject* type) {
  return (type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 &&
         (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) == 0;
}

PyObject* raw_lookup(PyTypeObject* type, const char* name) {
  PyObject* text = interned(name);
  return text ? _PyType_Lookup(type, text) : nullptr;
}

PyTypeObject* solid_base(PyTypeObject* type) {
  while (type->tp_base && is_python_class(type)) type = type->tp_base;
  return type;
}

bool has_other_name(PyObject* raw, const char* name) {
  if (Py_IS_TYPE(raw, &PyWrapperDescr_Type)) {
    return std::strcmp(
               reinterpret_cast<PyWrapperDescrObject*>(raw)->d_base->name,
               name) != 0;
  }
  return Py_IS_TYPE(raw, &PyMethodDescr_Type) &&
         std::strcmp(
             reinterpret_cast<PyMethodDescrObject*>(raw)->d_method->ml_name,
             name) != 0;
}

bool is_fresh_class(CaptureState& state, PyObject* type) {
  if (!PyType_Check(type)) return false;
  if (state.table<Unbuildable>().made.contains(type)) return true;
  PyObject* bases = reinterpret_cast<PyTypeObject*>(type)->tp_bases;
  for (PyObject* made : state.table<ClassesInMaking>().bases) {
    if (made == bases) return true;
  }
  return false;
}

Status guard_abc_registry(CaptureState& state) {
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
  return ok_status();
}

bool wraps_functions(PyObject* object) {
  return Py_IS_TYPE(object, &PyProperty_Type) ||
         Py_IS_TYPE(object, &PyClassMethod_Type) ||
         Py_IS_TYPE(object, &PyStaticMethod_Type);
}

const Source* class_source(CaptureState& state, PyTypeObject* type,
                           PyObject* name) {
  SourceArena& sources = state.guards.sources();
  return sources.make(SourceKind::kTypeAttr,
                      sources.constant(reinterpret_cast<PyObject*>(type)),
                      name);
}

bool is_dynamic_class_number(CaptureState& state, PyObject* value,
                             PyTypeObject* type, PyObject* name) {
  const auto* known = state.request.dynamic_numbers;
  bool number =
      value && (PyLong_CheckExact(value) || PyFloat_CheckExact(value));
  if (!number || !known || known->empty() || state.request.dynamic == 0 ||
      !is_heap_type(type)) {
    return false;
  }
  PyObject* code = PyFunction_GetCode(state.request.function);
  return known->contains(source_text(class_source(state, type, name), code));
}

bool is_changed_here(CaptureState& state, PyTypeObject* type, PyObject* name) {
  if (is_fresh_class(state, as_object(type))) return true;
  const auto& writes = state.table<ClassWrites>().values;
  PyObject* mro = type->tp_mro;
  for (Py_ssize_t i = 0; !writes.empty() && i < PyTuple_GET_SIZE(mro); ++i)
    if (writes.contains({PyTuple_GET_ITEM(mro, i), name})) return true;
  return false;
}

Result<PyObject*> own_attribute(CaptureState& state, PyTypeObject* type,
                                PyObject* name) {
  PyObject* object = as_object(type);
  Ref dict = own_dict(type);
  PyObject* own = dict ? PyDict_GetItemWithError(dict.get(), name) : nullptr;
  if (PyErr_Occurred()) return Result<PyObject*>::raised();
  if (!is_heap_type(type) || is_fresh_class(state, object)) return own;
  auto [known, is_new] = state.table<TypeLookups>().own.try_emplace(
      ObjectPair{object, name}, Ref::borrow(own));
  if (!is_new) return known->second.get();
  state.keep_alive(object);
  state.keep_alive(name);
  Guard fact{GuardKind::kTypeOwns};
  fact.source = state.guards.sources().constant(object);
  fact.object = Ref::borrow(name);
  fact.number = own ? 1 : 0;
  fact.span = state.caller.here();
  state.guards.add(std::move(fact));
  return own;
}

namespace {

// What the program's classes say, when the call begins.
Result<Ref> original_lookup(CaptureState& state, PyTypeObject* type,
                            PyObject* name) {
  PyObject* type_object = as_object(type);
  auto& found = state.table<TypeLookups>().found;
  auto known = found.find({type_object, name});
  if (known != found.end()) return known->second;
  PyObject* raw = _PyType_Lookup(type, name);
  if (is_heap_type(type) && is_dynamic_class_number(state, raw, type, name)) {
    state.guard(GuardKind::kTypeIs, class_source(state, type, name),
                reinterpret_cast<PyObject*>(Py_TYPE(raw)));
  } else if (is_heap_type(type)) {
    Guard fact{GuardKind::kTypeAttrIs};
    fact.source = state.guards.sources().constant(type_object);
    fact.object = Ref::borrow(name);
    fact.object2 = Ref::borrow(raw);
    fact.span = state.caller.here();
    state.guards.add(std::move(fact));
  }
  Ref result = Ref::borrow(raw);
  state.keep_alive(type_object);
  state.keep_alive(name);
  found.emplace(ObjectPair{type_object, name}, result);
  if (raw && needs_pin(raw) && (is_heap_type(type) || PyFunction_Check(raw)) &&
      state.tracer.classify(raw) == ObjectClass::kPlain &&
      !PyTuple_Check(raw)) {
    // An entry that named a property as a constant would keep its class.
    if (wraps_functions(raw) && !state.source_of(raw)) {
      state.register_input(raw, class_source(state, type, name));
    } else {
      FJ_CHECK_OK(state.pin_value(raw));
    }
  }
  return result;
}

Result<Ref> read_class(CaptureState& state, PyTypeObject* type,
                       PyObject* name) {
  if (!is_changed_here(state, type, name))
    return original_lookup(state, type, name);
  FJ_TRY(ClassPlace place, find_place(state, type, name));
  return place.value;
}

}  // namespace

// What the bases of a class of this capture say is no fact of the program, what
// the others say is.
Result<ClassPlace> find_place(CaptureState& state, PyTypeObject* type,
                              PyObject* name, Py_ssize_t start) {
  PyObject* mro = type->tp_mro;
  const auto& writes = state.table<ClassWrites>().values;
  const bool fresh_type = is_fresh_class(state, as_object(type));
  guard_mro(state, as_object(type));
  for (Py_ssize_t i = start; i < PyTuple_GET_SIZE(mro); ++i) {
    PyObject* base = PyTuple_GET_ITEM(mro, i);
    auto* base_type = reinterpret_cast<PyTypeObject*>(base);
    if (fresh_type) guard_mro(state, base);
    auto written = writes.find({base, name});
    if (written != writes.end()) {
      if (written->second.get() == deleted_marker()) continue;
      return ClassPlace{base_type, written->second, /*made_here=*/true};
    }
    FJ_TRY(PyObject * own, own_attribute(state, base_type, name));
    if (!own) continue;
    const bool fresh = is_fresh_class(state, base);
    ClassPlace place{base_type, Ref::borrow(own), fresh};
    if (!fresh) FJ_CHECK_OK(original_lookup(state, base_type, name));
    return place;
  }
  return ClassPlace{};
}

Result<Ref> CaptureState::type_lookup(PyTypeObject* type, PyObject* name) {
  FJ_TRY(Ref value, read_class(*this, type, name));
  if (reads_late(*this)) note_late_attribute(*this, type, name, value.get());
  return value;
}

Result<bool> replaces_plain_attribute(CaptureState& state, PyTypeObject* type,
                                      PyObject* name) {
  auto looked_up =
      state.table<TypeLookups>().found.find({as_object(type), name});
  Ref dict = own_dict(type);
  PyObject* own = dict ? PyDict_GetItem(dict.get(), name) : nullptr;
  // A function, a class: what is looked up is known by itself.
  if (!own || looked_up != state.table<TypeLookups>().found.end() ||
      is_fresh_class(state, as_object(type)) ||
      state.table<ClassWrites>().values.contains({as_object(type), name}) ||
      Py_TYPE(own)->tp_descr_get || Py_TYPE(own)->tp_descr_set ||
      PyType_Check(own))
    return false;
  Ref keep = Ref::borrow(own);
  state.keep_alive(as_object(type));
  state.keep_alive(name);
  state.guard(GuardKind::kTypeIs, class_source(state, type, name),
              reinterpret_cast<PyObject*>(Py_TYPE(own)));
  if (!is_heap_type(Py_TYPE(own))) return true;
  for (const char* hook : {"__get__", "__set__", "__delete__"}) {
    FJ_TRY(Ref descriptor, state.type_lookup(Py_TYPE(own), interned(hook)));
    FJ_CHECK(!descriptor, "a descriptor without a slot");
  }
  return true;
}

void guard_metaclass(CaptureState& state, PyObject* type) {
  if (!PyType_Check(type) || !is_heap_type(Py_TYPE(type)) ||
      is_fresh_class(state, type))
    return;
  // Once for each class, as in guard_mro().
  auto [known, is_new] = state.table<TypeLookups>().found.try_emplace(
      ObjectPair{type, interned("<metaclass>")}, Ref());
  if (!is_new) return;
  state.keep_alive(type);
  state.guard(GuardKind::kTypeIs, state.guards.sources().constant(type),
              as_object(Py_TYPE(type)));
}

void guard_mro(CaptureState& state, PyObject* type) {
  if (!is_heap_type(reinterpret_cast<PyTypeObject*>(type)) ||
      is_fresh_class(state, type)) {
    return;
  }
  // Once for each class: no attribute is looked up by this name.
  auto [known, is_new] = state.table<TypeLookups>().found.try_emplace(
      ObjectPair{type, interned("<mro>")}, Ref());
  if (!is_new) return;
  state.keep_alive(type);
  Guard fact{GuardKind::kTypeAttrIs};
  fact.source = state.guards.sources().constant(type);
  fact.object = Ref::borrow(interned("__mro__"));
  fact.object2 = mro_addresses(reinterpret_cast<PyTypeObject*>(type));
  FJ_CHECK(fact.object2, "no memory");
  fact.span = state.caller.here();
  state.guards.add(std::move(fact));
}

namespace {

class ClassNamesFact final : public Fact {
 public:
  Ref type;  // a weak reference
  Ref read(FactName) override {
    Ref known = Ref::steal(PyObject_CallNoArgs(type.get()));
    if (!known || !PyType_Check(known.get())) return Ref();
    Ref dict = own_dict(reinterpret_cast<PyTypeObject*>(known.get()));
    Ref names = Ref::steal(dict ? PyDict_Keys(dict.get()) : nullptr);
    return Ref::steal(names ? PyList_AsTuple(names.get()) : nullptr);
  }
};

}  // namespace

Result<Ref> class_names(CaptureState& state, PyTypeObject* type) {
  for (const auto& [place, value] : state.table<ClassWrites>().values) {
    if (place.first == as_object(type)) {
      return written_class_dict(state);
    }
  }
  auto fact = std::make_unique<ClassNamesFact>();
  FJ_TRY(fact->type, from_api(PyWeakref_NewRef(as_object(type), nullptr)));
  FJ_TRY(Ref object, make_fact(std::move(fact)));
  FJ_TRY(Ref names,
         from_api(read_fact(object.get(), FactName::class_names).release()));
  if (is_heap_type(type) && !is_fresh_class(state, as_object(type))) {
    if (!is_builtin_constant(names.get())) {
      return state.make_break(BreakReason::kUnguardableInput,
                              "a class dict with other keys than names");
    }
    state.guard(GuardKind::kEquals,
                fact_source(state, object.get(), FactName::class_names),
                names.get());
  }
  return names;
}

}  // namespace framejit::bytecode
