// Methods of dict, list, set and deque. On a container of the program a read
// guards what it reads and a write goes to the log; fresh ones work natively.
#include <cstring>

#include "bytecode/builtins/builtins.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/compared_sequence.h"
#include "bytecode/objects/containers.h"
#include "bytecode/objects/identity.h"
#include "bytecode/objects/keys.h"
#include "bytecode/objects/model_iterators.h"
#include "bytecode/objects/native_calls.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/write_log.h"
#include "frame_hook/frame_eval.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

namespace {

const char* method_name(PyObject* descriptor) {
  if (Py_IS_TYPE(descriptor, &PyMethodDescr_Type)) {
    return reinterpret_cast<PyMethodDescrObject*>(descriptor)
        ->d_method->ml_name;
  }
  return reinterpret_cast<PyWrapperDescrObject*>(descriptor)->d_base->name;
}

Status check_keys(CaptureState& state, PyObject* const* keys, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (is_safe_key(state, keys[i])) continue;
    return state.make_break(
        BreakReason::kUnguardableInput,
        std::string("an element of type ") + Py_TYPE(keys[i])->tp_name);
  }
  return ok_status();
}

Result<Ref> native_with_self(BuiltinCall& call, PyObject* self,
                             const std::vector<PyObject*>& rest) {
  std::vector<PyObject*> args{self};
  args.insert(args.end(), rest.begin(), rest.end());
  size_t keywords = call.kwnames ? PyTuple_GET_SIZE(call.kwnames) : 0;
  return call.state.after_native(PyObject_Vectorcall(
      call.callable, args.data(), args.size() - keywords, call.kwnames));
}

std::vector<PyObject*> rest_of(const BuiltinCall& call) {
  return {call.args.begin() + 1, call.args.end()};
}

}  // namespace

// ---- dict
bool bypasses_order(const BuiltinCall& call) {
  bool descriptor = Py_IS_TYPE(call.callable, &PyMethodDescr_Type) ||
                    Py_IS_TYPE(call.callable, &PyWrapperDescr_Type);
  return descriptor && !call.args.empty() && PyODict_Check(call.args[0]) &&
         PyDescr_TYPE(call.callable) == &PyDict_Type;
}

Result<Ref> model_dict_get(BuiltinCall& call) {
  if (!call.plain(2, 3) || !PyDict_Check(call.args[0])) {
    return call.native(Reads::kNothing);
  }
  FJ_TRY(Ref value, call.state.dict_get(call.args[0], call.args[1]));
  if (value) return value;
  return Ref::borrow(call.args.size() > 2 ? call.args[2] : Py_None);
}

Result<Ref> model_mappingproxy_get(BuiltinCall& call) {
  if (!call.plain(2, 3)) return call.native(Reads::kNothing);
  auto& class_dicts = call.state.table<ClassDicts>().classes;
  auto found = class_dicts.find(call.args[0]);
  if (found == class_dicts.end()) return model_mappingproxy_view(call);
  FJ_TRY(Ref value, class_dict_get(call.state, found->second, call.args[1]));
  if (value) return value;
  return Ref::borrow(call.args.size() > 2 ? call.args[2] : Py_None);
}

// The raw slot: a subclass's own __getitem__ is not asked.
Result<Ref> model_getitem(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.native(Reads::kNothing);
  CaptureState& state = call.state;
  PyObject* object = call.args[0];
  if (PyDict_Check(object)) {
    FJ_TRY(Ref value, state.dict_get(object, call.args[1]));
    if (value) return value;
    FJ_TRY(Ref missing, state.python_special(object, "__missing__"));
    if (missing) {
      return state.caller.call(missing.get(), {object, call.args[1]});
    }
    raise_key_error(call.args[1]);
    return Result<Ref>::raised();
  }
  FJ_TRY(Ref index, concrete_index(state, call.args[1]));
  FJ_TRY(Ref special, state.python_special(object, "__getitem__"));
  if (!special) return state.get_item(object, index.get());
  FJ_TRY(index, sequence_index(state, std::move(index)));
  FJ_TRY(Ref visible, state.shadow(object));
  return native_with_self(call, visible.get(), {index.get()});
}

Result<Ref> model_dict_setitem(BuiltinCall& call) {
  if (bypasses_order(call)) return call.unknown();
  if (!call.plain(3, 3)) return call.native(Reads::kNothing);
  FJ_CHECK_OK(call.state.dict_set(call.args[0], call.args[1], call.args[2]));
  return none();
}

Result<Ref> model_dict_delitem(BuiltinCall& call) {
  if (bypasses_order(call)) return call.unknown();
  if (!call.plain(2, 2)) return call.native(Reads::kNothing);
  FJ_CHECK_OK(call.state.dict_del(call.args[0], call.args[1]));
  return none();
}

Result<Ref> model_dict_contains(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.native(Reads::kNothing);
  FJ_TRY(Ref special, call.state.python_special(call.args[0], "__contains__"));
  if (special) {
    FJ_TRY(Ref value, call.state.dict_get(call.args[0], call.args[1]));
    return boolean(static_cast<bool>(value));
  }
  FJ_TRY(bool found, call.state.contains(call.args[0], call.args[1]));
  return boolean(found);
}

namespace {

// A method that finds and changes asks the key once; a dict of this capture
// does so itself where the program could count.
bool asks_program(CaptureState& state, PyObject* dict, PyObject* key) {
  if (state.is_input(dict) || !is_heap_type(Py_TYPE(key)) ||
      state.tracer.classify(key) != ObjectClass::kPlain)
    return false;
  PyObject* hash = raw_lookup(Py_TYPE(key), "__hash__");
  return hash && PyFunction_Check(hash);
}

}  // namespace

Result<Ref> model_dict_setdefault(BuiltinCall& call) {
  if (bypasses_order(call)) return call.unknown();
  if (!call.plain(2, 3)) return call.native(Reads::kNothing);
  if (asks_program(call.state, call.args[0], call.args[1])) {
    FJ_CHECK_OK(check_fresh_dict_key(call.state, call.args[0], call.args[1]));
    return call.state.after_native(PyObject_Vectorcall(
        call.callable, call.args.data(), call.args.size(), nullptr));
  }
  FJ_TRY(Ref value, call.state.dict_get(call.args[0], call.args[1]));
  if (value) return value;
  PyObject* fallback = call.args.size() > 2 ? call.args[2] : Py_None;
  FJ_CHECK_OK(call.state.dict_set(call.args[0], call.args[1], fallback));
  return Ref::borrow(fallback);
}

Result<Ref> model_dict_pop(BuiltinCall& call) {
  if (bypasses_order(call)) return call.unknown();
  PyObject* key = call.argument(1, "key");
  PyObject* fallback = call.argument(2, "default");
  // (Only an OrderedDict takes them by keyword.)
  const bool takes_keywords = PyODict_Check(call.args[0]);
  if (!key || call.positional() < 1 ||
      !call.takes({"self", "key", "default"}) ||
      (call.kwnames && !takes_keywords))
    return call.native(Reads::kNothing);
  if (!call.kwnames && asks_program(call.state, call.args[0], key)) {
    return call.state.after_native(PyObject_Vectorcall(
        call.callable, call.args.data(), call.args.size(), nullptr));
  }
  FJ_TRY(Ref value, call.state.dict_get(call.args[0], key));
  if (value) {
    FJ_CHECK_OK(call.state.dict_del(call.args[0], key));
    return value;
  }
  if (fallback) return Ref::borrow(fallback);
  raise_key_error(key);
  return Result<Ref>::raised();
}

Result<Ref> model_dict_popitem(BuiltinCall& call) {
  if (bypasses_order(call)) return call.unknown();
  if (call.args.size() != 1) {
    return call.state.is_input(call.args[0]) ? Result<Ref>(call.unknown())
                                             : call.native(Reads::kNothing);
  }
  FJ_TRY(Ref visible, call.state.shadow(call.args[0]));
  Ref keys = Ref::steal(PySequence_List(visible.get()));
  if (!keys) return Result<Ref>::raised();
  Py_ssize_t size = PyList_GET_SIZE(keys.get());
  if (size == 0) return native_with_self(call, visible.get(), {});  // KeyError
  PyObject* key = PyList_GET_ITEM(keys.get(), size - 1);
  if (asks_program(call.state, call.args[0], key))
    return native_with_self(call, visible.get(), {});
  FJ_TRY(Ref value, call.state.dict_get(call.args[0], key));
  FJ_CHECK_OK(call.state.dict_del(call.args[0], key));
  return from_api(PyTuple_Pack(2, key, value.get()));
}

Result<Ref> model_dict_clear(BuiltinCall& call) {
  if (bypasses_order(call)) return call.unknown();
  if (!call.plain(1, 1)) return call.native(Reads::kNothing);
  if (call.state.is_input(call.args[0])) {
    FJ_CHECK_OK(check_key_iterators(call.state, call.args[0]));
  }
  FJ_TRY(Ref visible, call.state.shadow(call.args[0]));
  FJ_TRY(Ref done, native_with_self(call, visible.get(), {}));
  if (call.state.is_input(call.args[0])) {
    WriteLog::replace_content(call.state, call.args[0]);
  }
  return none();
}

// keys, values, items, copy: on the shadow of an input.
Result<Ref> model_view(BuiltinCall& call) {
  if (bypasses_order(call)) return call.unknown();
  if (!call.plain(1, 1)) return call.native(Reads::kNothing);
  FJ_TRY(Ref visible, call.state.shadow(call.args[0]));
  return native_with_self(call, visible.get(), {});
}

Result<Ref> model_fromkeys(BuiltinCall& call) {
  // args: the class, the keys, the value.
  if (!call.plain(2, 3) || call.args[0] != as_object(&PyDict_Type)) {
    return call.unknown();
  }
  FJ_TRY(std::vector<Ref> keys, call.state.elements(call.args[1]));
  Ref dict = Ref::steal(PyDict_New());
  if (!dict) return Result<Ref>::raised();
  PyObject* value = call.args.size() > 2 ? call.args[2] : Py_None;
  for (const Ref& key : keys) {
    FJ_CHECK_OK(call.state.dict_set(dict.get(), key.get(), value));
  }
  return dict;
}

// ---- list
Result<Ref> model_list_append(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.native(Reads::kNothing);
  CaptureState& state = call.state;
  PyObject *list = call.args[0], *value = call.args[1];
  if (!state.is_input(list)) {
    if (PyList_Append(list, value) < 0) return Result<Ref>::raised();
    return none();
  }
  ContainerState& entry = state.table<Containers>().states[list];
  if (entry.shadow && PyList_Append(entry.shadow.get(), value) < 0) {
    return Result<Ref>::raised();
  }
  entry.written = true;
  WriteLog::add(state, Write::Kind::kAppend, list, nullptr, value);
  return none();
}

Result<Ref> model_list_extend(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.native(Reads::kNothing);
  CaptureState& state = call.state;
  PyObject* list = call.args[0];
  if (!state.is_input(list)) {
    FJ_TRY(Ref items, sized_iterable(state, call.args[1]));
    return native_with_self(call, list, {items.get()});
  }
  FJ_TRY(Ref result, state.binary(0, true, list, call.args[1]));
  return none();
}

Result<Ref> model_list_iadd(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.native(Reads::kNothing);
  return call.state.binary(0, true, call.args[0], call.args[1]);
}

namespace {

// The method is called again on the program's own container.
Result<Ref> log_method(BuiltinCall& call, const std::vector<PyObject*>& args,
                       Ref result) {
  // move_to_end(key, last=): the keyword may come by its place.
  if (call.has_keywords() && call.positional() != 2) {
    WriteLog::replace_content(call.state, call.args[0]);
    return result;
  }
  ContainerState& entry = call.state.table<Containers>().states[call.args[0]];
  entry.written = true;
  if (entry.replaced) return result;
  Ref packed = Ref::steal(PyTuple_New(args.size()));
  if (!packed) return Result<Ref>::raised();
  for (size_t i = 0; i < args.size(); ++i) {
    PyTuple_SET_ITEM(packed.get(), i, Py_NewRef(args[i]));
  }
  WriteLog::add(call.state, Write::Kind::kMethod, call.args[0], call.callable,
                packed.get());
  return result;
}

}  // namespace

// Methods that rearrange: on the shadow, the whole content is written back.
Result<Ref> model_mutate(BuiltinCall& call) {
  CaptureState& state = call.state;
  if (call.args.empty()) return call.native(Reads::kNothing);
  std::vector<PyObject*> rest;
  std::vector<Ref> keep;
  for (size_t i = 1; i < call.args.size(); ++i) {
    // An inserted value stays what it is.
    const char* name = method_name(call.callable);
    bool value = std::strncmp(name, "append", 6) == 0 ||
                 (std::strcmp(name, "insert") == 0 && i == 2);
    Ref plain = Ref::borrow(call.args[i]);
    if (!value) {
      FJ_TRY(plain, concrete_index(state, call.args[i]));
      if (!PyDict_Check(call.args[0]) && !PyAnySet_Check(call.args[0])) {
        FJ_TRY(plain, sequence_index(state, std::move(plain)));
      }
    }
    rest.push_back(plain.get());
    keep.push_back(std::move(plain));
  }
  FJ_TRY(Ref visible, state.shadow(call.args[0]));
  FJ_TRY(Ref result, native_with_self(call, visible.get(), rest));
  if (!state.is_input(call.args[0])) return result;
  if (PyODict_Check(call.args[0]) || kDeque.is_type_of(call.args[0])) {
    // Not by its content: dict's own order stays as it is, and what ends the
    // iterators of a deque is what ends them in CPython.
    return log_method(call, rest, std::move(result));
  }
  WriteLog::replace_content(state, call.args[0]);
  return result;
}

// extend, extendleft, +=: the elements from anywhere.
Result<Ref> model_deque_extend(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.native(Reads::kNothing);
  CaptureState& state = call.state;
  PyObject* deque = call.args[0];
  auto write = [&](PyObject* items) -> Result<Ref> {
    FJ_TRY(Ref visible, state.shadow(deque));
    FJ_TRY(Ref result, native_with_self(call, visible.get(), {items}));
    if (!state.is_input(deque)) return result;
    // Without items it is no write: iterators of the deque stay valid.
    if (PySequence_Fast_GET_SIZE(items) > 0)
      WriteLog::replace_content(state, deque);
    return result.get() == visible.get() ? Ref::borrow(deque) : result;
  };
  PyObject* added = call.args[1];
  if (PyList_Check(added) || PyTuple_Check(added) || kDeque.is_type_of(added)) {
    FJ_TRY(Ref list, state.element_list(added));
    return write(list.get());
  }
  // One by one: what gives the items may look at the deque, or write to it.
  FJ_TRY(Ref iterator, state.iter(added));
  Ref nothing = Ref::steal(PyTuple_New(0));
  if (!nothing) return Result<Ref>::raised();
  Result<Ref> result = write(nothing.get());
  while (result.ok()) {
    FJ_TRY(Ref item, state.next(iterator.get()));
    if (!item) break;
    Ref one = Ref::steal(PyTuple_Pack(1, item.get()));
    if (!one) return Result<Ref>::raised();
    result = write(one.get());
  }
  return result;
}

namespace {

// The index of the first element equal to `value`, or -1.
Result<Py_ssize_t> find_equal(CaptureState& state, PyObject* sequence,
                              PyObject* value, Py_ssize_t* count) {
  FJ_TRY(std::vector<Ref> items, own_elements(state, sequence));
  const ComparedSequence walk(state, sequence);
  Py_ssize_t first = -1;
  for (size_t i = 0; i < items.size(); ++i) {
    FJ_TRY(bool same, is_same_or_equal(state, items[i].get(), value));
    FJ_CHECK_OK(walk.check());
    if (!same) continue;
    if (first < 0) first = i;
    if (!count) return first;
    ++*count;
  }
  return first;
}

}  // namespace

Result<Ref> model_sequence_index(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.native(Reads::kDeep);
  FJ_TRY(Py_ssize_t index,
         find_equal(call.state, call.args[0], call.args[1], nullptr));
  if (index >= 0) return from_api(PyLong_FromSsize_t(index));
  if (PyTuple_Check(call.args[0])) {
    PyErr_SetString(PyExc_ValueError, "tuple.index(x): x not in tuple");
  } else {
    FJ_TRY(Ref text, call.state.format_value(call.args[1], 2, nullptr));
    PyErr_Format(PyExc_ValueError, "%U is not in %s", text.get(),
                 PyList_Check(call.args[0]) ? "list" : "deque");
  }
  return Result<Ref>::raised();
}

Result<Ref> model_sequence_count(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.native(Reads::kDeep);
  Py_ssize_t count = 0;
  FJ_CHECK_OK(find_equal(call.state, call.args[0], call.args[1], &count));
  return from_api(PyLong_FromSsize_t(count));
}

Result<Ref> model_list_remove(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.native(Reads::kDeep);
  FJ_TRY(Py_ssize_t index,
         find_equal(call.state, call.args[0], call.args[1], nullptr));
  if (index < 0) {
    if (PyList_Check(call.args[0])) {
      PyErr_SetString(PyExc_ValueError, "list.remove(x): x not in list");
      return Result<Ref>::raised();
    }
    FJ_TRY(Ref text, call.state.format_value(call.args[1], 2, nullptr));
    PyErr_Format(PyExc_ValueError, "%U is not in deque", text.get());
    return Result<Ref>::raised();
  }
  Ref position = Ref::steal(PyLong_FromSsize_t(index));
  FJ_CHECK_OK(call.state.del_item(call.args[0], position.get()));
  return none();
}

Result<Ref> model_setitem(BuiltinCall& call) {
  if (!call.plain(3, 3)) return call.native(Reads::kNothing);
  FJ_TRY(Ref special, call.state.python_special(call.args[0], "__setitem__"));
  if (special) return call.unknown();
  FJ_CHECK_OK(call.state.set_item(call.args[0], call.args[1], call.args[2]));
  return none();
}

Result<Ref> model_delitem(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.native(Reads::kNothing);
  FJ_TRY(Ref special, call.state.python_special(call.args[0], "__delitem__"));
  if (special) return call.unknown();
  FJ_CHECK_OK(call.state.del_item(call.args[0], call.args[1]));
  return none();
}

Result<Ref> model_contains(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.native(Reads::kNothing);
  FJ_TRY(Ref special, call.state.python_special(call.args[0], "__contains__"));
  if (special) return call.unknown();
  FJ_TRY(bool found, call.state.contains(call.args[0], call.args[1]));
  return boolean(found);
}

// ---- set
Result<Ref> set_operand(CaptureState& state, PyObject* object) {
  bool whole = PySet_CheckExact(object) || PyFrozenSet_CheckExact(object) ||
               PyDict_CheckExact(object);
  if (whole) {
    Ref visible = Ref::borrow(object);
    if (!PyFrozenSet_CheckExact(object)) {
      FJ_TRY(visible, state.shadow(object));
    }
    Ref keys = Ref::steal(PySequence_Tuple(visible.get()));
    if (!keys) return Result<Ref>::raised();
    FJ_CHECK_OK(check_keys(state, PySequence_Fast_ITEMS(keys.get()),
                           PyTuple_GET_SIZE(keys.get())));
    return visible;
  }
  if (PyAnySet_Check(object)) FJ_CHECK_OK(check_no_iter(state, object));
  if (!PyList_CheckExact(object) && !PyTuple_CheckExact(object)) {
    // C code may stop in the middle (isdisjoint), and the rest is still there.
    FJ_TRY(Ref iterator, state.iter(object));
    std::vector<Ref> sources{std::move(iterator)};
    return make_iterator(state, IteratorKind::kKeys, nullptr,
                         std::move(sources));
  }
  FJ_TRY(std::vector<Ref> items, state.elements(object));
  Ref list = Ref::steal(PyList_New(0));
  if (!list) return Result<Ref>::raised();
  for (const Ref& item : items) {
    PyObject* key = item.get();
    FJ_CHECK_OK(check_keys(state, &key, 1));
    if (PyList_Append(list.get(), key) < 0) return Result<Ref>::raised();
  }
  return list;
}

Result<Ref> model_set_add(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.native(Reads::kNothing);
  CaptureState& state = call.state;
  PyObject* set = call.args[0];
  FJ_TRY(Ref key, concrete_index(state, call.args[1]));
  PyObject* element = key.get();
  if (!state.is_input(set)) {
    FJ_CHECK_OK(add_to_fresh_set(state, set, element));
    return none();
  }
  FJ_CHECK_OK(check_keys(state, &element, 1));
  ContainerState& entry = state.table<Containers>().states[set];
  if (entry.shadow && PySet_Add(entry.shadow.get(), element) < 0) {
    return Result<Ref>::raised();
  }
  entry.written = true;
  WriteLog::add(state, Write::Kind::kAdd, set, element);
  return none();
}

Result<Ref> model_set_discard(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.native(Reads::kNothing);
  return model_set_operation(call);
}

namespace {

// set.update(items), set.difference_update(items): one by one, for what gives
// the items may look at the set, or write to it.
Status write_items(BuiltinCall& call, PyObject* items) {
  CaptureState& state = call.state;
  PyObject* set = call.args[0];
  auto write = [&](PyObject* some) -> Status {
    FJ_TRY(Ref visible, state.shadow(set));
    FJ_TRY(Ref done, native_with_self(call, visible.get(), {some}));
    if (state.is_input(set)) WriteLog::replace_content(state, set);
    return ok_status();
  };
  if (PySet_CheckExact(items) || PyFrozenSet_CheckExact(items) ||
      PyDict_CheckExact(items) || PyList_CheckExact(items) ||
      PyTuple_CheckExact(items)) {
    FJ_TRY(Ref whole, set_operand(state, items));
    return write(whole.get());
  }
  if (PyAnySet_Check(items)) FJ_CHECK_OK(check_no_iter(state, items));
  FJ_TRY(Ref iterator, state.iter(items));
  while (true) {
    FJ_TRY(Ref item, state.next(iterator.get()));
    if (!item) return ok_status();
    PyObject* key = item.get();
    FJ_CHECK_OK(check_keys(state, &key, 1));
    Ref one = Ref::steal(PyTuple_Pack(1, key));
    if (!one) return Status::raised();
    FJ_CHECK_OK(write(one.get()));
  }
}

}  // namespace

Result<Ref> model_set_operation(BuiltinCall& call) {
  CaptureState& state = call.state;
  if (call.args.empty() || call.has_keywords()) {
    return call.native(Reads::kNothing);
  }
  const char* name = method_name(call.callable);
  // Which element pop() takes depends on how the set was filled.
  if (std::strcmp(name, "pop") == 0 && state.is_input(call.args[0])) {
    return call.unknown();
  }
  bool element =
      std::strcmp(name, "remove") == 0 || std::strcmp(name, "discard") == 0;
  bool as_they_come = std::strcmp(name, "update") == 0 ||
                      std::strcmp(name, "difference_update") == 0;
  std::vector<Ref> keep;
  std::vector<PyObject*> rest;
  for (PyObject* arg : rest_of(call)) {
    Ref plain;
    if (as_they_come) {
      FJ_CHECK_OK(write_items(call, arg));
      continue;
    }
    if (element) {
      FJ_TRY(plain, concrete_index(state, arg));
      PyObject* key = plain.get();
      FJ_CHECK_OK(check_keys(state, &key, 1));
    } else {
      FJ_TRY(plain, set_operand(state, arg));
    }
    rest.push_back(plain.get());
    keep.push_back(std::move(plain));
  }
  FJ_TRY(Ref visible, state.shadow(call.args[0]));
  FJ_TRY(Ref result, native_with_self(call, visible.get(), rest));
  if (state.is_input(call.args[0])) {
    WriteLog::replace_content(state, call.args[0]);
  }
  return result;
}

// union, issubset ...: elements only.
Result<Ref> model_set_function(BuiltinCall& call) {
  CaptureState& state = call.state;
  if (call.args.empty() || call.has_keywords()) {
    return call.native(Reads::kNothing);
  }
  std::vector<Ref> keep;
  std::vector<PyObject*> rest;
  for (PyObject* arg : rest_of(call)) {
    FJ_TRY(Ref list, set_operand(state, arg));
    rest.push_back(list.get());
    keep.push_back(std::move(list));
  }
  Ref visible = Ref::borrow(call.args[0]);
  if (!PyFrozenSet_Check(call.args[0])) {
    FJ_TRY(visible, state.shadow(call.args[0]));
  }
  return native_with_self(call, visible.get(), rest);
}

Result<Ref> model_str_join(BuiltinCall& call) {
  if (!call.plain(2, 2)) return call.native(Reads::kDeep);
  // Its own words for what cannot be iterated.
  if (is_builtin_constant(call.args[1])) return call.native(Reads::kDeep);
  Ref items;
  if (PyList_CheckExact(call.args[1]) || PyTuple_CheckExact(call.args[1])) {
    FJ_TRY(items, native_iterable(call.state, call.args[1]));
  } else {
    Result<Ref> iterator = call.state.iter(call.args[1]);
    if (iterator.is_raised() && PyErr_ExceptionMatches(PyExc_TypeError))
      PyErr_SetString(PyExc_TypeError, "can only join an iterable");
    FJ_TRY(Ref strings, std::move(iterator));
    FJ_TRY(items, from_api(PyList_New(0)));
    while (true) {
      FJ_TRY(Ref string, call.state.next(strings.get()));
      if (!string) break;
      if (PyList_Append(items.get(), string.get()) < 0)
        return Result<Ref>::raised();
    }
  }
  FJ_TRY(items, prepare(call.state, items.get(), Reads::kDeep));
  return native_with_self(call, call.args[0], {items.get()});
}

}  // namespace framejit::bytecode
