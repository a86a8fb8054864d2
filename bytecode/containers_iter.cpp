// Iteration, and the border to C code.
//
// `prepare` decides what an object becomes when C code is going to look into
// it. C code that calls back (map, a sort key, an iterator of the program) gets
// an object of ours that returns into the interpreter; a Break there is stored
// in the capture and the C code sees a private exception.
#include <cstring>
#include <string_view>

#include "bytecode/builtins.h"
#include "bytecode/capture_tables.h"
#include "bytecode/opaque_value.h"
#include "bytecode/private_type.h"
#include "bytecode/torch_functions.h"
#include "frame_hook/cpython_internals.h"

namespace framejit::bytecode {

// ---- objects of ours that C code holds
struct ModelIterator {
  PyObject_HEAD CaptureState* state;  // null once the capture has ended
  IteratorKind kind;
  Py_ssize_t index;
  Ref function;
  std::vector<Ref> sources;
};

namespace {

struct Trampoline {
  PyObject_HEAD CaptureState* state;
  TrampolineResult result;
  Ref callable;
};

Result<Ref> finish_trampoline(Trampoline* trampoline, Ref value) {
  CaptureState& state = *trampoline->state;
  switch (trampoline->result) {
    case TrampolineResult::kAsIs:
      return value;
    case TrampolineResult::kTruth: {
      FJ_TRY(bool truth, state.truth(value.get()));
      return Ref::borrow(truth ? Py_True : Py_False);
    }
    case TrampolineResult::kPlain:
      return prepare(state, value.get(), Reads::kDeep);
  }
  return value;
}

// Runs `body` (which gives a Result<Ref>) under a C frame: breaks and internal
// errors are stored, and stand as an exception.
template <class Body>
PyObject* under_c(CaptureState* state, bool iterator, Body body) {
  if (!state) {
    PyErr_SetString(PyExc_RuntimeError, "the capture is over");
    return nullptr;
  }
  try {
    Result<Ref> result = body();
    if (result.ok()) {
      return result.value() || iterator ? result.take().release()
                                        : Py_NewRef(Py_None);
    }
    if (result.is_raised()) return nullptr;
    state->set_native_break(result.take_break());
  } catch (const InternalError& error) {
    state->set_native_break(Break{BreakReason::kInternal, error.message(), {}});
  } catch (const std::exception& error) {
    state->set_native_break(Break{BreakReason::kInternal, error.what(), {}});
  }
  PyErr_SetString(PyExc_RuntimeError, "framejit stopped its capture here");
  return nullptr;
}

template <class Object>
void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  auto* object = reinterpret_cast<Object*>(self);
  if constexpr (std::is_same_v<Object, ModelIterator>) {
    object->function.~Ref();
    object->sources.~vector();
  } else {
    object->callable.~Ref();
  }
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* iterator_next(PyObject* self) {
  auto* iterator = reinterpret_cast<ModelIterator*>(self);
  return under_c(iterator->state, true, [&] {
    return model_iterator_next(*iterator->state, iterator);
  });
}

PyObject* trampoline_call(PyObject* self, PyObject* args, PyObject* keywords) {
  auto* trampoline = reinterpret_cast<Trampoline*>(self);
  return under_c(trampoline->state, false, [&]() -> Result<Ref> {
    std::vector<PyObject*> values;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
      values.push_back(PyTuple_GET_ITEM(args, i));
    }
    Ref names;
    if (keywords && PyDict_GET_SIZE(keywords) != 0) {
      names = Ref::steal(PySequence_Tuple(keywords));
      if (!names) return Result<Ref>::raised();
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(names.get()); ++i) {
        values.push_back(
            PyDict_GetItem(keywords, PyTuple_GET_ITEM(names.get(), i)));
      }
    }
    FJ_TRY(Ref value, trampoline->state->caller.call(trampoline->callable.get(),
                                                     values, names.get()));
    return finish_trampoline(trampoline, std::move(value));
  });
}

PyTypeObject* iterator_type() {
  static PyTypeObject* type = [] {
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, reinterpret_cast<void*>(dealloc<ModelIterator>)},
        {Py_tp_iter, reinterpret_cast<void*>(PyObject_SelfIter)},
        {Py_tp_iternext, reinterpret_cast<void*>(iterator_next)},
        {0, nullptr}};
    return make_private_type("framejit._ModelIterator", sizeof(ModelIterator),
                             slots);
  }();
  return type;
}

PyTypeObject* trampoline_type() {
  static PyTypeObject* type = [] {
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, reinterpret_cast<void*>(dealloc<Trampoline>)},
        {Py_tp_call, reinterpret_cast<void*>(trampoline_call)},
        {0, nullptr}};
    return make_private_type("framejit._Trampoline", sizeof(Trampoline), slots);
  }();
  return type;
}

}  // namespace

CaptureState::~CaptureState() {
  // Code outside may still hold these objects; they must not reach us.
  for (const Ref& object : tables_->trampolines) {
    if (auto* iterator = as_model_iterator(object.get())) {
      iterator->state = nullptr;
    } else if (is_opaque(object.get())) {
      detach_opaque(object.get());
    } else {
      reinterpret_cast<Trampoline*>(object.get())->state = nullptr;
    }
  }
}

PyObject* trampoline_callable(PyObject* object) {
  if (Py_TYPE(object) != trampoline_type()) return nullptr;
  return reinterpret_cast<Trampoline*>(object)->callable.get();
}

Result<Ref> trampoline(CaptureState& state, PyObject* callable,
                       TrampolineResult result) {
  PyTypeObject* type = trampoline_type();
  if (!type) return Result<Ref>::raised();
  Ref object = Ref::steal(type->tp_alloc(type, 0));
  if (!object) return Result<Ref>::raised();
  auto* trampoline = reinterpret_cast<Trampoline*>(object.get());
  trampoline->state = &state;
  trampoline->result = result;
  new (&trampoline->callable) Ref(Ref::borrow(callable));
  state.tables().trampolines.push_back(object);
  return object;
}

Result<Ref> make_iterator(CaptureState& state, IteratorKind kind,
                          PyObject* function, std::vector<Ref> iterators) {
  PyTypeObject* type = iterator_type();
  if (!type) return Result<Ref>::raised();
  Ref object = Ref::steal(type->tp_alloc(type, 0));
  if (!object) return Result<Ref>::raised();
  auto* iterator = reinterpret_cast<ModelIterator*>(object.get());
  iterator->state = &state;
  iterator->kind = kind;
  new (&iterator->function) Ref(Ref::borrow(function));
  new (&iterator->sources) std::vector<Ref>(std::move(iterators));
  state.tables().trampolines.push_back(object);
  return object;
}

ModelIterator* as_model_iterator(PyObject* object) {
  if (Py_TYPE(object) != iterator_type()) return nullptr;
  return reinterpret_cast<ModelIterator*>(object);
}
IteratorKind model_iterator_kind(const ModelIterator* iterator) {
  return iterator->kind;
}
PyObject* model_iterator_function(const ModelIterator* iterator) {
  return iterator->function.get();
}
const std::vector<Ref>& model_iterator_sources(const ModelIterator* iterator) {
  return iterator->sources;
}
Py_ssize_t model_iterator_index(const ModelIterator* iterator) {
  return iterator->index;
}

namespace {

// Iteration by __getitem__: IndexError and StopIteration end it.
Result<Ref> sequence_next(CaptureState& state, ModelIterator* iterator) {
  Ref index = Ref::steal(PyLong_FromSsize_t(iterator->index));
  if (!index) return Result<Ref>::raised();
  Result<Ref> value = state.get_item(iterator->function.get(), index.get());
  if (value.ok()) ++iterator->index;
  if (!value.is_raised()) return value;
  if (!PyErr_ExceptionMatches(PyExc_IndexError) &&
      !PyErr_ExceptionMatches(PyExc_StopIteration)) {
    return value;
  }
  PyErr_Clear();
  iterator->index = -1;
  return Ref();
}

Result<Ref> callable_next(CaptureState& state, ModelIterator* iterator) {
  Result<Ref> value = state.caller.call(iterator->function.get(), {});
  if (value.is_raised() && PyErr_ExceptionMatches(PyExc_StopIteration)) {
    PyErr_Clear();
    iterator->index = -1;
    return Ref();
  }
  if (!value.ok()) return value;
  PyObject* sentinel = iterator->sources[0].get();
  bool ends = state.unshadow(sentinel) == state.unshadow(value.value().get());
  if (!ends) {
    FJ_TRY(Ref equal, state.compare(Py_EQ, sentinel, value.value().get()));
    FJ_TRY(ends, state.truth(equal.get()));
  }
  if (!ends) return value;
  iterator->index = -1;
  return Ref();
}

}  // namespace

Result<Ref> model_iterator_next(CaptureState& state, ModelIterator* iterator) {
  Ref alive = Ref::borrow(reinterpret_cast<PyObject*>(iterator));
  if (iterator->index < 0) return Ref();  // exhausted
  if (iterator->kind == IteratorKind::kUser) {
    return state.next(iterator->sources[0].get());
  }
  if (iterator->kind == IteratorKind::kSequence) {
    return sequence_next(state, iterator);
  }
  if (iterator->kind == IteratorKind::kCallable) {
    return callable_next(state, iterator);
  }
  if (iterator->kind == IteratorKind::kMap) {
    std::vector<Ref> values;
    for (const Ref& source : iterator->sources) {
      FJ_TRY(Ref value, state.next(source.get()));
      if (!value) return Ref();
      values.push_back(std::move(value));
    }
    std::vector<PyObject*> args;
    for (const Ref& value : values) args.push_back(value.get());
    return state.caller.call(iterator->function.get(), args);
  }
  while (true) {
    FJ_TRY(Ref value, state.next(iterator->sources[0].get()));
    if (!value) return Ref();
    Ref verdict = value;
    if (iterator->function.get() != Py_None) {
      FJ_TRY(verdict,
             state.caller.call(iterator->function.get(), {value.get()}));
    }
    FJ_TRY(bool keep, state.truth(verdict.get()));
    if (keep) return value;
  }
}

// ---- iteration
namespace {

Break unguardable(CaptureState& state, PyObject* object, const char* what) {
  return state.make_break(
      BreakReason::kUnguardableInput,
      std::string(what) + " of a " + Py_TYPE(object)->tp_name);
}

// The keys only: a fresh dict with the same keys stands for the input.
Result<Ref> key_iterator(CaptureState& state, PyObject* dict) {
  const Source* source = state.source_of(dict);
  ContainerState& entry = state.tables().containers[dict];
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
  state.tables().originals[copy.get()] = dict;
  entry.key_iterator = iterator;
  return iterator;
}

Result<Ref> tensor_rows(CaptureState& state, PyObject* tensor) {
  Ref zero = Ref::steal(PyLong_FromLong(0));
  FJ_TRY(Ref unbind, state.tracer.get_attribute(tensor, interned("unbind")));
  return state.tracer.call(unbind.get(), {zero.get()}, nullptr);
}

}  // namespace

Result<Ref> CaptureState::iter(PyObject* object) {
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
  auto class_dict = tables_->class_dicts.find(object);
  if (class_dict != tables_->class_dicts.end()) {
    FJ_TRY(Ref names, class_names(*this, class_dict->second));
    return from_api(PyObject_GetIter(names.get()));
  }
  FJ_TRY(Ref special, python_special(object, "__iter__"));
  if (special) return caller.call(special.get(), {object});
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
  if (PyDict_Check(object)) return key_iterator(*this, object);
  if (is_container(object)) {
    FJ_TRY(Ref copy, shadow(object));
    return from_api(PyObject_GetIter(copy.get()));
  }
  if (!Py_TYPE(object)->tp_iter || PyUnicode_Check(object) ||
      PyBytes_Check(object) || PyFrozenSet_Check(object)) {
    return from_api(PyObject_GetIter(object));
  }
  if (PyType_Check(object)) {  // a metaclass in C: none is known
    return from_api(PyObject_GetIter(object));
  }
  // Iterators are their own.
  if (is_readable_iterator(object) || PyGen_CheckExact(object)) {
    return Ref::borrow(object);
  }
  return unguardable(*this, object, "iteration");
}

Result<Ref> CaptureState::next(PyObject* iterator) {
  if (auto* model = as_model_iterator(iterator)) {
    return model_iterator_next(*this, model);
  }
  FJ_TRY(Ref special, python_special(iterator, "__next__"));
  if (special) {
    Result<Ref> value = caller.call(special.get(), {iterator});
    if (value.is_raised() && PyErr_ExceptionMatches(PyExc_StopIteration)) {
      PyErr_Clear();
      return Ref();
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
    PyErr_Clear();
    return Ref();
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

Result<Ref> native_iterable(CaptureState& state, PyObject* object) {
  bool exact = PyTuple_CheckExact(object) || PyUnicode_CheckExact(object) ||
               (!state.is_input(object) &&
                (PyList_CheckExact(object) || PyDict_CheckExact(object)));
  if (exact) return Ref::borrow(object);
  FJ_TRY(Ref iterator, state.iter(object));
  FJ_TRY(Ref python, state.python_special(iterator.get(), "__next__"));
  if (!python) {
    if (!state.is_input(iterator.get())) return iterator;
  }
  std::vector<Ref> sources{iterator};
  return make_iterator(state, IteratorKind::kUser, nullptr, std::move(sources));
}

// ---- arguments of C code
namespace {

Result<Ref> prepare_items(CaptureState& state, PyObject* object) {
  Ref list = Ref::steal(PySequence_List(object));
  if (!list) return Result<Ref>::raised();
  bool changed = false;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i) {
    PyObject* item = PyList_GET_ITEM(list.get(), i);
    FJ_TRY(Ref prepared, prepare(state, item, Reads::kDeep));
    FJ_CHECK_OK(guard_class_text(state, item));
    if (prepared.get() == item) continue;
    changed = true;
    PyList_SetItem(list.get(), i, prepared.release());
  }
  if (!changed) return Ref::borrow(object);
  if (PyTuple_CheckExact(object)) {
    return from_api(PyList_AsTuple(list.get()));
  }
  if (PyList_CheckExact(object)) return list;
  if (std::string_view(Py_TYPE(object)->tp_name) == "torch.Size" &&
      !(Py_TYPE(object)->tp_flags & Py_TPFLAGS_HEAPTYPE)) {
    return from_api(PyObject_CallOneArg(
        reinterpret_cast<PyObject*>(Py_TYPE(object)), list.get()));
  }
  return unguardable(state, object, "the nested contents");
}

Result<Ref> prepare_dict(CaptureState& state, PyObject* dict) {
  Ref copy = Ref::steal(PyDict_New());
  if (!copy) return Result<Ref>::raised();
  bool changed = false;
  Py_ssize_t position = 0;
  PyObject *key, *value;
  while (PyDict_Next(dict, &position, &key, &value)) {
    if (!is_safe_key(state, key)) return unguardable(state, key, "a key");
    FJ_TRY(Ref prepared, prepare(state, value, Reads::kDeep));
    changed |= prepared.get() != value;
    if (PyDict_SetItem(copy.get(), key, prepared.get()) < 0) {
      return Result<Ref>::raised();
    }
  }
  if (!changed) return Ref::borrow(dict);
  if (PyDict_CheckExact(dict)) return copy;
  return unguardable(state, dict, "the nested contents");
}

// Fresh objects whose contents C code may look at freely.
Result<Ref> prepare_fresh(CaptureState& state, PyObject* object) {
  if (PyList_Check(object) || PyTuple_Check(object)) {
    return prepare_items(state, object);
  }
  if (PyDict_Check(object)) return prepare_dict(state, object);
  if (PyAnySet_Check(object) || is_container(object)) {
    return prepare_items(state, object);
  }
  PyTypeObject* const kPlain[] = {&PyRange_Type,
                                  &PySlice_Type,
                                  &PyMemoryView_Type,
                                  &PyByteArray_Type,
                                  &PyMethodDescr_Type,
                                  &PyWrapperDescr_Type,
                                  &PyGetSetDescr_Type,
                                  &PyMemberDescr_Type,
                                  internals::method_wrapper_type()};
  for (PyTypeObject* type : kPlain) {
    if (Py_IS_TYPE(object, type)) return Ref::borrow(object);
  }
  const char* name = Py_TYPE(object)->tp_name;
  if (std::strcmp(name, "re.Match") == 0 ||
      std::strcmp(name, "re.Pattern") == 0) {
    return Ref::borrow(object);
  }
  // Reached through an object that C code made: its class decides what it is.
  if (is_enum_member(object)) return Ref::borrow(object);
  if (PyLong_Check(object) || PyFloat_Check(object) ||
      PyUnicode_Check(object)) {
    // An int, float or str of a subclass whose text is its own.
    for (const char* method : {"__str__", "__repr__", "__format__", "__eq__",
                               "__hash__", "__lt__", "__index__"}) {
      FJ_TRY(Ref special, state.python_special(object, method));
      if (special) return unguardable(state, object, "the value");
    }
    return Ref::borrow(object);
  }
  return unguardable(state, object, "the contents");
}

// [].append of the program: what it is bound to is not known.
bool is_bound_input(CaptureState& state, PyObject* object) {
  return is_bound_c_method(object) && state.is_input(object) &&
         !state.is_constant(object);
}

}  // namespace

Result<Ref> prepare(CaptureState& state, PyObject* object, Reads reads) {
  if (is_builtin_constant(object)) return Ref::borrow(object);
  switch (state.tracer.classify(object)) {
    case ObjectClass::kPlain:
      break;
    case ObjectClass::kConstant:
      return Ref::borrow(object);
    case ObjectClass::kSymbolic:
      return state.tracer.concretise(object);
    case ObjectClass::kStandIn:
      if (reads != Reads::kDeep) return Ref::borrow(object);
      return state.make_break(BreakReason::kDataDependentValue,
                              "C code looks at a tensor");
    default:
      return state.make_break(BreakReason::kUnknownTensor,
                              Py_TYPE(object)->tp_name);
  }
  if (reads == Reads::kNothing) return Ref::borrow(object);
  if (PyType_Check(object) || PyFunction_Check(object) ||
      PyModule_Check(object) ||
      (PyCFunction_Check(object) && !is_bound_input(state, object))) {
    return Ref::borrow(object);
  }
  const Source* source = state.source_of(object);
  Ref visible = Ref::borrow(object);
  if (source && is_container(object)) {
    FJ_TRY(visible, state.shadow(object));
  } else if (source && !PyTuple_Check(object)) {
    if (is_guarded_by_identity(object) && !is_bound_input(state, object)) {
      return visible;
    }
    return unguardable(state, object, "the contents");
  }
  if (reads == Reads::kElements) return visible;
  return prepare_fresh(state, visible.get());
}

}  // namespace framejit::bytecode
