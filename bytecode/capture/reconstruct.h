// Planner: the steps that make values again after the graph and replay the
// write log.
//
// Every object is made once (identity is kept by a memo). Inputs are gathered
// by their source, stand-ins are graph outputs, fresh objects have a rebuild
// rule by type: rules for containers and instances are in reconstruct.cpp,
// those for iterators and functions in reconstruct_parts.cpp. An object without
// a rule is a break: it may not outlive the capture.
#pragma once

#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "bytecode/capture/step.h"
#include "bytecode/objects/write_log.h"

namespace framejit::bytecode {

struct Plan {
  std::vector<Step> steps;
  std::vector<int> values;         // step index per requested value
  std::vector<PyObject*> outputs;  // stand-ins the graph must return
  // A write puts something in place of what was there, which was read.
  bool replaces_values = false;
};
// Values by index that are handed on unread, from these sources.
using Passed = std::unordered_map<size_t, const Source*>;
// The steps that replay the write log and make the given values after the
// graph. A value without a rebuild rule: Break EscapingObject.
Result<Plan> make_plan(CaptureState& state,
                       const std::vector<PyObject*>& values,
                       const Passed& passed = {});

class Planner {
 public:
  explicit Planner(CaptureState& state) : state_(state) {}
  Result<Plan> run(const std::vector<PyObject*>& values, const Passed& passed);

 private:
  // The step that makes this object.
  Result<int> value(PyObject* object);
  Result<int> rebuild(PyObject* object);

  int add(Step step);
  int constant(PyObject* object);
  int call(PyObject* callable, std::vector<int> operands);
  int build(Step::Kind kind, std::vector<int> operands);
  int gather(const Source* source);
  // Notes that `object` exists from this step on (before it is filled).
  int define(PyObject* object, int step);
  Break escaping(PyObject* object);

  const Source* source_of_number(const Expr& expr) const;
  Result<int> foreign(PyObject* object, ObjectClass kind);
  Result<std::vector<int>> items_of(PyObject* sequence);

  // ---- by type (builtin_types.def): containers and instances
  Result<int> list(PyObject* object);
  Result<int> tuple(PyObject* object);
  Result<int> slice(PyObject* object);
  Result<int> dict(PyObject* object);
  Result<int> set(PyObject* object);
  Result<int> deque(PyObject* object);
  Result<int> mapping_proxy(PyObject* object);
  Result<int> simple_namespace(PyObject* object);
  Result<int> rebuild_other(PyObject* object);
  Result<int> instance(PyObject* object);
#define FJ_MAKE(name) \
  Result<int> name(PyObject* object, PyTypeObject* base, int type);
  FJ_MAKE(make_nothing)
  FJ_MAKE(make_empty)
  FJ_MAKE(make_tuple)
  FJ_MAKE(make_frozenset)
  FJ_MAKE(make_scalar)
  FJ_MAKE(make_exception)
#undef FJ_MAKE
  Status fill_nothing(PyObject* object, int step);
  Status fill_list(PyObject* object, int step);
  Status fill_dict(PyObject* object, int step);
  Status fill_set(PyObject* object, int step);
  Result<int> exception(PyObject* object, PyTypeObject* base);
  // The table of a set whose elements hash alike at every call; empty: they
  // do not.
  Result<std::optional<int>> set_table(PyObject* set);
  Status check_key(PyObject* key);
  Status fill_attributes(PyObject* object, int step);
  Status fill_slots(PyObject* object, int step);

  // ---- by type: reconstruct_parts.cpp
  Result<int> function(PyObject* object);
  Result<int> cell(PyObject* object);
  Result<int> method(PyObject* object);
  Result<int> super(PyObject* object);
  Result<int> c_method(PyObject* object);
  Result<int> weakref(PyObject* object);
  Result<int> generic_alias(PyObject* object);
  // What says by __reduce__ how it is made: (callable, args[, state]).
  Result<int> reduced(PyObject* object);
  Result<int> key_iterator(PyObject* object);
  Result<int> value_iterator(PyObject* object);
  Result<int> item_iterator(PyObject* object);
  Result<int> key_view(PyObject* object);
  Result<int> value_view(PyObject* object);
  Result<int> item_view(PyObject* object);
  Result<int> model_iterator(PyObject* object);
  void set_positions();
  Result<int> dict_view(PyObject* object, const char* view);
  Result<int> dict_iterator(PyObject* object, const char* view);
  bool is_being_filled(PyObject* dict) const;

  // ---- replay.cpp: the write log
  Status writes();
  Status context_values();
  Status effect_lists();
  Status write(const Write& write, PyObject* value);
  Status replay_by(PyObject* callable, const Write& write, PyObject* value);
  Status replay_method(const char* name, const Write& write, PyObject* value);
#define FJ_REPLAY(name) Status name(const Write& write, PyObject* value);
  FJ_REPLAY(replay_instance_set)
  FJ_REPLAY(replay_instance_del)
  FJ_REPLAY(replay_setattr)
  FJ_REPLAY(replay_stored_by)
  FJ_REPLAY(replay_delattr)
  FJ_REPLAY(replay_set_item)
  FJ_REPLAY(replay_delete_item)
  FJ_REPLAY(replay_append)
  FJ_REPLAY(replay_extend)
  FJ_REPLAY(replay_add)
  FJ_REPLAY(replay_replace)
  FJ_REPLAY(replay_method_call)
  FJ_REPLAY(replay_cell_set)
  FJ_REPLAY(replay_cell_del)
  FJ_REPLAY(replay_call)
#undef FJ_REPLAY
  void guard_distinct();

  CaptureState& state_;
  Plan plan_;
  std::unordered_map<PyObject*, int> memo_;
  std::unordered_map<PyObject*, int> outputs_;
  // Calls of __setstate__ for iterators of lists, behind the writes.
  std::vector<std::pair<PyObject*, std::vector<int>>> positions_;
  std::unordered_set<PyObject*> in_progress_;
  // Lists and tuples that contain themselves: made empty first.
  std::unordered_set<PyObject*> cyclic_;
  // The __dict__ of what has one -> the object, which is made first: it may be
  // held by itself, too, and what is written to one is read from the other.
  std::unordered_map<PyObject*, PyObject*> dict_owners_;
  bool restart_ = false;
  std::vector<Ref> kept_;  // temporaries whose address is a memo key
};

}  // namespace framejit::bytecode
