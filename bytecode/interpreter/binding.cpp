// Binding of call arguments to the parameter slots of an interpreted frame.
//
// The matching cases are done here. A mismatch is not described here: a copy of
// the function with an empty body is called natively, so that CPython words
// its own TypeError.
#include "bytecode/interpreter/interpreter.h"
#include "bytecode/objects/containers.h"
#include "bytecode/objects/remade_functions.h"
#include "frame_hook/argument_binding.h"
#include "guards/known_objects.h"

namespace framejit::bytecode {
namespace {

// A code object with the parameters of `code` and the body `return None`.
Ref empty_body(PyCodeObject* code) {
  Ref source = Ref::steal(Py_CompileString("lambda: None", "", Py_eval_input));
  if (!source) return {};
  Ref consts = Ref::steal(PyObject_GetAttrString(source.get(), "co_consts"));
  if (!consts) return {};
  PyObject* lambda = PyTuple_GET_ITEM(consts.get(), 0);
  Ref keywords = Ref::steal(PyDict_New());
  if (!keywords) return {};
  for (const char* part : {"co_code", "co_consts", "co_exceptiontable",
                           "co_linetable", "co_stacksize"}) {
    Ref value = Ref::steal(PyObject_GetAttrString(lambda, part));
    if (!value || PyDict_SetItemString(keywords.get(), part, value.get()) < 0) {
      return {};
    }
  }
  Ref empty = Ref::steal(PyTuple_New(0));
  int kept = CO_OPTIMIZED | CO_NEWLOCALS | CO_VARARGS | CO_VARKEYWORDS;
  Ref flags = Ref::steal(PyLong_FromLong(code->co_flags & kept));
  if (!empty || !flags) return {};
  if (PyDict_SetItemString(keywords.get(), "co_freevars", empty.get()) < 0 ||
      PyDict_SetItemString(keywords.get(), "co_cellvars", empty.get()) < 0 ||
      PyDict_SetItemString(keywords.get(), "co_flags", flags.get()) < 0) {
    return {};
  }
  Ref replace = Ref::steal(
      PyObject_GetAttrString(reinterpret_cast<PyObject*>(code), "replace"));
  if (!replace) return {};
  return Ref::steal(PyObject_Call(replace.get(), empty.get(), keywords.get()));
}

// Sets the TypeError that calling `function` like this raises.
Status signature_error(PyFunctionObject* function, const Arguments& args,
                       PyObject* kwnames) {
  auto* code = reinterpret_cast<PyCodeObject*>(function->func_code);
  Ref body = empty_body(code);
  if (!body) return Status::raised();
  Ref copy = Ref::steal(PyFunction_New(body.get(), function->func_globals));
  if (!copy) return Status::raised();
  PyObject* defaults = function->func_defaults;
  if (PyFunction_SetDefaults(copy.get(), defaults ? defaults : Py_None) < 0) {
    return Status::raised();
  }
  PyObject* kwdefaults = function->func_kwdefaults;
  if (PyFunction_SetKwDefaults(copy.get(), kwdefaults ? kwdefaults : Py_None) <
          0 ||
      PyObject_SetAttrString(copy.get(), "__qualname__",
                             function->func_qualname) < 0) {
    return Status::raised();
  }
  size_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  Ref result = Ref::steal(PyObject_Vectorcall(copy.get(), args.data(),
                                              args.size() - keywords, kwnames));
  FJ_CHECK(!result, "a binding mismatch that CPython does not see");
  return Status::raised();
}

Result<Ref> make_tuple(const Arguments& args, size_t first, size_t last) {
  Ref tuple = Ref::steal(PyTuple_New(last > first ? last - first : 0));
  if (!tuple) return Result<Ref>::raised();
  for (size_t i = first; i < last; ++i) {
    Py_INCREF(args[i]);
    PyTuple_SET_ITEM(tuple.get(), i - first, args[i]);
  }
  return tuple;
}

}  // namespace

Status Interpreter::bind_keywords(Frame& frame, const Arguments& args,
                                  PyObject* kwnames, size_t positional,
                                  PyObject* extra, bool* mismatch) {
  PyCodeObject* code = frame.code_object();
  for (Py_ssize_t k = 0; kwnames && k < PyTuple_GET_SIZE(kwnames); ++k) {
    PyObject* name = PyTuple_GET_ITEM(kwnames, k);
    PyObject* value = args[positional + k];
    int slot = PyUnicode_Check(name) ? keyword_slot(code, name) : -1;
    if (slot >= 0) {
      if (frame.slots[slot]) {
        *mismatch = true;
        return ok_status();
      }
      frame.slots[slot] = Ref::borrow(value);
    } else if (!extra) {
      *mismatch = true;
      return ok_status();
    } else if (PyDict_SetItem(extra, name, value) < 0) {
      return Status::raised();
    }
  }
  return ok_status();
}

namespace {

// The dict is an object like any other, and may be written as one.
Status note_keyword_defaults(CaptureState& state, const Source* function,
                             PyObject* dict) {
  if (!function) return ok_status();
  const Source* source = state.guards.sources().make(
      SourceKind::kGetSet, function, interned("__kwdefaults__"));
  const Source* known = state.source_of(dict);
  if (!known) {
    state.register_input(dict, source);
  } else if (known != source) {
    Guard alias{GuardKind::kSameObject, source};
    alias.other = known;
    alias.span = state.caller.here();
    state.guards.add(std::move(alias));
  }
  return ok_status();
}

bool is_written(CaptureState& state, PyObject* dict) {
  return state.table<Containers>().states.contains(dict);
}

}  // namespace

Status Interpreter::bind_defaults(Frame& frame, bool* mismatch) {
  PyCodeObject* code = frame.code_object();
  auto* function = reinterpret_cast<PyFunctionObject*>(frame.function.get());
  SourceArena& sources = state.guards.sources();
  PyObject* defaults = function->func_defaults;
  int num_defaults = defaults ? PyTuple_GET_SIZE(defaults) : 0;
  int first_default = code->co_argcount - num_defaults;
  for (int i = 0; i < code->co_argcount; ++i) {
    if (frame.slots[i]) continue;
    if (i < first_default) {
      *mismatch = true;
      return ok_status();
    }
    Ref value = Ref::borrow(PyTuple_GET_ITEM(defaults, i - first_default));
    if (frame.source) {
      FJ_TRY(value, state.wrap(value.get(),
                               sources.make(SourceKind::kDefault, frame.source,
                                            nullptr, i - first_default)));
    }
    frame.slots[i] = std::move(value);
  }
  int last = code->co_argcount + code->co_kwonlyargcount;
  for (int i = code->co_argcount; i < last; ++i) {
    if (frame.slots[i]) continue;
    PyObject* name = PyTuple_GET_ITEM(code->co_localsplusnames, i);
    PyObject* kwdefaults = function->func_kwdefaults;
    Ref value;
    if (kwdefaults) {
      FJ_CHECK_OK(note_keyword_defaults(state, frame.source, kwdefaults));
      if (is_written(state, kwdefaults)) {
        FJ_TRY(frame.slots[i], state.dict_get(kwdefaults, name));
        if (frame.slots[i]) continue;
      } else {
        value = Ref::borrow(PyDict_GetItemWithError(kwdefaults, name));
      }
    }
    if (!value) {
      if (PyErr_Occurred()) return Status::raised();
      *mismatch = true;
      return ok_status();
    }
    if (frame.source) {
      FJ_TRY(value, state.wrap(value.get(), sources.make(SourceKind::kKwDefault,
                                                         frame.source, name)));
    }
    frame.slots[i] = std::move(value);
  }
  return ok_status();
}

Status Interpreter::bind(Frame& frame, const Arguments& args,
                         PyObject* kwnames) {
  PyCodeObject* code = frame.code_object();
  auto* function = reinterpret_cast<PyFunctionObject*>(frame.function.get());
  size_t keywords = kwnames ? PyTuple_GET_SIZE(kwnames) : 0;
  FJ_CHECK(keywords <= args.size());
  size_t positional = args.size() - keywords;
  size_t parameters = code->co_argcount;
  for (size_t i = 0; i < std::min(positional, parameters); ++i) {
    frame.slots[i] = Ref::borrow(args[i]);
  }
  // In a tuple or dict it may be compared with anything.
  if (code->co_flags & (CO_VARARGS | CO_VARKEYWORDS))
    pin_all_remade(state, args);
  size_t slot = parameters + code->co_kwonlyargcount;
  if (code->co_flags & CO_VARARGS) {
    FJ_TRY(frame.slots[slot], make_tuple(args, parameters, positional));
    ++slot;
  } else if (positional > parameters) {
    return signature_error(function, args, kwnames);
  }
  PyObject* extra = nullptr;
  if (code->co_flags & CO_VARKEYWORDS) {
    FJ_TRY(frame.slots[slot], from_api(PyDict_New()));
    extra = frame.slots[slot].get();
  }
  bool mismatch = false;
  FJ_CHECK_OK(
      bind_keywords(frame, args, kwnames, positional, extra, &mismatch));
  if (!mismatch) FJ_CHECK_OK(bind_defaults(frame, &mismatch));
  if (mismatch) return signature_error(function, args, kwnames);
  return ok_status();
}

}  // namespace framejit::bytecode
