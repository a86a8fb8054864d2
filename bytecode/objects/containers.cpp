// Items, membership, length, truth: reads of containers with narrow guards.
//
// One key read guards that key, an index guards that item, a length the length.
// A whole use makes a shadow: a fresh copy with wrapped contents on which C
// code may work; `originals` maps it back to the program's object.
#include "bytecode/objects/containers.h"

#include "bytecode/objects/attributes.h"
#include "bytecode/objects/breaks.h"
#include "bytecode/objects/builtin_types.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/compared_sequence.h"
#include "bytecode/objects/identity.h"
#include "bytecode/objects/keys.h"
#include "bytecode/objects/model_iterators.h"
#include "bytecode/objects/native_calls.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/opaque_value.h"
#include "bytecode/objects/origins.h"
#include "bytecode/objects/overrides.h"
#include "bytecode/objects/own_items.h"
#include "bytecode/objects/special_results.h"
#include "bytecode/objects/write_log.h"
#include "frame_hook/frame_eval.h"
#include "guards/known_objects.h"
#include "guards/set/set_table.h"

namespace framejit::bytecode {

void raise_key_error(PyObject* key) {
  Ref args = Ref::steal(PyTuple_Pack(1, key));
  if (args) PyErr_SetObject(PyExc_KeyError, args.get());
}

Result<Ref> concrete_index(CaptureState& state, PyObject* index) {
  if (!PySlice_Check(index)) return concrete_key(state, index);
  auto* slice = reinterpret_cast<PySliceObject*>(index);
  PyObject* parts[3] = {slice->start, slice->stop, slice->step};
  Ref concrete[3];
  bool changed = false;
  for (int i = 0; i < 3; ++i) {
    if (is_stand_in(state, parts[i])) {
      return state.make_break(BreakReason::kDataDependentValue,
                              "a tensor as a slice bound");
    }
    if (is_symbolic(state, parts[i])) {
      FJ_TRY(concrete[i], state.tracer.concretise(parts[i]));
      changed = true;
    } else {
      concrete[i] = Ref::borrow(parts[i]);
    }
  }
  if (!changed) return Ref::borrow(index);
  return from_api(
      PySlice_New(concrete[0].get(), concrete[1].get(), concrete[2].get()));
}

// (The class is guarded where it has no __index__.)
Result<Ref> sequence_index(CaptureState& state, Ref index) {
  FJ_CHECK_OK(room_for(state, "slices"));
  if (PySlice_Check(index.get())) {
    auto* slice = reinterpret_cast<PySliceObject*>(index.get());
    Ref parts[3] = {Ref::borrow(slice->start), Ref::borrow(slice->stop),
                    Ref::borrow(slice->step)};
    bool changed = false;
    for (Ref& part : parts) {
      PyObject* before = part.get();
      FJ_TRY(part, sequence_index(state, std::move(part)));
      changed |= part.get() != before;
    }
    if (!changed) return index;
    return from_api(
        PySlice_New(parts[0].get(), parts[1].get(), parts[2].get()));
  }
  if (PyLong_Check(index.get())) return index;
  FJ_TRY(Ref special, state.python_special(index.get(), "__index__"));
  if (!special) {
    // An object of C that answers (an array without dims) is read as it is now,
    // and no guard tells what it holds.
    PyNumberMethods* methods = Py_TYPE(index.get())->tp_as_number;
    bool answers = methods && methods->nb_index &&
                   state.tracer.classify(index.get()) == ObjectClass::kPlain;
    if (answers && !is_guarded_by_identity(index.get()))
      return unguardable(state, index.get(), "the value");
    return index;
  }
  FJ_TRY(Ref number, state.caller.call(special.get(), {index.get()}));
  FJ_TRY(number,
         checked_special(state, SpecialResult::kIndex, std::move(number)));
  return concrete_index(state, number.get());
}

namespace {

// Keys of an input container in iteration order, checked to be describable by
// a guard: constants, and objects guarded by identity.
Result<Ref> guarded_keys(CaptureState& state, PyObject* container,
                         const Source* source) {
  Ref keys = Ref::steal(PySequence_Tuple(container));
  if (!keys) return Result<Ref>::raised();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys.get()); ++i) {
    PyObject* key = PyTuple_GET_ITEM(keys.get(), i);
    if (state.is_constant(key)) continue;
    if (state.tracer.classify(key) != ObjectClass::kPlain ||
        !is_guarded_by_identity(key)) {
      return unguardable_key(state, key);
    }
    FJ_CHECK_OK(state.register_constant(key));
  }
  state.guard(GuardKind::kDictKeys, source, keys.get());
  return keys;
}

Result<Ref> new_dict_like(CaptureState& state, PyObject* dict) {
  PyTypeObject* type = Py_TYPE(dict);
  if (type == &PyDict_Type) return from_api(PyDict_New());
  if (type == &PyODict_Type) return from_api(PyODict_New());
  if (type == kDefaultDict.get()) {
    FJ_TRY(Ref factory, state.get_attr(dict, interned("default_factory")));
    return from_api(PyObject_CallOneArg(as_object(type), factory.get()));
  }
  FJ_TRY(Ref iterates, state.python_special(dict, "__iter__"));
  FJ_TRY(Ref lists, state.type_lookup(type, interned("keys")));
  if (iterates || (lists && PyFunction_Check(lists.get()))) {
    return unguardable(state, dict, "whole use");
  }
  PyTypeObject* base = PyODict_Check(dict) ? &PyODict_Type : &PyDict_Type;
  Ref args = Ref::steal(PyTuple_New(0));
  if (!args) return Result<Ref>::raised();
  Ref made = Ref::steal(base->tp_new(type, args.get(), nullptr));
  if (!made) return Result<Ref>::raised();
  auto* counting = reinterpret_cast<PyTypeObject*>(kDefaultDict.get());
  if (PyType_IsSubtype(type, counting)) {
    // It shows its factory. (Its own __init__ is not for a copy to run.)
    FJ_TRY(Ref factory, state.get_attr(dict, interned("default_factory")));
    Ref given = Ref::steal(PyTuple_Pack(1, factory.get()));
    if (!given || counting->tp_init(made.get(), given.get(), nullptr) < 0)
      return Result<Ref>::raised();
  }
  return made;
}

Status put(PyObject* dict, PyObject* key, PyObject* value) {
  int failed = PyODict_Check(dict) ? PyODict_SetItem(dict, key, value)
                                   : PyDict_SetItem(dict, key, value);
  return failed < 0 ? Status::raised() : ok_status();
}

Result<Ref> shadow_dict(CaptureState& state, PyObject* dict,
                        const Source* source) {
  FJ_TRY(Ref copy, new_dict_like(state, dict));
  FJ_TRY(Ref keys, guarded_keys(state, dict, source));
  SourceArena& sources = state.guards.sources();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys.get()); ++i) {
    PyObject* key = PyTuple_GET_ITEM(keys.get(), i);
    PyObject* value = PyDict_GetItemWithError(dict, key);
    if (!value) return unguardable(state, dict, "a changing key");
    const Source* item =
        source->kind == SourceKind::kInstanceDict && PyUnicode_CheckExact(key)
            ? sources.make(SourceKind::kInstanceAttr, source->base, key)
            : sources.make(SourceKind::kDictItem, source, key);
    FJ_TRY(Ref wrapped, state.wrap(value, item));
    FJ_CHECK_OK(put(copy.get(), key, wrapped.get()));
  }
  return copy;
}

Result<Ref> shadow_list(CaptureState& state, PyObject* list,
                        const Source* source) {
  Py_ssize_t size = PyList_GET_SIZE(list);
  FJ_TRY(Ref iterates, state.python_special(list, "__iter__"));
  if (iterates) return unguardable(state, list, "whole use");
  state.guard(GuardKind::kLength, source, nullptr, size);
  Ref args = Ref::steal(PyTuple_New(0));
  if (!args) return Result<Ref>::raised();
  FJ_TRY(Ref copy,
         from_api(PyList_Type.tp_new(Py_TYPE(list), args.get(), nullptr)));
  for (Py_ssize_t i = 0; i < size; ++i) {
    const Source* item =
        state.guards.sources().make(SourceKind::kListItem, source, nullptr, i);
    FJ_TRY(Ref wrapped, state.wrap(PyList_GET_ITEM(list, i), item));
    if (PyList_Append(copy.get(), wrapped.get()) < 0) {
      return Result<Ref>::raised();
    }
  }
  // As in a list that CPython is sorting: it shows whether anything was added.
  if (size == 0) {
    reinterpret_cast<PyListObject*>(copy.get())->allocated = kNoListStorage;
  }
  return copy;
}

Result<Ref> shadow_deque(CaptureState& state, PyObject* deque,
                         const Source* source) {
  if (!kDeque.is_type_of(deque)) {
    return unguardable(state, deque, "whole use");
  }
  Ref items = Ref::steal(PySequence_List(deque));
  if (!items) return Result<Ref>::raised();
  Py_ssize_t size = PyList_GET_SIZE(items.get());
  state.guard(GuardKind::kLength, source, nullptr, size);
  for (Py_ssize_t i = 0; i < size; ++i) {
    const Source* item =
        state.guards.sources().make(SourceKind::kDequeItem, source, nullptr, i);
    FJ_TRY(Ref wrapped, state.wrap(PyList_GET_ITEM(items.get(), i), item));
    PyList_SetItem(items.get(), i, wrapped.release());
  }
  FJ_TRY(Ref maxlen, state.get_attr(deque, interned("maxlen")));
  if (is_symbolic(state, maxlen.get())) {
    FJ_TRY(maxlen, state.tracer.concretise(maxlen.get()));
  }
  return from_api(
      PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(Py_TYPE(deque)),
                                   items.get(), maxlen.get(), nullptr));
}

Result<Ref> shadow_set(CaptureState& state, PyObject* set,
                       const Source* source) {
  if (!PySet_CheckExact(set)) return unguardable(state, set, "whole use");
  FJ_TRY(Ref keys, guarded_keys(state, set, source));
  Ref places = set_places(set);
  if (!places) return Result<Ref>::raised();
  state.guard(GuardKind::kSetTable, source, places.get());
  // In another table writes could give another order.
  return from_api(copy_set_table(set).release());
}

using Shadow = Result<Ref> (*)(CaptureState&, PyObject*, const Source*);
constexpr Shadow no_shadow = nullptr;
constexpr Shadow kShadows[] = {
#define FJ_TYPE(name, type, parts, identity, prepare, shadow, ...) shadow,
#include "bytecode/objects/builtin_types.def"
};

Shadow shadow_rule(PyObject* object) {
  return kShadows[size_t(builtin_base(Py_TYPE(object)))];
}

// ---- how a shadow gets a write made before it (write_kinds.def); -1: raised
int set_key(PyObject* copy, const Write& write) {
  return PyODict_Check(copy)
             ? PyODict_SetItem(copy, write.key.get(), write.value.get())
             : PyDict_SetItem(copy, write.key.get(), write.value.get());
}

int delete_key(PyObject* copy, const Write& write) {
  return PyODict_Check(copy) ? PyODict_DelItem(copy, write.key.get())
                             : PyDict_DelItem(copy, write.key.get());
}

int append_value(PyObject* copy, const Write& write) {
  return PyList_Append(copy, write.value.get());
}

int extend_by_value(PyObject* copy, const Write& write) {
  Py_ssize_t size = PyList_GET_SIZE(copy);
  return PyList_SetSlice(copy, size, size, write.value.get());
}

int add_key(PyObject* copy, const Write& write) {
  return PySet_Add(copy, write.key.get());
}

int made_on_shadow(PyObject*, const Write&) {
  FJ_CHECK(false, "a write that needs a shadow came before it");
  return -1;
}

int not_of_containers(PyObject*, const Write&) {
  FJ_CHECK(false, "no container is written to so");
  return -1;
}

// Repeats what was written to `container` before its shadow existed.
Status repeat_writes(CaptureState& state, PyObject* container, PyObject* copy) {
  static constexpr int (*kSeen[])(PyObject*, const Write&) = {
#define FJ_WRITE(name, part, change, goes, seen, ...) seen,
#include "bytecode/objects/write_kinds.def"
#undef FJ_WRITE
  };
  const auto& owners = state.table<InstanceDicts>().owners;
  auto owner = owners.find(container);
  PyObject* instance = owner == owners.end() ? nullptr : owner->second;
  for (const Write& write : state.table<WriteLog>().entries) {
    bool of_instance = write.part() == Write::Part::kAttributes;
    if (write.object.get() != (of_instance ? instance : container)) continue;
    if (kSeen[size_t(write.kind)](copy, write) < 0) return Status::raised();
  }
  return ok_status();
}

}  // namespace

bool is_container(PyObject* object) { return shadow_rule(object) != no_shadow; }

Result<Ref> CaptureState::shadow(PyObject* container) {
  FJ_CHECK_OK(room_for(*this, "containers"));
  const Source* source = source_of(container);
  if (!source) return Ref::borrow(container);
  ContainerState& entry = table<Containers>().states[container];
  if (entry.shadow) return entry.shadow;
  Shadow make = shadow_rule(container);
  if (make == no_shadow) return unguardable(*this, container, "whole use");
  FJ_TRY(Ref copy, make(*this, container, source));
  if (entry.written) FJ_CHECK_OK(repeat_writes(*this, container, copy.get()));
  entry.overlay.reset();
  entry.shadow = copy;
  keep_alive(copy.get());
  table<Origins>().originals[copy.get()] = container;
  return copy;
}

Status check_no_iter(CaptureState& state, PyObject* container) {
  FJ_TRY(Ref iterates, state.python_special(container, "__iter__"));
  if (!iterates) return ok_status();
  return unguardable(state, container, "a use that does not ask its __iter__");
}

Result<std::vector<Ref>> own_elements(CaptureState& state, PyObject* sequence) {
  FJ_CHECK_OK(check_no_iter(state, sequence));
  return state.elements(sequence);
}

// ---- items
PyObject* proxied(CaptureState& state, PyObject* object) {
  if (!Py_IS_TYPE(object, &PyDictProxy_Type)) return nullptr;
  auto found = state.table<Proxies>().dicts.find(object);
  return found == state.table<Proxies>().dicts.end() ? nullptr
                                                     : found->second.get();
}

namespace {

// Key look-up in C code would hash and compare it.
Status check_fresh_key(CaptureState& state, PyObject* container,
                       PyObject* key) {
  if (is_stand_in(state, key)) {
    return state.make_break(BreakReason::kDataDependentValue,
                            "a tensor as an index or key");
  }
  if (!PyDict_Check(container) && !PyAnySet_Check(container)) {
    return ok_status();
  }
  if (is_safe_key(state, key)) return ok_status();
  return unguardable_key(state, key);
}

Result<Ref> dict_missing(CaptureState& state, PyObject* dict, PyObject* key) {
  PyTypeObject* type = Py_TYPE(dict);
  if (type != &PyDict_Type && type != &PyODict_Type) {
    FJ_TRY(Ref hook, state.type_lookup(type, interned("__missing__")));
    if (hook && PyFunction_Check(hook.get())) {
      return state.caller.call(hook.get(), {dict, key});
    }
    if (hook) {  // collections.defaultdict
      FJ_TRY(Ref factory, state.get_attr(dict, interned("default_factory")));
      if (factory.get() != Py_None) {
        FJ_TRY(Ref value, state.caller.call(factory.get(), {}));
        FJ_CHECK_OK(state.dict_set(dict, key, value.get()));
        return value;
      }
    }
  }
  raise_key_error(key);
  return Result<Ref>::raised();
}

Result<Ref> list_item(CaptureState& state, PyObject* list, PyObject* index) {
  const Source* source = state.source_of(list);
  ContainerState& entry = state.table<Containers>().states[list];
  if (!entry.shadow && PyLong_CheckExact(index)) {
    Py_ssize_t i = PyLong_AsSsize_t(index);
    const bool is_huge = i == -1 && PyErr_Occurred();
    if (is_huge) PyErr_Clear();  // an IndexError below
    Py_ssize_t size = PyList_GET_SIZE(list);
    if (is_huge) i = size;
    if (i < 0 && !entry.written && i >= -size) {
      state.guard(GuardKind::kLength, source, nullptr, size);
      i += size;
    }
    if (i >= 0 && i < size) {
      return state.wrap(PyList_GET_ITEM(list, i),
                        state.guards.sources().make(SourceKind::kListItem,
                                                    source, nullptr, i));
    }
  }
  FJ_TRY(Ref copy, state.shadow(list));
  return from_api(PyObject_GetItem(copy.get(), index));
}

Result<Ref> class_item(CaptureState& state, PyObject* type, PyObject* key) {
  FJ_TRY(Ref hook, maybe_attr(state, type, interned("__class_getitem__")));
  if (!hook) {
    PyErr_Format(PyExc_TypeError, "type '%.200s' is not subscriptable",
                 reinterpret_cast<PyTypeObject*>(type)->tp_name);
    return Result<Ref>::raised();
  }
  // Callable[[int], str] is made by a class in Python around C code.
  bool known = type == library_object("collections.abc", "Callable");
  if (!known && (PyMethod_Check(hook.get()) || PyFunction_Check(hook.get()))) {
    return state.caller.call(hook.get(), {key});
  }
  PauseHook pause;
  FJ_TRY(Ref plain, prepare(state, key, Reads::kElements));
  return state.after_native(PyObject_GetItem(type, plain.get()));
}

// An index or a value for an item of a tensor: a symbolic number stays one.
Result<Ref> for_tensor(CaptureState& state, PyObject* object) {
  if (is_symbolic(state, object)) return Ref::borrow(object);
  return prepare(state, object, Reads::kElements);
}

}  // namespace

namespace {

// The library asks a list that is an index, or lies in one, when its class
// takes calls over. It may begin to, and what stands for it here is a plain
// list.
Status check_index_class(CaptureState& state, PyObject* key) {
  if (!PyList_Check(key) && !PyTuple_Check(key)) return ok_status();
  FJ_TRY(bool asked, is_overloaded(state, key));
  for (Py_ssize_t i = 0; !asked && i < PySequence_Fast_GET_SIZE(key); ++i) {
    PyObject* item = PySequence_Fast_GET_ITEM(key, i);
    if (!PyList_Check(item) && !PyTuple_Check(item)) continue;
    FJ_TRY(asked, is_overloaded(state, item));
  }
  if (!asked) return ok_status();
  return state.make_break(BreakReason::kTensorSubclass,
                          "an index that takes calls of the library over");
}

}  // namespace

Result<Ref> CaptureState::get_item(PyObject* object, PyObject* key) {
  FJ_CHECK_OK(room_for(*this, "objects"));
  if (PyObject* inner = proxied(*this, object)) return get_item(inner, key);
  if (is_foreign(*this, object)) {
    FJ_TRY(Ref own, python_special(object, "__getitem__"));
    if (own) return caller.call(own.get(), {object, key});
    FJ_CHECK_OK(check_index_class(*this, key));
    FJ_TRY(Ref plain, for_tensor(*this, key));
    PyObject* function = library_object("operator", "getitem");
    return operate(*this, function, {object, plain.get()});
  }
  FJ_TRY(Ref special, python_special(object, "__getitem__"));
  if (special) return caller.call(special.get(), {object, key});
  if (PyType_Check(object)) return class_item(*this, object, key);
  FJ_TRY(Ref index, concrete_index(*this, key));
  if (PyDict_Check(object)) {
    FJ_TRY(Ref value, dict_get(object, index.get()));
    if (value) return value;
    return dict_missing(*this, object, index.get());
  }
  auto class_dict = table<ClassDicts>().classes.find(object);
  if (class_dict != table<ClassDicts>().classes.end()) {
    FJ_TRY(Ref value, class_dict_get(*this, class_dict->second, key));
    if (value) return value;
    raise_key_error(key);
    return Result<Ref>::raised();
  }
  FJ_TRY(index, sequence_index(*this, std::move(index)));
  FJ_CHECK_OK(check_fresh_key(*this, object, index.get()));
  if (!is_input(object) || PyTuple_Check(object) || is_constant(object)) {
    return after_native(PyObject_GetItem(object, index.get()));
  }
  if (PyList_Check(object)) return list_item(*this, object, index.get());
  if (is_container(object)) {
    FJ_TRY(Ref copy, shadow(object));
    return from_api(PyObject_GetItem(copy.get(), index.get()));
  }
  if (is_guarded_by_identity(object) &&
      (PyUnicode_Check(object) || PyBytes_Check(object))) {
    return from_api(PyObject_GetItem(object, index.get()));
  }
  if (!Py_TYPE(object)->tp_as_mapping && !Py_TYPE(object)->tp_as_sequence) {
    return from_api(PyObject_GetItem(object, index.get()));  // TypeError
  }
  return unguardable(*this, object, "an item");
}

Status CaptureState::set_item(PyObject* object, PyObject* key,
                              PyObject* value) {
  if (is_foreign(*this, object)) {
    FJ_TRY(Ref own, python_special(object, "__setitem__"));
    if (own) {
      FJ_CHECK_OK(caller.call(own.get(), {object, key, value}));
      return ok_status();
    }
    FJ_CHECK_OK(check_index_class(*this, key));
    FJ_TRY(Ref plain, for_tensor(*this, key));
    FJ_TRY(Ref content, for_tensor(*this, value));
    PyObject* function = library_object("operator", "setitem");
    FJ_CHECK_OK(operate(*this, function, {object, plain.get(), content.get()}));
    return ok_status();
  }
  FJ_TRY(Ref special, python_special(object, "__setitem__"));
  if (special) {
    FJ_CHECK_OK(caller.call(special.get(), {object, key, value}));
    return ok_status();
  }
  FJ_TRY(Ref index, concrete_index(*this, key));
  if (PyDict_Check(object)) return dict_set(object, index.get(), value);
  FJ_TRY(index, sequence_index(*this, std::move(index)));
  FJ_CHECK_OK(check_fresh_key(*this, object, index.get()));
  if (!is_input(object)) {
    Ref iterable = Ref::borrow(value);
    if (PySlice_Check(index.get())) {
      FJ_TRY(iterable, native_iterable(*this, value));
    }
    if (PyObject_SetItem(object, index.get(), iterable.get()) < 0) {
      FJ_CHECK_OK(after_native(nullptr));
    }
    return ok_status();
  }
  if (!is_container(object) || PySet_Check(object)) {
    return unsupported_item(*this, object);
  }
  FJ_TRY(Ref copy, shadow(object));
  Ref stored = Ref::borrow(value);
  bool slice = PySlice_Check(index.get());
  if (slice) {
    FJ_TRY(stored, native_iterable(*this, value));
  }
  if (PyObject_SetItem(copy.get(), index.get(), stored.get()) < 0) {
    FJ_CHECK_OK(after_native(nullptr));
  }
  table<Containers>().states[object].written = true;
  // An item set leaves the iterators of a deque valid.
  if (slice || (!PyList_CheckExact(object) && !kDeque.is_type_of(object))) {
    WriteLog::replace_content(*this, object);
  } else {
    WriteLog::add(*this, Write::Kind::kItemSet, object, index.get(), value);
  }
  return ok_status();
}

Status CaptureState::del_item(PyObject* object, PyObject* key) {
  if (is_foreign(*this, object)) {
    return make_break(BreakReason::kUnsupportedWrite,
                      "deletes an item of a tensor");
  }
  FJ_TRY(Ref special, python_special(object, "__delitem__"));
  if (special) {
    FJ_CHECK_OK(caller.call(special.get(), {object, key}));
    return ok_status();
  }
  FJ_TRY(Ref index, concrete_index(*this, key));
  if (PyDict_Check(object)) return dict_del(object, index.get());
  FJ_TRY(index, sequence_index(*this, std::move(index)));
  FJ_CHECK_OK(check_fresh_key(*this, object, index.get()));
  if (!is_input(object)) {
    if (PyObject_DelItem(object, index.get()) < 0) return Status::raised();
    return ok_status();
  }
  if (!is_container(object)) {
    return unsupported_item(*this, object);
  }
  FJ_TRY(Ref copy, shadow(object));
  if (PyObject_DelItem(copy.get(), index.get()) < 0) return Status::raised();
  WriteLog::replace_content(*this, object);
  return ok_status();
}

Result<bool> CaptureState::contains(PyObject* container, PyObject* item) {
  FJ_CHECK_OK(room_for(*this, "objects"));
  if (PyObject* inner = proxied(*this, container)) return contains(inner, item);
  if (is_foreign(*this, container)) {
    return make_break(BreakReason::kDataDependentValue, "`in` a tensor");
  }
  FJ_TRY(Ref special, python_special(container, "__contains__"));
  if (special) {
    FJ_TRY(Ref answer, caller.call(special.get(), {container, item}));
    return truth(answer.get());
  }
  auto class_dict = table<ClassDicts>().classes.find(container);
  if (class_dict != table<ClassDicts>().classes.end()) {
    FJ_TRY(Ref value, class_dict_get(*this, class_dict->second, item));
    return static_cast<bool>(value);
  }
  if (PyDict_Check(container)) {
    FJ_TRY(Ref key, concrete_key(*this, item));
    const Source* source = source_of(container);
    auto entry = table<Containers>().states.find(container);
    bool plain = source && entry == table<Containers>().states.end();
    if (plain && is_safe_key(*this, key.get())) {
      int has = PyDict_Contains(container, key.get());
      if (has < 0) return Result<bool>::raised();
      if (has && source->kind == SourceKind::kInstanceDict) {
        guard(GuardKind::kExists,
              guards.sources().make(SourceKind::kInstanceAttr, source->base,
                                    key.get()));
        return true;
      }
      if (has) {
        guard(GuardKind::kHasKey, source, key.get());
        return true;
      }
    }
    FJ_TRY(Ref value, dict_get(container, key.get()));
    return static_cast<bool>(value);
  }
  auto* sequence = Py_TYPE(container)->tp_as_sequence;
  if (sequence && sequence->sq_contains) {
    FJ_CHECK_OK(check_no_iter(*this, container));
  }
  FJ_TRY(Ref iterates, python_special(container, "__iter__"));
  if (PyList_Check(container) || PyTuple_Check(container)) {
    // Identity first, then ==, as CPython does, element by element.
    FJ_TRY(std::vector<Ref> items, elements(container));
    const ComparedSequence walk(*this, container);
    for (const Ref& element : items) {
      FJ_TRY(bool found, is_same_or_equal(*this, element.get(), item));
      if (found) return true;
      FJ_CHECK_OK(walk.check());
    }
    return false;
  }
  if (!iterates && !Py_TYPE(container)->tp_iter) {
    FJ_TRY(iterates, python_special(container, "__getitem__"));
  }
  if (iterates) {
    FJ_TRY(Ref iterator, iter(container));
    while (true) {
      FJ_TRY(Ref element, next(iterator.get()));
      if (!element) return false;
      FJ_TRY(bool found, is_same_or_equal(*this, element.get(), item));
      if (found) return true;
    }
  }
  if (PyAnySet_Check(container) && !is_input(container) &&
      note_tensor_key(*this, item)) {
    PauseHook pause;  // its __hash__ is the library's own
    int found = PySet_Contains(container, item);
    if (found < 0) FJ_CHECK_OK(after_native(nullptr));
    return found == 1;
  }
  if (PyAnySet_Check(container) && !is_input(container) &&
      is_opaque(item, OpaqueKind::kIdentity)) {
    int found = PySet_Contains(container, item);
    if (found < 0) FJ_CHECK_OK(after_native(nullptr));
    return found == 1;
  }
  if (PyAnySet_Check(container) && !is_input(container) &&
      is_identity_key(*this, item)) {
    Ref items = own_items(container);
    if (!items) return Result<bool>::raised();
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
      FJ_TRY(bool same, is_same(PyList_GET_ITEM(items.get(), i), item));
      if (same) return true;
    }
    return false;
  }
  FJ_TRY(Ref whole, prepare(*this, container, Reads::kElements));
  FJ_TRY(Ref needle, prepare(*this, item, Reads::kCompares));
  FJ_CHECK_OK(check_fresh_key(*this, whole.get(), needle.get()));
  int found = PySequence_Contains(whole.get(), needle.get());
  if (found < 0) {
    FJ_CHECK_OK(after_native(nullptr));
  }
  return found == 1;
}

namespace {

// What append() and extend() will have added to a list of the program that is
// not looked at otherwise.
Py_ssize_t items_added(CaptureState& state, PyObject* list) {
  Py_ssize_t count = 0;
  for (const Write& write : state.table<WriteLog>().entries) {
    if (write.object.get() != list) continue;
    if (write.kind == Write::Kind::kAppend) ++count;
    if (write.kind == Write::Kind::kExtend)
      count += PyList_GET_SIZE(write.value.get());
  }
  return count;
}

// Of a container that has not been copied.
Result<Ref> length_of_input(CaptureState& state, PyObject* container,
                            const Source* source, bool written) {
  Py_ssize_t size = PyObject_Size(container);
  if (size < 0) return Result<Ref>::raised();
  Ref added;
  if (written) {
    added = Ref::steal(PyLong_FromSsize_t(items_added(state, container)));
    if (!added) return Result<Ref>::raised();
  }
  FJ_TRY(Ref symbol, dynamic_length(state, source, size));
  if (symbol && !written) return symbol;
  PyObject* add = library_object("operator", "add");
  if (symbol) return state.tracer.operate(add, {symbol.get(), added.get()});
  state.guard(GuardKind::kLength, source, nullptr, size);
  if (written) size += PyLong_AsSsize_t(added.get());
  return from_api(PyLong_FromSsize_t(size));
}

}  // namespace

Result<Ref> CaptureState::length(PyObject* object) {
  FJ_CHECK_OK(room_for(*this, "objects"));
  if (PyObject* inner = proxied(*this, object)) return length(inner);
  if (is_foreign(*this, object)) {
    // len() itself answers with a plain int: it would guard the size.
    if (is_stand_in(*this, object)) {
      FJ_TRY(Ref answer, call_tensor_special(*this, object, "__len__"));
      if (answer) return answer;
      Ref name = Ref::steal(PyUnicode_InternFromString("shape"));
      if (!name) return Result<Ref>::raised();
      FJ_TRY(Ref shape, get_attr(object, name.get()));
      if (PyTuple_Check(shape.get()) && PyTuple_GET_SIZE(shape.get()) > 0) {
        return Ref::borrow(PyTuple_GET_ITEM(shape.get(), 0));
      }
    }
    PyObject* function = library_object("builtins", "len");
    return operate(*this, function, {object});
  }
  FJ_TRY(Ref special, python_special(object, "__len__"));
  if (special)
    return call_special(*this, SpecialResult::kLength, special.get(), object);
  const Source* source = source_of(object);
  if (source && is_container(object)) {
    ContainerState& entry = table<Containers>().states[object];
    if (!entry.shadow && (!entry.written || PyList_CheckExact(object)))
      return length_of_input(*this, object, source, entry.written);
    FJ_TRY(Ref copy, shadow(object));
    return from_api(PyLong_FromSsize_t(PyObject_Size(copy.get())));
  }
  PyTypeObject* type = Py_TYPE(object);
  bool sized = (type->tp_as_mapping && type->tp_as_mapping->mp_length) ||
               (type->tp_as_sequence && type->tp_as_sequence->sq_length);
  bool native = !source || !sized || PyTuple_Check(object) ||
                is_constant(object) || is_guarded_by_identity(object);
  if (!native) return unguardable(*this, object, "the length");
  Py_ssize_t size = PyObject_Size(object);
  if (size < 0) return after_native(nullptr);
  return from_api(PyLong_FromSsize_t(size));
}

namespace {

// Whether it is 0, rather than which number it is.
Result<Ref> truth_of_number(CaptureState& state, PyObject* number) {
  Ref answer = Ref::borrow(number);
  if (state.tracer.symbolic_type(number) !=
      reinterpret_cast<PyObject*>(&PyBool_Type)) {
    Ref zero = Ref::steal(PyLong_FromLong(0));
    if (!zero) return Result<Ref>::raised();
    FJ_TRY(answer, state.tracer.operate(library_object("operator", "ne"),
                                        {number, zero.get()}));
  }
  if (!is_symbolic(state, answer.get())) return answer;
  return state.tracer.concretise(answer.get());
}

}  // namespace

Result<bool> CaptureState::truth(PyObject* object) {
  if (PyObject* inner = proxied(*this, object)) return truth(inner);
  FJ_CHECK_OK(room_for(*this, "objects"));
  if (object == Py_True) return true;
  if (object == Py_False || object == Py_None) return false;
  if (is_symbolic(*this, object)) {
    FJ_TRY(Ref value, truth_of_number(*this, object));
    return PyObject_IsTrue(value.get()) == 1;
  }
  if (is_stand_in(*this, object)) {
    FJ_TRY(Ref answer, call_tensor_special(*this, object, "__bool__"));
    if (answer && PyBool_Check(answer.get())) return answer.get() == Py_True;
    return make_break(BreakReason::kDataDependentBranch);
  }
  FJ_TRY(Ref special, python_special(object, "__bool__"));
  if (special) {
    FJ_TRY(Ref answer,
           call_special(*this, SpecialResult::kBool, special.get(), object));
    return truth(answer.get());
  }
  PyTypeObject* type = Py_TYPE(object);
  bool has_bool = type->tp_as_number && type->tp_as_number->nb_bool;
  FJ_TRY(Ref measure, python_special(object, "__len__"));
  bool sized = (type->tp_as_mapping && type->tp_as_mapping->mp_length) ||
               (type->tp_as_sequence && type->tp_as_sequence->sq_length);
  if (!has_bool && (measure || (is_input(object) && is_container(object)))) {
    FJ_TRY(Ref size, length(object));
    return truth(size.get());
  }
  bool native = !is_input(object) || is_constant(object) ||
                PyTuple_Check(object) || (!has_bool && !sized) ||
                is_guarded_by_identity(object);
  if (!native) return unguardable(*this, object, "the truth");
  int answer = PyObject_IsTrue(object);
  if (answer < 0) FJ_CHECK_OK(after_native(nullptr));
  return answer == 1;
}

}  // namespace framejit::bytecode
