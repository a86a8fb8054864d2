// Builtins that iterate: their sources may be the program's containers, the
// functions they call are the program's.
#include <algorithm>

#include <cstring>

#include "bytecode/builtins/builtins.h"
#include "bytecode/objects/attributes.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/containers.h"
#include "bytecode/objects/exceptions.h"
#include "bytecode/objects/keys.h"
#include "bytecode/objects/model_iterators.h"
#include "bytecode/objects/native_calls.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/write_log.h"
#include "frame_hook/cpython_internals.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

namespace {

// The same call with these positional arguments replaced by what C code may
// iterate.
Result<Ref> native_over_iterables(BuiltinCall& call, size_t first, size_t last,
                                  decltype(native_iterable)* iterable) {
  std::vector<PyObject*> args = call.args;
  std::vector<Ref> keep;
  for (size_t i = 0; i < args.size(); ++i) {
    bool iterates = i >= first && i < last && i < call.positional();
    FJ_TRY(Ref value, iterates ? iterable(call.state, args[i])
                               : prepare(call.state, args[i], Reads::kDeep));
    args[i] = value.get();
    keep.push_back(std::move(value));
  }
  size_t keywords = call.kwnames ? PyTuple_GET_SIZE(call.kwnames) : 0;
  return call.state.after_native(PyObject_Vectorcall(
      call.callable, args.data(), args.size() - keywords, call.kwnames));
}

Result<Ref> list_of(CaptureState& state, PyObject* iterable) {
  FJ_TRY(std::vector<Ref> items, listed_elements(state, iterable));
  Ref list = Ref::steal(PyList_New(items.size()));
  if (!list) return Result<Ref>::raised();
  for (size_t i = 0; i < items.size(); ++i) {
    PyList_SET_ITEM(list.get(), i, items[i].release());
  }
  return list;
}

}  // namespace

Result<Ref> model_len(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.native(Reads::kNothing);
  if (Py_IS_TYPE(call.callable, &PyWrapperDescr_Type)) {
    // list.__len__(v): not what the class of v has in its place.
    FJ_TRY(Ref special, call.state.python_special(call.args[0], "__len__"));
    if (special) return call.unknown();
  }
  return call.state.length(call.args[0]);
}

Result<Ref> model_iter(BuiltinCall& call) {
  if (call.plain(2, 2)) {
    FJ_TRY(Ref type, Result<Ref>(call.state.type_of(call.args[0])));
    if (!reinterpret_cast<PyTypeObject*>(type.get())->tp_call) {
      return call.native(Reads::kNothing);  // TypeError
    }
    std::vector<Ref> sentinel{Ref::borrow(call.args[1])};
    return make_iterator(call.state, IteratorKind::kCallable, call.args[0],
                         std::move(sentinel));
  }
  if (!call.plain(1, 1)) return call.unknown();
  return call.state.iter(call.args[0]);
}

Result<Ref> model_next(BuiltinCall& call) {
  if (!call.plain(1, 2)) return call.native(Reads::kNothing);
  Ref stop;
  FJ_TRY(Ref value, call.state.next(call.args[0], &stop));
  if (value) return value;
  if (call.args.size() == 2) return Ref::borrow(call.args[1]);
  if (stop) {
    restore_raised(std::move(stop));  // with the value returned
  } else {
    PyErr_SetNone(PyExc_StopIteration);
  }
  return Result<Ref>::raised();
}

Result<Ref> model_native_iter(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.native(Reads::kNothing);
  PyObject* object = call.args[0];
  // The container's own iteration: a subclass may have overridden __iter__.
  if (!call.state.is_input(object)) {
    return from_api(PyObject_Vectorcall(call.callable, &object, 1, nullptr));
  }
  FJ_TRY(Ref items, call.state.python_special(object, "__getitem__"));
  if (PyTuple_Check(object) && !items) return from_api(PySeqIter_New(object));
  FJ_TRY(Ref special, call.state.python_special(object, "__iter__"));
  if (special) return call.unknown();
  return call.state.iter(object);
}

// Types whose positional arguments are iterated: enumerate (the first), deque
// (the first), zip_longest (all).
Result<Ref> model_iterating_type(BuiltinCall& call) {
  bool first_only = call.callable == as_object(&PyEnum_Type) ||
                    call.callable == as_object(kDeque.get());
  return native_over_iterables(call, 0, first_only ? 1 : SIZE_MAX,
                               native_iterable);
}

Result<Ref> model_zip(BuiltinCall& call) {
  return native_over_iterables(call, 0, SIZE_MAX, native_iterable);
}

Result<Ref> model_islice(BuiltinCall& call) {
  return native_over_iterables(call, 0, 1, native_iterable);
}

// Those that make tuples of their arguments first.
Result<Ref> model_product(BuiltinCall& call) {
  return native_over_iterables(call, 0, SIZE_MAX, sized_iterable);
}

Result<Ref> model_choices(BuiltinCall& call) {
  return native_over_iterables(call, 0, 1, sized_iterable);
}

namespace {

// Is it the same to a program when its iterator is made? It runs no code, and
// has seen nothing of the object yet.
bool iterates_the_same_later(CaptureState& state, PyObject* object) {
  return PyTuple_CheckExact(object) || PyUnicode_CheckExact(object) ||
         PyList_CheckExact(object) ||
         (PyDict_CheckExact(object) && !state.is_input(object));
}

}  // namespace

Result<Ref> model_chain(BuiltinCall& call) {
  bool native = call.kwnames;  // TypeError
  if (!native) {
    native = std::ranges::all_of(call.args, [&](PyObject* part) {
      return iterates_the_same_later(call.state, part);
    });
  }
  if (native) return native_over_iterables(call, 0, SIZE_MAX, native_iterable);
  Ref parts = Ref::steal(PyTuple_New(call.args.size()));
  if (!parts) return Result<Ref>::raised();
  for (size_t i = 0; i < call.args.size(); ++i)
    PyTuple_SET_ITEM(parts.get(), i, Py_NewRef(call.args[i]));
  FJ_TRY(Ref iterator, from_api(PyObject_GetIter(parts.get())));
  return make_iterator(call.state, IteratorKind::kChain, iterator.get(), {});
}

Result<Ref> model_chain_from_iterable(BuiltinCall& call) {
  // args: the class, the iterable of iterables.
  if (!call.plain(2, 2)) return call.unknown();
  FJ_TRY(Ref iterator, call.state.iter(call.args[1]));
  return make_iterator(call.state, IteratorKind::kChain, iterator.get(), {});
}

namespace {

Result<Ref> lazy(BuiltinCall& call, IteratorKind kind, size_t least,
                 size_t most) {
  if (!call.plain(least, most)) return call.native(Reads::kNothing);
  std::vector<Ref> sources;
  for (size_t i = 1; i < call.args.size(); ++i) {
    FJ_TRY(Ref iterator, call.state.iter(call.args[i]));
    sources.push_back(std::move(iterator));
  }
  return make_iterator(call.state, kind, call.args[0], std::move(sources));
}

}  // namespace

Result<Ref> model_map(BuiltinCall& call) {
  return lazy(call, IteratorKind::kMap, 2, SIZE_MAX);
}

Result<Ref> model_filter(BuiltinCall& call) {
  return lazy(call, IteratorKind::kFilter, 2, 2);
}

Result<Ref> model_reversed(BuiltinCall& call) {
  if (!call.plain(1, 1)) return call.native(Reads::kNothing);
  CaptureState& state = call.state;
  PyObject* subject = call.args[0];
  FJ_TRY(Ref special, state.python_special(subject, "__reversed__"));
  if (special) return state.caller.call(special.get(), {subject});
  FJ_TRY(Ref items, state.python_special(subject, "__getitem__"));
  if (items && !raw_lookup(Py_TYPE(subject), "__reversed__")) {
    // The sequence protocol: the elements from the last to the first.
    FJ_TRY(Ref size, state.length(subject));
    FJ_TRY(Ref plain, concrete_index(state, size.get()));
    Py_ssize_t count = PyLong_AsSsize_t(plain.get());
    if (count < 0 && PyErr_Occurred()) return Result<Ref>::raised();
    return make_reversed_sequence(state, subject, count);
  }
  return call.native(Reads::kElements);
}

namespace {

// list.sort() of a short list, comparison by comparison, with the interpreter's
// own `<`: the run at the start, then the others by binary insertion.
Result<Ref> sort_by_comparing(CaptureState& state,
                              const std::vector<Ref>& values, bool reverse,
                              Ref* failed_at) {
  constexpr size_t kLongest = 63;  // longer ones are merged
  size_t count = values.size();
  if (count > kLongest) {
    return state.make_break(BreakReason::kUnguardableInput,
                            "sorts many objects by their __lt__");
  }
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) {
    // reverse=True turns the list around before and after.
    order[i] = reverse ? count - 1 - i : i;
  }
  auto less = [&](size_t a, size_t b) -> Result<bool> {
    FJ_TRY(Ref answer, state.compare(Py_LT, values[a].get(), values[b].get()));
    return state.truth(answer.get());
  };
  auto arrange = [&]() -> Status {
    size_t run = std::min<size_t>(count, 1);
    if (count > 1) {
      FJ_TRY(bool falls, less(order[1], order[0]));
      for (run = 2; run < count; ++run) {
        FJ_TRY(bool next, less(order[run], order[run - 1]));
        if (next != falls) break;
      }
      if (falls) std::reverse(order.begin(), order.begin() + run);
    }
    for (; run < count; ++run) {
      size_t item = order[run], low = 0, high = run;
      while (low < high) {
        size_t middle = low + (high - low) / 2;
        FJ_TRY(bool before, less(item, order[middle]));
        if (before) {
          high = middle;
        } else {
          low = middle + 1;
        }
      }
      std::rotate(order.begin() + low, order.begin() + run,
                  order.begin() + run + 1);
    }
    return ok_status();
  };
  Status done = arrange();
  if (!done.ok() && !done.is_raised()) return done.forward<Ref>();
  Ref error = done.is_raised() ? take_raised() : Ref();
  if (reverse) std::reverse(order.begin(), order.end());
  Ref indices = Ref::steal(PyList_New(count));
  for (size_t i = 0; indices && i < count; ++i) {
    PyObject* index = PyLong_FromSize_t(order[i]);
    if (!index) return Result<Ref>::raised();
    PyList_SET_ITEM(indices.get(), i, index);
  }
  if (!error || !indices) return from_api(indices.release());
  *failed_at = std::move(indices);
  restore_raised(std::move(error));
  return Result<Ref>::raised();
}

// Tuples that begin with different strings are in the order of these, and
// nothing behind them is looked at: (name, tensor). Leaves the strings in their
// place.
Status sort_by_names(CaptureState& state, std::vector<Ref>* values) {
  Ref names = Ref::steal(PySet_New(nullptr));
  if (!names) return Status::raised();
  std::vector<Ref> found;
  for (const Ref& value : *values) {
    if (!PyTuple_CheckExact(value.get()) || state.is_input(value.get()) ||
        PyTuple_GET_SIZE(value.get()) == 0 ||
        !PyUnicode_CheckExact(PyTuple_GET_ITEM(value.get(), 0))) {
      return ok_status();
    }
    FJ_TRY(Ref name,
           prepare(state, PyTuple_GET_ITEM(value.get(), 0), Reads::kDeep));
    if (PySet_Add(names.get(), name.get()) < 0) return Status::raised();
    found.push_back(std::move(name));
  }
  if (static_cast<size_t>(PySet_GET_SIZE(names.get())) == values->size()) {
    *values = std::move(found);
  }
  return ok_status();
}

// The order in which sorted() would put `items`: their indices. failed_at: the
// order they are in when a comparison raises.
Result<Ref> sort_order(CaptureState& state, const std::vector<Ref>& items,
                       PyObject* key, bool reverse, Ref* failed_at) {
  Ref keys = Ref::steal(PyList_New(0));
  if (!keys) return Result<Ref>::raised();
  std::vector<Ref> values;
  bool in_python = false;
  for (const Ref& item : items) {
    Ref value = item;
    if (key && key != Py_None) {
      FJ_TRY(value, state.caller.call(key, {item.get()}));
    }
    FJ_TRY(Ref less, state.python_special(value.get(), "__lt__"));
    in_python |= less && !is_enum_member(value.get());
    values.push_back(std::move(value));
  }
  if (in_python) return sort_by_comparing(state, values, reverse, failed_at);
  FJ_CHECK_OK(sort_by_names(state, &values));
  for (const Ref& value : values) {
    FJ_TRY(Ref plain, prepare(state, value.get(), Reads::kDeep));
    if (PyList_Append(keys.get(), plain.get()) < 0) {
      return Result<Ref>::raised();
    }
  }
  Ref indices = Ref::steal(PyList_New(0));
  if (!indices) return Result<Ref>::raised();
  for (size_t i = 0; i < items.size(); ++i) {
    Ref index = Ref::steal(PyLong_FromSize_t(i));
    if (!index || PyList_Append(indices.get(), index.get()) < 0) {
      return Result<Ref>::raised();
    }
  }
  Ref sort = Ref::steal(PyObject_GetAttrString(indices.get(), "sort"));
  Ref getter = Ref::steal(PyObject_GetAttrString(keys.get(), "__getitem__"));
  Ref none_args = Ref::steal(PyTuple_New(0));
  Ref options = Ref::steal(PyDict_New());
  if (!sort || !getter || !none_args || !options ||
      PyDict_SetItemString(options.get(), "key", getter.get()) < 0 ||
      PyDict_SetItemString(options.get(), "reverse",
                           reverse ? Py_True : Py_False) < 0) {
    return Result<Ref>::raised();
  }
  Result<Ref> done = state.after_native(
      PyObject_Call(sort.get(), none_args.get(), options.get()));
  if (done.is_raised()) *failed_at = indices;
  if (!done.ok()) return done;
  return indices;
}

// Its items: empty if the order is. No error is set.
Ref in_order(const std::vector<Ref>& items, PyObject* order) {
  Ref list = Ref::steal(PyList_New(items.size()));
  for (size_t i = 0; list && i < items.size(); ++i) {
    size_t from = PyLong_AsSize_t(PyList_GET_ITEM(order, i));
    PyList_SET_ITEM(list.get(), i, items[from].new_reference());
  }
  return list;
}

// `key` and `reverse` of a call.
struct SortOptions {
  PyObject* key;
  bool reverse = false;
};
Result<SortOptions> sort_options(BuiltinCall& call) {
  SortOptions found{call.argument(1, "key")};
  if (PyObject* flag = call.argument(2, "reverse")) {
    FJ_TRY(found.reverse, call.state.truth(flag));
  }
  return found;
}

// A list that is being sorted, as CPython has it meanwhile: empty, and without
// a size of its storage, so that a change shows.
class ListBeingSorted {
 public:
  explicit ListBeingSorted(PyObject* list)
      : list_(reinterpret_cast<PyListObject*>(list)),
        items_(list_->ob_item),
        size_(Py_SIZE(list_)),
        allocated_(list_->allocated) {
    Py_INCREF(list_);
    Py_SET_SIZE(list_, 0);
    list_->ob_item = nullptr;
    list_->allocated = kNoListStorage;
  }
  ListBeingSorted(const ListBeingSorted&) = delete;
  ListBeingSorted& operator=(const ListBeingSorted&) = delete;
  ~ListBeingSorted() {
    PyObject** added = list_->ob_item;
    Py_ssize_t count = Py_SIZE(list_);
    list_->ob_item = items_;
    Py_SET_SIZE(list_, size_);
    list_->allocated = allocated_;
    while (count > 0) Py_XDECREF(added[--count]);
    PyMem_Free(added);
    Py_DECREF(list_);
  }
  bool changed() const { return list_->allocated != kNoListStorage; }

 private:
  PyListObject* list_;
  PyObject** items_;
  Py_ssize_t size_;
  Py_ssize_t allocated_;
};

}  // namespace

Result<Ref> model_sorted(BuiltinCall& call) {
  if (call.positional() != 1 || !call.takes({"", "key", "reverse"}, 2))
    return call.native(Reads::kDeep);
  FJ_TRY(std::vector<Ref> items, listed_elements(call.state, call.args[0]));
  FJ_TRY(SortOptions options, sort_options(call));
  Ref failed_at;
  FJ_TRY(Ref order, sort_order(call.state, items, options.key, options.reverse,
                               &failed_at));
  return from_api(in_order(items, order.get()).release());
}

Result<Ref> model_list_sort(BuiltinCall& call) {
  if (call.positional() != 1 || !call.takes({"", "key", "reverse"}, 2))
    return call.unknown();
  CaptureState& state = call.state;
  PyObject* list = call.args[0];
  FJ_TRY(SortOptions options, sort_options(call));
  FJ_TRY(Ref target, state.shadow(list));
  std::vector<Ref> items;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(target.get()); ++i) {
    items.push_back(Ref::borrow(PyList_GET_ITEM(target.get(), i)));
  }
  Ref failed_at;
  bool changed = false;
  Result<Ref> order = Ref();
  {
    ListBeingSorted scope(target.get());
    order = sort_order(state, items, options.key, options.reverse, &failed_at);
    changed = scope.changed();
  }
  if (!order.ok() && !order.is_raised()) return order;
  Ref error = order.is_raised() ? take_raised() : Ref();
  // (A key that raises leaves all in its place.)
  PyObject* indices = error ? failed_at.get() : order.value().get();
  Ref sorted = indices ? in_order(items, indices) : Ref();
  if (sorted &&
      PyList_SetSlice(target.get(), 0, PY_SSIZE_T_MAX, sorted.get()) < 0) {
    return Result<Ref>::raised();
  }
  if (state.is_input(list)) WriteLog::replace_content(state, list);
  if (error) {
    restore_raised(std::move(error));
    return Result<Ref>::raised();
  }
  if (!sorted) return Result<Ref>::raised();
  if (changed)
    return raise_format(PyExc_ValueError, "list modified during sort")
        .forward<Ref>();
  return none();
}

// ---- folds
namespace {

// However many come before them.
bool has_known_keywords(const BuiltinCall& call) {
  const bool has_key = call.argument(SIZE_MAX, "key"),
             has_default = call.argument(SIZE_MAX, "default");
  return call.args.size() - call.positional() ==
         static_cast<size_t>(has_key) + static_cast<size_t>(has_default);
}

Result<Ref> extreme(BuiltinCall& call, int op) {
  CaptureState& state = call.state;
  const bool refused =
      call.positional() == 0 || !has_known_keywords(call) ||
      (call.positional() > 1 && call.argument(SIZE_MAX, "default"));
  if (refused) return call.native(Reads::kDeep);
  Ref iterator;  // item after item: see fold_constants_natively()
  if (call.positional() == 1) {
    FJ_TRY(iterator, state.iter(call.args[0]));
  }
  size_t given = 0;
  auto next = [&]() -> Result<Ref> {
    if (iterator) return state.next(iterator.get());
    if (given == call.positional()) return Ref();
    return Ref::borrow(call.args[given++]);
  };
  PyObject* key = call.argument(SIZE_MAX, "key");
  if (key == Py_None) key = nullptr;
  Ref best, best_key;
  while (true) {
    FJ_TRY(Ref item, next());
    if (!item) break;
    Ref item_key = item;
    if (key) {
      FJ_TRY(item_key, state.caller.call(key, {item.get()}));
    }
    bool better = true;
    if (best) {
      FJ_TRY(Ref answer, state.compare(op, item_key.get(), best_key.get()));
      FJ_TRY(better, state.truth(answer.get()));
    }
    if (better) {
      best = item;
      best_key = item_key;
    }
  }
  if (!best) {
    PyObject* fallback = call.argument(SIZE_MAX, "default");
    if (fallback) return Ref::borrow(fallback);
    PyErr_Format(PyExc_ValueError, internals::kEmptyMinMaxText,
                 op == Py_GT ? "max" : "min");
    return Result<Ref>::raised();
  }
  return best;
}

Result<Ref> quantifier(BuiltinCall& call, bool stop_at) {
  if (!call.plain(1, 1)) return call.native(Reads::kNothing);
  FJ_TRY(Ref iterator, call.state.iter(call.args[0]));
  while (true) {
    FJ_TRY(Ref item, call.state.next(iterator.get()));
    if (!item) return boolean(!stop_at);
    FJ_TRY(bool value, call.state.truth(item.get()));
    if (value == stop_at) return boolean(stop_at);
  }
}

}  // namespace

Result<Ref> model_min(BuiltinCall& call) { return extreme(call, Py_LT); }
Result<Ref> model_max(BuiltinCall& call) { return extreme(call, Py_GT); }
Result<Ref> model_any(BuiltinCall& call) { return quantifier(call, true); }
Result<Ref> model_all(BuiltinCall& call) { return quantifier(call, false); }

namespace {

// total = total <op> item, item after item: the program may make them as it
// goes, and both it and the operator may have effects. As long as all are
// constants it is C code that computes (3.12 adds floats with compensation).
Result<Ref> fold_constants_natively(BuiltinCall& call, PyObject* iterable,
                                    Ref total, int op) {
  CaptureState& state = call.state;
  FJ_TRY(Ref iterator, state.iter(iterable));
  Ref constants = Ref::steal(PyList_New(0));
  if (!constants) return Result<Ref>::raised();
  bool native = is_builtin_constant(total.get());
  // What C code adds in doubles: ints of any class, whose methods it ignores.
  bool doubles = PyFloat_CheckExact(total.get());
  bool others = PyComplex_CheckExact(total.get());
  auto so_far = [&]() -> Result<Ref> {
    Ref args = Ref::steal(PyTuple_Pack(1, constants.get()));
    Ref names = Ref::steal(Py_BuildValue("{sO}", "start", total.get()));
    if (!args || !names) return Result<Ref>::raised();
    return state.after_native(
        PyObject_Call(call.callable, args.get(), names.get()));
  };
  while (true) {
    FJ_TRY(Ref item, state.next(iterator.get()));
    if (!item && native) return so_far();
    if (!item) return total;
    // (Anything else may raise: before the next item is made.)
    bool number = PyLong_CheckExact(item.get()) ||
                  PyFloat_CheckExact(item.get()) || PyBool_Check(item.get()) ||
                  PyComplex_CheckExact(item.get()) ||
                  (doubles && !others && PyLong_Check(item.get()));
    doubles |= PyFloat_CheckExact(item.get());
    others |= PyComplex_CheckExact(item.get());
    if (native && number) {
      if (PyList_Append(constants.get(), item.get()) < 0) {
        return Result<Ref>::raised();
      }
      continue;
    }
    if (native) {
      FJ_TRY(total, so_far());
      native = false;
    }
    FJ_TRY(total, state.binary(op, false, total.get(), item.get()));
  }
}

}  // namespace

Result<Ref> model_sum(BuiltinCall& call) {
  PyObject* iterable = call.argument(0);
  if (!iterable || !call.takes({"", "start"})) return call.native(Reads::kDeep);
  PyObject* start = call.argument(1, "start");
  Ref zero = Ref::steal(PyLong_FromLong(0));
  if (start && (PyUnicode_Check(start) || PyBytes_Check(start))) {
    return call.native(Reads::kDeep);  // TypeError
  }
  return fold_constants_natively(call, iterable,
                                 start ? Ref::borrow(start) : zero, 0);
}

Result<Ref> model_prod(BuiltinCall& call) {
  PyObject* iterable = call.argument(0);
  if (!iterable || !call.takes({"", "start"}, 1))
    return call.native(Reads::kDeep);
  PyObject* start = call.argument(SIZE_MAX, "start");
  Ref one = Ref::steal(PyLong_FromLong(1));
  return fold_constants_natively(call, iterable,
                                 start ? Ref::borrow(start) : one, 5);
}

Result<Ref> model_reduce(BuiltinCall& call) {
  if (!call.plain(2, 3)) return call.native(Reads::kNothing);
  CaptureState& state = call.state;
  FJ_TRY(Ref iterator, state.iter(call.args[1]));
  Ref total;
  if (call.args.size() == 3) {
    total = Ref::borrow(call.args[2]);
  } else {
    FJ_TRY(total, state.next(iterator.get()));
    if (!total) {
      PyErr_SetString(PyExc_TypeError,
                      "reduce() of empty iterable with no initial value");
      return Result<Ref>::raised();
    }
  }
  while (true) {
    FJ_TRY(Ref item, state.next(iterator.get()));
    if (!item) return total;
    FJ_TRY(total, state.caller.call(call.args[0], {total.get(), item.get()}));
  }
}

// ---- constructors of containers
Result<Ref> model_list(BuiltinCall& call) {
  if (!call.plain(0, 1)) return call.native(Reads::kNothing);
  if (call.args.empty()) return from_api(PyList_New(0));
  return list_of(call.state, call.args[0]);
}

Result<Ref> model_tuple(BuiltinCall& call) {
  if (!call.plain(0, 1)) return call.native(Reads::kNothing);
  if (call.args.empty()) return from_api(PyTuple_New(0));
  if (PyTuple_CheckExact(call.args[0])) return Ref::borrow(call.args[0]);
  FJ_TRY(Ref list, list_of(call.state, call.args[0]));
  return from_api(PyList_AsTuple(list.get()));
}

Result<Ref> model_set(BuiltinCall& call) {
  if (!call.plain(0, 1)) return call.native(Reads::kNothing);
  if (call.args.empty()) return from_api(PyObject_CallNoArgs(call.callable));
  bool frozen = call.callable != as_object(&PySet_Type);
  if (PyDict_CheckExact(call.args[0]) || PySet_CheckExact(call.args[0]) ||
      PyFrozenSet_CheckExact(call.args[0])) {
    Result<Ref> whole = set_operand(call.state, call.args[0]);
    if (whole.ok()) {
      return from_api(PyObject_CallOneArg(call.callable, whole.value().get()));
    }
    if (!whole.broke()) return whole;
  } else if (PyAnySet_Check(call.args[0])) {
    FJ_CHECK_OK(check_no_iter(call.state, call.args[0]));
  }
  FJ_TRY(Ref list, call.state.element_list(call.args[0]));
  bool safe = true;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i) {
    PyObject* key = PyList_GET_ITEM(list.get(), i);
    if (is_symbolic(call.state, key)) {
      FJ_TRY(Ref plain, call.state.tracer.concretise(key));
      PyList_SetItem(list.get(), i, plain.release());
    } else if (!is_safe_key(call.state, key)) {
      safe = false;
    }
  }
  if (safe) return from_api(PyObject_CallOneArg(call.callable, list.get()));
  Ref set = Ref::steal(PySet_New(nullptr));
  if (!set) return Result<Ref>::raised();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list.get()); ++i) {
    FJ_CHECK_OK(add_to_fresh_set(call.state, set.get(),
                                 PyList_GET_ITEM(list.get(), i)));
  }
  // A copy of a set has the hashes already.
  return frozen ? from_api(PyFrozenSet_New(set.get())) : Result<Ref>(set);
}

namespace {

// Whether update() reads the table of the source: of another class it asks
// keys() and __getitem__, OrderedDict's of any but a dict itself.
Result<bool> is_read_as_dict(CaptureState& state, PyObject* target,
                             PyObject* source) {
  if (!PyDict_Check(source)) return false;
  FJ_TRY(Ref iterates, state.python_special(source, "__iter__"));
  if (iterates) return false;
  if (!PyODict_Check(target) && !PyODict_Check(source)) return true;
  FJ_TRY(Ref gives, state.python_special(source, "__getitem__"));
  FJ_TRY(Ref lists, state.python_special(source, "keys"));
  return !gives && !lists;
}

// dict.update(target, source) for a target of any origin.
Status update_from(CaptureState& state, PyObject* target, PyObject* source) {
  if (PyDict_Check(source)) {
    FJ_TRY(bool is_read, is_read_as_dict(state, target, source));
    FJ_TRY(Ref visible, state.shadow(source));
    if (is_read) {
      Ref keys = Ref::steal(PySequence_List(visible.get()));
      if (!keys) return Status::raised();
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys.get()); ++i) {
        PyObject* key = PyList_GET_ITEM(keys.get(), i);
        Ref value = Ref::borrow(PyDict_GetItemWithError(visible.get(), key));
        if (!value) return Status::raised();
        FJ_CHECK_OK(state.dict_set(target, key, value.get()));
      }
      return ok_status();
    }
  }
  FJ_TRY(Ref keys_method, maybe_attr(state, source, interned("keys")));
  if (keys_method) {
    FJ_TRY(Ref keys, state.caller.call(keys_method.get(), {}));
    FJ_TRY(Ref names, state.iter(keys.get()));
    while (true) {
      FJ_TRY(Ref key, state.next(names.get()));
      if (!key) break;
      FJ_TRY(Ref value, state.get_item(source, key.get()));
      FJ_CHECK_OK(state.dict_set(target, key.get(), value.get()));
    }
    return ok_status();
  }
  FJ_TRY(Ref pairs, state.iter(source));
  for (size_t i = 0;; ++i) {
    FJ_TRY(Ref pair, state.next(pairs.get()));
    if (!pair) break;
    auto elements = state.elements(pair.get());
    if (elements.is_raised() && PyErr_ExceptionMatches(PyExc_TypeError)) {
      return raise_format(PyExc_TypeError,
                          "cannot convert dictionary update sequence element "
                          "#%zd to a sequence",
                          static_cast<Py_ssize_t>(i));
    }
    FJ_TRY(std::vector<Ref> two, std::move(elements));
    if (two.size() != 2) {
      return raise_format(PyExc_ValueError,
                          "dictionary update sequence element #%zd has length "
                          "%zd; 2 is required",
                          static_cast<Py_ssize_t>(i),
                          static_cast<Py_ssize_t>(two.size()));
    }
    FJ_CHECK_OK(state.dict_set(target, two[0].get(), two[1].get()));
  }
  return ok_status();
}

Status update_all(BuiltinCall& call, PyObject* target, size_t first) {
  for (size_t i = first; i < call.positional(); ++i) {
    FJ_CHECK_OK(update_from(call.state, target, call.args[i]));
  }
  for (size_t i = call.positional(); i < call.args.size(); ++i) {
    FJ_CHECK_OK(call.state.dict_set(
        target, PyTuple_GET_ITEM(call.kwnames, i - call.positional()),
        call.args[i]));
  }
  return ok_status();
}

}  // namespace

Result<Ref> model_dict(BuiltinCall& call) {
  if (call.positional() > 1) return call.native(Reads::kNothing);
  FJ_TRY(Ref dict, from_api(PyObject_CallNoArgs(call.callable)));
  FJ_CHECK_OK(update_all(call, dict.get(), 0));
  return dict;
}

Result<Ref> model_defaultdict(BuiltinCall& call) {
  if (call.positional() == 0) return call.unknown();
  FJ_CHECK_OK(know_callable(call.state, call.args[0]));
  FJ_TRY(Ref dict, from_api(PyObject_CallOneArg(call.callable, call.args[0])));
  FJ_CHECK_OK(update_all(call, dict.get(), 1));
  return dict;
}

Result<Ref> model_dict_update(BuiltinCall& call) {
  if (bypasses_order(call)) return call.unknown();
  if (call.positional() < 1 || call.positional() > 2) {
    return call.native(Reads::kNothing);
  }
  FJ_CHECK_OK(update_all(call, call.args[0], 1));
  return none();
}

}  // namespace framejit::bytecode
