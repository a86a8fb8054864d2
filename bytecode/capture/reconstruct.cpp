#include "bytecode/capture/reconstruct.h"

#include "bytecode/builtins/builtins.h"
#include "bytecode/builtins/cached_results.h"
#include "bytecode/interpreter/interpreter.h"
#include "bytecode/library/library.h"
#include "bytecode/objects/breaks.h"
#include "bytecode/objects/builtin_types.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/containers.h"
#include "bytecode/objects/itertools_state.h"
#include "bytecode/objects/keys.h"
#include "bytecode/objects/late_text.h"
#include "bytecode/objects/model_iterators.h"
#include "bytecode/objects/native_calls.h"
#include "bytecode/objects/object_kinds.h"
#include "bytecode/objects/opaque_value.h"
#include "bytecode/objects/origins.h"
#include "bytecode/objects/overrides.h"
#include "bytecode/objects/own_items.h"
#include "bytecode/objects/step_functions.h"
#include "bytecode/objects/unbuildable.h"
#include "guards/known_objects.h"
#include "guards/set/set_table.h"
#include "guards/set/weak_objects.h"

#include <frameobject.h>
#include <structmember.h>

namespace framejit::bytecode {

namespace {

// A base may have its __new__ from a base of its own (OrderedDict from dict).
PyObject* object_new(PyTypeObject* type) { return raw_lookup(type, "__new__"); }

bool is_c_callable(PyObject* object) {
  return PyCFunction_Check(object) || Py_IS_TYPE(object, &PyMethodDescr_Type) ||
         Py_IS_TYPE(object, &PyWrapperDescr_Type) ||
         Py_IS_TYPE(object, &PyClassMethodDescr_Type) ||
         Py_IS_TYPE(object, &PyGetSetDescr_Type) ||
         Py_IS_TYPE(object, &PyMemberDescr_Type);
}

// Struct sequences and the like: tuples whose type was made in C and takes the
// items. One with items that the sequence hides has no rebuild rule.
bool is_tuple_made_in_c(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type->tp_base != &PyTuple_Type) return false;
  if (is_library_tuple(type)) return true;
  Ref dict = own_dict(type);
  if (!dict) return false;
  PyObject* shown = PyDict_GetItemString(dict.get(), "n_sequence_fields");
  PyObject* all = PyDict_GetItemString(dict.get(), "n_fields");
  return shown && all && PyLong_CheckExact(shown) && PyLong_CheckExact(all) &&
         PyLong_AsLong(shown) == PyTuple_GET_SIZE(object) &&
         PyLong_AsLong(all) == PyTuple_GET_SIZE(object);
}

}  // namespace

int Planner::add(Step step) {
  step.span = state_.caller.here();
  plan_.steps.push_back(std::move(step));
  return static_cast<int>(plan_.steps.size()) - 1;
}

int Planner::constant(PyObject* object) {
  Step step;
  step.kind = Step::Kind::kConst;
  step.object = Ref::borrow(object);
  return add(std::move(step));
}

int Planner::call(PyObject* callable, std::vector<int> operands) {
  FJ_CHECK(callable, "a step without a callable");
  Step step;
  step.kind = Step::Kind::kCall;
  step.object = Ref::borrow(callable);
  step.operands = std::move(operands);
  return add(std::move(step));
}

int Planner::build(Step::Kind kind, std::vector<int> operands) {
  Step step;
  step.kind = kind;
  step.operands = std::move(operands);
  return add(std::move(step));
}

int Planner::gather(const Source* source) {
  if (const Source* follower = follower_source(source)) source = follower;
  // A step would keep the object, and what it holds, its globals say, may hold
  // the code that owns the entry: such a cycle no collector sees. Gathered, it
  // is held by the guards, weakly.
  if (source->kind == SourceKind::kConst && !can_be_weak(source->key.get())) {
    return constant(source->key.get());
  }
  Step step;
  if (source->kind == SourceKind::kFunction) {
    step.kind = Step::Kind::kFunction;
    return add(std::move(step));
  }
  step.kind = Step::Kind::kGathered;
  step.index = state_.guards.gather(source);
  return add(std::move(step));
}

int Planner::define(PyObject* object, int step) {
  memo_[object] = step;
  return step;
}

Break Planner::escaping(PyObject* object) {
  auto made = state_.table<Unbuildable>().made.find(object);
  if (made != state_.table<Unbuildable>().made.end()) {
    state_.table<Unbuildable>().escapes(made->second);
  }
  return state_.make_break(BreakReason::kEscapingObject,
                           Py_TYPE(object)->tp_name);
}

// Where the object is that a symbol is the value of; null: it is a size, or was
// computed.
const Source* Planner::source_of_number(const Expr& expr) const {
  if (!expr.is_symbol() && !expr.is_float_symbol()) return nullptr;
  const Source* source = state_.guards.symbols()[expr.symbol_index()].source;
  bool is_value = source->kind == SourceKind::kIntValue ||
                  source->kind == SourceKind::kFloatBits;
  return is_value ? source->base : nullptr;
}

Result<int> Planner::foreign(PyObject* object, ObjectClass kind) {
  switch (kind) {
    case ObjectClass::kConstant:
      return constant(object);
    case ObjectClass::kStandIn: {
      const Source* source = state_.tracer.source_of(object);
      if (source && state_.tracer.real_of(object)) return gather(source);
      auto [entry, inserted] =
          outputs_.try_emplace(object, static_cast<int>(plan_.outputs.size()));
      if (inserted) plan_.outputs.push_back(object);
      Step step;
      step.kind = Step::Kind::kOutput;
      step.index = entry->second;
      int made = add(std::move(step));
      if (!state_.tracer.is_subclass(object)) return made;
      FJ_TRY(int type, value(reinterpret_cast<PyObject*>(Py_TYPE(object))));
      return call(set_class_function(), {made, type});
    }
    case ObjectClass::kSymbolic: {
      std::optional<Expr> expr = state_.tracer.expr_of(object);
      bool is_number = state_.tracer.symbolic_type(object) !=
                       reinterpret_cast<PyObject*>(&PyBool_Type);
      if (expr && is_number) {
        // A number of the caller's is that object: NaN as a key, id().
        if (const Source* given = source_of_number(*expr)) return gather(given);
        Step step;
        step.kind = Step::Kind::kSymbolic;
        step.expr = *expr;
        return add(std::move(step));
      }
      FJ_TRY(Ref number, state_.tracer.concretise(object));
      return constant(number.get());
    }
    default:
      return state_.make_break(BreakReason::kUnknownTensor,
                               Py_TYPE(object)->tp_name);
  }
}

Result<int> Planner::value(PyObject* object) {
  FJ_CHECK_OK(room_for(state_, "objects"));
  object = state_.unshadow(object);
  auto known = memo_.find(object);
  if (known != memo_.end()) return known->second;
  if (is_builtin_constant(object)) return define(object, constant(object));
  const Source* source = state_.source_of(object);
  if (source) return define(object, gather(source));
  auto owner = dict_owners_.find(object);
  if (owner != dict_owners_.end()) {
    FJ_TRY(int step, value(owner->second));
    return define(object, call(instance_dict_function(), {step}));
  }
  ObjectClass kind = state_.tracer.classify(object);
  if (kind != ObjectClass::kPlain) {
    FJ_TRY(int step, foreign(object, kind));
    kept_.push_back(Ref::borrow(object));
    return define(object, step);
  }
  if (is_fresh_class(state_, object)) return escaping(object);
  // Types, modules and C functions cannot be made by a capture.
  if (PyType_Check(object) || PyModule_Check(object) ||
      (is_c_callable(object) &&
       (!PyCFunction_Check(object) || !PyCFunction_GET_SELF(object) ||
        PyModule_Check(PyCFunction_GET_SELF(object)) ||
        PyType_Check(PyCFunction_GET_SELF(object))))) {
    return define(object, constant(object));
  }
  if (!in_progress_.insert(object).second) {
    // The object contains itself. Plan again, making it empty first.
    if (!PyList_CheckExact(object) && !PyDict_Check(object)) {
      return escaping(object);
    }
    if (!cyclic_.insert(object).second) return escaping(object);
    restart_ = true;
    return escaping(object);
  }
  kept_.push_back(Ref::borrow(object));
  Result<int> step = rebuild(object);
  in_progress_.erase(object);
  if (step.ok()) define(object, step.value());
  return step;
}

Result<int> Planner::rebuild(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  // Its identity is the cache's.
  if (type != &PyTuple_Type && is_cached_result(state_, object)) {
    return shared_cached_result(state_, BreakReason::kEscapingObject);
  }
  static constexpr Result<int> (Planner::* kRules[])(PyObject*) = {
#define FJ_TYPE(name, type, parts, identity, prepare, shadow, iterate, \
                rebuild, ...)                                          \
  &Planner::rebuild,
#include "bytecode/objects/builtin_types.def"
  };
  return (this->*kRules[size_t(builtin_type(type))])(object);
}

// What has no rule of its own.
Result<int> Planner::rebuild_other(PyObject* object) {
  if (as_model_iterator(object)) return model_iterator(object);
  if (PyObject* target = trampoline_callable(object)) return value(target);
  if (is_late_text(object)) {
    FJ_TRY(std::vector<int> operands, items_of(opaque_object(object)));
    operands.erase(operands.begin());
    return call(PyTuple_GET_ITEM(opaque_object(object), 0),
                std::move(operands));
  }
  if (is_opaque(object)) {
    if (opaque_kind(object) != OpaqueKind::kIdentity) return escaping(object);
    FJ_TRY(int subject, value(opaque_object(object)));
    return call(library_object("builtins", "id"), {subject});
  }
  if (is_itertool(Py_TYPE(object))) return reduced(object);
  if (is_tuple_made_in_c(object)) {
    FJ_TRY(int items, tuple(object));
    return call(as_object(Py_TYPE(object)), {items});
  }
  return instance(object);
}

Result<std::vector<int>> Planner::items_of(PyObject* sequence) {
  std::vector<int> steps;
  bool is_list = PyList_Check(sequence);
  Py_ssize_t size =
      is_list ? PyList_GET_SIZE(sequence) : PyTuple_GET_SIZE(sequence);
  for (Py_ssize_t i = 0; i < size; ++i) {
    FJ_TRY(int step, value(is_list ? PyList_GET_ITEM(sequence, i)
                                   : PyTuple_GET_ITEM(sequence, i)));
    steps.push_back(step);
  }
  return steps;
}

Result<int> Planner::list(PyObject* object) {
  if (!cyclic_.contains(object)) {
    FJ_TRY(std::vector<int> items, items_of(object));
    return build(Step::Kind::kList, std::move(items));
  }
  int step = define(object, build(Step::Kind::kList, {}));
  FJ_CHECK_OK(fill_list(object, step));
  return step;
}

Result<int> Planner::tuple(PyObject* object) {
  FJ_TRY(std::vector<int> items, items_of(object));
  return build(Step::Kind::kTuple, std::move(items));
}

Result<int> Planner::slice(PyObject* object) {
  auto* slice = reinterpret_cast<PySliceObject*>(object);
  FJ_TRY(int start, value(slice->start));
  FJ_TRY(int stop, value(slice->stop));
  FJ_TRY(int step, value(slice->step));
  return call(as_object(&PySlice_Type), {start, stop, step});
}

// A container of keys is rebuilt by asking them for their hash.
Status Planner::check_key(PyObject* key) {
  auto& keys = state_.table<Unbuildable>().python_keys;
  auto asked = keys.find(key);
  if (asked == keys.end()) return ok_status();
  state_.table<Unbuildable>().escapes(asked->second);
  return state_.make_break(
      BreakReason::kEscapingObject,
      std::string("a dict or set with a key that hashes itself in Python: ") +
          Py_TYPE(key)->tp_name);
}

Status Planner::fill_dict(PyObject* object, int step) {
  PyTypeObject* base = PyODict_Check(object) ? &PyODict_Type : &PyDict_Type;
  PyObject* set_item = raw_lookup(base, "__setitem__");
  // OrderedDict has an order of its own.
  Ref keys = own_items(object);
  if (!keys) return Status::raised();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(keys.get()); ++i) {
    PyObject* key = PyList_GET_ITEM(keys.get(), i);
    FJ_CHECK_OK(check_key(key));
    PyObject* item = PyDict_GetItemWithError(object, key);
    if (!item) return Status::raised();
    FJ_TRY(int key_step, value(key));
    FJ_TRY(int item_step, value(item));
    call(set_item, {step, key_step, item_step});
  }
  return ok_status();
}

Result<int> Planner::dict(PyObject* object) {
  PyTypeObject* type = Py_TYPE(object);
  if (type == &PyDict_Type && !cyclic_.contains(object)) {
    std::vector<int> operands;
    Py_ssize_t position = 0;
    PyObject *key, *item;
    while (PyDict_Next(object, &position, &key, &item)) {
      FJ_CHECK_OK(check_key(key));
      FJ_TRY(int key_step, value(key));
      FJ_TRY(int item_step, value(item));
      operands.push_back(key_step);
      operands.push_back(item_step);
    }
    return build(Step::Kind::kDict, std::move(operands));
  }
  std::vector<int> operands;
  if (type != &PyDict_Type && type != &PyODict_Type) {  // defaultdict
    Ref factory = Ref::steal(PyObject_GetAttrString(object, "default_factory"));
    if (!factory) return Result<int>::raised();
    FJ_TRY(int step, value(factory.get()));
    operands.push_back(step);
  }
  int step = define(
      object, call(reinterpret_cast<PyObject*>(type), std::move(operands)));
  FJ_CHECK_OK(fill_dict(object, step));
  FJ_CHECK_OK(fill_attributes(object, step));  // an OrderedDict may have some
  return step;
}

Result<std::optional<int>> Planner::set_table(PyObject* set) {
  Ref items = own_items(set);
  if (!items) return Result<std::optional<int>>::raised();
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(items.get()); ++i) {
    PyObject* item = PyList_GET_ITEM(items.get(), i);
    const Source* source = state_.source_of(item);
    bool fixed = state_.is_constant(item) ||
                 (source && source->kind == SourceKind::kConst);
    if (fixed) continue;
    for (i = 0; i < PyList_GET_SIZE(items.get()); ++i)
      FJ_CHECK_OK(check_key(PyList_GET_ITEM(items.get(), i)));
    return std::optional<int>();
  }
  FJ_TRY(Ref table, from_api(copy_set_table(set).release()));
  return std::optional<int>(constant(table.get()));
}

Result<int> Planner::set(PyObject* object) {
  FJ_TRY(std::optional<int> table, set_table(object));
  if (table) return call(copy_set_function(), {*table});
  Ref items = own_items(object);
  if (!items) return Result<int>::raised();
  FJ_TRY(std::vector<int> steps, items_of(items.get()));
  if (PySet_CheckExact(object)) {
    return build(Step::Kind::kSet, std::move(steps));
  }
  int list = build(Step::Kind::kList, std::move(steps));
  return call(reinterpret_cast<PyObject*>(&PyFrozenSet_Type), {list});
}

Result<int> Planner::deque(PyObject* object) {
  Ref items = own_items(object);
  Ref maxlen = Ref::steal(PyObject_GetAttrString(object, "maxlen"));
  if (!items || !maxlen) return Result<int>::raised();
  FJ_TRY(std::vector<int> steps, items_of(items.get()));
  int list = build(Step::Kind::kList, std::move(steps));
  return call(reinterpret_cast<PyObject*>(Py_TYPE(object)),
              {list, constant(maxlen.get())});
}

Result<int> Planner::mapping_proxy(PyObject* object) {
  auto proxy = state_.table<Proxies>().dicts.find(object);
  if (proxy == state_.table<Proxies>().dicts.end()) return instance(object);
  FJ_TRY(int dict, value(proxy->second.get()));
  return call(as_object(&PyDictProxy_Type), {dict});
}

// ---- instances of user classes
Result<int> Planner::simple_namespace(PyObject* object) {
  int step = define(object, call(as_object(Py_TYPE(object)), {}));
  FJ_CHECK_OK(fill_attributes(object, step));
  return step;
}

Status Planner::fill_attributes(PyObject* object, int step) {
  if (Py_TYPE(object)->tp_dictoffset == 0) return ok_status();
  Ref dict = Ref::steal(PyObject_GenericGetDict(object, nullptr));
  if (!dict) {
    PyErr_Clear();
    return ok_status();
  }
  // One of the program's own, or of another instance.
  PyObject* own = state_.unshadow(dict.get());
  bool shared = state_.source_of(own);
  if (!shared)
    shared = dict_owners_.try_emplace(own, object).first->second != object;
  if (shared) {
    FJ_TRY(int content, value(own));
    call(set_instance_dict_function(), {step, content});
    return ok_status();
  }
  // The content alone would be put in a plain dict.
  if (!PyDict_CheckExact(own)) return escaping(object);
  // The program holds it by itself and met it first. Plan again, as what it is.
  if (memo_.contains(own) || in_progress_.contains(own)) {
    restart_ = true;
    return escaping(object);
  }
  Py_ssize_t position = 0;
  PyObject *key, *item;
  std::vector<std::pair<Ref, Ref>> entries;
  while (PyDict_Next(dict.get(), &position, &key, &item)) {
    entries.emplace_back(Ref::borrow(key), Ref::borrow(item));
  }
  for (auto& [name, content] : entries) {
    if (!PyUnicode_CheckExact(name.get())) {
      return escaping(object);
    }
    FJ_TRY(int content_step, value(content.get()));
    call(set_instance_attribute_function(),
         {step, constant(name.get()), content_step});
  }
  return ok_status();
}

Status Planner::fill_slots(PyObject* object, int step) {
  PyObject* mro = Py_TYPE(object)->tp_mro;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(mro); ++i) {
    auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(mro, i));
    if (!(base->tp_flags & Py_TPFLAGS_HEAPTYPE)) continue;
    Py_ssize_t position = 0;
    PyObject *name, *descriptor;
    Ref dict = own_dict(base);
    if (!dict) return Status::raised();
    while (PyDict_Next(dict.get(), &position, &name, &descriptor)) {
      if (!Py_IS_TYPE(descriptor, &PyMemberDescr_Type)) continue;
      auto* member =
          reinterpret_cast<PyMemberDescrObject*>(descriptor)->d_member;
      if (member->type != T_OBJECT_EX) continue;
      PyObject* content = *reinterpret_cast<PyObject**>(
          reinterpret_cast<char*>(object) + member->offset);
      if (!content) continue;
      if (_PyType_Lookup(Py_TYPE(object), name) != descriptor) {
        return escaping(object);
      }
      FJ_TRY(int content_step, value(content));
      call(set_instance_attribute_function(),
           {step, constant(name), content_step});
    }
  }
  return ok_status();
}

namespace {

// Fields that exceptions of C have besides their arguments.
const char* const* exception_fields(PyTypeObject* base) {
  static const char* const kNone[] = {nullptr};
  static const char* const kName[] = {"name", nullptr};
  static const char* const kAttribute[] = {"name", "obj", nullptr};
  static const char* const kValue[] = {"value", nullptr};
  if (base->tp_basicsize == sizeof(PyBaseExceptionObject)) return kNone;
  auto* object = reinterpret_cast<PyObject*>(base);
  if (object == PyExc_AttributeError) return kAttribute;
  if (object == PyExc_NameError) return kName;
  if (object == PyExc_StopIteration) return kValue;
  return nullptr;
}

// ((file, function, line), ...) of a traceback, innermost first; (): None.
Result<Ref> traceback_lines(PyObject* traceback) {
  Ref lines = Ref::steal(PyList_New(0));
  if (!lines) return Result<Ref>::raised();
  auto* at = traceback == Py_None
                 ? nullptr
                 : reinterpret_cast<PyTracebackObject*>(traceback);
  for (; at; at = at->tb_next) {
    Ref code =
        Ref::steal(reinterpret_cast<PyObject*>(PyFrame_GetCode(at->tb_frame)));
    auto* object = reinterpret_cast<PyCodeObject*>(code.get());
    // tb_lineno of an entry not looked at yet may be unset (3.12).
    Ref number = Ref::steal(
        PyObject_GetAttrString(reinterpret_cast<PyObject*>(at), "tb_lineno"));
    if (!number) return Result<Ref>::raised();
    Ref line = Ref::steal(
        PyTuple_Pack(3, object->co_filename, object->co_name, number.get()));
    if (!line || PyList_Append(lines.get(), line.get()) < 0)
      return Result<Ref>::raised();
  }
  if (PyList_Reverse(lines.get()) < 0) return Result<Ref>::raised();
  return from_api(PyList_AsTuple(lines.get()));
}

}  // namespace

Result<int> Planner::exception(PyObject* object, PyTypeObject* base) {
  auto* error = reinterpret_cast<PyBaseExceptionObject*>(object);
  const char* const* fields = exception_fields(base);
  if (!fields) return escaping(object);
  FJ_TRY(std::vector<int> operands, items_of(error->args));
  operands.insert(operands.begin(),
                  constant(reinterpret_cast<PyObject*>(Py_TYPE(object))));
  PyObject* maker = object_new(base);
  if (!maker) {
    maker = object_new(reinterpret_cast<PyTypeObject*>(PyExc_BaseException));
  }
  int step = define(object, call(maker, std::move(operands)));
  PyObject* set_attr = library_object("builtins", "setattr");
  auto set = [&](const char* name, PyObject* content) -> Status {
    FJ_TRY(int content_step, value(content));
    call(set_attr, {step, constant(interned(name)), content_step});
    return ok_status();
  };
  for (; *fields; ++fields) {
    Ref content = Ref::steal(PyObject_GetAttrString(object, *fields));
    if (!content) return Result<int>::raised();
    kept_.push_back(content);
    FJ_CHECK_OK(set(*fields, content.get()));
  }
  if (error->context) FJ_CHECK_OK(set("__context__", error->context));
  if (error->cause) FJ_CHECK_OK(set("__cause__", error->cause));
  // A cause sets it, too.
  if (error->suppress_context || error->cause) {
    FJ_CHECK_OK(set("__suppress_context__",
                    error->suppress_context ? Py_True : Py_False));
  }
  if (error->notes) FJ_CHECK_OK(set("__notes__", error->notes));
  // None where it was raised and the lines taken away: CPython hands on what is
  // there to __exit__, which must not be nothing.
  if (error->traceback) {
    FJ_TRY(Ref lines, traceback_lines(error->traceback));
    kept_.push_back(lines);
    call(add_traceback_function(), {step, constant(lines.get())});
  }
  return step;
}

// ---- how an instance is made, by the type its layout starts with

Result<int> Planner::make_nothing(PyObject* object, PyTypeObject*, int) {
  return escaping(object);
}

Result<int> Planner::make_empty(PyObject*, PyTypeObject* base, int type) {
  return call(object_new(base), {type});
}

Result<int> Planner::make_tuple(PyObject* object, PyTypeObject* base,
                                int type) {
  FJ_TRY(int content, tuple(object));
  return call(object_new(base), {type, content});
}

Result<int> Planner::make_frozenset(PyObject* object, PyTypeObject* base,
                                    int type) {
  Ref items = own_items(object);
  if (!items) return Result<int>::raised();
  FJ_TRY(std::vector<int> steps, items_of(items.get()));
  int list = build(Step::Kind::kList, std::move(steps));
  return call(object_new(base), {type, list});
}

Result<int> Planner::make_scalar(PyObject* object, PyTypeObject* base,
                                 int type) {
  FJ_TRY(Ref plain, plain_scalar(object));
  return call(object_new(base), {type, constant(plain.get())});
}

Result<int> Planner::make_exception(PyObject* object, PyTypeObject* base, int) {
  return exception(object, base);
}

Status Planner::fill_nothing(PyObject*, int) { return ok_status(); }

Status Planner::fill_list(PyObject* object, int step) {
  FJ_TRY(std::vector<int> items, items_of(object));
  PyObject* append = raw_lookup(&PyList_Type, "append");
  for (int item : items) call(append, {step, item});
  return ok_status();
}

Status Planner::fill_set(PyObject* object, int step) {
  FJ_TRY(std::optional<int> table, set_table(object));
  if (table) call(take_set_function(), {step, *table});
  Ref items = own_items(object);
  if (!items) return Status::raised();
  FJ_TRY(std::vector<int> steps, items_of(items.get()));
  PyObject* add = raw_lookup(&PySet_Type, "add");
  if (!table) {
    for (int item : steps) call(add, {step, item});
  }
  return ok_status();
}

Result<int> Planner::instance(PyObject* object) {
  struct Rule {
    Result<int> (Planner::*make)(PyObject*, PyTypeObject* base, int type);
    Status (Planner::*fill)(PyObject*, int step);
  };
  static constexpr Rule kRules[] = {
#define FJ_TYPE(name, type, parts, identity, prepare, shadow, iterate, \
                rebuild, make, fill, ...)                              \
  {&Planner::make, &Planner::fill},
#include "bytecode/objects/builtin_types.def"
  };
  PyTypeObject* type = Py_TYPE(object);
  PyTypeObject* base = solid_base(type);
  if (state_.table<Unbuildable>().made.contains(object)) {
    return escaping(object);
  }
  if (raw_lookup(type, "__del__")) {
    return state_.make_break(BreakReason::kFinalizerObject, type->tp_name);
  }
  // Exceptions have layouts of their own and are made alike.
  BuiltinType row = PyExceptionInstance_Check(object)
                        ? BuiltinType::kBaseException
                        : builtin_type(base);
  const Rule& rule = kRules[size_t(row)];
  FJ_TRY(int type_step, value(as_object(type)));
  FJ_TRY(int step, (this->*rule.make)(object, base, type_step));
  define(object, step);
  FJ_CHECK_OK((this->*rule.fill)(object, step));
  FJ_CHECK_OK(fill_attributes(object, step));
  FJ_CHECK_OK(fill_slots(object, step));
  return step;
}

Result<Plan> Planner::run(const std::vector<PyObject*>& values,
                          const Passed& passed) {
  // Each turn finds at least one more object that contains itself.
  while (true) {
    plan_ = {};
    memo_.clear();
    outputs_.clear();
    in_progress_.clear();
    positions_.clear();
    restart_ = false;
    Status status = ok_status();
    for (size_t i = 0; i < values.size(); ++i) {
      auto source = passed.find(i);
      Result<int> step =
          source == passed.end() ? value(values[i]) : gather(source->second);
      if (!step.ok()) {
        status = step.forward<Unit>();
        break;
      }
      plan_.values.push_back(step.value());
    }
    if (status.ok()) status = writes();
    if (status.ok()) status = context_values();
    if (status.ok()) status = effect_lists();
    if (restart_) continue;
    FJ_CHECK_OK(std::move(status));
    set_positions();
    break;
  }
  guard_distinct();
  guard_tensor_keys(state_);
  return std::move(plan_);
}

Result<Plan> make_plan(CaptureState& state,
                       const std::vector<PyObject*>& values,
                       const Passed& passed) {
  FJ_TRY(bool unchanged, cached_results_unchanged(state));
  if (!unchanged) {
    return shared_cached_result(state, BreakReason::kUnsupportedWrite);
  }
  if (size_t place = state.table<OverrideState>().changed_at) {
    state.table<Unbuildable>().escapes(place);
    return state.make_break(
        BreakReason::kThreadState,
        "a mode that overrides functions, or switching them off");
  }
  return Planner(state).run(values, passed);
}

}  // namespace framejit::bytecode
