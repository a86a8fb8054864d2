#include "bytecode/objects/model_iterators.h"

#include "bytecode/objects/breaks.h"
#include "bytecode/objects/containers.h"
#include "bytecode/objects/keys.h"
#include "bytecode/objects/native_calls.h"
#include "bytecode/objects/private_type.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

struct ModelIterator : CaptureObject {
  IteratorKind kind;
  Py_ssize_t index;
  Ref function;
  std::vector<Ref> sources;
};

namespace {

void dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  auto* iterator = reinterpret_cast<ModelIterator*>(self);
  iterator->function.~Ref();
  iterator->sources.~vector();
  type->tp_free(self);
  Py_DECREF(type);
}

PyObject* iterator_next(PyObject* self) {
  auto* iterator = reinterpret_cast<ModelIterator*>(self);
  return under_c(iterator->state, true, [&] {
    return model_iterator_next(*iterator->state, iterator);
  });
}

// sized_iterable(): what was asked for and is not iterated yet.
PyObject* sized_object(ModelIterator* iterator) {
  return iterator->kind == IteratorKind::kUser ? iterator->function.get()
                                               : nullptr;
}

PyObject* iterator_iter(PyObject* self) {
  auto* iterator = reinterpret_cast<ModelIterator*>(self);
  PyObject* object = sized_object(iterator);
  if (!object || !iterator->sources.empty()) return Py_NewRef(self);
  return under_c(iterator->state, false, [&]() -> Result<Ref> {
    FJ_TRY(Ref source, iterator->state->iter(object));
    iterator->sources.push_back(std::move(source));
    return Ref::borrow(self);
  });
}

PyObject* iterator_length_hint(PyObject* self, PyObject* /*none*/) {
  auto* iterator = reinterpret_cast<ModelIterator*>(self);
  PyObject* object = sized_object(iterator);
  if (!object) Py_RETURN_NOTIMPLEMENTED;
  return under_c(iterator->state, false, [&]() -> Result<Ref> {
    FJ_CHECK_OK(ask_length_hint(*iterator->state, object));
    return Ref::borrow(Py_NotImplemented);
  });
}

PyMethodDef iterator_methods[] = {
    {"__length_hint__", iterator_length_hint, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr}};

PyTypeObject* shown_iterator_type(PyObject* self) {
  switch (reinterpret_cast<ModelIterator*>(self)->kind) {
    case IteratorKind::kMap:
      return &PyMap_Type;
    case IteratorKind::kFilter:
      return &PyFilter_Type;
    case IteratorKind::kSequence:
      return &PySeqIter_Type;
    case IteratorKind::kReversed:
      return &PyReversed_Type;
    case IteratorKind::kCallable:
      return &PyCallIter_Type;
    case IteratorKind::kChain:
      return reinterpret_cast<PyTypeObject*>(
          library_object("itertools", "chain"));
    case IteratorKind::kUser:
    case IteratorKind::kKeys:
      break;
  }
  return nullptr;
}

PyTypeObject* iterator_type() {
  static PyTypeObject* type = made_once([] {
    static PyType_Slot slots[] = {
        {Py_tp_dealloc, reinterpret_cast<void*>(dealloc)},
        {Py_tp_iter, reinterpret_cast<void*>(iterator_iter)},
        {Py_tp_iternext, reinterpret_cast<void*>(iterator_next)},
        {Py_tp_methods, iterator_methods},
        {0, nullptr}};
    return make_private_type("framejit._ModelIterator", sizeof(ModelIterator),
                             slots, shown_iterator_type);
  });
  return type;
}

}  // namespace

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
  state.table<NativeCalls>().held.push_back(object);
  return object;
}

Result<Ref> make_reversed_sequence(CaptureState& state, PyObject* object,
                                   Py_ssize_t size) {
  FJ_TRY(Ref made, make_iterator(state, IteratorKind::kReversed, object, {}));
  reinterpret_cast<ModelIterator*>(made.get())->index = size - 1;
  return made;
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

// Iteration by __getitem__, forwards or back: IndexError and StopIteration end
// it.
Result<Ref> sequence_next(CaptureState& state, ModelIterator* iterator) {
  const int step = iterator->kind == IteratorKind::kReversed ? -1 : 1;
  Ref index = Ref::steal(PyLong_FromSsize_t(iterator->index));
  if (!index) return Result<Ref>::raised();
  Result<Ref> value = state.get_item(iterator->function.get(), index.get());
  if (value.ok()) iterator->index += step;
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

// A part is iterated when the one before it has no more. What fails to give a
// part, or to be iterated, is the end.
Result<Ref> chain_next(CaptureState& state, ModelIterator* iterator) {
  while (true) {
    if (!iterator->sources.empty()) {
      Ref source = iterator->sources[0];
      FJ_TRY(Ref value, state.next(source.get()));
      if (value) return value;
      iterator->sources.clear();
    }
    Ref parts = iterator->function;
    Result<Ref> part = state.next(parts.get());
    if (part.ok() && part.value()) {
      part = state.iter(part.value().get());
      if (part.ok()) {
        iterator->sources.push_back(part.take());
        continue;
      }
    }
    iterator->index = -1;
    iterator->function = Ref();
    return part;
  }
}

}  // namespace

Result<Ref> model_iterator_next(CaptureState& state, ModelIterator* iterator) {
  Ref alive = Ref::borrow(reinterpret_cast<PyObject*>(iterator));
  if (iterator->index < 0) return Ref();  // exhausted
  if (iterator->kind == IteratorKind::kUser) {
    if (iterator->sources.empty()) return Ref();  // no iterator yet
    return state.next(iterator->sources[0].get());
  }
  if (iterator->kind == IteratorKind::kKeys) {
    FJ_TRY(Ref key, state.next(iterator->sources[0].get()));
    if (key && !is_safe_key(state, key.get()))
      return unguardable_key(state, key.get());
    return key;
  }
  if (iterator->kind == IteratorKind::kChain) {
    return chain_next(state, iterator);
  }
  if (iterator->kind == IteratorKind::kSequence ||
      iterator->kind == IteratorKind::kReversed) {
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

Result<Ref> native_iterable(CaptureState& state, PyObject* object) {
  bool exact = PyTuple_CheckExact(object) || PyUnicode_CheckExact(object) ||
               (!state.is_input(object) &&
                (PyList_CheckExact(object) || PyDict_CheckExact(object)));
  if (exact) return Ref::borrow(object);
  FJ_TRY(Ref iterator, state.iter(object));
  FJ_TRY(Ref python, state.python_special(iterator.get(), "__next__"));
  if (!python && !state.is_input(iterator.get())) return iterator;
  std::vector<Ref> sources{iterator};
  return make_iterator(state, IteratorKind::kUser, nullptr, std::move(sources));
}

Result<Ref> sized_iterable(CaptureState& state, PyObject* object) {
  FJ_TRY(bool tells, tells_its_length(state, object));
  if (!tells) return native_iterable(state, object);
  return make_iterator(state, IteratorKind::kUser, object, {});
}

}  // namespace framejit::bytecode
