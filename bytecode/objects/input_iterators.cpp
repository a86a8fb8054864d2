#include "bytecode/objects/input_iterators.h"

#include "bytecode/objects/containers.h"
#include "bytecode/objects/write_log.h"
#include "frame_hook/native_stack.h"
#include "guards/known_objects.h"
#include "guards/set/iterators.h"

namespace framejit::bytecode {

namespace {

constexpr int64_t kMaxAhead = 1'000'000;

Break unreadable(CaptureState& state, PyObject* iterator, const char* what) {
  return state.make_break(
      BreakReason::kUnguardableInput,
      std::string("advancing of a ") + Py_TYPE(iterator)->tp_name + what);
}

Status log_advance(CaptureState& state, PyObject* iterator) {
  Ref args = Ref::steal(PyTuple_Pack(2, iterator, Py_None));
  if (!args) return Status::raised();
  WriteLog::add(state, Write::Kind::kCall, library_object("builtins", "next"),
                nullptr, args.get());
  return ok_status();
}

// Only C code runs when it is advanced natively.
bool is_pure(PyObject* iterator) {
  if (native_stack_low()) return false;
  switch (iterator_layout(iterator)) {
    case IteratorLayout::kList:
    case IteratorLayout::kReversed:
    case IteratorLayout::kTuple:
    case IteratorLayout::kRange:
    case IteratorLayout::kDict:
      return true;
    case IteratorLayout::kEnumerate:
      return is_pure(iterator_part(iterator, 0));
    case IteratorLayout::kZip:
      for (int64_t i = 0; PyObject* part = iterator_part(iterator, i); ++i) {
        if (!is_pure(part)) return false;
      }
      return !is_strict_zip(iterator);
    default:
      return false;
  }
}

// One capture's reading of one iterator.
class Reader {
 public:
  Reader(CaptureState& state, PyObject* iterator, bool log)
      : state_(state),
        iterator_(iterator),
        source_(state.source_of(iterator)),
        ahead_(state.table<AdvancedIterators>().taken[iterator]),
        log_(log) {}

  Result<Ref> next() {
    FJ_CHECK(source_, "an iterator without a source");
    if (ahead_ < 0) return Ref();
    if (ahead_ > kMaxAhead) return unreadable(state_, iterator_, ": too long");
    switch (iterator_layout(iterator_)) {
      case IteratorLayout::kList:
      case IteratorLayout::kReversed:
      case IteratorLayout::kTuple:
      case IteratorLayout::kRange:
      case IteratorLayout::kDict:
        return next_item();
      case IteratorLayout::kEnumerate:
        return next_counted();
      case IteratorLayout::kZip:
        return next_zipped();
      case IteratorLayout::kMap:
        return next_mapped();
      case IteratorLayout::kFilter:
        return next_filtered();
      case IteratorLayout::kNone:
        break;
    }
    return unreadable(state_, iterator_, "");
  }

 private:
  const Source* make(SourceKind kind, int64_t index) {
    return state_.guards.sources().make(kind, source_, nullptr, index);
  }

  Result<Ref> exhausted() {
    ahead_ = -1;
    // It lets go of what it is over.
    WriteLog::let_go(state_, LetGo::kContent, iterator_);
    if (log_) FJ_CHECK_OK(log_advance(state_, iterator_));
    return Ref();
  }

  Status taken() {
    ++ahead_;
    if (log_) FJ_CHECK_OK(log_advance(state_, iterator_));
    return ok_status();
  }

  // The container behind is an input like any other: it may be an argument
  // too, and written in this capture.
  Status check_container() {
    PyObject* part = iterator_part(iterator_, 0);
    if (!part) return ok_status();
    FJ_CHECK_OK(state_.wrap(part, make(SourceKind::kIterPart, 0)));
    auto entry = state_.table<Containers>().states.find(part);
    bool changed = entry != state_.table<Containers>().states.end() &&
                   (entry->second.written || entry->second.replaced);
    if (changed) return unreadable(state_, iterator_, " over what was changed");
    return ok_status();
  }

  Result<Ref> next_item() {
    FJ_CHECK_OK(check_container());
    int64_t left = iterator_left(iterator_);
    if (left < 0) return unreadable(state_, iterator_, "");
    if (ahead_ >= left) {
      state_.guard(GuardKind::kIterLeft, source_, nullptr, left);
      return exhausted();
    }
    FJ_TRY(Ref value, item());
    FJ_CHECK_OK(taken());
    return value;
  }

  Result<Ref> item() {
    IteratorLayout layout = iterator_layout(iterator_);
    if (layout == IteratorLayout::kRange) return number();
    if (layout != IteratorLayout::kDict) return read(0);
    if (Py_IS_TYPE(iterator_, &PyDictIterKey_Type)) return read(0);
    if (Py_IS_TYPE(iterator_, &PyDictIterValue_Type)) return read(1);
    FJ_TRY(Ref key, read(0));
    FJ_TRY(Ref value, read(1));
    return from_api(PyTuple_Pack(2, key.get(), value.get()));
  }

  Result<Ref> read(int which) {
    PyObject* value = iterator_item(iterator_, ahead_, which);
    if (!value) return unreadable(state_, iterator_, "");
    return state_.wrap(value, make(SourceKind::kIterItem, 2 * ahead_ + which));
  }

  // Loop counters differ at every turn: symbols, where symbols are allowed.
  Result<Ref> number() {
    int64_t value;
    if (!iterator_number(iterator_, ahead_, &value)) {
      return unreadable(state_, iterator_, "");
    }
    int symbol =
        state_.guards.add_symbol(make(SourceKind::kIterNumber, ahead_), value);
    FJ_TRY(Ref made, state_.tracer.make_symbolic(Expr::symbol(symbol)));
    if (value > 1 && state_.request.dynamic != 0) return made;
    return state_.tracer.concretise(made.get());
  }

  Result<Ref> part(int64_t index) {
    PyObject* inner = iterator_part(iterator_, index);
    if (!inner) return unreadable(state_, iterator_, "");
    return state_.wrap(inner, make(SourceKind::kIterPart, index));
  }

  Result<Ref> next_counted() {
    if (!is_pure(iterator_)) {
      return unreadable(state_, iterator_, " over an iterator of the program");
    }
    FJ_TRY(Ref inner, part(0));
    // Advanced along with this one.
    FJ_TRY(Ref value, Reader(state_, inner.get(), false).next());
    if (!value) return exhausted();
    FJ_TRY(Ref count, number());
    FJ_CHECK_OK(taken());
    return from_api(PyTuple_Pack(2, count.get(), value.get()));
  }

  // zip, map and filter hold no place of their own: the iterators within are
  // advanced one by one.
  Result<Ref> inner_next(PyObject* inner) {
    if (!log_) return Reader(state_, inner, false).next();
    return state_.next(inner);
  }

  Result<Ref> next_zipped() {
    if (is_strict_zip(iterator_)) {
      return unreadable(state_, iterator_, " with strict=True");
    }
    std::vector<Ref> values;
    for (int64_t i = 0; iterator_part(iterator_, i); ++i) {
      FJ_TRY(Ref inner, part(i));
      FJ_TRY(Ref value, inner_next(inner.get()));
      if (!value) return Ref();
      values.push_back(std::move(value));
    }
    if (values.empty()) return Ref();
    Ref tuple = Ref::steal(PyTuple_New(values.size()));
    if (!tuple) return Result<Ref>::raised();
    for (size_t i = 0; i < values.size(); ++i) {
      PyTuple_SET_ITEM(tuple.get(), i, values[i].release());
    }
    return tuple;
  }

  Result<Ref> next_mapped() {
    FJ_TRY(Ref function, part(0));
    std::vector<Ref> values;
    std::vector<PyObject*> args;
    for (int64_t i = 1; iterator_part(iterator_, i); ++i) {
      FJ_TRY(Ref inner, part(i));
      FJ_TRY(Ref value, inner_next(inner.get()));
      if (!value) return Ref();
      args.push_back(value.get());
      values.push_back(std::move(value));
    }
    return state_.caller.call(function.get(), args);
  }

  Result<Ref> next_filtered() {
    FJ_TRY(Ref function, part(0));
    FJ_TRY(Ref inner, part(1));
    while (true) {
      FJ_TRY(Ref value, inner_next(inner.get()));
      if (!value) return Ref();
      Ref verdict = value;
      if (function.get() != Py_None) {
        FJ_TRY(verdict, state_.caller.call(function.get(), {value.get()}));
      }
      FJ_TRY(bool keep, state_.truth(verdict.get()));
      if (keep) return value;
    }
  }

  CaptureState& state_;
  PyObject* iterator_;
  const Source* source_;
  int64_t& ahead_;
  bool log_;
};

}  // namespace

bool is_readable_iterator(PyObject* iterator) {
  return iterator_layout(iterator) != IteratorLayout::kNone;
}

Result<Ref> next_of_input(CaptureState& state, PyObject* iterator) {
  return Reader(state, iterator, true).next();
}

}  // namespace framejit::bytecode
