// Building of containers, strings and slices; unpacking.
#include <algorithm>

#include "bytecode/builtins/builtins.h"
#include "bytecode/interpreter/handlers.h"
#include "bytecode/interpreter/printed_texts.h"
#include "bytecode/objects/attributes.h"
#include "bytecode/objects/breaks.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/containers.h"
#include "bytecode/objects/exceptions.h"
#include "bytecode/objects/keys.h"
#include "bytecode/objects/late_text.h"
#include "bytecode/objects/object_kinds.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

Result<std::vector<std::pair<Ref, Ref>>> mapping_items(Interpreter& interp,
                                                       PyObject* mapping) {
  CaptureState& state = interp.state;
  std::vector<std::pair<Ref, Ref>> items;
  Ref dict;
  bool is_read = PyDict_CheckExact(mapping);
  if (PyDict_Check(mapping) && !PyODict_Check(mapping) && !is_read) {
    // Derived classes are asked only where they have an __iter__.
    FJ_TRY(Ref iterates, state.python_special(mapping, "__iter__"));
    is_read = !iterates;
  }
  if (is_read) {
    dict = Ref::borrow(mapping);
    if (state.is_input(mapping)) {
      FJ_TRY(dict, state.shadow(mapping));
    }
    PyObject *key, *value;
    for (Py_ssize_t at = 0; PyDict_Next(dict.get(), &at, &key, &value);) {
      items.emplace_back(Ref::borrow(key), Ref::borrow(value));
    }
    return items;
  }
  FJ_TRY(Ref method, state.get_attr(mapping, names().keys));
  FJ_TRY(Ref keys, interp.call(method.get(), {}));
  FJ_TRY(std::vector<Ref> key_list, state.elements(keys.get()));
  for (Ref& key : key_list) {
    FJ_TRY(Ref value, state.get_item(mapping, key.get()));
    items.emplace_back(std::move(key), std::move(value));
  }
  return items;
}

Result<Ref> Interpreter::hashable(PyObject* given) {
  FJ_TRY(Ref plain, concrete_key(state, given));
  FJ_CHECK_OK(check_hashable(plain.get()));
  return plain;
}

Status Interpreter::check_hashable(PyObject* key) {
  FJ_CHECK_OK(room_for(state, "tuples"));
  if (note_tensor_key(state, key)) return ok_status();
  if (PyTuple_CheckExact(key)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); ++i)
      FJ_CHECK_OK(check_hashable(PyTuple_GET_ITEM(key, i)));
    return ok_status();
  }
  for (const char* name : {"__hash__", "__eq__"}) {
    FJ_TRY(Ref special, state.python_special(key, name));
    if (special) {
      return make_break(BreakReason::kUnsupportedAttribute,
                        std::string("C code would call ") + name + " of a " +
                            Py_TYPE(key)->tp_name);
    }
  }
  return ok_status();
}

Result<bool> is_iterable(CaptureState& state, PyObject* object) {
  Ref held = state.type_of(object);
  auto* type = reinterpret_cast<PyTypeObject*>(held.get());
  if (type->tp_iter || (type->tp_as_sequence && type->tp_as_sequence->sq_item))
    return true;
  // Until its class gets one.
  if (is_heap_type(type)) {
    FJ_CHECK_OK(state.type_lookup(type, interned("__iter__")));
    FJ_CHECK_OK(state.type_lookup(type, interned("__getitem__")));
  }
  return false;
}

Ref function_text(PyObject* function) {
  Ref name = Ref::steal(PyObject_GetAttrString(function, "__qualname__"));
  if (!name || !PyUnicode_Check(name.get())) {
    PyErr_Clear();
    return Ref::steal(PyObject_Str(function));
  }
  Ref module = Ref::steal(PyObject_GetAttrString(function, "__module__"));
  if (!module) PyErr_Clear();
  if (!module || !PyUnicode_Check(module.get()) ||
      PyUnicode_CompareWithASCIIString(module.get(), "builtins") == 0) {
    return Ref::steal(PyUnicode_FromFormat("%U()", name.get()));
  }
  return Ref::steal(PyUnicode_FromFormat("%U.%U()", module.get(), name.get()));
}

namespace {

Result<bool> is_mapping(Interpreter& interp, PyObject* object) {
  if (PyDict_Check(object)) return true;
  FJ_TRY(Ref keys, maybe_attr(interp.state, object, names().keys));
  return bool(keys);
}

}  // namespace

namespace {

// The container that a comprehension or display fills lies on the stack. In a
// resume function it is an argument, and so an input that is not to be touched.
Status append(Interpreter& interp, PyObject* list, PyObject* value) {
  if (!interp.state.is_input(list)) {
    return PyList_Append(list, value) < 0 ? Status::raised() : ok_status();
  }
  FJ_TRY(Ref method, from_api(PyObject_GetAttrString(
                         reinterpret_cast<PyObject*>(&PyList_Type), "append")));
  FJ_CHECK_OK(interp.call(method.get(), {list, value}));
  return ok_status();
}

Status add_to_set(Interpreter& interp, PyObject* set, PyObject* value) {
  if (!interp.state.is_input(set)) {
    Ref plain = Ref::borrow(value);
    if (is_symbolic(interp.state, value)) {
      FJ_TRY(plain, interp.state.tracer.concretise(value));
    }
    return add_to_fresh_set(interp.state, set, plain.get());
  }
  FJ_TRY(Ref key, interp.hashable(value));
  FJ_TRY(Ref method, from_api(PyObject_GetAttrString(
                         reinterpret_cast<PyObject*>(&PySet_Type), "add")));
  FJ_CHECK_OK(interp.call(method.get(), {set, key.get()}));
  return ok_status();
}

}  // namespace

FJ_HANDLER(BuildTuple) {
  Arguments values = frame.top_values(op.arg);
  FJ_TRY(Ref tuple, from_api(PyTuple_New(values.size())));
  for (size_t i = 0; i < values.size(); ++i) {
    Py_INCREF(values[i]);
    PyTuple_SET_ITEM(tuple.get(), i, values[i]);
  }
  return replace_top(frame, op.arg, std::move(tuple));
}

FJ_HANDLER(BuildList) {
  Arguments values = frame.top_values(op.arg);
  FJ_TRY(Ref list, from_api(PyList_New(values.size())));
  for (size_t i = 0; i < values.size(); ++i) {
    Py_INCREF(values[i]);
    PyList_SET_ITEM(list.get(), i, values[i]);
  }
  return replace_top(frame, op.arg, std::move(list));
}

FJ_HANDLER(BuildSet) {
  FJ_TRY(Ref set, from_api(PySet_New(nullptr)));
  for (PyObject* value : frame.top_values(op.arg)) {
    FJ_CHECK_OK(add_to_set(interp, set.get(), value));
  }
  return replace_top(frame, op.arg, std::move(set));
}

FJ_HANDLER(BuildMap) {
  Arguments values = frame.top_values(2 * op.arg);
  FJ_TRY(Ref dict, from_api(PyDict_New()));
  for (size_t i = 0; i < values.size(); i += 2) {
    FJ_CHECK_OK(interp.state.dict_set(dict.get(), values[i], values[i + 1]));
  }
  return replace_top(frame, 2 * op.arg, std::move(dict));
}

FJ_HANDLER(BuildConstKeyMap) {
  Ref keys = frame.peek(1);
  Arguments values = frame.top_values(op.arg + 1);
  FJ_TRY(Ref dict, from_api(PyDict_New()));
  for (int i = 0; i < op.arg; ++i) {
    if (PyDict_SetItem(dict.get(), PyTuple_GET_ITEM(keys.get(), i), values[i]) <
        0) {
      return Result<Flow>::raised();
    }
  }
  return replace_top(frame, op.arg + 1, std::move(dict));
}

FJ_HANDLER(BuildSlice) {
  Arguments values = frame.top_values(op.arg);
  FJ_TRY(Ref slice, from_api(PySlice_New(values[0], values[1],
                                         op.arg == 3 ? values[2] : nullptr)));
  return replace_top(frame, op.arg, std::move(slice));
}

FJ_HANDLER(BuildString) {
  Arguments values = frame.top_values(op.arg);
  if (std::any_of(values.begin(), values.end(), is_late_text)) {
    FJ_TRY(Ref late, late_join(interp.state, values));
    return replace_top(frame, op.arg, std::move(late));
  }
  FJ_TRY(Ref list, from_api(PyList_New(0)));
  for (PyObject* value : values) {
    if (PyList_Append(list.get(), value) < 0) return Result<Flow>::raised();
  }
  FJ_TRY(Ref empty, from_api(PyUnicode_FromString("")));
  FJ_TRY(Ref text, from_api(PyUnicode_Join(empty.get(), list.get())));
  return replace_top(frame, op.arg, std::move(text));
}

FJ_HANDLER(ListAppend) {
  FJ_CHECK_OK(append(interp, frame.top(op.arg + 1), frame.top()));
  frame.drop(1);
  return Flow::kNext;
}

FJ_HANDLER(SetAdd) {
  FJ_CHECK_OK(add_to_set(interp, frame.top(op.arg + 1), frame.top()));
  frame.drop(1);
  return Flow::kNext;
}

FJ_HANDLER(MapAdd) {
  FJ_CHECK_OK(
      interp.state.dict_set(frame.top(op.arg + 2), frame.top(2), frame.top(1)));
  frame.drop(2);
  return Flow::kNext;
}

FJ_HANDLER(ListExtend) {
  PyObject* iterable = frame.top();
  FJ_TRY(bool fine, is_iterable(interp.state, iterable));
  if (!fine) {
    Ref type = interp.state.type_of(iterable);
    return raise_format(PyExc_TypeError,
                        "Value after * must be an iterable, not %.200s",
                        reinterpret_cast<PyTypeObject*>(type.get())->tp_name)
        .forward<Flow>();
  }
  FJ_TRY(std::vector<Ref> values, listed_elements(interp.state, iterable));
  for (const Ref& value : values) {
    FJ_CHECK_OK(append(interp, frame.top(op.arg + 1), value.get()));
  }
  frame.drop(1);
  return Flow::kNext;
}

FJ_HANDLER(SetUpdate) {
  PyObject* added = frame.top();
  if (PyDict_CheckExact(added) || PySet_CheckExact(added) ||
      PyFrozenSet_CheckExact(added)) {
    Result<Ref> whole = set_operand(interp.state, added);
    if (whole.is_raised()) return whole.forward<Flow>();
    if (whole.ok()) {
      Ref done = Ref::steal(PyObject_CallMethod(frame.top(op.arg + 1), "update",
                                                "O", whole.value().get()));
      if (!done) return Result<Flow>::raised();
      frame.drop(1);
      return Flow::kNext;
    }
  }
  if (PyAnySet_Check(added)) {
    FJ_CHECK_OK(check_no_iter(interp.state, added));
  }
  FJ_TRY(std::vector<Ref> values, interp.state.elements(added));
  for (const Ref& value : values) {
    FJ_CHECK_OK(add_to_set(interp, frame.top(op.arg + 1), value.get()));
  }
  frame.drop(1);
  return Flow::kNext;
}

FJ_HANDLER(DictUpdate) {
  PyObject* mapping = frame.top();
  FJ_TRY(bool valid, is_mapping(interp, mapping));
  if (!valid) {
    return raise_format(PyExc_TypeError, "'%.200s' object is not a mapping",
                        Py_TYPE(mapping)->tp_name)
        .forward<Flow>();
  }
  FJ_TRY(auto items, mapping_items(interp, mapping));
  for (const auto& [key, value] : items) {
    FJ_CHECK_OK(
        interp.state.dict_set(frame.top(op.arg + 1), key.get(), value.get()));
  }
  frame.drop(1);
  return Flow::kNext;
}

FJ_HANDLER(DictMerge) {
  PyObject* mapping = frame.top();
  // Below the dict of keywords: the positional arguments, then the callable,
  // with a NULL on one side of it.
  PyObject* callable = frame.top(op.arg + 3);
  if (!callable || kCallableFirst) callable = frame.top(op.arg + 4);
  FJ_TRY(bool valid, is_mapping(interp, mapping));
  if (!valid) {
    Ref text = function_text(callable);
    if (!text) return Result<Flow>::raised();
    return raise_format(PyExc_TypeError,
                        "%U argument after ** must be a mapping, not %.200s",
                        text.get(), Py_TYPE(mapping)->tp_name)
        .forward<Flow>();
  }
  PyObject* dict = frame.top(op.arg + 1);
  FJ_TRY(auto items, mapping_items(interp, mapping));
  for (const auto& [key, value] : items) {
    if (!PyUnicode_CheckExact(key.get())) {
      return interp.make_break(BreakReason::kUnsupportedException,
                               "keywords that are no strings");
    }
    FJ_TRY(Ref found, interp.state.dict_get(dict, key.get()));
    if (found) {
      Ref text = function_text(callable);
      if (!text) return Result<Flow>::raised();
      return raise_format(PyExc_TypeError,
                          "%U got multiple values for keyword argument '%S'",
                          text.get(), key.get())
          .forward<Flow>();
    }
    FJ_CHECK_OK(interp.state.dict_set(dict, key.get(), value.get()));
  }
  frame.drop(1);
  return Flow::kNext;
}

FJ_HANDLER(ListToTuple) {
  FJ_TRY(std::vector<Ref> values, interp.state.elements(frame.top()));
  FJ_TRY(Ref tuple, from_api(PyTuple_New(values.size())));
  for (size_t i = 0; i < values.size(); ++i) {
    PyTuple_SET_ITEM(tuple.get(), i, values[i].release());
  }
  return replace_top(frame, 1, std::move(tuple));
}

namespace {

Status check_unpackable(CaptureState& state, PyObject* object) {
  FJ_TRY(bool fine, is_iterable(state, object));
  if (fine) return ok_status();
  Ref type = state.type_of(object);
  return raise_format(PyExc_TypeError,
                      "cannot unpack non-iterable %.200s object",
                      reinterpret_cast<PyTypeObject*>(type.get())->tp_name);
}

}  // namespace

FJ_HANDLER(UnpackSequence) {
  size_t count = op.arg;
  PyObject* iterable = frame.top();
  FJ_CHECK_OK(check_unpackable(interp.state, iterable));
  // One more is read before "too many" is known.
  FJ_TRY(std::vector<Ref> values, interp.state.elements(iterable, count + 1));
  if (values.size() > count) {
    return raise_format(PyExc_ValueError,
                        "too many values to unpack (expected %zd)",
                        Py_ssize_t(count))
        .forward<Flow>();
  }
  if (values.size() < count) {
    return raise_format(PyExc_ValueError,
                        "not enough values to unpack (expected %zd, got %zd)",
                        Py_ssize_t(count), Py_ssize_t(values.size()))
        .forward<Flow>();
  }
  frame.drop(1);
  for (size_t i = count; i > 0; --i) frame.push(std::move(values[i - 1]));
  return Flow::kNext;
}

FJ_HANDLER(UnpackEx) {
  size_t before = op.arg, after = op.arg2;
  FJ_CHECK_OK(check_unpackable(interp.state, frame.top()));
  FJ_TRY(std::vector<Ref> values, interp.state.elements(frame.top()));
  if (values.size() < before + after) {
    return raise_format(
               PyExc_ValueError,
               "not enough values to unpack (expected at least %zd, got %zd)",
               Py_ssize_t(before + after), Py_ssize_t(values.size()))
        .forward<Flow>();
  }
  size_t middle = values.size() - after;
  FJ_TRY(Ref list, from_api(PyList_New(0)));
  for (size_t i = before; i < middle; ++i) {
    if (PyList_Append(list.get(), values[i].get()) < 0) {
      return Result<Flow>::raised();
    }
  }
  frame.drop(1);
  for (size_t i = values.size(); i > middle; --i) {
    frame.push(std::move(values[i - 1]));
  }
  frame.push(std::move(list));
  for (size_t i = before; i > 0; --i) frame.push(std::move(values[i - 1]));
  return Flow::kNext;
}

namespace {

// Of a number that differs from call to call and is printed; empty: of others.
Result<Ref> late_text(Interpreter& interp, const Frame& frame, int conversion,
                      PyObject* spec) {
  size_t size = frame.stack.size() - (spec ? 1 : 0);
  PyObject* value = frame.stack[size - 1].get();
  if (!is_symbolic(interp.state, value) || !goes_to_print(frame, size))
    return Ref();
  return late_text_of_number(interp.state, value, conversion, spec);
}

}  // namespace

FJ_HANDLER(FormatValue) {
  PyObject* spec = op.arg2 ? frame.top(1) : nullptr;
  PyObject* value = frame.top(op.arg2 ? 2 : 1);
  if (is_late_text(value)) return Flow::kNext;  // see goes_to_print()
  FJ_TRY(Ref late, late_text(interp, frame, op.arg, spec));
  if (late) return replace_top(frame, op.arg2 ? 2 : 1, std::move(late));
  FJ_TRY(Ref text, interp.state.format_value(value, op.arg, spec));
  return replace_top(frame, op.arg2 ? 2 : 1, std::move(text));
}

FJ_HANDLER(ConvertValue) {
  FJ_TRY(Ref late, late_text(interp, frame, op.arg, nullptr));
  if (late) return replace_top(frame, 1, std::move(late));
  FJ_TRY(Ref text, interp.state.format_value(frame.top(), op.arg, nullptr));
  return replace_top(frame, 1, std::move(text));
}

}  // namespace framejit::bytecode
