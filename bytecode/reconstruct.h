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

#include "bytecode/capture_tables.h"

namespace framejit::bytecode {

class Planner {
 public:
  explicit Planner(CaptureState& state) : state_(state) {}
  Result<CaptureState::Plan> run(const std::vector<PyObject*>& values,
                                 const CaptureState::Passed& passed);

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

  // ---- reconstruct.cpp
  Result<int> foreign(PyObject* object, ObjectClass kind);
  Result<std::vector<int>> items_of(PyObject* sequence);
  Result<int> list(PyObject* object);
  Result<int> tuple(PyObject* object);
  Result<int> dict(PyObject* object);
  Result<int> set(PyObject* object);
  Result<int> deque(PyObject* object);
  Result<int> instance(PyObject* object);
  Result<int> exception(PyObject* object, PyTypeObject* base);
  Status fill_dict(PyObject* object, int step);
  Status fill_attributes(PyObject* object, int step);
  Status fill_slots(PyObject* object, int step);

  // ---- reconstruct_parts.cpp
  Result<int> function(PyObject* object);
  Result<int> cell(PyObject* object);
  Result<int> bound(PyObject* object);
  Result<int> model_iterator(PyObject* object);
  // Empty optional: not an iterator or view of a known kind.
  Result<std::optional<int>> iterator(PyObject* object);
  Result<int> reduced(PyObject* object, PyObject* reduction);
  Result<int> dict_iterator(PyObject* object, const char* view);

  // ---- the write log
  Status writes();
  Status context_values();
  Status effect_lists();
  Status write(const Write& write, PyObject* value);
  Status replace(const Write& write);
  void guard_distinct();

  CaptureState& state_;
  CaptureState::Plan plan_;
  std::unordered_map<PyObject*, int> memo_;
  std::unordered_map<PyObject*, int> outputs_;
  std::unordered_set<PyObject*> in_progress_;
  // Lists and tuples that contain themselves: made empty first.
  std::unordered_set<PyObject*> cyclic_;
  bool restart_ = false;
  std::vector<Ref> kept_;  // temporaries whose address is a memo key
};

// C callables that steps name.
PyObject* set_instance_attribute_function();     // (object, name, value)
PyObject* delete_instance_attribute_function();  // (object, name)
PyObject* set_class_function();                  // (object, class)
PyObject* set_cell_function();                   // (cell, value)
PyObject* clear_cell_function();                 // (cell)
PyObject* replace_content_function();            // (container, content)
PyObject* set_handled_exception_function();      // (exception or None)
PyObject* add_traceback_function();              // (exception, lines)

}  // namespace framejit::bytecode
