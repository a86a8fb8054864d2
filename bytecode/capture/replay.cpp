// The replay of the write log, of context variables and of effects.
#include <set>

#include "bytecode/builtins/context_variables.h"
#include "bytecode/builtins/effects.h"
#include "bytecode/capture/reconstruct.h"
#include "bytecode/interpreter/exceptions.h"
#include "bytecode/objects/attributes.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/containers.h"
#include "bytecode/objects/deferred_effects.h"
#include "bytecode/objects/model_iterators.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/origins.h"
#include "bytecode/objects/step_functions.h"
#include "bytecode/objects/unbuildable.h"
#include "bytecode/objects/write_log.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

namespace {

PyObject* method_of(PyObject* object, const char* name) {
  PyTypeObject* type = Py_TYPE(object);
  if (PyODict_Check(object))
    type = &PyODict_Type;
  else if (PyDict_Check(object))
    type = &PyDict_Type;
  else if (PyList_Check(object))
    type = &PyList_Type;
  else if (PySet_Check(object))
    type = &PySet_Type;
  return raw_lookup(type, name);
}

}  // namespace

// ---- by kind of write (write_kinds.def)
Status Planner::replay_replace(const Write& write, PyObject*) {
  PyObject* container = write.object.get();
  PyObject* shadow = write.value.get();
  int content;
  if (PyDict_Check(container)) {
    std::vector<int> operands;
    Ref keys = Ref::steal(PySequence_List(shadow));
    if (!keys) return Status::raised();
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys.get()); ++i) {
      PyObject* key = PyList_GET_ITEM(keys.get(), i);
      FJ_TRY(int key_step, value(key));
      FJ_TRY(int item, value(PyDict_GetItem(shadow, key)));
      operands.push_back(key_step);
      operands.push_back(item);
    }
    content = build(Step::Kind::kDict, std::move(operands));
  } else {
    if (PySet_Check(container)) {
      FJ_TRY(std::optional<int> table, set_table(shadow));
      if (table) {
        FJ_TRY(int target, value(container));
        call(take_set_function(), {target, *table});
        return ok_status();
      }
    }
    Ref items = Ref::steal(PySequence_List(shadow));
    if (!items) return Status::raised();
    FJ_TRY(std::vector<int> steps, items_of(items.get()));
    content = build(Step::Kind::kList, std::move(steps));
  }
  FJ_TRY(int target, value(container));
  call(replace_content_function(), {target, content});
  return ok_status();
}

// A method of the container, with the arguments it had.
Status Planner::replay_method_call(const Write& write, PyObject* args) {
  FJ_TRY(std::vector<int> operands, items_of(args));
  FJ_TRY(int target, value(write.object.get()));
  operands.insert(operands.begin(), target);
  call(write.key.get(), std::move(operands));
  return ok_status();
}

// callable(object[, key][, value])
Status Planner::replay_by(PyObject* callable, const Write& write,
                          PyObject* content) {
  FJ_TRY(int target, value(write.object.get()));
  std::vector<int> operands{target};
  for (PyObject* part : {write.key.get(), content}) {
    if (!part) continue;
    FJ_TRY(int step, value(part));
    operands.push_back(step);
  }
  call(callable, std::move(operands));
  return ok_status();
}

Status Planner::replay_method(const char* name, const Write& write,
                              PyObject* content) {
  return replay_by(method_of(write.object.get(), name), write, content);
}

Status Planner::replay_instance_set(const Write& write, PyObject* content) {
  return replay_by(set_instance_attribute_function(), write, content);
}

Status Planner::replay_instance_del(const Write& write, PyObject*) {
  return replay_by(delete_instance_attribute_function(), write, nullptr);
}

// A metaclass's own __setattr__ was interpreted, so it is not asked again.
Status Planner::replay_setattr(const Write& write, PyObject* content) {
  PyObject* set = PyType_Check(write.object.get())
                      ? raw_lookup(&PyType_Type, "__setattr__")
                      : library_object("builtins", "setattr");
  return replay_by(set, write, content);
}

Status Planner::replay_delattr(const Write& write, PyObject*) {
  PyObject* remove = PyType_Check(write.object.get())
                         ? raw_lookup(&PyType_Type, "__delattr__")
                         : library_object("builtins", "delattr");
  return replay_by(remove, write, nullptr);
}

Status Planner::replay_stored_by(const Write& write, PyObject* content) {
  FJ_TRY(int target, value(write.object.get()));
  FJ_TRY(int operand, value(content));
  call(write.key.get(), {target, operand});
  return ok_status();
}

Status Planner::replay_set_item(const Write& write, PyObject* content) {
  return replay_method("__setitem__", write, content);
}

Status Planner::replay_delete_item(const Write& write, PyObject*) {
  return replay_method("__delitem__", write, nullptr);
}

Status Planner::replay_append(const Write& write, PyObject* content) {
  return replay_method("append", write, content);
}

Status Planner::replay_extend(const Write& write, PyObject* content) {
  return replay_method("extend", write, content);
}

Status Planner::replay_add(const Write& write, PyObject* content) {
  return replay_method("add", write, content);
}

Status Planner::replay_cell_set(const Write& write, PyObject* content) {
  return replay_by(set_cell_function(), write, content);
}

Status Planner::replay_cell_del(const Write& write, PyObject*) {
  return replay_by(clear_cell_function(), write, nullptr);
}

Status Planner::replay_call(const Write& write, PyObject* content) {
  FJ_TRY(std::vector<int> operands, items_of(content));
  call(write.object.get(), std::move(operands));
  return ok_status();
}

Status Planner::write(const Write& write, PyObject* content) {
  static constexpr Status (Planner::* kReplays[])(const Write&, PyObject*) = {
#define FJ_WRITE(name, part, change, goes, seen, replay) &Planner::replay,
#include "bytecode/objects/write_kinds.def"
#undef FJ_WRITE
  };
  return (this->*kReplays[size_t(write.kind)])(write, content);
}

namespace {

// A list of the program without items that has got none, not even for a while
// (the storage of its copy says so).
bool is_empty_still(PyObject* copy) {
  return copy && PyList_Check(copy) &&
         reinterpret_cast<PyListObject*>(copy)->allocated == kNoListStorage;
}

// A tensor that is computed is stored behind the operators that made it in
// eager as well, which do not keep the GIL.
bool replaces_value(CaptureState& state, const Write& write, PyObject* value) {
  switch (write.kind) {
    case Write::Kind::kAppend:
    case Write::Kind::kExtend:
    case Write::Kind::kAdd:
    case Write::Kind::kCall:
      return false;
    default:
      return !value || !is_stand_in(state, value);
  }
}

// Which writes are made only if the program gets the tensor: of those that the
// capture made, where nothing that is planned later can lead to one.
std::vector<bool> writes_to_made_tensors(CaptureState& state,
                                         const std::vector<Write>& log) {
  std::vector<bool> found;
  for (const Write& entry : log) {
    const bool is_attribute = entry.kind == Write::Kind::kAttrSet ||
                              entry.kind == Write::Kind::kAttrDel ||
                              entry.kind == Write::Kind::kStoredBy;
    PyObject* object = entry.object.get();
    if (entry.kind == Write::Kind::kCall ||
        entry.kind == Write::Kind::kReplace ||
        entry.kind == Write::Kind::kMethod)
      return std::vector<bool>(log.size(), false);
    found.push_back(is_attribute && is_stand_in(state, object) &&
                    !state.tracer.real_of(object));
  }
  return found;
}

}  // namespace

// Nothing looks between two writes of one key, so only the last value counts;
// it is stored where the first was, which keeps the order of the keys.
Status Planner::writes() {
  const std::vector<Write>& log = state_.table<WriteLog>().entries;
  std::vector<PyObject*> contents(log.size());
  std::vector<bool> dropped(log.size(), false);
  // object -> {key: index}; an instance of a dict subclass has both.
  std::unordered_map<PyObject*, Ref> first_attributes, first_items;
  // What was written as a whole, after how many deferred effects.
  const std::set<size_t>& effects = state_.table<DeferredEffects>().entries;
  std::set<std::pair<PyObject*, size_t>> replaced;
  size_t passed = 0;
  for (size_t i = 0; i < log.size(); ++i) {
    passed += effects.count(i);
    if (log[i].kind == Write::Kind::kReplace)
      replaced.insert({log[i].object.get(), passed});
  }
  passed = 0;
  for (size_t i = 0; i < log.size(); ++i) {
    const Write& entry = log[i];
    PyObject* object = entry.object.get();
    contents[i] = entry.value.get();
    bool attribute = entry.part() == Write::Part::kAttributes;
    passed += effects.count(i);
    if (!attribute && replaced.contains({object, passed}) &&
        (entry.kind != Write::Kind::kReplace ||
         is_empty_still(entry.value.get()))) {
      dropped[i] = true;
      continue;
    }
    // A deferred call may look at everything written before it.
    if (entry.kind == Write::Kind::kCall) {
      first_attributes.clear();
      first_items.clear();
    }
    if (entry.kind == Write::Kind::kMethod) first_items.erase(object);
    if (entry.change() == Write::Change::kOther) continue;
    Ref& keys = (attribute ? first_attributes : first_items)[object];
    if (!keys) keys = Ref::steal(PyDict_New());
    if (!keys) return Status::raised();
    PyObject* known = PyDict_GetItemWithError(keys.get(), entry.key.get());
    if (!known && PyErr_Occurred()) return Status::raised();
    if (entry.change() == Write::Change::kDelete) {
      if (known && PyDict_DelItem(keys.get(), entry.key.get()) < 0) {
        return Status::raised();
      }
      continue;
    }
    if (known) {
      contents[PyLong_AsSize_t(known)] = entry.value.get();
      dropped[i] = true;
      continue;
    }
    Ref index = Ref::steal(PyLong_FromSize_t(i));
    if (!index ||
        PyDict_SetItem(keys.get(), entry.key.get(), index.get()) < 0) {
      return Status::raised();
    }
  }
  // Values first: they are made of what the program sees before the writes.
  std::vector<bool> waits = writes_to_made_tensors(state_, log);
  for (size_t i = 0; i < log.size(); ++i) {
    if (dropped[i] || waits[i] || !contents[i] ||
        log[i].kind == Write::Kind::kReplace) {
      continue;
    }
    FJ_CHECK_OK(value(contents[i]));
  }
  for (bool again = true; std::exchange(again, false);) {
    for (size_t i = 0; i < log.size(); ++i) {
      if (!waits[i] || !memo_.contains(log[i].object.get())) continue;
      waits[i] = false;
      again = true;
      if (!dropped[i] && contents[i]) FJ_CHECK_OK(value(contents[i]));
    }
  }
  for (size_t i = 0; i < log.size(); ++i) dropped[i] = dropped[i] || waits[i];
  for (size_t i = 0; i < log.size(); ++i) {
    if (dropped[i]) continue;
    plan_.replaces_values |= replaces_value(state_, log[i], contents[i]);
    FJ_CHECK_OK(write(log[i], contents[i]));
    if (log[i].span.code) plan_.steps.back().span = log[i].span;
  }
  return ok_status();
}

// Context variables get their last value; set() and reset() in pairs are none.
Status Planner::context_values() {
  for (auto& [variable, values] : state_.table<ContextValues>().values) {
    if (values.first.get() == values.second.get()) continue;
    if (!values.first) {
      return state_.make_break(BreakReason::kUnsupportedWrite,
                               "a context variable set before is reset");
    }
    FJ_TRY(int target, value(variable));
    FJ_TRY(int content, value(values.first.get()));
    PyObject* set = raw_lookup(Py_TYPE(variable), "set");
    call(set, {target, content});
  }
  return ok_status();
}

// The program must not look at a list before the effects reach it.
Status Planner::effect_lists() {
  for (const auto& entry : state_.table<EffectLists>().lists) {
    if (state_.is_input(entry.list.get())) {
      state_.table<Unbuildable>().escapes(entry.ordinal);
      return state_.make_break(BreakReason::kSideEffectCallee,
                               "the list that warnings go to is looked at");
    }
    for (PyObject* other : state_.table<Origins>().order) {
      if (!PyList_CheckExact(other)) continue;
      Guard distinct{GuardKind::kNotSameObject, state_.source_of(other)};
      distinct.other = entry.source;
      distinct.span = state_.caller.here();
      state_.guards.add(std::move(distinct));
    }
  }
  return ok_status();
}

namespace {

// What the write changes: an attribute is in the instance's dict, too, and a
// deferred call may change what it is given.
std::vector<PyObject*> changed_by(CaptureState& state, const Write& write) {
  std::vector<PyObject*> changed{write.object.get()};
  if (write.part() == Write::Part::kAttributes) {
    for (auto& [dict, owner] : state.table<InstanceDicts>().owners) {
      if (owner == write.object.get()) changed.push_back(dict);
    }
  }
  if (write.kind == Write::Kind::kCall) {
    PyObject* args = write.value.get();
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
      changed.push_back(PyTuple_GET_ITEM(args, i));
    }
  }
  return changed;
}

}  // namespace

// Two paths that led to two objects may lead to one in the next call: the log
// would then not show writes of one through the other.
void Planner::guard_distinct() {
  std::unordered_set<PyObject*> done;
  for (const Write& entry : state_.table<WriteLog>().entries) {
    for (PyObject* object : changed_by(state_, entry)) {
      const Source* source = state_.source_of(object);
      if (!source || !done.insert(object).second) continue;
      for (PyObject* other : state_.table<Origins>().order) {
        if (other == object || Py_TYPE(other) != Py_TYPE(object)) continue;
        const Source* other_source = state_.source_of(other);
        bool known = source->kind == SourceKind::kConst &&
                     other_source->kind == SourceKind::kConst;
        if (known) continue;
        Guard distinct{GuardKind::kNotSameObject, source};
        distinct.other = other_source;
        distinct.span = entry.span;
        state_.guards.add(std::move(distinct));
      }
    }
  }
}

}  // namespace framejit::bytecode
