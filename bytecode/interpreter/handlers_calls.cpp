// Calls, and the making of functions.
#include "bytecode/interpreter/handlers.h"
#include "bytecode/interpreter/printed_texts.h"
#include "bytecode/interpreter/texts_handed_on.h"
#include "bytecode/objects/classes.h"
#include "bytecode/objects/containers.h"
#include "bytecode/objects/exceptions.h"
#include "bytecode/objects/late_text.h"
#include "bytecode/objects/moved_texts.h"

namespace framejit::bytecode {
namespace {

constexpr int kDefaults = 1, kKwDefaults = 2, kAnnotations = 4, kClosure = 8;

// The callable of a [method or NULL, self or callable] pair whose upper item is
// at `depth`; a self is put in front of the arguments.
PyObject* resolve_pair(Frame& frame, size_t depth, Arguments* args) {
  PyObject* lower = frame.top(depth + 1);
  PyObject* upper = frame.top(depth);
  PyObject* callable = kCallableFirst ? lower : upper;
  PyObject* other = kCallableFirst ? upper : lower;
  if (!other) return callable;
  if (kCallableFirst) {
    args->insert(args->begin(), other);
    return callable;
  }
  args->insert(args->begin(), upper);
  return lower;
}

Status set_function_part(PyObject* function, int part, PyObject* value) {
  auto* object = reinterpret_cast<PyFunctionObject*>(function);
  int failed = 0;
  switch (part) {
    case kDefaults:
      failed = PyFunction_SetDefaults(function, value);
      break;
    case kKwDefaults:
      failed = PyFunction_SetKwDefaults(function, value);
      break;
    case kAnnotations:
      // A tuple of names and values, made into a dict when first read.
      Py_INCREF(value);
      Py_XSETREF(object->func_annotations, value);
      break;
    case kClosure:
      failed = PyFunction_SetClosure(function, value);
      break;
    default:
      FJ_CHECK(false, "unknown part of a function");
  }
  return failed < 0 ? Status::raised() : ok_status();
}

// Of a call that makes a text of numbers, which goes to print(). Empty: others.
Result<Ref> late_text(Interpreter& interp, const Frame& frame, size_t left,
                      PyObject* callable, const Arguments& args,
                      PyObject* kwnames) {
  std::vector<PyObject*> operands;
  PyObject* maker = kwnames ? nullptr : text_maker(callable, &operands);
  if (!maker || !goes_to_print(frame, left + 1)) return Ref();
  operands.insert(operands.end(), args.begin(), args.end());
  return late_call(interp.state, maker, operands);
}

// {...}.get(key): an item, asked for by what runs no code of the program.
bool is_get_of_dict(PyObject* callable, const Arguments& args) {
  PyObject* dict = args.empty() ? nullptr : args[0];
  size_t key = 1;
  if (PyCFunction_Check(callable)) {
    dict = PyCFunction_GET_SELF(callable);
    key = 0;
  }
  if (!dict || !PyDict_CheckExact(dict) || args.size() <= key ||
      !PyUnicode_CheckExact(args[key]))
    return false;
  static PyObject* const get = raw_lookup(&PyDict_Type, "get");
  PyMethodDef* method = reinterpret_cast<PyMethodDescrObject*>(get)->d_method;
  return callable == get ||
         (PyCFunction_Check(callable) &&
          reinterpret_cast<PyCFunctionObject*>(callable)->m_ml == method);
}

}  // namespace

FJ_HANDLER(Call) {
  Arguments args = frame.top_values(op.arg);
  PyObject* callable = resolve_pair(frame, op.arg + 1, &args);
  size_t left = frame.stack.size() - (op.arg + 2);
  FJ_TRY(Ref late, late_text(interp, frame, left, callable, args, op.object));
  if (late) return replace_top(frame, op.arg + 2, std::move(late));
  MovingScope moving(interp.state, !op.object &&
                                       is_get_of_dict(callable, args) &&
                                       is_handed_on(frame, left + 1));
  FJ_TRY(Ref result, interp.call(callable, std::move(args), op.object));
  return replace_top(frame, op.arg + 2, std::move(result));
}

FJ_HANDLER(CallKw) {
  Ref kwnames = frame.peek(1);
  Arguments args = frame.top_values(op.arg + 1);
  args.pop_back();
  PyObject* callable = resolve_pair(frame, op.arg + 2, &args);
  FJ_TRY(Ref result, interp.call(callable, std::move(args), kwnames.get()));
  return replace_top(frame, op.arg + 3, std::move(result));
}

FJ_HANDLER(CallEx) {
  PyObject* kwargs = op.arg ? frame.top() : nullptr;
  size_t depth = op.arg ? 2 : 1;
  PyObject* star = frame.top(depth);
  PyObject* callable = frame.top(kCallableFirst ? depth + 2 : depth + 1);
  std::vector<Ref> owned;
  if (PyTuple_CheckExact(star) && !interp.state.is_input(star)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(star); ++i) {
      owned.push_back(Ref::borrow(PyTuple_GET_ITEM(star, i)));
    }
  } else {
    Ref type = interp.state.type_of(star);
    auto* star_type = reinterpret_cast<PyTypeObject*>(type.get());
    FJ_TRY(bool fine, is_iterable(interp.state, star));
    if (!fine) {
      Ref text = function_text(callable);
      if (!text) return Result<Flow>::raised();
      return raise_format(PyExc_TypeError,
                          "%U argument after * must be an iterable, not %.200s",
                          text.get(), star_type->tp_name)
          .forward<Flow>();
    }
    FJ_TRY(owned, listed_elements(interp.state, star));
  }
  Ref kwnames;
  if (kwargs) {
    FJ_TRY(auto items, mapping_items(interp, kwargs));
    if (!items.empty()) {
      FJ_TRY(kwnames, from_api(PyTuple_New(items.size())));
    }
    for (size_t i = 0; i < items.size(); ++i) {
      if (!PyUnicode_CheckExact(items[i].first.get())) {
        return interp.make_break(BreakReason::kUnsupportedException,
                                 "keywords that are no strings");
      }
      PyTuple_SET_ITEM(kwnames.get(), i, items[i].first.new_reference());
      owned.push_back(std::move(items[i].second));
    }
  }
  Arguments args;
  for (const Ref& value : owned) args.push_back(value.get());
  FJ_TRY(Ref result, interp.call(callable, std::move(args), kwnames.get()));
  return replace_top(frame, depth + 2, std::move(result));
}

FJ_HANDLER(MakeFunction) {
  Ref code = frame.peek(1);
  FJ_TRY(Ref function,
         from_api(PyFunction_New(code.get(), frame.globals.get())));
  interp.add_fresh_function(function.get());
  size_t depth = 1;
  for (int part : {kClosure, kAnnotations, kKwDefaults, kDefaults}) {
    if (!(op.arg & part)) continue;
    ++depth;
    FJ_CHECK_OK(set_function_part(function.get(), part, frame.top(depth)));
  }
  return replace_top(frame, depth, std::move(function));
}

FJ_HANDLER(SetFunctionAttribute) {
  Ref function = frame.peek(1);
  FJ_CHECK_OK(set_function_part(function.get(), op.arg, frame.top(2)));
  return replace_top(frame, 2, std::move(function));
}

}  // namespace framejit::bytecode
