// Iteration: which iterator an object gives, and its next item.
#include <cstring>
#include <string_view>

#include "bytecode/objects/breaks.h"
#include "bytecode/objects/builtin_types.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/containers.h"
#include "bytecode/objects/exceptions.h"
#include "bytecode/objects/input_iterators.h"
#include "bytecode/objects/keys.h"
#include "bytecode/objects/model_iterators.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/opaque_value.h"
#include "bytecode/objects/origins.h"
#include "bytecode/objects/overrides.h"
#include "bytecode/objects/private_type.h"
#include "bytecode/objects/special_results.h"
#include "frame_hook/cpython_internals.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

namespace {

// ---- an iterator over an object of the program, by type (builtin_types.def)

// The keys only: a fresh dict with the same keys stands for the input.
Result<Ref> iterate_keys(CaptureState& state, PyObject* dict) {
  const Source* source = state.source_of(dict);
  ContainerState& entry = state.table<Containers>().states[dict];
  bool simple = PyDict_CheckExact(dict) && !entry.shadow && !entry.written;
  if (simple) {
    Py_ssize_t position = 0;
    PyObject *key, *value;
    while (PyDict_Next(dict, &position, &key, &value)) {
      simple &= is_builtin_constant(key);
    }
  }
  if (!simple) {
    FJ_TRY(Ref copy, state.shadow(dict));
    return from_api(PyObject_GetIter(copy.get()));
  }
  Ref keys = Ref::steal(PySequence_Tuple(dict));
  if (!keys) return Result<Ref>::raised();
  state.guard(GuardKind::kDictKeys, source, keys.get());
  Ref copy = Ref::steal(PyDict_New());
  if (!copy) return Result<Ref>::raised();
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys.get()); ++i) {
    if (PyDict_SetItem(copy.get(), PyTuple_GET_ITEM(keys.get(), i), Py_None) <
        0) {
      return Result<Ref>::raised();
    }
  }
  Ref iterator = Ref::steal(PyObject_GetIter(copy.get()));
  if (!iterator) return Result<Ref>::raised();
  // Rebuilt after a break as an iterator over the program's dict.
  state.keep_alive(copy.get());
  state.table<Origins>().originals[copy.get()] = dict;
  entry.key_iterators.push_back(iterator);
  return iterator;
}

Result<Ref> iterate_shadow(CaptureState& state, PyObject* container) {
  FJ_TRY(Ref copy, state.shadow(container));
  return from_api(PyObject_GetIter(copy.get()));
}

// (Of types: a metaclass in C, and none is known.)
Result<Ref> iterate_natively(CaptureState&, PyObject* object) {
  return from_api(PyObject_GetIter(object));
}

Result<Ref> iterate_other(CaptureState& state, PyObject* object) {
  if (!Py_TYPE(object)->tp_iter && !PySequence_Check(object))
    return from_api(PyObject_GetIter(object));  // TypeError
  // Iterators are their own.
  if (is_readable_iterator(object) || PyGen_CheckExact(object)) {
    return Ref::borrow(object);
  }
  return unguardable(state, object, "iteration");
}

Result<Ref> tensor_rows(CaptureState& state, PyObject* tensor) {
  Ref zero = Ref::steal(PyLong_FromLong(0));
  FJ_TRY(Ref unbind, state.tracer.get_attribute(tensor, interned("unbind")));
  return state.tracer.call(unbind.get(), {zero.get()}, nullptr);
}

}  // namespace

Result<Ref> CaptureState::iter(PyObject* object) {
  FJ_CHECK_OK(room_for(*this, "objects"));
  if (PyObject* inner = proxied(*this, object)) return iter(inner);
  if (is_symbolic(*this, object)) {
    PyErr_Format(
        PyExc_TypeError, "'%.200s' object is not iterable",
        reinterpret_cast<PyTypeObject*>(type_of(object).get())->tp_name);
    return Result<Ref>::raised();
  }
  if (is_stand_in(*this, object)) {
    FJ_TRY(Ref answer, call_tensor_special(*this, object, "__iter__"));
    if (answer) return answer;
    FJ_TRY(Ref rows, tensor_rows(*this, object));
    return from_api(PyObject_GetIter(rows.get()));
  }
  auto class_dict = table<ClassDicts>().classes.find(object);
  if (class_dict != table<ClassDicts>().classes.end()) {
    FJ_TRY(Ref names, class_names(*this, class_dict->second));
    return from_api(PyObject_GetIter(names.get()));
  }
  FJ_TRY(Ref special, python_special(object, "__iter__"));
  if (special)
    return call_special(*this, SpecialResult::kIterator, special.get(), object);
  if (!Py_TYPE(object)->tp_iter) {
    FJ_TRY(Ref items, python_special(object, "__getitem__"));
    if (items) {
      return make_iterator(*this, IteratorKind::kSequence, object, {});
    }
  }
  if (PyAnySet_CheckExact(object) && !is_input(object)) {
    // The order follows addresses when elements are hashed by identity.
    Ref items = Ref::steal(PySequence_List(object));
    if (!items) return Result<Ref>::raised();
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
      if (!is_safe_key(*this, PyList_GET_ITEM(items.get(), i))) {
        return unguardable(*this, PyList_GET_ITEM(items.get(), i),
                           "the place in a set");
      }
    }
  }
  if (!is_input(object) || PyTuple_Check(object) || is_constant(object)) {
    return after_native(PyObject_GetIter(object));
  }
  static constexpr Result<Ref> (*kRules[])(CaptureState&, PyObject*) = {
#define FJ_TYPE(name, type, parts, identity, prepare, shadow, iterate, ...) \
  iterate,
#include "bytecode/objects/builtin_types.def"
  };
  return kRules[size_t(builtin_base(Py_TYPE(object)))](*this, object);
}

Result<Ref> CaptureState::next(PyObject* iterator, Ref* stop) {
  FJ_CHECK_OK(room_for(*this, "iterators"));
  auto exhausted = [stop] {
    Ref raised = take_raised();
    if (stop) *stop = std::move(raised);
    return Ref();
  };
  if (auto* model = as_model_iterator(iterator)) {
    return model_iterator_next(*this, model);
  }
  FJ_TRY(Ref special, python_special(iterator, "__next__"));
  if (special) {
    Result<Ref> value = caller.call(special.get(), {iterator});
    if (value.is_raised() && PyErr_ExceptionMatches(PyExc_StopIteration)) {
      return exhausted();
    }
    return value;
  }
  if (is_input(iterator)) {
    if (is_readable_iterator(iterator)) return next_of_input(*this, iterator);
    return unguardable(*this, iterator, "advancing");
  }
  iternextfunc step = Py_TYPE(iterator)->tp_iternext;
  if (!step) {
    PyErr_Format(PyExc_TypeError, "'%.200s' object is not an iterator",
                 Py_TYPE(iterator)->tp_name);
    return Result<Ref>::raised();
  }
  Result<Ref> value = after_native(step(iterator));
  if (!value.is_raised()) return value;
  if (!PyErr_Occurred()) return Ref();
  if (PyErr_ExceptionMatches(PyExc_StopIteration)) {
    return exhausted();
  }
  return value;
}

Result<std::vector<Ref>> CaptureState::elements(PyObject* iterable,
                                                size_t limit) {
  std::vector<Ref> items;
  bool exact = PyTuple_CheckExact(iterable) ||
               (PyList_CheckExact(iterable) && !is_input(iterable));
  if (exact) {
    // Borrowed item by item: nothing runs in between.
    Py_ssize_t size = PySequence_Fast_GET_SIZE(iterable);
    for (Py_ssize_t i = 0; i < size && items.size() < limit; ++i) {
      items.push_back(Ref::borrow(PySequence_Fast_GET_ITEM(iterable, i)));
    }
    return items;
  }
  FJ_TRY(Ref iterator, iter(iterable));
  while (items.size() < limit) {
    FJ_TRY(Ref item, next(iterator.get()));
    if (!item) break;
    items.push_back(std::move(item));
  }
  return items;
}

Result<bool> tells_its_length(CaptureState& state, PyObject* object) {
  FJ_TRY(Ref length, state.python_special(object, "__len__"));
  FJ_TRY(Ref hint, state.python_special(object, "__length_hint__"));
  return (length || hint) && !PyTuple_CheckExact(object);
}

Status ask_length_hint(CaptureState& state, PyObject* object) {
  FJ_TRY(Ref length, state.python_special(object, "__len__"));
  if (length) {
    Result<Ref> answer =
        call_special(state, SpecialResult::kLength, length.get(), object);
    bool no_answer =
        answer.is_raised() && PyErr_ExceptionMatches(PyExc_TypeError);
    if (answer.ok()) return ok_status();
    if (!no_answer) return answer.forward<Unit>();
    PyErr_Clear();
  } else if (PyObject* raw = raw_lookup(Py_TYPE(object), "__len__");
             raw && raw != Py_None) {
    return ok_status();  // of C code
  }
  FJ_TRY(Ref hint, state.python_special(object, "__length_hint__"));
  if (!hint) return ok_status();
  Result<Ref> answer = state.caller.call(hint.get(), {object});
  if (answer.is_raised() && PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear();
    return ok_status();
  }
  FJ_TRY(Ref number, std::move(answer));
  bool valid =
      number.get() == Py_NotImplemented ||
      (PyLong_CheckExact(number.get()) && PyLong_AsSsize_t(number.get()) >= 0);
  PyErr_Clear();  // a huge number
  return valid ? ok_status()
               : Status(unguardable(state, object, "a length hint"));
}

Result<std::vector<Ref>> listed_elements(CaptureState& state,
                                         PyObject* iterable) {
  FJ_TRY(bool tells, tells_its_length(state, iterable));
  if (!tells) return state.elements(iterable);
  FJ_TRY(Ref iterator, state.iter(iterable));
  FJ_CHECK_OK(ask_length_hint(state, iterable));
  std::vector<Ref> items;
  while (true) {
    FJ_TRY(Ref item, state.next(iterator.get()));
    if (!item) return items;
    items.push_back(std::move(item));
  }
}

Result<Ref> CaptureState::element_list(PyObject* iterable) {
  FJ_TRY(std::vector<Ref> items, elements(iterable));
  Ref list = Ref::steal(PyList_New(static_cast<Py_ssize_t>(items.size())));
  if (!list) return Result<Ref>::raised();
  for (size_t i = 0; i < items.size(); ++i)
    PyList_SET_ITEM(list.get(), i, items[i].new_reference());
  return list;
}

}  // namespace framejit::bytecode
