// Rebuild rules of functions, methods and iterators, and the replay of the
// write log.
#include <cstring>

#include "bytecode/exceptions.h"
#include "bytecode/reconstruct.h"

#include <frameobject.h>

namespace framejit::bytecode {

// ---- C callables that steps name
namespace {

PyObject* set_instance_attribute(PyObject*, PyObject* const* args,
                                 Py_ssize_t count) {
  PyObject *object = args[0], *name = args[1];
  PyObject* value = count > 2 ? args[2] : nullptr;
  PyObject* raw = _PyType_Lookup(Py_TYPE(object), name);
  int failed;
  if (PyModule_Check(object)) {
    PyObject* dict = PyModule_GetDict(object);
    failed =
        value ? PyDict_SetItem(dict, name, value) : PyDict_DelItem(dict, name);
  } else if (raw && !Py_IS_TYPE(raw, &PyMemberDescr_Type) &&
             Py_TYPE(raw)->tp_descr_set) {
    // A property hides the instance dict from setattr.
    Ref dict = Ref::steal(PyObject_GenericGetDict(object, nullptr));
    if (!dict) return nullptr;
    failed = value ? PyDict_SetItem(dict.get(), name, value)
                   : PyDict_DelItem(dict.get(), name);
  } else {
    failed = PyObject_GenericSetAttr(object, name, value);
  }
  if (failed < 0) return nullptr;
  Py_RETURN_NONE;
}

PyObject* set_cell(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (PyCell_Set(args[0], count > 1 ? args[1] : nullptr) < 0) return nullptr;
  Py_RETURN_NONE;
}

PyObject* replace_content(PyObject*, PyObject* const* args, Py_ssize_t) {
  PyObject *container = args[0], *content = args[1];
  int failed = 0;
  if (PyList_Check(container)) {
    failed = PyList_SetSlice(container, 0, PY_SSIZE_T_MAX, content);
  } else {
    Ref done = Ref::steal(PyObject_CallMethod(container, "clear", nullptr));
    if (!done) return nullptr;
    const char* method =
        PyDict_Check(container) || PySet_Check(container) ? "update" : "extend";
    done = Ref::steal(PyObject_CallMethod(container, method, "O", content));
    failed = done ? 0 : -1;
  }
  if (failed < 0) return nullptr;
  Py_RETURN_NONE;
}

PyObject* set_handled_exception(PyObject*, PyObject* const* args, Py_ssize_t) {
  PyErr_SetHandledException(args[0]);
  Py_RETURN_NONE;
}

// (exception, ((file, function, line), ...)), innermost first: the lines that
// the capture's exception had.
PyObject* add_traceback(PyObject*, PyObject* const* args, Py_ssize_t) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args[1]); ++i) {
    const char *file, *function;
    int line;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(args[1], i), "ssi", &file, &function,
                          &line) ||
        !add_traceback_line(args[0], file, function, line).ok()) {
      return nullptr;
    }
  }
  Py_RETURN_NONE;
}

// What the graph returns is a plain tensor, and nobody else's.
PyObject* set_class(PyObject*, PyObject* const* args, Py_ssize_t) {
  if (reinterpret_cast<PyObject*>(Py_TYPE(args[0])) != args[1] &&
      PyObject_SetAttr(args[0], interned("__class__"), args[1]) < 0) {
    return nullptr;
  }
  return Py_NewRef(args[0]);
}

PyMethodDef kMethods[] = {
    {"set_instance_attribute",
     reinterpret_cast<PyCFunction>(set_instance_attribute), METH_FASTCALL,
     nullptr},
    {"delete_instance_attribute",
     reinterpret_cast<PyCFunction>(set_instance_attribute), METH_FASTCALL,
     nullptr},
    {"set_cell", reinterpret_cast<PyCFunction>(set_cell), METH_FASTCALL,
     nullptr},
    {"clear_cell", reinterpret_cast<PyCFunction>(set_cell), METH_FASTCALL,
     nullptr},
    {"replace_content", reinterpret_cast<PyCFunction>(replace_content),
     METH_FASTCALL, nullptr},
    {"set_handled_exception",
     reinterpret_cast<PyCFunction>(set_handled_exception), METH_FASTCALL,
     nullptr},
    {"set_class", reinterpret_cast<PyCFunction>(set_class), METH_FASTCALL,
     nullptr},
    {"add_traceback", reinterpret_cast<PyCFunction>(add_traceback),
     METH_FASTCALL, nullptr}};

PyObject* function_at(size_t index) {
  static PyObject* functions[std::size(kMethods)] = {};
  if (!functions[index]) {
    functions[index] = PyCFunction_New(&kMethods[index], nullptr);
  }
  return functions[index];
}

}  // namespace

PyObject* set_instance_attribute_function() { return function_at(0); }
PyObject* delete_instance_attribute_function() { return function_at(1); }
PyObject* set_cell_function() { return function_at(2); }
PyObject* clear_cell_function() { return function_at(3); }
PyObject* replace_content_function() { return function_at(4); }
PyObject* set_handled_exception_function() { return function_at(5); }
PyObject* set_class_function() { return function_at(6); }
PyObject* add_traceback_function() { return function_at(7); }

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
#if PY_VERSION_HEX >= 0x030C0000
               {"__type_params__", made->func_typeparams},
#endif
               {"__doc__", made->func_doc == implied_doc(made->func_code)
                               ? nullptr
                               : made->func_doc},
               {"__module__", made->func_module}};
  for (const Part& part : parts) {
    if (!part.value) continue;
    FJ_TRY(int content, value(part.value));
    call(set_attr, {step, constant(interned(part.name)), content});
  }
  if (made->func_dict) {
    Py_ssize_t position = 0;
    PyObject *key, *item;
    while (PyDict_Next(made->func_dict, &position, &key, &item)) {
      FJ_TRY(int content, value(item));
      call(set_attr, {step, constant(key), content});
    }
  }
  return step;
}

Result<int> Planner::bound(PyObject* object) {
  if (PyMethod_Check(object)) {
    FJ_TRY(int function, value(PyMethod_GET_FUNCTION(object)));
    FJ_TRY(int self, value(PyMethod_GET_SELF(object)));
    return call(reinterpret_cast<PyObject*>(&PyMethod_Type), {function, self});
  }
  if (Py_IS_TYPE(object, &PySuper_Type)) {
    int parts[2];
    const char* names[2] = {"__thisclass__", "__self__"};
    for (int i = 0; i < 2; ++i) {
      PyObject* member = raw_lookup(&PySuper_Type, names[i]);
      Ref part = Ref::steal(Py_TYPE(member)->tp_descr_get(
          member, object, reinterpret_cast<PyObject*>(&PySuper_Type)));
      if (!part) return Result<int>::raised();
      FJ_TRY(parts[i], value(part.get()));
    }
    return call(reinterpret_cast<PyObject*>(&PySuper_Type),
                {parts[0], parts[1]});
  }
  // A bound C method: found again on its object, when the type is plain.
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

// ---- iterators
Result<int> Planner::model_iterator(PyObject* object) {
  ModelIterator* iterator = as_model_iterator(object);
  std::vector<int> operands;
  IteratorKind kind = model_iterator_kind(iterator);
  PyObject* make_iter = library_object("builtins", "iter");
  Py_ssize_t index = model_iterator_index(iterator);
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
  if (kind == IteratorKind::kCallable) {
    FJ_TRY(int function, value(model_iterator_function(iterator)));
    FJ_TRY(int sentinel, value(model_iterator_sources(iterator)[0].get()));
    return call(make_iter, {function, sentinel});
  }
  if (kind != IteratorKind::kUser) {
    FJ_TRY(int function, value(model_iterator_function(iterator)));
    operands.push_back(function);
  }
  for (const Ref& source : model_iterator_sources(iterator)) {
    FJ_TRY(int step, value(source.get()));
    operands.push_back(step);
  }
  if (kind == IteratorKind::kUser) return operands[0];
  PyTypeObject* type =
      kind == IteratorKind::kMap ? &PyMap_Type : &PyFilter_Type;
  return call(reinterpret_cast<PyObject*>(type), std::move(operands));
}

// (callable, args[, state]) as __reduce__ gives it.
Result<int> Planner::reduced(PyObject* object, PyObject* reduction) {
  if (!PyTuple_Check(reduction) || PyTuple_GET_SIZE(reduction) < 2) {
    return escaping(object);
  }
  kept_.push_back(Ref::borrow(reduction));
  FJ_TRY(std::vector<int> operands, items_of(PyTuple_GET_ITEM(reduction, 1)));
  int step = call(PyTuple_GET_ITEM(reduction, 0), std::move(operands));
  if (PyTuple_GET_SIZE(reduction) > 2 &&
      PyTuple_GET_ITEM(reduction, 2) != Py_None) {
    define(object, step);
    FJ_TRY(int position, value(PyTuple_GET_ITEM(reduction, 2)));
    PyObject* set_state = raw_lookup(Py_TYPE(object), "__setstate__");
    if (!set_state) return escaping(object);
    call(set_state, {step, position});
  }
  return step;
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

}  // namespace

// A new iterator over the same dict, advanced as far.
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
  FJ_TRY(int subject, value(dict));
  if (view) subject = call(raw_lookup(&PyDict_Type, view), {subject});
  int step = call(iter, {subject});
  PyObject* next = library_object("builtins", "next");
  for (Py_ssize_t i = 0; i < done; ++i) call(next, {step});
  return step;
}

Result<std::optional<int>> Planner::iterator(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  struct DictKind {
    PyTypeObject* type;
    const char* view;
  };
  static const DictKind kIterators[] = {{&PyDictIterKey_Type, nullptr},
                                        {&PyDictIterValue_Type, "values"},
                                        {&PyDictIterItem_Type, "items"}};
  for (const DictKind& kind : kIterators) {
    if (type != kind.type) continue;
    FJ_TRY(int step, dict_iterator(object, kind.view));
    return std::optional<int>(step);
  }
  static const DictKind kViews[] = {{&PyDictKeys_Type, "keys"},
                                    {&PyDictValues_Type, "values"},
                                    {&PyDictItems_Type, "items"}};
  for (const DictKind& kind : kViews) {
    if (type != kind.type) continue;
    PyObject* dict = dict_behind(object);
    if (!dict || !PyDict_CheckExact(dict)) return escaping(object);
    FJ_TRY(int subject, value(dict));
    return std::optional<int>(
        call(raw_lookup(&PyDict_Type, kind.view), {subject}));
  }
  static PyTypeObject* const kReducible[] = {
      &PyListIter_Type,      &PyTupleIter_Type,   &PyRangeIter_Type,
      &PyLongRangeIter_Type, &PyUnicodeIter_Type, &PyEnum_Type,
      &PyZip_Type,           &PyListRevIter_Type, &PyReversed_Type};
  // Later versions warn when these are taken apart, and 3.14 cannot.
  bool is_text = std::strcmp(type->tp_name, "str_ascii_iterator") == 0 ||
                 (PY_VERSION_HEX < 0x030C0000 &&
                  std::strncmp(type->tp_name, "itertools.", 10) == 0 &&
                  std::strncmp(type->tp_name, "itertools._", 11) != 0);
  for (PyTypeObject* reducible : kReducible) {
    if (type != reducible && !is_text) continue;
    Ref parts = Ref::steal(PyObject_CallMethod(object, "__reduce__", nullptr));
    if (!parts) return Result<std::optional<int>>::raised();
    FJ_TRY(int step, reduced(object, parts.get()));
    return std::optional<int>(step);
  }
  return std::optional<int>();
}

// ---- the write log
Status Planner::replace(const Write& write) {
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
    Ref items = Ref::steal(PySequence_List(shadow));
    if (!items) return Status::raised();
    FJ_TRY(std::vector<int> steps, items_of(items.get()));
    content = build(Step::Kind::kList, std::move(steps));
  }
  FJ_TRY(int target, value(container));
  call(replace_content_function(), {target, content});
  return ok_status();
}

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

Status Planner::write(const Write& write, PyObject* content) {
  PyObject* object = write.object.get();
  if (write.kind == Write::Kind::kReplaceContent) return replace(write);
  if (write.kind == Write::Kind::kCall) {
    FJ_TRY(std::vector<int> operands, items_of(content));
    call(object, std::move(operands));
    return ok_status();
  }
  FJ_TRY(int target, value(object));
  int key = -1, item = -1;
  if (write.key) {
    FJ_TRY(key, value(write.key.get()));
  }
  if (content) {
    FJ_TRY(item, value(content));
  }
  switch (write.kind) {
    case Write::Kind::kSetAttr:
      call(set_instance_attribute_function(), {target, key, item});
      break;
    case Write::Kind::kSetTensorAttr:
      if (content) {
        call(library_object("builtins", "setattr"), {target, key, item});
      } else {
        call(library_object("builtins", "delattr"), {target, key});
      }
      break;
    case Write::Kind::kDelAttr:
      call(delete_instance_attribute_function(), {target, key});
      break;
    case Write::Kind::kDictSet:
    case Write::Kind::kGlobalSet:
    case Write::Kind::kSetItem:
      call(method_of(object, "__setitem__"), {target, key, item});
      break;
    case Write::Kind::kDictDel:
    case Write::Kind::kGlobalDel:
    case Write::Kind::kDelItem:
      call(method_of(object, "__delitem__"), {target, key});
      break;
    case Write::Kind::kAppend:
      call(method_of(object, "append"), {target, item});
      break;
    case Write::Kind::kExtend:
      call(method_of(object, "extend"), {target, item});
      break;
    case Write::Kind::kSetAdd:
      call(method_of(object, "add"), {target, key});
      break;
    case Write::Kind::kSetDiscard:
      call(method_of(object, "discard"), {target, key});
      break;
    case Write::Kind::kCellSet:
      call(set_cell_function(), {target, item});
      break;
    case Write::Kind::kCellDel:
      call(clear_cell_function(), {target});
      break;
    default:
      return state_.make_break(BreakReason::kUnsupportedWrite,
                               Py_TYPE(object)->tp_name);
  }
  return ok_status();
}

// Nothing looks between two writes of one key, so only the last value counts;
// it is stored where the first was, which keeps the order of the keys.
Status Planner::writes() {
  const std::vector<Write>& log = state_.writes();
  std::vector<PyObject*> contents(log.size());
  std::vector<bool> dropped(log.size(), false);
  // object -> {key: index}; an instance of a dict subclass has both.
  std::unordered_map<PyObject*, Ref> first_attributes, first_items;
  for (size_t i = 0; i < log.size(); ++i) {
    const Write& entry = log[i];
    PyObject* object = entry.object.get();
    contents[i] = entry.value.get();
    auto container = state_.tables().containers.find(object);
    bool replaced = container != state_.tables().containers.end() &&
                    container->second.replaced;
    bool attribute = entry.kind == Write::Kind::kSetAttr ||
                     entry.kind == Write::Kind::kDelAttr;
    if (replaced && !attribute && entry.kind != Write::Kind::kReplaceContent) {
      dropped[i] = true;
      continue;
    }
    // A deferred call may look at everything written before it.
    if (entry.kind == Write::Kind::kCall) {
      first_attributes.clear();
      first_items.clear();
    }
    bool sets = entry.kind == Write::Kind::kSetAttr ||
                entry.kind == Write::Kind::kDictSet;
    bool deletes = entry.kind == Write::Kind::kDelAttr ||
                   entry.kind == Write::Kind::kDictDel;
    if (!sets && !deletes) continue;
    Ref& keys = (attribute ? first_attributes : first_items)[object];
    if (!keys) keys = Ref::steal(PyDict_New());
    if (!keys) return Status::raised();
    PyObject* known = PyDict_GetItemWithError(keys.get(), entry.key.get());
    if (!known && PyErr_Occurred()) return Status::raised();
    if (deletes) {
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
  for (size_t i = 0; i < log.size(); ++i) {
    if (dropped[i] || !contents[i] ||
        log[i].kind == Write::Kind::kReplaceContent) {
      continue;
    }
    FJ_CHECK_OK(value(contents[i]));
  }
  for (size_t i = 0; i < log.size(); ++i) {
    if (!dropped[i]) FJ_CHECK_OK(write(log[i], contents[i]));
  }
  return ok_status();
}

// Context variables get their last value; set() and reset() in pairs are none.
Status Planner::context_values() {
  for (auto& [variable, values] : state_.tables().context_values) {
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
  for (const auto& entry : state_.tables().effect_lists) {
    if (state_.is_input(entry.list.get())) {
      size_t& first = state_.tables().escaped_at;
      if (first == 0 || entry.ordinal < first) first = entry.ordinal;
      return state_.make_break(BreakReason::kSideEffectCallee,
                               "the list that warnings go to is looked at");
    }
    for (PyObject* other : state_.tables().order) {
      if (!PyList_CheckExact(other)) continue;
      Guard distinct{GuardKind::kNotSameObject, state_.source_of(other)};
      distinct.other = entry.source;
      distinct.span = state_.caller.here();
      state_.guards.add(std::move(distinct));
    }
  }
  return ok_status();
}

// Two paths that led to two objects may lead to one in the next call: the log
// would then not show writes of one through the other.
void Planner::guard_distinct() {
  std::unordered_set<PyObject*> done;
  for (const Write& entry : state_.writes()) {
    PyObject* object = entry.object.get();
    const Source* source = state_.source_of(object);
    if (!source || !done.insert(object).second) continue;
    for (PyObject* other : state_.tables().order) {
      if (other == object || Py_TYPE(other) != Py_TYPE(object)) continue;
      const Source* other_source = state_.source_of(other);
      if (source->kind == SourceKind::kConst &&
          other_source->kind == SourceKind::kConst) {
        continue;
      }
      Guard distinct{GuardKind::kNotSameObject, source};
      distinct.other = other_source;
      distinct.span = entry.span;
      state_.guards.add(std::move(distinct));
    }
  }
}

}  // namespace framejit::bytecode
