// Rebuild rules of functions, methods and iterators.
#include "bytecode/builtins/context_variables.h"
#include "bytecode/builtins/effects.h"
#include "bytecode/capture/reconstruct.h"
#include "bytecode/interpreter/exceptions.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/containers.h"
#include "bytecode/objects/itertools_state.h"
#include "bytecode/objects/model_iterators.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/origins.h"
#include "bytecode/objects/step_functions.h"
#include "bytecode/objects/unbuildable.h"
#include "bytecode/objects/write_log.h"
#include "frame_hook/cpython_internals.h"
#include "guards/known_objects.h"

#include <frameobject.h>

namespace framejit::bytecode {

// ---- functions, cells, methods
Result<int> Planner::cell(PyObject* object) {
  PyObject* type = reinterpret_cast<PyObject*>(&PyCell_Type);
  // Empty first: a function may be its own closure.
  int step = define(object, call(type, {}));
  PyObject* content = PyCell_GET(object);
  if (content) {
    FJ_TRY(int inner, value(content));
    call(set_cell_function(), {step, inner});
  }
  return step;
}

namespace {

// The docstring that a new function of the code has.
PyObject* implied_doc(PyObject* code) {
  PyObject* constants = reinterpret_cast<PyCodeObject*>(code)->co_consts;
  PyObject* first = PyTuple_GET_SIZE(constants) > 0
                        ? PyTuple_GET_ITEM(constants, 0)
                        : nullptr;
  return first && PyUnicode_Check(first) ? first : Py_None;
}

}  // namespace

Result<int> Planner::function(PyObject* object) {
  auto* made = reinterpret_cast<PyFunctionObject*>(object);
  FJ_TRY(int globals, value(made->func_globals));
  int none = constant(Py_None);
  auto optional = [&](PyObject* part) -> Result<int> {
    if (!part) return none;
    return value(part);
  };
  FJ_TRY(int defaults, optional(made->func_defaults));
  FJ_TRY(int closure, optional(made->func_closure));
  int step = call(reinterpret_cast<PyObject*>(&PyFunction_Type),
                  {constant(made->func_code), globals,
                   constant(made->func_name), defaults, closure});
  define(object, step);
  PyObject* set_attr = library_object("builtins", "setattr");
  // Kept as a flat tuple until they are first read; this makes the dict.
  if (made->func_annotations && !PyFunction_GetAnnotations(object)) {
    return Result<int>::raised();
  }
  struct Part {
    const char* name;
    PyObject* value;
  } parts[] = {{"__qualname__", made->func_qualname},
               {"__kwdefaults__", made->func_kwdefaults},
               {"__annotations__", made->func_annotations},
               {"__type_params__", internals::function_type_params(made)},
               {"__doc__", made->func_doc == implied_doc(made->func_code)
                               ? nullptr
                               : made->func_doc},
               {"__module__", made->func_module}};
  for (const Part& part : parts) {
    if (!part.value) continue;
    FJ_TRY(int content, value(part.value));
    call(set_attr, {step, constant(interned(part.name)), content});
  }
  if (made->func_dict) FJ_CHECK_OK(fill_attributes(object, step));
  return step;
}

Result<int> Planner::method(PyObject* object) {
  FJ_TRY(int function, value(PyMethod_GET_FUNCTION(object)));
  FJ_TRY(int self, value(PyMethod_GET_SELF(object)));
  return call(as_object(&PyMethod_Type), {function, self});
}

Result<int> Planner::super(PyObject* object) {
  int parts[2];
  const char* names[2] = {"__thisclass__", "__self__"};
  for (int i = 0; i < 2; ++i) {
    PyObject* member = raw_lookup(&PySuper_Type, names[i]);
    Ref part = Ref::steal(Py_TYPE(member)->tp_descr_get(
        member, object, as_object(&PySuper_Type)));
    if (!part) return Result<int>::raised();
    FJ_TRY(parts[i], value(part.get()));
  }
  return call(as_object(&PySuper_Type), {parts[0], parts[1]});
}

// A bound C method: found again on its object, when the type is plain.
Result<int> Planner::c_method(PyObject* object) {
  PyObject* self = PyCFunction_GET_SELF(object);
  const char* name =
      reinterpret_cast<PyCFunctionObject*>(object)->m_ml->ml_name;
  // A tensor's methods too: attributes set on input tensors are guarded.
  bool stand_in = self && state_.tracer.classify(self) == ObjectClass::kStandIn;
  if (!self || (!stand_in &&
                (is_heap_type(Py_TYPE(self)) || is_foreign(state_, self)))) {
    return escaping(object);
  }
  Ref text = Ref::steal(PyUnicode_InternFromString(name));
  PyObject* descriptor = _PyType_Lookup(Py_TYPE(self), text.get());
  if (!descriptor || !Py_IS_TYPE(descriptor, &PyMethodDescr_Type)) {
    return escaping(object);
  }
  FJ_TRY(int owner, value(self));
  return call(library_object("builtins", "getattr"),
              {owner, constant(text.get())});
}

Result<int> Planner::weakref(PyObject* object) {
  Ref referent = Ref::steal(PyObject_CallNoArgs(object));
  if (!referent) return Result<int>::raised();
  if (referent.get() == Py_None) return escaping(object);
  FJ_TRY(int step, value(referent.get()));
  return call(as_object(Py_TYPE(object)), {step});
}

Result<int> Planner::generic_alias(PyObject* object) {
  Ref origin = Ref::steal(PyObject_GetAttrString(object, "__origin__"));
  Ref args = Ref::steal(PyObject_GetAttrString(object, "__args__"));
  if (!origin || !args) return Result<int>::raised();
  kept_.push_back(args);
  FJ_TRY(int of, value(origin.get()));
  FJ_TRY(int items, value(args.get()));
  return call(as_object(Py_TYPE(object)), {of, items});
}

// ---- iterators
Result<int> Planner::model_iterator(PyObject* object) {
  ModelIterator* iterator = as_model_iterator(object);
  std::vector<int> operands;
  IteratorKind kind = model_iterator_kind(iterator);
  PyObject* make_iter = library_object("builtins", "iter");
  Py_ssize_t index = model_iterator_index(iterator);
  PyObject* chain = library_object("itertools", "chain");
  if (index < 0 && kind == IteratorKind::kChain) return call(chain, {});
  if (index < 0) {  // exhausted
    Ref nothing = Ref::steal(PyTuple_New(0));
    return call(make_iter, {constant(nothing.get())});
  }
  if (kind == IteratorKind::kSequence) {
    FJ_TRY(int subject, value(model_iterator_function(iterator)));
    int step = call(make_iter, {subject});
    Ref position = Ref::steal(PyLong_FromSsize_t(index));
    call(raw_lookup(&PySeqIter_Type, "__setstate__"),
         {step, constant(position.get())});
    return step;
  }
  // Made anew it would ask for the length.
  if (kind == IteratorKind::kReversed) return escaping(object);
  if (kind == IteratorKind::kChain) {
    // chain(what is left of this part, chain.from_iterable(the others))
    FJ_TRY(int parts, value(model_iterator_function(iterator)));
    const std::vector<Ref>& at = model_iterator_sources(iterator);
    if (!at.empty()) {
      FJ_TRY(int first, value(at[0].get()));
      operands.push_back(first);
    }
    Ref of_parts = Ref::steal(
        chain ? PyObject_GetAttrString(chain, "from_iterable") : nullptr);
    if (!of_parts) return Result<int>::raised();
    kept_.push_back(of_parts);
    operands.push_back(call(of_parts.get(), {parts}));
    return operands.size() == 1 ? operands[0] : call(chain, operands);
  }
  if (kind == IteratorKind::kCallable) {
    FJ_TRY(int function, value(model_iterator_function(iterator)));
    FJ_TRY(int sentinel, value(model_iterator_sources(iterator)[0].get()));
    return call(make_iter, {function, sentinel});
  }
  const bool passes_on =
      kind == IteratorKind::kUser || kind == IteratorKind::kKeys;
  if (!passes_on) {
    FJ_TRY(int function, value(model_iterator_function(iterator)));
    operands.push_back(function);
  }
  for (const Ref& source : model_iterator_sources(iterator)) {
    FJ_TRY(int step, value(source.get()));
    operands.push_back(step);
  }
  if (passes_on) return operands[0];
  PyTypeObject* type =
      kind == IteratorKind::kMap ? &PyMap_Type : &PyFilter_Type;
  return call(reinterpret_cast<PyObject*>(type), std::move(operands));
}

Result<int> Planner::reduced(PyObject* object) {
  bool itertool = is_itertool(Py_TYPE(object));
  Ref parts =
      itertool ? reduce_itertool(object)
               : Ref::steal(PyObject_CallMethod(object, "__reduce__", nullptr));
  if (!parts) return Result<int>::raised();
  PyObject* reduction = parts.get();
  if (!PyTuple_Check(reduction) || PyTuple_GET_SIZE(reduction) < 2) {
    return escaping(object);
  }
  kept_.push_back(parts);
  FJ_TRY(std::vector<int> operands, items_of(PyTuple_GET_ITEM(reduction, 1)));
  int step = call(PyTuple_GET_ITEM(reduction, 0), std::move(operands));
  if (PyTuple_GET_SIZE(reduction) > 2 &&
      PyTuple_GET_ITEM(reduction, 2) != Py_None) {
    define(object, step);
    FJ_TRY(int position, value(PyTuple_GET_ITEM(reduction, 2)));
    PyObject* set_state = itertool
                              ? restore_itertool_function()
                              : raw_lookup(Py_TYPE(object), "__setstate__");
    if (!set_state) return escaping(object);
    // A position in a list is cut to its length: the writes come first.
    bool in_list = Py_IS_TYPE(object, &PyListIter_Type) ||
                   Py_IS_TYPE(object, &PyListRevIter_Type);
    if (in_list) {
      positions_.push_back({set_state, {step, position}});
    } else {
      call(set_state, {step, position});
    }
  }
  return step;
}

void Planner::set_positions() {
  for (auto& [set_state, operands] : positions_) call(set_state, operands);
}

namespace {

int visit_dict(PyObject* object, void* found) {
  if (PyDict_Check(object)) *static_cast<PyObject**>(found) = object;
  return 0;
}

PyObject* dict_behind(PyObject* view) {
  PyObject* dict = nullptr;
  traverseproc traverse = Py_TYPE(view)->tp_traverse;
  if (traverse) traverse(view, visit_dict, &dict);
  return dict;
}

// The steps make values before they repeat the writes.
bool is_written(CaptureState& state, PyObject* dict) {
  const Source* source = state.source_of(dict);
  bool attributes = source && source->kind == SourceKind::kInstanceDict;
  for (const Write& write : state.table<WriteLog>().entries) {
    if (write.object.get() == dict) return true;
    if (attributes && write.part() == Write::Part::kAttributes) return true;
  }
  return false;
}

}  // namespace

// In a cycle, what is made meanwhile finds it without its content.
bool Planner::is_being_filled(PyObject* dict) const {
  auto owner = dict_owners_.find(dict);
  return in_progress_.contains(dict) ||
         (owner != dict_owners_.end() && in_progress_.contains(owner->second));
}

// A new iterator over the same dict, advanced as far. Made before the dict is
// written to, it would not go on.
Result<int> Planner::dict_iterator(PyObject* object, const char* view) {
  constexpr Py_ssize_t kMaxAdvance = 10'000;
  PyObject* iter = library_object("builtins", "iter");
  PyObject* dict = dict_behind(object);
  Py_ssize_t left = PyObject_LengthHint(object, 0);
  if (left < 0) return Result<int>::raised();
  if (!dict) {  // exhausted
    Ref nothing = Ref::steal(PyTuple_New(0));
    return call(iter, {constant(nothing.get())});
  }
  Py_ssize_t done = PyDict_GET_SIZE(dict) - left;
  if (done < 0 || done > kMaxAdvance) return escaping(object);
  if (is_written(state_, state_.unshadow(dict)) || is_being_filled(dict)) {
    return escaping(object);
  }
  FJ_TRY(int subject, value(dict));
  if (view) subject = call(raw_lookup(&PyDict_Type, view), {subject});
  int step = call(iter, {subject});
  PyObject* next = library_object("builtins", "next");
  for (Py_ssize_t i = 0; i < done; ++i) call(next, {step});
  return step;
}

Result<int> Planner::key_iterator(PyObject* object) {
  return dict_iterator(object, nullptr);
}
Result<int> Planner::value_iterator(PyObject* object) {
  return dict_iterator(object, "values");
}
Result<int> Planner::item_iterator(PyObject* object) {
  return dict_iterator(object, "items");
}

Result<int> Planner::dict_view(PyObject* object, const char* view) {
  PyObject* dict = dict_behind(object);
  if (!dict || !PyDict_CheckExact(dict)) return escaping(object);
  FJ_TRY(int subject, value(dict));
  return call(raw_lookup(&PyDict_Type, view), {subject});
}

Result<int> Planner::key_view(PyObject* object) {
  return dict_view(object, "keys");
}
Result<int> Planner::value_view(PyObject* object) {
  return dict_view(object, "values");
}
Result<int> Planner::item_view(PyObject* object) {
  return dict_view(object, "items");
}

}  // namespace framejit::bytecode
