// Class statements: the body is interpreted in a namespace of its own, and the
// class is made natively by its metaclass. `type.__new__` calls __set_name__
// and
// __init_subclass__, which come back into the interpreter like any callback.
//
// A class made in a capture is fresh: nothing guards it. It may not outlive the
// capture; when it would, the capture starts again and stops at the statement.
#include "bytecode/builtins/builtins.h"
#include "bytecode/interpreter/handlers.h"
#include "bytecode/objects/attributes.h"
#include "bytecode/objects/exceptions.h"
#include "bytecode/objects/native_calls.h"
#include "bytecode/objects/unbuildable.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {

namespace {

Result<Ref> body_name(Interpreter& interp, Frame& frame, PyObject* name) {
  PyObject* names = frame.locals.get();
  FJ_CHECK(names, "a class body without a namespace");
  if (interp.state.is_input(names)) {
    return interp.state.dict_get(names, name);  // exec in a module
  }
  if (PyDict_CheckExact(names)) {
    PyObject* value = PyDict_GetItemWithError(names, name);
    if (!value && PyErr_Occurred()) return Result<Ref>::raised();
    return Ref::borrow(value);
  }
  Result<Ref> value = interp.state.get_item(names, name);
  if (value.is_raised() && PyErr_ExceptionMatches(PyExc_KeyError)) {
    PyErr_Clear();
    return Ref();
  }
  return value;
}

Result<Ref> global_name(Interpreter& interp, Frame& frame, PyObject* name) {
  FJ_TRY(Ref value, interp.state.dict_get(frame.globals.get(), name));
  if (value) return value;
  return interp.state.dict_get(frame.builtins.get(), name);
}

}  // namespace

FJ_HANDLER(LoadName) {
  FJ_TRY(Ref value, body_name(interp, frame, op.object));
  if (!value) {
    FJ_TRY(value, global_name(interp, frame, op.object));
  }
  if (!value) return undefined_name(op.object);
  frame.push(std::move(value));
  return Flow::kNext;
}

FJ_HANDLER(StoreName) {
  FJ_CHECK(frame.locals, "a class body without a namespace");
  FJ_CHECK_OK(
      interp.state.set_item(frame.locals.get(), op.object, frame.top()));
  frame.drop(1);
  return Flow::kNext;
}

FJ_HANDLER(DeleteName) {
  FJ_TRY(Ref value, body_name(interp, frame, op.object));
  if (!value) return undefined_name(op.object);
  FJ_CHECK_OK(interp.state.del_item(frame.locals.get(), op.object));
  return Flow::kNext;
}

FJ_HANDLER(LoadClassDeref) {
  FJ_TRY(Ref value, body_name(interp, frame, frame.decoded->slot_name(op.arg)));
  if (!value) return op_LoadDeref(interp, frame, op);
  frame.push(std::move(value));
  return Flow::kNext;
}

// 3.12 on: the namespace was pushed by LOAD_LOCALS.
FJ_HANDLER(LoadFromDictOrDeref) {
  FJ_TRY(Ref value, body_name(interp, frame, frame.decoded->slot_name(op.arg)));
  if (!value) {
    FJ_TRY(value, interp.state.cell_get(frame.slots[op.arg].get()));
  }
  if (!value) return op_LoadDeref(interp, frame, op);  // raises
  return replace_top(frame, 1, std::move(value));
}

FJ_HANDLER(LoadFromDictOrGlobals) {
  FJ_TRY(Ref value, body_name(interp, frame, op.object));
  if (!value) {
    FJ_TRY(value, global_name(interp, frame, op.object));
  }
  if (!value) return undefined_name(op.object);
  return replace_top(frame, 1, std::move(value));
}

FJ_HANDLER(LoadLocals) {
  FJ_CHECK(frame.locals, "a class body without a namespace");
  frame.push(frame.locals);
  return Flow::kNext;
}

FJ_HANDLER(SetupAnnotations) {
  PyObject* name = interned("__annotations__");
  FJ_TRY(Ref known, body_name(interp, frame, name));
  if (known) return Flow::kNext;
  FJ_TRY(Ref dict, from_api(PyDict_New()));
  FJ_CHECK_OK(interp.state.set_item(frame.locals.get(), name, dict.get()));
  return Flow::kNext;
}

FJ_HANDLER(LoadBuildClass) {
  FJ_TRY(Ref build, interp.state.dict_get(frame.builtins.get(),
                                          interned("__build_class__")));
  if (!build || !PyCFunction_Check(build.get())) {
    return interp.make_break(BreakReason::kUnsupportedOpcode,
                             "class statement with another __build_class__");
  }
  frame.push(std::move(build));
  return Flow::kNext;
}

namespace {

// Bases that are no classes say what stands for them (Generic[T]).
Result<std::vector<Ref>> resolved_bases(CaptureState& state,
                                        const Arguments& args, size_t count,
                                        bool* changed) {
  std::vector<Ref> bases;
  Ref original = Ref::steal(PyTuple_New(count - 2));
  if (!original) return Result<std::vector<Ref>>::raised();
  for (size_t i = 2; i < count; ++i) {
    PyTuple_SET_ITEM(original.get(), i - 2, Py_NewRef(args[i]));
  }
  for (size_t i = 2; i < count; ++i) {
    if (PyType_Check(args[i])) {
      bases.push_back(Ref::borrow(args[i]));
      continue;
    }
    FJ_TRY(Ref entries,
           maybe_attr(state, args[i], interned("__mro_entries__")));
    if (!entries) {
      bases.push_back(Ref::borrow(args[i]));
      continue;
    }
    *changed = true;
    FJ_TRY(Ref others, state.caller.call(entries.get(), {original.get()}));
    if (!PyTuple_Check(others.get())) {
      PyErr_SetString(PyExc_TypeError, "__mro_entries__ must return a tuple");
      return Result<std::vector<Ref>>::raised();
    }
    FJ_TRY(std::vector<Ref> items, state.elements(others.get()));
    bases.insert(bases.end(), items.begin(), items.end());
  }
  return bases;
}

// The most derived metaclass, or an empty Ref when they conflict.
Ref metaclass_of(PyObject* given, const std::vector<Ref>& bases) {
  if (given && !PyType_Check(given)) return Ref();
  auto* winner = given ? reinterpret_cast<PyTypeObject*>(given) : &PyType_Type;
  for (const Ref& base : bases) {
    PyTypeObject* other = Py_TYPE(base.get());
    if (PyType_IsSubtype(winner, other)) continue;
    if (!PyType_IsSubtype(other, winner)) return Ref();
    winner = other;
  }
  return Ref::borrow(reinterpret_cast<PyObject*>(winner));
}

struct ClassKeywords {
  PyObject* metaclass = nullptr;
  Ref names;  // tuple of the others
  std::vector<PyObject*> values;
};

Result<ClassKeywords> split_keywords(const Arguments& args, size_t count,
                                     PyObject* kwnames) {
  ClassKeywords out;
  Ref names = Ref::steal(PyList_New(0));
  if (!names) return Result<ClassKeywords>::raised();
  for (size_t i = count; i < args.size(); ++i) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, i - count);
    if (PyUnicode_CompareWithASCIIString(name, "metaclass") == 0) {
      out.metaclass = args[i];
      continue;
    }
    if (PyList_Append(names.get(), name) < 0) {
      return Result<ClassKeywords>::raised();
    }
    out.values.push_back(args[i]);
  }
  FJ_TRY(out.names, from_api(PyList_AsTuple(names.get())));
  return out;
}

}  // namespace

Result<Ref> Interpreter::build_class(const Arguments& args, PyObject* kwnames) {
  size_t count = args.size() - (kwnames ? PyTuple_GET_SIZE(kwnames) : 0);
  if (count < 2 || !is_fresh_function(args[0])) {
    return make_break(BreakReason::kUnsupportedOpcode, "class statement");
  }
  FJ_TRY(ClassKeywords keywords, split_keywords(args, count, kwnames));
  bool changed = false;
  FJ_TRY(std::vector<Ref> bases, resolved_bases(state, args, count, &changed));
  Ref meta = metaclass_of(keywords.metaclass, bases);
  if (!meta) {
    return make_break(BreakReason::kUnsupportedOpcode,
                      "class statement with such a metaclass");
  }
  Ref base_tuple = Ref::steal(PyTuple_New(bases.size()));
  if (!base_tuple) return Result<Ref>::raised();
  for (size_t i = 0; i < bases.size(); ++i) {
    PyTuple_SET_ITEM(base_tuple.get(), i, bases[i].new_reference());
  }
  PyObject* names =
      PyTuple_GET_SIZE(keywords.names.get()) ? keywords.names.get() : nullptr;
  Arguments values{args[1], base_tuple.get()};
  values.insert(values.end(), keywords.values.begin(), keywords.values.end());
  Ref space;
  if (meta.get() == reinterpret_cast<PyObject*>(&PyType_Type)) {
    FJ_TRY(space, from_api(PyDict_New()));
  } else {
    FJ_TRY(Ref prepare, state.get_attr(meta.get(), interned("__prepare__")));
    if (PyCFunction_Check(prepare.get())) {
      FJ_TRY(space, from_api(PyDict_New()));
    } else {
      FJ_TRY(space, call(prepare.get(), values, names));
    }
  }
  ++inlined_calls;
  auto body = std::make_unique<Frame>();
  FJ_CHECK_OK(prepare_frame(*body, args[0]));
  body->locals = space;
  FJ_TRY(Exit exit, run(*body));
  FJ_CHECK(exit.flow == Flow::kReturn, "a class body that yielded");
  if (changed) {
    Ref original = Ref::steal(PyTuple_New(count - 2));
    if (!original) return Result<Ref>::raised();
    for (size_t i = 2; i < count; ++i) {
      PyTuple_SET_ITEM(original.get(), i - 2, Py_NewRef(args[i]));
    }
    FJ_CHECK_OK(state.set_item(space.get(), interned("__orig_bases__"),
                               original.get()));
  }
  values.insert(values.begin() + 2, space.get());
  FJ_TRY(Ref made, call(meta.get(), values, names));
  if (PyType_Check(made.get())) keep_unbuildable(state, made.get());
  return made;
}

}  // namespace framejit::bytecode
