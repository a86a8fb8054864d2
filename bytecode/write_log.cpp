// Writes to the program's own objects: an ordered log over which reads look
// first. The capture never changes the objects; residual code replays the log.
//
// Dicts and instance attributes keep an overlay of the keys written, so that a
// write guards nothing but the type. The first use of a whole container makes a
// shadow with the overlay folded in; from then on reads and writes go there.
#include "bytecode/capture_tables.h"
#include "frame_hook/frame_eval.h"

namespace framejit::bytecode {

namespace {

// A source for the value of a key; instance dicts are read without making the
// dict object.
const Source* item_source(CaptureState& state, const Source* dict_source,
                          PyObject* key) {
  SourceArena& sources = state.guards.sources();
  if (dict_source->kind == SourceKind::kInstanceDict &&
      PyUnicode_CheckExact(key)) {
    return sources.make(SourceKind::kInstanceAttr, dict_source->base, key);
  }
  return sources.make(SourceKind::kDictItem, dict_source, key);
}

void guard_absent(CaptureState& state, const Source* dict_source,
                  PyObject* key) {
  if (dict_source->kind == SourceKind::kInstanceDict &&
      PyUnicode_CheckExact(key)) {
    state.guard(GuardKind::kNoInstanceAttr, dict_source->base, key);
  } else {
    state.guard(GuardKind::kNoKey, dict_source, key);
  }
}

// A tensor's hash is its address: torch's own Python code, not the program's.
class TensorKey {
 public:
  TensorKey(CaptureState& state, PyObject* key) {
    ObjectClass kind = state.tracer.classify(key);
    if (kind == ObjectClass::kStandIn || kind == ObjectClass::kTensor)
      pause_.emplace();
  }

 private:
  std::optional<PauseHook> pause_;
};

Result<Ref> native_get(CaptureState& state, PyObject* dict, PyObject* key) {
  TensorKey scope(state, key);
  PyObject* value = PyDict_GetItemWithError(dict, key);
  if (!value && PyErr_Occurred()) return state.after_native(nullptr);
  return Ref::borrow(value);
}

// OrderedDict keeps its order in a list of its own: its C methods are needed.
Status native_set(CaptureState& state, PyObject* dict, PyObject* key,
                  PyObject* value) {
  TensorKey scope(state, key);
  int failed;
  if (PyODict_Check(dict)) {
    failed =
        value ? PyODict_SetItem(dict, key, value) : PyODict_DelItem(dict, key);
  } else {
    failed =
        value ? PyDict_SetItem(dict, key, value) : PyDict_DelItem(dict, key);
  }
  if (failed < 0) FJ_CHECK_OK(state.after_native(nullptr));
  return ok_status();
}

Status check_key(CaptureState& state, PyObject* dict, PyObject* key) {
  if (is_safe_key(state, key)) return ok_status();
  if (!state.is_input(dict)) return check_fresh_dict_key(state, dict, key);
  if (pin_tensor_key(state, key)) return ok_status();
  return state.make_break(
      BreakReason::kUnguardableInput,
      std::string("dict key of type ") + Py_TYPE(key)->tp_name);
}

// A symbolic key is used by value.
Result<Ref> concrete_key(CaptureState& state, PyObject* key) {
  if (is_symbolic(state, key)) return state.tracer.concretise(key);
  return Ref::borrow(key);
}

}  // namespace

void WriteLog::add(CaptureState& state, Write::Kind kind, PyObject* object,
                   PyObject* key, PyObject* value) {
  state.writes_.push_back(Write{kind, Ref::borrow(object), Ref::borrow(key),
                                Ref::borrow(value), state.caller.here()});
}

void WriteLog::replace_content(CaptureState& state, PyObject* container) {
  ContainerState& entry = state.tables().containers[container];
  entry.written = true;
  if (entry.replaced) return;
  entry.replaced = true;
  add(state, Write::Kind::kReplaceContent, container, nullptr,
      entry.shadow.get());
}

Result<Ref> CaptureState::dict_get(PyObject* dict, PyObject* key) {
  const Source* source = source_of(dict);
  FJ_TRY(Ref plain_key, concrete_key(*this, key));
  key = plain_key.get();
  if (!source) {
    FJ_CHECK_OK(check_key(*this, dict, key));
    return native_get(*this, dict, key);
  }
  auto entry = tables_->containers.find(dict);
  if (entry != tables_->containers.end()) {
    FJ_CHECK_OK(check_key(*this, dict, key));
    if (entry->second.shadow) {
      return native_get(*this, entry->second.shadow.get(), key);
    }
    if (entry->second.overlay) {
      FJ_TRY(Ref written, native_get(*this, entry->second.overlay.get(), key));
      if (written.get() == deleted_marker()) return Ref();
      if (written) return written;
    }
  }
  FJ_CHECK_OK(check_key(*this, dict, key));
  if (is_stand_in(*this, key)) {
    // The dict has the tensor itself; one made in this call is no key of it.
    key = tracer.real_of(key);
    if (!key) return Ref();
  }
  FJ_TRY(Ref value, native_get(*this, dict, key));
  if (!value) {
    guard_absent(*this, source, key);
    return Ref();
  }
  return wrap(value.get(), item_source(*this, source, key));
}

namespace {

// The log entry of a dict write: an attribute of the instance that owns the
// dict, or an item of the dict.
void log_dict_write(CaptureState& state, PyObject* dict, PyObject* key,
                    PyObject* value) {
  auto owner = state.tables().dict_owners.find(dict);
  if (owner != state.tables().dict_owners.end() && PyUnicode_CheckExact(key)) {
    WriteLog::add(state, value ? Write::Kind::kSetAttr : Write::Kind::kDelAttr,
                  owner->second, key, value);
    return;
  }
  WriteLog::add(state, value ? Write::Kind::kDictSet : Write::Kind::kDictDel,
                dict, key, value);
}

// An iterator over the keys is alive: changing the key set would have to make
// it raise.
Status check_iterators(CaptureState& state, ContainerState& entry) {
  if (!entry.key_iterator || Py_REFCNT(entry.key_iterator.get()) == 1) {
    return ok_status();
  }
  return state.make_break(BreakReason::kUnsupportedWrite,
                          "changes a dict while it is iterated");
}

Status write_dict(CaptureState& state, PyObject* dict, PyObject* key,
                  PyObject* value) {
  ContainerState& entry = state.tables().containers[dict];
  if (entry.key_iterator) {
    FJ_TRY(Ref old, state.dict_get(dict, key));
    if (!old || !value) FJ_CHECK_OK(check_iterators(state, entry));
  }
  entry.written = true;
  if (entry.shadow) {
    FJ_CHECK_OK(native_set(state, entry.shadow.get(), key, value));
  } else {
    if (!entry.overlay) {
      entry.overlay = Ref::steal(PyDict_New());
      if (!entry.overlay) return Status::raised();
    }
    PyObject* stored = value ? value : deleted_marker();
    TensorKey scope(state, key);
    if (PyDict_SetItem(entry.overlay.get(), key, stored) < 0) {
      return Status::raised();
    }
  }
  log_dict_write(state, dict, key, value);
  return ok_status();
}

}  // namespace

Status CaptureState::dict_set(PyObject* dict, PyObject* key, PyObject* value) {
  FJ_TRY(Ref plain_key, concrete_key(*this, key));
  FJ_CHECK_OK(check_key(*this, dict, plain_key.get()));
  if (!is_input(dict)) return native_set(*this, dict, plain_key.get(), value);
  return write_dict(*this, dict, plain_key.get(), value);
}

Status CaptureState::dict_del(PyObject* dict, PyObject* key) {
  FJ_TRY(Ref plain_key, concrete_key(*this, key));
  key = plain_key.get();
  FJ_CHECK_OK(check_key(*this, dict, key));
  if (!is_input(dict)) return native_set(*this, dict, key, nullptr);
  FJ_TRY(Ref old, dict_get(dict, key));
  if (!old) {
    Ref args = Ref::steal(PyTuple_Pack(1, key));
    if (args) PyErr_SetObject(PyExc_KeyError, args.get());
    return Status::raised();
  }
  return write_dict(*this, dict, key, nullptr);
}

Result<Ref> CaptureState::cell_get(PyObject* cell) {
  auto written = tables_->cells.find(cell);
  if (written != tables_->cells.end()) {
    if (written->second.get() == deleted_marker()) return Ref();
    return written->second;
  }
  PyObject* content = PyCell_GET(cell);
  const Source* source = source_of(cell);
  if (!source) return Ref::borrow(content);
  if (!content) {
    return make_break(BreakReason::kUnguardableInput, "an empty closure cell");
  }
  return wrap(content,
              guards.sources().make(SourceKind::kCellContents, source));
}

Status CaptureState::cell_set(PyObject* cell, PyObject* value) {
  if (!is_input(cell)) {
    if (PyCell_Set(cell, value) < 0) return Status::raised();
    return ok_status();
  }
  tables_->cells[cell] =
      value ? Ref::borrow(value) : Ref::borrow(deleted_marker());
  WriteLog::add(*this, value ? Write::Kind::kCellSet : Write::Kind::kCellDel,
                cell, nullptr, value);
  return ok_status();
}

}  // namespace framejit::bytecode
