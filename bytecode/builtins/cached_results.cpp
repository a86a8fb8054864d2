#include "bytecode/builtins/cached_results.h"

#include <cstring>

#include "bytecode/builtins/builtins.h"
#include "bytecode/builtins/effects.h"
#include "bytecode/library/library.h"
#include "bytecode/objects/breaks.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/keys.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/step_functions.h"
#include "bytecode/objects/write_log.h"
#include "frame_hook/frame_eval.h"
#include "guards/known_objects.h"

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

// What a wrapper is made of. Its C struct has no name outside of functools, but
// its parts are among what it refers to: the dict, the function and the mark
// that keywords are set off with. Where the dict lies, the others lie around.
struct CacheParts {
  Ref dict;
  Ref mark;
  bool typed = false;
  Py_ssize_t maxsize = -1;  // -1: any number
};

struct CacheFields {  // from the dict on
  PyObject* dict;
  Py_ssize_t hits;
  PyObject* function;
  Py_ssize_t maxsize;
};

PyObject* word_at(PyObject* object, size_t at) {
  PyObject* word;
  std::memcpy(&word, reinterpret_cast<const char*>(object) + at, sizeof word);
  return word;
}

// Without a dict: laid out otherwise.
CacheParts parts_of_cache(PyObject* wrapper) {
  ErrorGuard keep;
  PyObject* referents = library_object("gc", "get_referents");
  Ref list =
      Ref::steal(referents ? PyObject_CallOneArg(referents, wrapper) : nullptr);
  if (!list || !PyList_CheckExact(list.get())) return {};
  CacheParts parts;
  PyObject* function = nullptr;
  for (Py_ssize_t i = PyList_GET_SIZE(list.get()); i-- > 2 && !function;) {
    PyObject* mark = PyList_GET_ITEM(list.get(), i);
    PyObject* dict = PyList_GET_ITEM(list.get(), i - 2);
    if (!Py_IS_TYPE(mark, &PyBaseObject_Type)) continue;
    if (!PyDict_CheckExact(dict)) return {};
    function = PyList_GET_ITEM(list.get(), i - 1);
    parts.dict = Ref::borrow(dict);
    parts.mark = Ref::borrow(mark);
  }
  if (!function || !PyCallable_Check(function)) return {};
  const char* begin = reinterpret_cast<const char*>(wrapper);
  const size_t size = Py_TYPE(wrapper)->tp_basicsize;
  CacheFields fields;
  for (size_t at = sizeof(PyObject) + 8; at + sizeof fields <= size; at += 8) {
    std::memcpy(&fields, begin + at, sizeof fields);
    if (fields.dict != parts.dict.get() || fields.function != function) {
      continue;
    }
    int typed;
    std::memcpy(&typed, begin + at - 8, sizeof typed);
    parts.typed = typed != 0;
    parts.maxsize = fields.maxsize;
    return parts;
  }
  return {};
}

// What a bounded cache holds: links of the list that says what to forget
// first. No module names their type, so a cache is asked.
struct LinkLayout {
  PyTypeObject* type = nullptr;
  size_t result = 0;  // where the link has the result
};

LinkLayout find_link_layout() {
  PauseHook pause;
  ErrorGuard keep;
  LinkLayout layout;
  PyTypeObject* wrapper_type = kLruCache.get();
  PyObject* key_maker = library_object("functools", "_CacheInfo");
  Ref wrapper = Ref::steal(wrapper_type && key_maker
                               ? PyObject_CallFunction(as_object(wrapper_type),
                                                       "OiOO", &PyBool_Type, 2,
                                                       Py_False, key_maker)
                               : nullptr);
  Ref called = Ref::steal(wrapper ? PyObject_CallOneArg(wrapper.get(), Py_True)
                                  : nullptr);
  Ref cache = called ? parts_of_cache(wrapper.get()).dict : Ref();
  Ref values = Ref::steal(cache ? PyDict_Values(cache.get()) : nullptr);
  if (!values || PyList_GET_SIZE(values.get()) != 1) return layout;
  PyObject* link = PyList_GET_ITEM(values.get(), 0);
  // Its key is a tuple of True, its result True.
  for (size_t at = sizeof(PyObject);
       at + sizeof(PyObject*) <= size_t(Py_TYPE(link)->tp_basicsize); at += 8) {
    if (word_at(link, at) == Py_True) layout.result = at;
  }
  if (!layout.result) return layout;
  layout.type = Py_TYPE(link);
  Py_INCREF(layout.type);
  return layout;
}

const LinkLayout& link_layout() {
  static const LinkLayout layout = find_link_layout();
  return layout;
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
    FJ_CHECK_OK(state.pin_value(value.get()));
  }
  return values;
}

// What functools makes of the arguments.
Ref cache_key(const CacheParts& parts, const std::vector<PyObject*>& args,
              PyObject* names) {
  const size_t named = names ? PyTuple_GET_SIZE(names) : 0;
  const size_t placed = args.size() - named;
  if (!parts.typed && !named && args.size() == 1 &&
      (PyUnicode_CheckExact(args[0]) || PyLong_CheckExact(args[0]))) {
    return Ref::borrow(args[0]);
  }
  std::vector<PyObject*> items(args.begin(), args.begin() + placed);
  if (named) items.push_back(parts.mark.get());
  for (size_t i = 0; i < named; ++i) {
    items.push_back(PyTuple_GET_ITEM(names, i));
    items.push_back(args[placed + i]);
  }
  if (parts.typed) {
    for (PyObject* arg : args) items.push_back(as_object(Py_TYPE(arg)));
  }
  Ref key = Ref::steal(PyTuple_New(items.size()));
  for (size_t i = 0; key && i < items.size(); ++i) {
    PyTuple_SET_ITEM(key.get(), i, Py_NewRef(items[i]));
  }
  return key;
}

// (callable, names, arguments): the last ones by these names.
PyObject* call_by_names(PyObject*, PyObject* const* args, Py_ssize_t count) {
  return PyObject_Vectorcall(args[0], args + 2,
                             count - 2 - PyTuple_GET_SIZE(args[1]), args[1]);
}

PyMethodDef kCallByNames = {"call_by_names",
                            reinterpret_cast<PyCFunction>(call_by_names),
                            METH_FASTCALL, nullptr};

Result<Ref> call_natively(PyObject* wrapper, const std::vector<PyObject*>& args,
                          PyObject* names) {
  PauseHook pause;
  const size_t named = names ? PyTuple_GET_SIZE(names) : 0;
  return from_api(
      PyObject_Vectorcall(wrapper, args.data(), args.size() - named, names));
}

// A function promised to be constant beneath the cache: asked as the program
// would ask, once.
bool is_marked_constant(PyObject* wrapper) {
  ErrorGuard keep;
  PyObject* dict = PyObject_GenericGetDict(wrapper, nullptr);
  Ref owned = Ref::steal(dict);
  return dict && PyDict_Check(dict) &&
         find_mark_in(dict) == Mark::kConstantResult;
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
      PyDict_SetItem(state.table<CachedResults>().calls.get(), address.get(),
                     entry.get()) < 0) {
    return Result<bool>::raised();
  }
  return true;
}

}  // namespace

Result<Ref> read_cached_result(CaptureState& state, PyObject* wrapper,
                               const std::vector<PyObject*>& given,
                               PyObject* names) {
  // A cache made in the capture is empty.
  if (!state.is_input(wrapper)) return Ref();
  const CacheParts parts = parts_of_cache(wrapper);
  const Ref& cache = parts.dict;
  if (!cache) {
    return state.make_break(BreakReason::kUnguardableInput,
                            "an lru_cache that cannot be looked into");
  }
  FJ_TRY(std::vector<Ref> values, cache_arguments(state, given));
  if (values.size() != given.size()) return Ref();
  std::vector<PyObject*> args;
  for (const Ref& value : values) args.push_back(value.get());
  Ref key = cache_key(parts, args, names);
  if (!key) return Result<Ref>::raised();
  state.pin(wrapper);
  SourceArena& sources = state.guards.sources();
  const Source* source = sources.constant(cache.get());
  PyObject* raw = PyDict_GetItemWithError(cache.get(), key.get());
  if (!raw && !PyErr_Occurred() && is_marked_constant(wrapper)) {
    FJ_CHECK_OK(call_natively(wrapper, args, names));
    raw = PyDict_GetItemWithError(cache.get(), key.get());
  }
  if (!raw) {
    if (PyErr_Occurred()) return Result<Ref>::raised();
    // Once it is there it may be another than the one made now.
    state.guard(GuardKind::kNoKey, source, key.get());
    state.table<CachedResults>().missed_keys.push_back({cache, key});
    return Ref();
  }
  state.keep_alive(raw);
  if (state.table<CachedResults>().given.contains(wrapper)) {
    return state.make_break(BreakReason::kUnguardableInput,
                            "an lru_cache that may have forgotten a result");
  }
  const Source* item = sources.make(SourceKind::kDictItem, source, key.get());
  Ref value;
  if (Py_TYPE(raw) != link_layout().type) {
    FJ_TRY(value, state.wrap(raw, item));
  } else {
    // A link of the list that says what to forget first. It never changes.
    state.guard(GuardKind::kIs, item, raw);
    Ref result = Ref::borrow(word_at(raw, link_layout().result));
    FJ_TRY(value, state.wrap(result.get(), sources.constant(result.get())));
  }
  FJ_CHECK_OK(log_cached_call(state, wrapper, given, names, true));
  return value;
}

Status log_cached_call(CaptureState& state, PyObject* wrapper,
                       const std::vector<PyObject*>& args, PyObject* names,
                       bool held) {
  if (!state.is_input(wrapper) || is_marked_constant(wrapper)) {
    return ok_status();
  }
  state.pin(wrapper);
  if (!held && parts_of_cache(wrapper).maxsize > 0) {
    ++state.table<CachedResults>().given[wrapper];
  }
  const bool named = names && PyTuple_GET_SIZE(names);
  std::vector<PyObject*> items{wrapper};
  if (named) items.push_back(names);
  items.insert(items.end(), args.begin(), args.end());
  Ref packed = Ref::steal(PyTuple_New(items.size()));
  if (!packed) return Status::raised();
  for (size_t i = 0; i < items.size(); ++i) {
    PyTuple_SET_ITEM(packed.get(), i, Py_NewRef(items[i]));
  }
  // The key says what the call is about.
  WriteLog::add(state, Write::Kind::kCall,
                named ? effect_function(&kCallByNames)
                      : library_object("operator", "call"),
                wrapper, packed.get());
  return ok_status();
}

bool take_back_cached_calls(CaptureState& state, size_t start) {
  std::vector<Write>& log = state.table<WriteLog>().entries;
  for (size_t i = start; i < log.size(); ++i) {
    if (log[i].kind != Write::Kind::kCall || !log[i].key ||
        !kLruCache.is_type_of(log[i].key.get())) {
      return false;
    }
  }
  log.erase(log.begin() + start, log.end());
  return true;
}

Result<Ref> cached_call_key(PyObject* wrapper,
                            const std::vector<PyObject*>& args,
                            PyObject* names) {
  const CacheParts parts = parts_of_cache(wrapper);
  if (!parts.dict || parts.maxsize == 0) return Ref::borrow(Py_None);
  Ref key = cache_key(parts, args, names);
  return from_api(key ? PyTuple_Pack(2, wrapper, key.get()) : nullptr);
}

bool keeps_all_given(CaptureState& state, PyObject* wrapper) {
  auto& given = state.table<CachedResults>().given;
  auto found = given.find(wrapper);
  return found == given.end() ||
         found->second <= parts_of_cache(wrapper).maxsize;
}

Result<bool> note_cached_result(CaptureState& state, PyObject* value) {
  return note(state, value, 0);
}

bool is_cached_result(CaptureState& state, PyObject* object) {
  PyObject* notes = state.table<CachedResults>().calls.get();
  if (!notes) return false;
  ErrorGuard keep;
  Ref address = address_of(object);
  return address && PyDict_GetItem(notes, address.get()) != nullptr;
}

Result<bool> cached_results_unchanged(CaptureState& state) {
  PyObject* notes = state.table<CachedResults>().calls.get();
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
