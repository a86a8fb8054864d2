// Writes to the program's own objects: an ordered log over which reads look
// first. The capture never changes the objects; residual code replays the log.
//
// Dicts and instance attributes keep an overlay of the keys written, so that a
// write guards nothing but the type. The first use of a whole container makes a
// shadow with the overlay folded in; from then on reads and writes go there.
#include "bytecode/objects/write_log.h"

#include "bytecode/objects/attributes.h"
#include "bytecode/objects/breaks.h"
#include "bytecode/objects/containers.h"
#include "bytecode/objects/keys.h"
#include "bytecode/objects/late_reads.h"
#include "bytecode/objects/object_kinds.h"
#include "frame_hook/frame_eval.h"
#include "frame_hook/line_table.h"
#include "guards/known_objects.h"
#include "guards/set/let_go.h"
#include "guards/set/object_layout.h"

namespace framejit::bytecode {

PyObject* deleted_marker() {
  static PyObject* marker = made_once(new_marker);
  return marker;
}

namespace {

// Written cells: value, or deleted_marker().
struct WrittenCells {
  std::unordered_map<PyObject*, Ref> values;
};

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

// Made in this call, it is no key that the program's dicts have.
bool is_new_function(CaptureState& state, PyObject* key) {
  return PyFunction_Check(key) && !state.is_input(key) &&
         !state.is_constant(key);
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

// A tensor's hash is its address: the library's own code, not the program's.
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
  return unguardable_key(state, key);
}

struct WriteRow {
  Write::Part part;
  Write::Change change;
  LetGo goes;
};
constexpr WriteRow kWriteRows[] = {
#define FJ_WRITE(name, part, change, goes, ...) \
  {Write::Part::k##part, Write::Change::k##change, LetGo::k##goes},
#include "bytecode/objects/write_kinds.def"
#undef FJ_WRITE
};

// An attribute that is a number or a text by another guard already: counters.
bool is_known_to_be_quiet(CaptureState& state, LetGo what, const Source* source,
                          PyObject* object, PyObject* key) {
  PyObject* value = nullptr;
  if (what != LetGo::kAttribute ||
      instance_find(object, key, &value) != Lookup::kFound ||
      !is_quiet_type(Py_TYPE(value)))
    return false;
  return state.guards.has(
      GuardKind::kTypeIs,
      state.guards.sources().make(SourceKind::kInstanceAttr, source, key),
      reinterpret_cast<PyObject*>(Py_TYPE(value)));
}

}  // namespace

// What the write removes goes when the log is replayed, behind the graph.
void WriteLog::let_go(CaptureState& state, LetGo what, PyObject* object,
                      PyObject* key) {
  const Source* source = state.source_of(object);
  if (source) let_go(state, what, source, object, key);
}

void WriteLog::let_go(CaptureState& state, LetGo what, const Source* source,
                      PyObject* object, PyObject* key) {
  if (what == LetGo::kNothing) return;
  // A stand-in dies with the capture.
  if (key && state.tracer.classify(key) == ObjectClass::kStandIn) {
    key = state.tracer.real_of(key);
    if (!key) return;  // a tensor of this capture: in no dict of the program
  }
  if (key && is_new_function(state, key)) return;
  if (is_known_to_be_quiet(state, what, source, object, key)) return;
  state.guard(GuardKind::kLetsGoQuietly, source, key, int64_t(what));
  if (lets_go_quietly(what, object, key)) return;
  state.set_native_break(
      state.make_break(BreakReason::kFinalizerObject,
                       std::string("overwrites or removes what a ") +
                           Py_TYPE(object)->tp_name + " holds"));
}

Write::Part Write::part() const { return kWriteRows[size_t(kind)].part; }
Write::Change Write::change() const { return kWriteRows[size_t(kind)].change; }

namespace {

bool stores_attributes(PyCodeObject* code) {
  return PyUnicode_CompareWithASCIIString(code->co_name, "__setattr__") == 0 ||
         PyUnicode_CompareWithASCIIString(code->co_name, "__delattr__") == 0;
}

// The line that writes, which is that of the assignment where the class of the
// object has a method for those.
Span line_of_write(CaptureState& state) {
  Span here = state.caller.here();
  if (!here.code || !PyCode_Check(here.code.get()) ||
      !stores_attributes(reinterpret_cast<PyCodeObject*>(here.code.get())))
    return here;
  for (int up = 1;; ++up) {
    const PythonFrame frame = state.caller.python_frame(up);
    if (!frame.code) return here;
    if (stores_attributes(frame.code)) continue;
    auto* code = reinterpret_cast<PyObject*>(frame.code);
    const int size = 2 * static_cast<int>(Py_SIZE(frame.code));
    for (int at = 0; at < size; at += 2)
      if (line_of_instruction(code, at) == frame.line)
        return {Ref::borrow(code), at};
    return here;
  }
}

}  // namespace

void WriteLog::add(CaptureState& state, Write::Kind kind, PyObject* object,
                   PyObject* key, PyObject* value) {
  let_go(state, kWriteRows[size_t(kind)].goes, object, key);
  state.table<WriteLog>().entries.push_back(
      Write{kind, Ref::borrow(object), Ref::borrow(key), Ref::borrow(value),
            line_of_write(state)});
}

void WriteLog::replace_content(CaptureState& state, PyObject* container) {
  ContainerState& entry = state.table<Containers>().states[container];
  entry.written = true;
  if (entry.replaced) return;
  entry.replaced = true;
  add(state, Write::Kind::kReplace, container, nullptr, entry.shadow.get());
}

namespace {

Result<Ref> read_dict(CaptureState& state, PyObject* dict, const Source* source,
                      PyObject* key) {
  FJ_TRY(Ref plain_key, concrete_key(state, key));
  key = plain_key.get();
  if (!source) {
    FJ_CHECK_OK(check_key(state, dict, key));
    return native_get(state, dict, key);
  }
  auto entry = state.table<Containers>().states.find(dict);
  if (entry != state.table<Containers>().states.end()) {
    FJ_CHECK_OK(check_key(state, dict, key));
    if (entry->second.shadow) {
      return native_get(state, entry->second.shadow.get(), key);
    }
    if (entry->second.overlay) {
      FJ_TRY(Ref written, native_get(state, entry->second.overlay.get(), key));
      if (written.get() == deleted_marker()) return Ref();
      if (written) return written;
    }
  }
  FJ_CHECK_OK(check_key(state, dict, key));
  if (is_stand_in(state, key)) {
    // The dict has the tensor itself; one made in this call is no key of it.
    key = state.tracer.real_of(key);
    if (!key) return Ref();
  }
  FJ_TRY(Ref value, native_get(state, dict, key));
  if (!value) {
    if (!is_new_function(state, key)) guard_absent(state, source, key);
    return Ref();
  }
  return state.wrap(value.get(), item_source(state, source, key));
}

}  // namespace

Result<Ref> CaptureState::dict_get(PyObject* dict, PyObject* key) {
  const Source* source = source_of(dict);
  FJ_TRY(Ref value, read_dict(*this, dict, source, key));
  if (reads_late(*this) && source && value)
    note_late_name(*this, dict, source, key, value.get());
  return value;
}

namespace {

// The log entry of a dict write: an attribute of the instance that owns the
// dict, or an item of the dict. (Where the class has a slot or a property of
// that name, the attribute is another place.)
Status log_dict_write(CaptureState& state, PyObject* dict, PyObject* key,
                      PyObject* value) {
  auto owner = state.table<InstanceDicts>().owners.find(dict);
  bool is_attribute = owner != state.table<InstanceDicts>().owners.end() &&
                      PyUnicode_CheckExact(key);
  if (is_attribute) {
    FJ_TRY(Ref raw, state.type_lookup(Py_TYPE(owner->second), key));
    is_attribute = !raw || !Py_TYPE(raw.get())->tp_descr_set;
  }
  if (is_attribute) {
    WriteLog::add(state,
                  value ? Write::Kind::kInstanceSet : Write::Kind::kInstanceDel,
                  owner->second, key, value);
    return ok_status();
  }
  WriteLog::add(state, value ? Write::Kind::kDictSet : Write::Kind::kDictDel,
                dict, key, value);
  return ok_status();
}

Status write_dict(CaptureState& state, PyObject* dict, PyObject* key,
                  PyObject* value) {
  ContainerState& entry = state.table<Containers>().states[dict];
  if (!entry.key_iterators.empty()) {
    FJ_TRY(Ref old, state.dict_get(dict, key));
    if (!old || !value) FJ_CHECK_OK(check_key_iterators(state, dict));
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
  return log_dict_write(state, dict, key, value);
}

}  // namespace

Status check_key_iterators(CaptureState& state, PyObject* dict) {
  for (const Ref& iterator :
       state.table<Containers>().states[dict].key_iterators) {
    if (Py_REFCNT(iterator.get()) == 1) continue;  // no one else has it
    return state.make_break(BreakReason::kUnsupportedWrite,
                            "changes a dict while it is iterated");
  }
  return ok_status();
}

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

namespace {

Result<Ref> read_cell(CaptureState& state, PyObject* cell) {
  auto written = state.table<WrittenCells>().values.find(cell);
  if (written != state.table<WrittenCells>().values.end()) {
    if (written->second.get() == deleted_marker()) return Ref();
    return written->second;
  }
  PyObject* content = PyCell_GET(cell);
  const Source* source = state.source_of(cell);
  if (!source) return Ref::borrow(content);
  if (!content) {
    return state.make_break(BreakReason::kUnguardableInput,
                            "an empty closure cell");
  }
  return state.wrap(
      content, state.guards.sources().make(SourceKind::kCellContents, source));
}

}  // namespace

Result<Ref> CaptureState::cell_get(PyObject* cell) {
  FJ_TRY(Ref value, read_cell(*this, cell));
  if (reads_late(*this)) note_late_cell(*this, cell, value.get());
  return value;
}

Status CaptureState::cell_set(PyObject* cell, PyObject* value) {
  if (!is_input(cell)) {
    // A write is as late as a read.
    if (reads_late(*this)) note_late_cell(*this, cell, value);
    if (PyCell_Set(cell, value) < 0) return Status::raised();
    return ok_status();
  }
  table<WrittenCells>().values[cell] =
      value ? Ref::borrow(value) : Ref::borrow(deleted_marker());
  WriteLog::add(*this, value ? Write::Kind::kCellSet : Write::Kind::kCellDel,
                cell, nullptr, value);
  return ok_status();
}

}  // namespace framejit::bytecode
