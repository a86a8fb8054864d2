// What functions with a functools.lru_cache return.
//
// A result that the cache holds is what the program would get: that the cache
// holds it is guarded, and with it the entry goes when the cache is cleared. A
// result that is not there yet is computed by interpreting the function; the
// cache is not written.
//
// The program shares such an object with every other call of the function, but
// a capture makes one of its own. Nobody can tell as long as it is only read:
// it is remembered with its parts, which must be the same when the capture
// ends, and the planner refuses to let it outlive the capture. The notes are in
// the dict of cached calls, under an int for the object's address.
#include <cstring>

#include "bytecode/builtins.h"
#include "frame_hook/frame_eval.h"

namespace framejit::bytecode {

namespace {

bool is_plain_instance(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (!is_heap_type(type) || solid_base(type) != &PyBaseObject_Type) {
    return false;
  }
  // Slots would be parts of their own.
  return type->tp_dictoffset != 0 && type->tp_itemsize == 0 &&
         !raw_lookup(type, "__slots__") && !raw_lookup(type, "__del__");
}

// The parts in order; empty Ref: of another kind.
Result<Ref> parts_of(PyObject* object) {
  if (PyTuple_CheckExact(object) || PyList_CheckExact(object) ||
      PySet_CheckExact(object)) {
    return from_api(PySequence_Tuple(object));
  }
  Ref dict;
  if (PyDict_CheckExact(object)) {
    dict = Ref::borrow(object);
  } else if (is_plain_instance(object)) {
    FJ_TRY(dict, from_api(PyObject_GenericGetDict(object, nullptr)));
  } else {
    return Ref();
  }
  std::vector<PyObject*> parts;
  Py_ssize_t position = 0;
  PyObject *key, *item;
  while (PyDict_Next(dict.get(), &position, &key, &item)) {
    parts.push_back(key);
    parts.push_back(item);
  }
  Ref tuple = Ref::steal(PyTuple_New(parts.size()));
  if (!tuple) return Result<Ref>::raised();
  for (size_t i = 0; i < parts.size(); ++i) {
    PyTuple_SET_ITEM(tuple.get(), i, Py_NewRef(parts[i]));
  }
  return tuple;
}

// The dict of the wrapper's cache: among what it refers to, the one before the
// function and the mark of keywords. Empty Ref: it has none, or is laid out
// otherwise.
Ref cache_of(PyObject* wrapper) {
  ErrorGuard keep;
  PyObject* referents = library_object("gc", "get_referents");
  Ref list =
      Ref::steal(referents ? PyObject_CallOneArg(referents, wrapper) : nullptr);
  if (!list || !PyList_CheckExact(list.get())) return {};
  for (Py_ssize_t i = PyList_GET_SIZE(list.get()); i-- > 2;) {
    if (!Py_IS_TYPE(PyList_GET_ITEM(list.get(), i), &PyBaseObject_Type)) {
      continue;
    }
    if (!PyCallable_Check(PyList_GET_ITEM(list.get(), i - 1))) return {};
    PyObject* found = PyList_GET_ITEM(list.get(), i - 2);
    return PyDict_CheckExact(found) ? Ref::borrow(found) : Ref();
  }
  return {};
}

// The arguments as the cache may be asked for them; empty: hashing them would
// run code of the program, or tell objects apart that no guard does. A size
// that may change stays a symbol where the function can be interpreted.
Result<std::vector<Ref>> cache_arguments(CaptureState& state,
                                         const std::vector<PyObject*>& args) {
  std::vector<Ref> values;
  bool objects = false, symbols = false;
  for (PyObject* arg : args) {
    values.push_back(Ref::borrow(arg));
    if (is_builtin_constant(arg)) continue;
    if (is_symbolic(state, arg)) {
      symbols = true;
      continue;
    }
    bool fixed = state.is_input(arg) ||
                 (PyType_Check(arg) && !is_fresh_class(state, arg));
    if (!fixed || !is_identity_key(state, arg)) return std::vector<Ref>();
    objects = true;
  }
  if (symbols && !objects) return std::vector<Ref>();
  for (Ref& value : values) {
    if (is_symbolic(state, value.get())) {
      FJ_TRY(value, state.tracer.concretise(value.get()));
    }
    state.pin(value.get());
  }
  return values;
}

// What functools makes of the arguments.
Ref cache_key(const std::vector<PyObject*>& args) {
  if (args.size() == 1 &&
      (PyUnicode_CheckExact(args[0]) || PyLong_CheckExact(args[0]))) {
    return Ref::borrow(args[0]);
  }
  Ref key = Ref::steal(PyTuple_New(args.size()));
  for (size_t i = 0; key && i < args.size(); ++i) {
    PyTuple_SET_ITEM(key.get(), i, Py_NewRef(args[i]));
  }
  return key;
}

// torch.compiler.assume_constant_result beneath the cache: asked as the program
// would ask, once.
bool is_marked_constant(PyObject* wrapper) {
  ErrorGuard keep;
  PyObject* dict = PyObject_GenericGetDict(wrapper, nullptr);
  Ref owned = Ref::steal(dict);
  return dict && PyDict_Check(dict) &&
         PyDict_GetItemString(dict, "_dynamo_marked_constant");
}

Ref address_of(PyObject* object) {
  return Ref::steal(PyLong_FromVoidPtr(object));
}

Result<bool> note(CaptureState& state, PyObject* value, int depth) {
  constexpr int kMaxDepth = 20;
  if (state.is_constant(value) || state.is_input(value) ||
      PyType_Check(value) || is_symbolic(state, value)) {
    return true;
  }
  if (depth > kMaxDepth ||
      state.tracer.classify(value) != ObjectClass::kPlain) {
    return false;
  }
  if (is_cached_result(state, value)) return true;
  FJ_TRY(Ref parts, parts_of(value));
  if (!parts) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(parts.get()); ++i) {
    FJ_TRY(bool fine, note(state, PyTuple_GET_ITEM(parts.get(), i), depth + 1));
    if (!fine) return false;
  }
  Ref address = address_of(value);
  Ref entry = Ref::steal(PyTuple_Pack(2, value, parts.get()));
  if (!address || !entry ||
      PyDict_SetItem(state.tables().cached_calls.get(), address.get(),
                     entry.get()) < 0) {
    return Result<bool>::raised();
  }
  return true;
}

}  // namespace

Result<Ref> read_cached_result(CaptureState& state, PyObject* wrapper,
                               const std::vector<PyObject*>& given) {
  // A cache made in the capture is empty.
  if (!state.is_input(wrapper)) return Ref();
  Ref cache = cache_of(wrapper);
  if (!cache) return Ref();
  FJ_TRY(std::vector<Ref> values, cache_arguments(state, given));
  if (values.size() != given.size()) return Ref();
  std::vector<PyObject*> args;
  for (const Ref& value : values) args.push_back(value.get());
  Ref key = cache_key(args);
  if (!key) return Result<Ref>::raised();
  state.pin(wrapper);
  SourceArena& sources = state.guards.sources();
  const Source* source = sources.constant(cache.get());
  PyObject* raw = PyDict_GetItemWithError(cache.get(), key.get());
  if (!raw && !PyErr_Occurred() && is_marked_constant(wrapper)) {
    PauseHook pause;
    FJ_TRY(Ref value, from_api(PyObject_Vectorcall(wrapper, args.data(),
                                                   args.size(), nullptr)));
    raw = PyDict_GetItemWithError(cache.get(), key.get());
  }
  if (!raw) {
    if (PyErr_Occurred()) return Result<Ref>::raised();
    // Once it is there it may be another than the one made now.
    state.guard(GuardKind::kNoKey, source, key.get());
    state.tables().missed_keys.push_back({cache, key});
    return Ref();
  }
  state.keep_alive(raw);
  const Source* item = sources.make(SourceKind::kDictItem, source, key.get());
  if (std::strcmp(Py_TYPE(raw)->tp_name, "functools._lru_list_elem") != 0) {
    return state.wrap(raw, item);
  }
  // A link of the list that says what to forget first. It never changes.
  state.guard(GuardKind::kIs, item, raw);
  PauseHook pause;
  FJ_TRY(Ref value, from_api(PyObject_Vectorcall(wrapper, args.data(),
                                                 args.size(), nullptr)));
  return state.wrap(value.get(), sources.constant(value.get()));
}

Result<bool> note_cached_result(CaptureState& state, PyObject* value) {
  return note(state, value, 0);
}

bool is_cached_result(CaptureState& state, PyObject* object) {
  PyObject* notes = state.tables().cached_calls.get();
  if (!notes) return false;
  ErrorGuard keep;
  Ref address = address_of(object);
  return address && PyDict_GetItem(notes, address.get()) != nullptr;
}

Result<bool> cached_results_unchanged(CaptureState& state) {
  PyObject* notes = state.tables().cached_calls.get();
  if (!notes) return true;
  Py_ssize_t position = 0;
  PyObject *key, *entry;
  while (PyDict_Next(notes, &position, &key, &entry)) {
    if (!PyLong_CheckExact(key)) continue;
    PyObject* before = PyTuple_GET_ITEM(entry, 1);
    FJ_TRY(Ref now, parts_of(PyTuple_GET_ITEM(entry, 0)));
    if (!now || PyTuple_GET_SIZE(now.get()) != PyTuple_GET_SIZE(before)) {
      return false;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(before); ++i) {
      if (PyTuple_GET_ITEM(now.get(), i) != PyTuple_GET_ITEM(before, i)) {
        return false;
      }
    }
  }
  return true;
}

}  // namespace framejit::bytecode
